"""A Kafka cluster inside the process, for tests: strict where brokers are strict, and breakable on request.

    async with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.fail("Produce", disconnect="after")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"v")
        assert cluster.values("orders") == [b"v"]

Its loop's clock times delays and waits, so that a loop whose time jumps makes them jump. It shares `wire` and `records` with the
client, nothing else; knows nothing of producers.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from aioproducer.testing.broker import FakeBroker
from aioproducer.testing.faults import Faults, Hang, Rule
from aioproducer.testing.handlers import HANDLERS
from aioproducer.testing.memory import MemoryNetwork
from aioproducer.testing.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer.records.reader import Record
    from aioproducer.testing.faults import Kind, Spoil, When
    from aioproducer.testing.log import PartitionLog
    from aioproducer.wire.frame import RequestHeader

__all__ = ["FakeCluster", "Request", "Violation"]

_NAMED: Final = {handler.name: handler for handler in HANDLERS.values()}
_REMEMBERED: Final = 100_000
_cluster_numbers: Final = itertools.count(1)


class Request(NamedTuple):
    """A request that a broker took. `at` is the loop's time in seconds; `connection` counts them over the whole cluster."""

    at: float
    broker: int
    connection: int
    api: str
    version: int
    client_id: str | None
    message: Any


class Violation(NamedTuple):
    """What a client sent that no broker takes; its connection was closed."""

    at: float
    broker: int
    connection: int
    what: str


class FakeCluster:
    """Brokers 1, 2, ... that answer ApiVersions, Metadata, Produce, Fetch, ListOffsets and FindCoordinator.

    An asynchronous context manager; what was logged can be looked at afterwards too. A batch is checked by its header (CRC-32C,
    counts) when it is appended; its records are decoded and checked when `values` or `records` looks at them.

    Args:
        brokers: how many.
        memory: streams within the loop instead of sockets; give clients `client_options`.
        versions: lowest and highest version by request, where they shall differ from Kafka 4.3's: `{"Produce": (3, 9)}` is Kafka 2.8.
        auto_create: whether Metadata makes topics that it is asked for, as `auto.create.topics.enable` does.
        default_partitions: how many partitions such topics have.
        verify_records: decode every record when it is appended, and answer INVALID_RECORD if it does not decode.
        wall_clock: seconds since the epoch, for LogAppendTime.

    Attributes:
        brokers: `FakeBroker` by number, each with `stop`, `start`, `pause`, `resume`.
        violations: what clients sent that no broker takes.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        memory: bool = False,
        versions: Mapping[str, tuple[int, int]] | None = None,
        auto_create: bool = False,
        default_partitions: int = 1,
        verify_records: bool = False,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least 1 broker, not {brokers}")
        self.network = MemoryNetwork() if memory else None
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in range(1, brokers + 1)}
        self.topics = Topics(tuple(self.brokers), verify=verify_records)
        self.faults = Faults()
        self.violations: list[Violation] = []
        self.versions = _versions(versions or {})
        self.cluster_id = f"fake-cluster-{next(_cluster_numbers)}"
        self.auto_create = auto_create
        self.default_partitions = default_partitions
        self._wall_clock = wall_clock
        self._requests: deque[Request] = deque(maxlen=_REMEMBERED)
        self._seen: Counter[str] = Counter()
        self._watchers: list[asyncio.Future[None]] = []
        self._connections = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        try:
            for broker in self.brokers.values():
                await broker.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for broker in self.brokers.values():
            await broker.close()
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_exception(RuntimeError("the fake cluster was stopped before the requests came"))

    # --- where it is

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of its brokers, as clients take them."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers.values())

    @property
    def client_options(self) -> dict[str, Any]:
        """What a `Producer` needs to reach it: `bootstrap_servers` and, in memory, `dialer`."""
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers}
        return options if self.network is None else {**options, "dialer": self.network}

    # --- topics and leaders

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Make a topic.

        Args:
            name: as Kafka allows it.
            partitions: how many; their leaders are the brokers in turn.
            config: Kafka's names; `max.message.bytes` and `message.timestamp.type` are honoured, the rest is kept.

        Raises:
            ValueError: it exists, or Kafka would not take an argument.
        """
        self.topics.create(name, partitions, config or {})

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its log. Made again, it has another id."""
        self.topics.delete(name)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Let a topic have so many partitions."""
        self.topics.grow(topic, partitions)

    def move_leader(self, topic: str, partition: int, to: int | None) -> None:
        """Let another broker lead a partition, or none; its leader epoch grows."""
        if to is not None and to not in self.brokers:
            raise ValueError(f"there is no broker {to}; there are {sorted(self.brokers)}")
        moved = self.topics.existing(topic).partitions[partition]
        moved.leader = to
        moved.leader_epoch += 1

    def leader(self, topic: str, partition: int) -> int | None:
        """Who leads a partition, by number."""
        return self.topics.existing(topic).partitions[partition].leader

    # --- what is in it

    def log(self, topic: str, partition: int) -> PartitionLog:
        """A partition's log: its batches as they stand, offsets, records."""
        return self.topics.existing(topic).partitions[partition].log

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Decoded records in the order of their offsets; of all partitions, one after another.

        Raises:
            ProtocolError: a batch whose records are not what its header says: a client's bug.
        """
        logs = [part.log for part in self.topics.existing(topic).partitions] if partition is None else [self.log(topic, partition)]
        return [record for log in logs for record in log.records()]

    def values(self, topic: str, partition: int | None = None) -> list[bytes | None]:
        """The values of `records`."""
        return [record.value for record in self.records(topic, partition)]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The next offset of each partition."""
        return {partition.index: partition.log.end_offset for partition in self.topics.existing(topic).partitions}

    def requests(self, api: str | None = None) -> list[Request]:
        """The requests that brokers took, of one kind or all, in their order; of the last 100,000."""
        if api is not None:
            _check_api(api)
        return [request for request in self._requests if api is None or request.api == api]

    async def seen(self, api: str, count: int = 1) -> None:
        """Wait until so many requests of a kind have come, since the beginning.

        Raises:
            RuntimeError: the cluster was stopped before.

        Cancellation leaves nothing behind.
        """
        _check_api(api)
        while self._seen[api] < count:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    # --- trouble

    def fail(
        self,
        api: str,
        error: str | int | None = None,
        *,
        disconnect: When | None = None,
        times: int = 1,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Let the next requests fail. Rules are used in the order in which they are made.

        Args:
            api: the request, by Kafka's name.
            error: Kafka's name or number of an error. Its scope's partitions answer it and nothing is appended, except for
                REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND, which Kafka answers after it has appended.
            disconnect: instead of an error, reset the connection "before" the request is carried out, or "after".
            times: how many requests fail so.
            broker: only on this broker.
            topic: only requests about this topic, and of an error only its part of them.
            partition: likewise.
        """
        if (error is None) == (disconnect is None):
            raise ValueError("fail takes an error or disconnect='before' or 'after'")
        if error is not None:
            self.faults.add_error(self._rule(api, "error", times, broker, topic, partition=partition), error)
        elif disconnect in {"before", "after"}:
            rule = self._rule(api, "disconnect", times, broker, topic, partition=partition)
            rule.when = disconnect or "before"
            self.faults.add(rule)
        else:
            raise ValueError(f"disconnect is 'before' or 'after', not {disconnect!r}")

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = None,
        when: When = "before",
        broker: int | None = None,
        topic: str | None = None,
    ) -> None:
        """Let requests take longer, "before" they are carried out or "after", so that only the answer is late. `times`: None is all."""
        rule = self._rule(api, "delay", times, broker, topic)
        rule.seconds, rule.when = seconds, when
        self.faults.add(rule)

    def hang(
        self, api: str, *, times: int | None = None, when: When = "before", broker: int | None = None, topic: str | None = None
    ) -> Hang:
        """Hold requests until the hang's `release`, "before" they are carried out or "after". A lost connection drops its request."""
        rule = self._rule(api, "hang", times, broker, topic)
        rule.hang, rule.when = Hang(), when
        self.faults.add(rule)
        return rule.hang

    def throttle(self, api: str, seconds: float, *, times: int | None = 1, broker: int | None = None) -> None:
        """Let answers say `throttle_time_ms`; as with Kafka since 2.0, it is the client that waits."""
        rule = self._rule(api, "throttle", times, broker)
        rule.seconds = seconds
        self.faults.add(rule)

    def truncate(self, api: str, *, times: int = 1, broker: int | None = None) -> None:
        """Cut answers in half and close the connection."""
        self._spoil(api, "truncate", times, broker)

    def garbage(self, api: str, *, times: int = 1, broker: int | None = None) -> None:
        """Let answers have the right size and correlation id, and nonsense in them."""
        self._spoil(api, "garbage", times, broker)

    def wrong_correlation_id(self, api: str, *, times: int = 1, broker: int | None = None) -> None:
        """Let answers name a request that was not made."""
        self._spoil(api, "wrong_correlation_id", times, broker)

    def rewrite(self, api: str, change: Callable[[Any], object], *, times: int | None = 1, broker: int | None = None) -> None:
        """Let `change` edit the decoded answer in place before it is sent."""
        rule = self._rule(api, "rewrite", times, broker)
        rule.rewrite = change
        self.faults.add(rule)

    def disconnect_all(self) -> None:
        """Reset every connection to every broker."""
        for broker in self.brokers.values():
            broker.disconnect_all()

    def assert_all_fired(self) -> None:
        """AssertionError: a scripted fault fell on fewer requests than it was to, or an uncounted one on none."""
        unfired = self.faults.unfired()
        if unfired:
            raise AssertionError(f"faults that did not happen: {'; '.join(map(str, unfired))}")

    def _spoil(self, api: str, spoil: Spoil, times: int, broker: int | None) -> None:
        rule = self._rule(api, "spoil", times, broker)
        rule.spoil = spoil
        self.faults.add(rule)

    def _rule(
        self, api: str, kind: Kind, times: int | None, broker: int | None, topic: str | None = None, *, partition: int | None = None
    ) -> Rule:
        _check_api(api)
        if broker is not None and broker not in self.brokers:
            raise ValueError(f"there is no broker {broker}; there are {sorted(self.brokers)}")
        return Rule(api, kind, times, broker, topic, partition)

    # --- for its brokers

    def now_ms(self) -> int:
        """The wall clock, in milliseconds."""
        return int(self._wall_clock() * 1000)

    def next_connection(self) -> int:
        """A number for a connection."""
        return next(self._connections)

    def remember_request(self, broker: int, connection: int, api: str, header: RequestHeader, request: Any) -> None:
        """A broker took a request."""
        self._requests.append(Request(self._now(), broker, connection, api, header.version, header.client_id, request))
        self._seen[api] += 1
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    def remember_violation(self, broker: int, connection: int, what: str) -> None:
        """A broker closed a connection for what came on it."""
        self.violations.append(Violation(self._now(), broker, connection, what))

    def _now(self) -> float:
        return self._loop.time() if self._loop else 0.0


def _check_api(api: str) -> None:
    if api not in _NAMED:
        raise ValueError(f"the fake answers {', '.join(sorted(_NAMED))}, not {api!r}")


def _versions(wanted: Mapping[str, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """By request number. ValueError: a version that the fake does not answer."""
    ranges: dict[int, tuple[int, int]] = {handler.key: handler.versions for handler in HANDLERS.values()}
    for api, (lowest, highest) in wanted.items():
        _check_api(api)
        handler = _NAMED[api]
        if not handler.versions[0] <= lowest <= highest <= handler.versions[1]:
            raise ValueError(f"the fake answers {api} in {handler.versions[0]} to {handler.versions[1]}, not {lowest} to {highest}")
        ranges[handler.key] = (lowest, highest)
    return ranges
