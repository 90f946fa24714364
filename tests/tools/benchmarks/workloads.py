"""Holds the workloads that the bench measures. Both clients with one interface run the same functions.

`send`, `send_and_wait` and `flush` have one signature in aiokafka and in aioproducer, so a workload calls the client without an adapter.
A workload reads the same two facts of every result, its offset and its partition. A `Tally` of them proves that no record was lost or
duplicated.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tests.tools.benchmarks import latency
from tests.tools.benchmarks.task import FEW_KEYS, HERD, VALUE_BYTES, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Mapping, Sequence

    from tests.tools.benchmarks.task import Task

PARTITIONS = 6
VALUE = b"v" * VALUE_BYTES
GATHERED = 10_000
SAMPLED = 256
"""A burst notes the latency of one record of so many, as a note for each record would cost as much as its send."""
TEXTS = 1_000
AT_ONCE = Settings()
LINGERING = Settings(linger_ms=5)


class Metadata(Protocol):
    """Holds the facts that both clients report about an acknowledged record."""

    @property
    def offset(self) -> int: ...

    @property
    def partition(self) -> int: ...


class Client(Protocol):
    """Declares the interface that both producers have."""

    async def send(self, topic: str, value: bytes, key: bytes | None = None, /, *, partition: int | None = None) -> Awaitable[Metadata]: ...

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None = None, /, *, partition: int | None = None) -> Metadata: ...

    async def flush(self) -> object: ...


class Tally:
    """Holds the number of results of each partition, the sum of their offsets, and the seconds of single results.

    Attributes:
        unread: results that the workload does not read; the process reads them when the clock has stopped.
        is_told: whether this client reports the offsets of its records.
    """

    def __init__(self, cells: int = PARTITIONS, *, is_told: bool = True) -> None:
        self.counts = [0] * cells
        self.offsets = 0
        self.latencies: list[float] = []
        self.unread: AsyncIterable[Metadata] | None = None
        self.is_told = is_told

    def note(self, began: float, _delivery: object) -> None:
        """Note that a sampled record was acknowledged now."""
        self.latencies.append(time.perf_counter() - began)

    async def read_rest(self) -> None:
        if self.unread is not None:
            async for metadata in self.unread:
                self.offsets += metadata.offset
                self.counts[metadata.partition] += 1


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Holds the records of a run; `keys` has the key of each, made before the clock starts. Several topics, or values, alternate."""

    topics: Sequence[str]
    keys: Sequence[bytes]
    values: Sequence[bytes] = (VALUE,)
    partitions: int = PARTITIONS
    tasks: int = HERD
    load: int = 0

    @property
    def topic(self) -> str:
        return self.topics[0]

    @property
    def value(self) -> bytes:
        return self.values[0]

    def tally(self, *, is_told: bool = True) -> Tally:
        return Tally(len(self.topics) * self.partitions, is_told=is_told)

    def cells(self) -> itertools.cycle[int]:
        """Yield for each record the index of its topic's first partition in a tally."""
        return itertools.cycle(range(0, len(self.topics) * self.partitions, self.partitions))


def jobs(task: Task) -> tuple[Job, Job]:
    """Return the job of the warm-up, and that of the measured part."""
    keys = few_keys(0, task.warm_up + task.records, task.keys) if task.keys else unique_keys(0, task.warm_up + task.records)
    values = text_values(task.value_bytes) if task.text else [b"v" * task.value_bytes]
    first, rest = keys[: task.warm_up], keys[task.warm_up :]
    warm_up, measured = (Job(task.topics, part, values, task.partitions, task.tasks, task.load) for part in (first, rest))
    return warm_up, measured


def few_keys(first: int, records: int, different: int = FEW_KEYS) -> list[bytes]:
    """Return keys of 10 bytes, of which so many are different, alternately."""
    keys = [b"key-%06d" % number for number in range(different)]
    return [keys[number % different] for number in range(first, first + records)]


def unique_keys(first: int, records: int) -> list[bytes]:
    """Return keys of 16 bytes, each different from the others."""
    return [b"%016x" % number for number in range(first, first + records)]


def text_values(size: int) -> list[bytes]:
    """Return 1,000 lines of JSON of exactly so many bytes, the same every time: orders of goods, of which gzip makes about a quarter."""
    chance = random.Random(7)
    goods = ["hammer", "screwdriver", "pliers", "spanner", "chisel", "saw", "drill", "vice", "file", "plane", "level", "clamp"]
    lines = []
    for number in range(TEXTS):
        parts = [f'{{"order": {number}, "customer": "{chance.getrandbits(64):016x}", "items": [']
        left = size - len(parts[0])
        while left > 0:
            item = {"item": chance.choice(goods), "price": chance.randrange(100, 99_999) / 100, "count": chance.randrange(1, 9)}
            parts.append(json.dumps(item) + ", ")
            left -= len(parts[-1])
        lines.append("".join(parts)[:size].encode())
    return lines


async def stream(client: Client, job: Job) -> Tally:
    """Call `await send()` for each record, flush, then read every result."""
    send, topic, value = client.send, job.topic, job.value
    tally, deliveries = job.tally(), []
    for first in range(0, len(job.keys), SAMPLED):
        began = time.perf_counter()
        deliveries += [await send(topic, value, key) for key in job.keys[first : first + SAMPLED]]
        deliveries[first].add_done_callback(partial(tally.note, began))
    await client.flush()
    counts, offsets = tally.counts, 0
    for delivery in deliveries:
        metadata = await delivery
        offsets += metadata.offset
        counts[metadata.partition] += 1
    tally.offsets = offsets
    return tally


async def mixed(client: Client, job: Job) -> Tally:
    """Send as `stream` does, to many topics alternately, or with many values."""
    send = client.send
    each = zip(itertools.cycle(job.topics), itertools.cycle(job.values), job.keys, strict=False)
    tally, deliveries = job.tally(), []
    for first in range(0, len(job.keys), SAMPLED):
        began = time.perf_counter()
        deliveries += [await send(topic, value, key) for topic, value, key in itertools.islice(each, SAMPLED)]
        deliveries[first].add_done_callback(partial(tally.note, began))
    await client.flush()
    for cell, delivery in zip(job.cells(), deliveries, strict=False):
        metadata = await delivery
        tally.offsets += metadata.offset
        tally.counts[cell + metadata.partition] += 1
    return tally


async def gather(client: Client, job: Job) -> Tally:
    """Call `await send()` 10,000 times, `asyncio.gather` these deliveries, and repeat."""
    send, topic, value = client.send, job.topic, job.value
    tally = job.tally()
    counts, offsets = tally.counts, 0
    for first in range(0, len(job.keys), GATHERED):
        deliveries = []
        for at in range(first, min(first + GATHERED, len(job.keys)), SAMPLED):
            began = time.perf_counter()
            deliveries += [await send(topic, value, key) for key in job.keys[at : min(at + SAMPLED, first + GATHERED)]]
            deliveries[at - first].add_done_callback(partial(tally.note, began))
        for metadata in await asyncio.gather(*deliveries):
            offsets += metadata.offset
            counts[metadata.partition] += 1
    tally.offsets = offsets
    return tally


async def many(client: Any, job: Job) -> Tally:
    """Call `send_many` once with values without keys, and flush; only ours has it. Results are read when the clock has stopped."""
    deliveries = await client.send_many(job.topic, [job.value] * len(job.keys))
    await client.flush()
    tally = job.tally()
    tally.unread = read(deliveries)
    return tally


async def read(deliveries: Any) -> AsyncIterable[Metadata]:
    """Read the results, one by one."""
    for delivery in deliveries:
        yield await delivery


async def single(client: Client, job: Job) -> Tally:
    """Send one record at a time, and wait for each."""
    tally = job.tally()
    await _one_by_one(client, job, job.keys, tally)
    return tally


async def herd(client: Client, job: Job) -> Tally:
    """Send from some thousand tasks. Each sends its share one record at a time, and waits for each record."""
    tally = job.tally()
    tasks = min(job.tasks, len(job.keys))
    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(_one_by_one(client, job, job.keys[number::tasks], tally))
    return tally


async def _one_by_one(client: Client, job: Job, keys: Sequence[bytes], tally: Tally) -> None:
    send_and_wait, topic, value, clock, latencies = client.send_and_wait, job.topic, job.value, time.perf_counter, tally.latencies
    for key in keys:
        before = clock()
        metadata = await send_and_wait(topic, value, key)
        latencies.append(clock() - before)
        tally.offsets += metadata.offset
        tally.counts[metadata.partition] += 1


WAYS: Mapping[str, Callable[[Any, Job], Coroutine[Any, Any, Tally]]] = {
    "stream": stream,
    "mixed": mixed,
    "gather": gather,
    "many": many,
    "single": single,
    "herd": herd,
    "busy": latency.busy,
    "busy_mixed": latency.busy_mixed,
    "paced": latency.paced,
    "tasks": latency.tasks,
    "bursts": latency.bursts,
}
"""The workloads by name, for clients with the interface of `Client`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Describes a workload: its function, the number of records, and the number of different keys.

    Attributes:
        rtt_ms: the round trip of the proxy that it goes through.
        text, load, tasks, settings: as a task has them.
    """

    way: str
    records: int
    keys: int = FEW_KEYS
    rtt_ms: int = 0
    value_bytes: int = VALUE_BYTES
    load: int = 0
    tasks: int = HERD
    partitions: int = PARTITIONS
    topics: int = 1
    text: bool = False
    settings: Settings = AT_ONCE

    @property
    def keys_are(self) -> str:
        return f"{self.keys:,} of 10 B" if self.keys else "unique, 16 B"


def _latency(way: str, load: int, records: int, *, value_bytes: int = 300, **more: Any) -> Workload:
    """Return a workload of `latency` with 16 keys, and values of 300 B unless told."""
    return Workload(way, records, keys=16, value_bytes=value_bytes, load=load, **more)


def _coded(codec: str) -> dict[str, Any]:
    return {"text": True, "settings": Settings(compression=codec)}


WORKLOADS: Mapping[str, Workload] = {
    "stream_keys": Workload("stream", 300_000),
    "stream_unique": Workload("stream", 300_000, keys=0),
    "gather": Workload("gather", 300_000),
    "single": Workload("single", 5_000),
    "herd": Workload("herd", 100_000),
    "rtt20": Workload("stream", 150_000, rtt_ms=20),
    "rtt20_long": Workload("stream", 600_000, rtt_ms=20, settings=LINGERING),
    "busy_0": _latency("busy", 0, 200_000),
    "busy_200": _latency("busy", 200, 150_000),
    "busy_1000": _latency("busy", 1_000, 60_000),
    "busy_1500": _latency("busy", 1_500, 50_000),
    "busy_10000": _latency("busy", 10_000, 8_000),
    "paced_1k": _latency("paced", 1_000, 2_000),
    "paced_10k": _latency("paced", 10_000, 20_000),
    "paced_50k": _latency("paced", 50_000, 100_000),
    "tasks_10k": _latency("tasks", 10_000, 20_000, tasks=200),
    "bursts_100": _latency("bursts", 100, 6_000),
    "bursts_2000": _latency("bursts", 2_000, 120_000),
    "bursts_2000_linger": _latency("bursts", 2_000, 120_000, settings=LINGERING),
    "busy_0_linger": _latency("busy", 0, 200_000, settings=LINGERING),
    "busy_1000_linger": _latency("busy", 1_000, 60_000, settings=LINGERING),
    "busy_0_zstd": _latency("busy", 0, 150_000, **_coded("zstd")),
    "busy_1000_zstd": _latency("busy", 1_000, 60_000, **_coded("zstd")),
    "busy_0_gzip": _latency("busy", 0, 100_000, **_coded("gzip")),
    "busy_1000_gzip": _latency("busy", 1_000, 60_000, **_coded("gzip")),
    "paced_10k_zstd": _latency("paced", 10_000, 20_000, **_coded("zstd")),
    "busy_1000_large": _latency("busy", 1_000, 20_000, value_bytes=10_000),
    "paced_8k_large": _latency("paced", 8_000, 24_000, value_bytes=10_000),
    "paced_1k_large": _latency("paced", 1_000, 2_000, value_bytes=50_000),
    "partitions500": Workload("busy", 150_000, value_bytes=300, keys=10_000, partitions=500),
    "topics2000": Workload("busy_mixed", 150_000, value_bytes=300, partitions=1, topics=2_000),
}
LATENCY: Sequence[str] = [
    name
    for name, one in WORKLOADS.items()
    if one.way in {"busy", "paced", "tasks"} and one.partitions == PARTITIONS and one.settings == AT_ONCE and one.value_bytes == 300
]
"""The workloads with a promised latency."""
