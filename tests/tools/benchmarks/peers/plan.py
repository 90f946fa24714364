"""Holds the plan of the report as tables: workloads, each client's own best settings, curves, bars.

Settings that are the same for all: acks=all, idempotence in every client that has it, batches of 16 KiB, no compression; a linger of 5 ms,
which is Java's and librdkafka's default, where a burst is sent, and none where each record is waited for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from tests.tools.benchmarks.clients import OURS, PEER, PURE
from tests.tools.benchmarks.peers.clients import AIO, BULK, CALLBACK, FRANZ, JAVA, KAFKA_PYTHON, SILENT, WORDS
from tests.tools.benchmarks.report import LATENCY_BARS, Bar
from tests.tools.benchmarks.task import FEW_KEYS, HERD, VALUE_BYTES, WARM_UP, Settings, Task
from tests.tools.benchmarks.workloads import LATENCY, PARTITIONS
from tests.tools.benchmarks.workloads import WORKLOADS as WORKLOADS_OF_BENCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BURST: Final = Settings(linger_ms=5)
AT_ONCE: Final = Settings(linger_ms=0)
LIMIT: Final = 60.0
"""Seconds of one run. A slower client is left out of that case from then on, and the report says so."""
PACE: Final[Mapping[str, float]] = {PEER: 0.4, AIO: 0.4, KAFKA_PYTHON: 0.12, JAVA: 4.0}
"""Records for a client, as a part of the case's: so that one run of each takes a few seconds."""
MOST_BYTES: Final = 150_000_000
"""Bytes of values, at most, in a run of a client for which PACE gives more records than the case's."""
JAVA_WARM_UP: Final = 0.5
"""The part of Java's records that is its warm-up, as Java compiles while it runs."""
JAVA_LEAST: Final = 300_000
"""The fewest records of small values that reach a steady state."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Describes one workload, or one point of a curve.

    Attributes:
        words: the description for a reader.
        x: its position on its curve.
        fewer: the number of records for clients that are too slow otherwise, instead of their pace.
        settings: the same for all clients, except those in `own`, by client.
    """

    name: str
    way: str
    clients: Sequence[str]
    records: int
    words: str = ""
    x: float = 0.0
    partitions: int = PARTITIONS
    topics: int = 1
    keys: int = FEW_KEYS
    value_bytes: int = VALUE_BYTES
    text: bool = False
    tasks: int = HERD
    load: int = 0
    rtt_ms: float = 0.0
    settings: Settings = BURST
    own: Mapping[str, Settings] = dataclasses.field(default_factory=dict)
    fewer: Mapping[str, int] = dataclasses.field(default_factory=dict)
    limit: float = LIMIT

    def settings_of(self, client: str) -> Settings:
        return self.own.get(client, self.settings)

    def records_of(self, client: str, scale: float = 1.0) -> int:
        """Return the number of records that a client's pace allows, and at least one for each task of a herd."""
        pace = PACE.get(client, 1.0) if self.way != "single" or client in {AIO, KAFKA_PYTHON} else 1.0
        if self.load or self.way == "busy":  # these workloads have a pace of their own
            pace = 1.0
        records = self.fewer.get(client) or min(self.records * pace, max(self.records, MOST_BYTES / self.value_bytes))
        records *= scale
        if client == JAVA:
            records = max(records, min(JAVA_LEAST, MOST_BYTES / self.value_bytes / 4))
        return int(max(records, self.topics, 100, self.tasks if self.way == "herd" else 0))

    def task(self, client: str, bootstrap_servers: str, scale: float = 1.0) -> Task:
        """Return the task for a process."""
        records = self.records_of(client, scale)
        warm_up = int(records * JAVA_WARM_UP) if client == JAVA else min(WARM_UP, records // 5)
        if self.topics > 1:
            warm_up = self.topics  # so that the client knows each topic
        return Task(
            client=client,
            way="stream" if client == JAVA and self.way == "many" else self.way,
            bootstrap_servers=bootstrap_servers,
            topics=topics(self),
            partitions=self.partitions,
            records=records,
            warm_up=warm_up,
            keys=self.keys,
            value_bytes=self.value_bytes,
            text=self.text,
            tasks=self.tasks,
            load=self.load,
            settings=self.settings_of(client),
        )


def topics(case: Case) -> list[str]:
    """Return the topics. All cases of one shape write to the same ones."""
    return [f"t{number}" for number in range(case.topics)] if case.topics > 1 else [f"p{case.partitions}"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Holds cases that run together, round by round. They are a curve if `over` names its variable.

    Attributes:
        words: the description for the page.
        is_promised: whether it has bars, and so all rounds; other parts have half of them.
        is_apart: whether it has a broker of its own, so that its load on the broker affects no other part.
    """

    title: str
    words: str
    cases: Sequence[Case]
    over: str = ""
    is_promised: bool = False
    is_apart: bool = False

    @property
    def clients(self) -> list[str]:
        """Return the clients in the report's order."""
        found = {client for case in self.cases for client in case.clients}
        return [client for client in WORDS if client in found]


ASYNC: Final = (OURS, PURE, PEER, AIO)
EVERYONE: Final = (OURS, PURE, PEER, AIO, CALLBACK, KAFKA_PYTHON, JAVA, FRANZ)
PYTHONS: Final = (OURS, PURE, PEER, AIO, CALLBACK, KAFKA_PYTHON, FRANZ)


def crumbs(tasks: int) -> Settings:
    """Return settings for AIOProducer if each task waits. Its own buffer waits a second for 1,000 records, which few tasks never send."""
    return Settings(linger_ms=0, own={"batch_size": max(1, min(100, tasks // 20)), "buffer_timeout": 0.01})


PATIENT: Final = Settings(linger_ms=0, own={"request_timeout_ms": 600_000})
"""aiokafka's tasks wait for space in a batch at most so long, and 40 s by default, with which some tasks of a large herd fail."""

WORKLOADS: Final = (
    Case(
        name="stream",
        way="stream",
        clients=(*EVERYONE[:5], SILENT, *EVERYONE[5:]),
        records=500_000,
        words="each record is sent (`await send()`), then all are flushed, then every result is read: 100 B values, 1,000 keys, 6 partitions. "
        "ProducerPerformance has no keys, and reads its results in a callback",
    ),
    Case(name="gather", way="gather", clients=ASYNC, records=500_000, words="10,000 sends, `asyncio.gather` of their results, and so on"),
    Case(
        name="single",
        way="single",
        clients=(*ASYNC, CALLBACK, KAFKA_PYTHON, FRANZ),
        records=5_000,
        settings=AT_ONCE,
        words="one record at a time, each waited for",
    ),
    Case(
        name="herd",
        way="herd",
        clients=(*ASYNC, FRANZ),
        records=200_000,
        settings=AT_ONCE,
        own={AIO: crumbs(HERD)},
        words="2,000 tasks (goroutines), each sending one record at a time and waiting for it",
    ),
    Case(
        name="many",
        way="many",
        clients=(OURS, PURE, SILENT, BULK),
        records=1_000_000,
        words="values without keys, no result read before all are flushed: `send_many`; `produce` without callbacks; `produce_batch` of 10,000",
    ),
    Case(
        name="rtt20",
        way="stream",
        clients=EVERYONE,
        records=300_000,
        rtt_ms=20,
        words="`stream`, through a proxy that makes a round trip 20 ms longer",
    ),
    Case(
        name="herd8000",
        way="herd",
        clients=(*ASYNC, FRANZ),
        records=200_000,
        tasks=8_000,
        value_bytes=1_000,
        partitions=1,
        settings=AT_ONCE,
        own={AIO: crumbs(8_000), PEER: PATIENT},
        fewer={PEER: 8_000},
        limit=300.0,
        words="8,000 tasks, values of 1 KB, one partition, each record waited for; aiokafka sends fewer, as it takes long",
    ),
)

BEST: Final[Mapping[str, Settings]] = {
    OURS: Settings(linger_ms=5, batch_size=262_144, own={"buffer_memory": 67_108_864}),
    PURE: Settings(linger_ms=5, batch_size=262_144, own={"buffer_memory": 67_108_864}),
    PEER: Settings(linger_ms=5, batch_size=262_144),
    AIO: Settings(linger_ms=5, batch_size=1_000_000, own={"batch_size": 10_000}),
    CALLBACK: Settings(linger_ms=5, batch_size=1_000_000, own={"queue.buffering.max.messages": 1_000_000}),
    SILENT: Settings(linger_ms=5, batch_size=1_000_000, own={"queue.buffering.max.messages": 1_000_000}),
    BULK: Settings(linger_ms=5, batch_size=1_000_000, own={"queue.buffering.max.messages": 1_000_000}),
    KAFKA_PYTHON: Settings(linger_ms=5, batch_size=262_144),
    JAVA: Settings(linger_ms=5, batch_size=131_072, own={"buffer.memory": 67_108_864}),
    FRANZ: Settings(linger_ms=5, batch_size=1_000_000, own={"MaxBufferedRecords": 1_000_000}),
}
"""For throughput: larger batches, its own default where that is larger than 16 KiB, and a queue that holds the burst."""


STRICT: Final = Settings(linger_ms=5, own={"batch_max_size": 1})
"""Ours with no batch above 16 KiB, as the others with the same settings."""


def _strict(case: Case) -> Case:
    known = (OURS, PURE, PEER, AIO, CALLBACK)
    return dataclasses.replace(case, clients=[one for one in case.clients if one in known], own={OURS: STRICT, PURE: STRICT})


def _best(case: Case) -> Case:
    return dataclasses.replace(case, own=BEST)


def _curve(name: str, way: str, clients: Sequence[str], points: Mapping[float, int], **more: Any) -> list[Case]:
    """Return a case for each point: x -> records; `name` is the field that x sets."""
    return [
        Case(name=f"{x:,g}", way=way, clients=clients, records=records, x=x, **{**more, **({name: x} if name else {})})
        for x, records in points.items()
    ]


def _latency_cases() -> list[Case]:
    """Return the latency cases of the bench, for the clients that have their functions."""
    words = {
        "busy": "one task that counts to {load:,} before each send, and waits for nothing else",
        "paced": "one task in ticks of a millisecond, {load:,} records a second",
        "tasks": "{tasks} tasks, {load:,} records a second in all",
    }
    cases = []
    for name in LATENCY:
        one = WORKLOADS_OF_BENCH[name]
        cases.append(
            Case(
                name=name,
                way=one.way,
                clients=(OURS, PURE, PEER) if one.way == "busy" else (OURS, PURE, PEER, FRANZ),
                records=one.records,
                keys=one.keys,
                value_bytes=one.value_bytes,
                load=one.load,
                tasks=one.tasks,
                settings=AT_ONCE,
                words=words[one.way].format(load=one.load, tasks=one.tasks),
            )
        )
    return cases


CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTS: Final[Mapping[str, Part]] = {
    "workloads": Part(title="The same settings for everyone", words="", cases=WORKLOADS, is_promised=True),
    "best": Part(
        title="Each with its own best settings",
        words="",
        cases=[_best(case) for case in WORKLOADS if case.name in {"stream", "gather", "many", "rtt20"}],
        is_promised=True,
    ),
    "latency": Part(
        title="Latency beside work",
        words="Values of 300 B, 16 keys, no linger; from before `send` to the callback of the delivery.",
        cases=_latency_cases(),
        is_promised=True,
    ),
    "strict": Part(
        title="No batch above 16 KiB",
        words="With the same settings ours sends what waits for its turn in larger batches (`batch_max_size`, KIP-782), which no other client has. "
        "Here it does not.",
        cases=[_strict(case) for case in WORKLOADS if case.name in {"stream", "gather"}],
        is_promised=True,
    ),
    "size": Part(
        title="Record size",
        over="bytes of a value",
        words="`stream` of values of one size.",
        cases=_curve("value_bytes", "stream", EVERYONE, {10: 300_000, 100: 300_000, 1_000: 150_000, 10_000: 15_000, 100_000: 1_500}),
    ),
    "partitions": Part(
        title="Partitions",
        over="partitions",
        words="`stream` with 10,000 keys to one topic.",
        cases=_curve("partitions", "stream", EVERYONE, {1: 300_000, 10: 300_000, 100: 300_000, 1_000: 300_000}, keys=10_000),
    ),
    "topics": Part(
        title="Topics",
        over="topics",
        words="A stream to topics of one partition in turn; each is known before the clock starts.",
        cases=_curve(
            "topics",
            "mixed",
            PYTHONS,
            {1: 300_000, 10: 300_000, 100: 300_000, 1_000: 300_000, 10_000: 300_000},
            partitions=1,
            limit=100.0,  # most of it passes before the clock starts, while the client requests metadata for one topic after the other
        ),
        is_apart=True,
    ),
    "tasks": Part(
        title="Tasks",
        over="tasks",
        words="As many tasks as that, each sending one record at a time and waiting for it.",
        cases=[
            dataclasses.replace(case, own={AIO: crumbs(case.tasks), PEER: PATIENT})
            for case in _curve(
                "tasks",
                "herd",
                (*ASYNC, FRANZ),
                {1: 3_000, 10: 20_000, 100: 100_000, 1_000: 100_000, 5_000: 100_000, 20_000: 100_000},
                settings=AT_ONCE,
            )
        ],
    ),
    "rtt": Part(
        title="Round trip",
        over="milliseconds of a round trip",
        words="`stream`, through proxies that make a round trip longer; without a proxy at 0.",
        cases=_curve("rtt_ms", "stream", EVERYONE, {0: 300_000, 1: 300_000, 5: 300_000, 20: 200_000, 50: 100_000, 100: 60_000}),
    ),
    "codec": Part(
        title="Codecs",
        over="codec",
        words="`stream` of 1,000 lines of JSON in turn, 1,000 bytes each, every client at its own default level.",
        cases=[
            Case(
                name=codec,
                way="mixed",
                clients=EVERYONE,
                records=100_000,
                x=number,
                value_bytes=1_000,
                text=True,
                settings=dataclasses.replace(BURST, compression=codec),
            )
            for number, codec in enumerate(CODECS)
        ],
    ),
}

BARS: Final[Mapping[str, Sequence[Bar]]] = {
    "stream": (
        Bar("cpu_us", 1 / 11),
        Bar("cpu_us", 1 / 11, other=AIO),
        Bar("cpu_us", 1 / 2.2, other=CALLBACK),
        Bar("cpu_us", 1 / 4, ours=PURE),
    ),
    "gather": (Bar("cpu_us", 1 / 6), Bar("cpu_us", 1 / 3, ours=PURE)),
    "single": (Bar("p50_ms", 0.92), Bar("p50_ms", 1.0, ours=PURE)),
    "herd": (Bar("rate", 9.0, at_most=False), Bar("rate", 5.0, at_most=False, ours=PURE)),
    "many": (
        Bar("cpu_us", 1 / 2.5, other=SILENT),
        Bar("cpu_us", 1.0, other=PURE),
        Bar("rate", 1.0, at_most=False, other=JAVA, other_workload="stream"),
    ),
    "rtt20": (Bar("rate", 1.0, at_most=False, other=CALLBACK), Bar("rate", 4.0, at_most=False, ours=PURE)),
    "herd8000": (Bar("rate", 100.0, at_most=False),),
}
"""The promised bars, by workload."""
PROMISED: Final[Mapping[str, Sequence[Bar]]] = {
    **BARS,
    **{name: [bar for bar in LATENCY_BARS[name] if bar.other in WORDS] for name in LATENCY},
}
"""The promised bars, with those on latency from the bench."""
