"""A Kafka cluster inside the process, for tests: strict where brokers are strict, and breakable on request.

    async with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.fail("Produce", disconnect="after")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"v")
        assert cluster.values("orders") == [b"v"]

Its loop's clock times delays and waits, so that a loop whose time jumps makes them jump. It shares `wire` and `records` with the
client, nothing else; knows nothing of producers. What can be scripted is in `trouble`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from aioproducer.testing.broker import FakeBroker
from aioproducer.testing.fault_scripting import Trouble
from aioproducer.testing.groups import Groups
from aioproducer.testing.handlers import HANDLERS
from aioproducer.testing.memory import MemoryNetwork
from aioproducer.testing.releases import NEWEST, ranges
from aioproducer.testing.request_log import Journal, Request, Violation
from aioproducer.testing.topics import Topics
from aioproducer.testing.transactions import Transactions
from aioproducer.wire.api import CLIENT_VERSIONS, NAMES, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer.records.reader import Record
    from aioproducer.testing.fault_scripting import H
    from aioproducer.testing.handlers.handler import Handler
    from aioproducer.testing.log import PartitionLog
    from aioproducer.wire.frame import RequestHeader

__all__ = ["FakeCluster", "Isolation", "Request", "Violation"]

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
_KEYS: Final = {name: key for key, name in NAMES.items()}
_cluster_numbers: Final = itertools.count(1)


class FakeCluster(Trouble):
    """Brokers 1, 2, ... that answer as Kafka's do, as far as producers and consumers ask (`handlers` lists the requests).

    An asynchronous context manager; what was logged can be looked at afterwards too. A batch is checked by its header (CRC-32C,
    counts) when it is appended; its records are decoded and checked when `values` or `records` looks at them.

    Args:
        brokers: how many.
        memory: streams within the loop instead of sockets; give clients `client_options`.
        version: the release of Kafka whose versions of requests it speaks, from "0.9" to "4.3".
        versions: lowest and highest version by request, where they shall differ: `{"Produce": (3, 9)}`.
        auto_create: whether Metadata makes topics that it is asked for, as `auto.create.topics.enable` does.
        default_partitions: how many partitions such topics have.
        verify_records: decode every record when it is appended, and answer INVALID_RECORD if it does not decode.
        transaction_version: the finalized level of `transaction.version`, 0 to 2; brokers before 4.0 do not have it.
        wall_clock: seconds since the epoch, for LogAppendTime.

    Attributes:
        brokers: `FakeBroker` by number: `stop`, `start`, `pause`, `resume`, `vanish`, `retire`, `relocate`, `renumber`, `advertise`.
        violations: what clients sent that no broker takes.
        transactions: by transactional id, their state; `transactions.ids.next` is the next producer id.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        memory: bool = False,
        version: str = NEWEST,
        versions: Mapping[str, tuple[int, int]] | None = None,
        auto_create: bool = False,
        default_partitions: int = 1,
        verify_records: bool = False,
        transaction_version: int = 2,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least 1 broker, not {brokers}")
        self.network = MemoryNetwork() if memory else None
        self.versions = _versions(version, versions or {})
        self.brokers: dict[int, FakeBroker] = {}
        super().__init__(_KEYS, self.brokers)
        for node_id in range(1, brokers + 1):
            self.brokers[node_id] = FakeBroker(self, node_id, self.versions)
        self.topics = Topics(self.brokers.keys(), verify=verify_records)
        self.groups = Groups()
        self.transactions = Transactions(self.topics, self.groups, self.now_ms)
        self.features_epoch = 0
        self.transaction_version = transaction_version
        self.coordinators: dict[str, int] = {}  # of groups and transactional ids that `move_coordinator` moved
        self.cluster_id = f"fake-cluster-{next(_cluster_numbers)}"
        self.auto_create = auto_create
        self.default_partitions = default_partitions
        self._wall_clock = wall_clock
        self._journal = Journal()
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
        self._journal.close()
        self.groups.close()
        self.transactions.close()

    # --- where it is

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of its brokers, as clients take them."""
        return ",".join(f"{host}:{port}" for host, port in (broker.address for broker in self.brokers.values()))

    @property
    def client_options(self) -> dict[str, Any]:
        """What a `Producer` needs to reach it: `bootstrap_servers` and, in memory, `dialer`."""
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers}
        return options if self.network is None else {**options, "dialer": self.network}

    # --- its brokers

    async def add_broker(self, node_id: int | None = None) -> FakeBroker:
        """Start one more broker, with the next free number or this one; it leads nothing until `move_leader`."""
        number = max(self.brokers, default=0) + 1 if node_id is None else node_id
        if number in self.brokers:
            raise ValueError(f"there is a broker {number}")
        added = FakeBroker(self, number, self.versions)
        await added.start()
        self.brokers[number] = added
        return added

    def speak(self, version: str = NEWEST, versions: Mapping[str, tuple[int, int]] | None = None, *, broker: int | None = None) -> None:
        """Let the brokers, or one of them, be of another release from now on, as in an upgrade or downgrade.

        Their connections are reset, as by the restart that such a change takes. Arguments and errors as of the class.
        """
        spoken = _versions(version, versions or {})
        for changed in self.brokers.values() if broker is None else [self._broker(broker)]:
            changed.versions = spoken
            changed.disconnect_all()

    def _broker(self, broker: int) -> FakeBroker:
        if broker not in self.brokers:
            raise ValueError(f"there is no broker {broker}; there are {sorted(self.brokers)}")
        return self.brokers[broker]

    def disconnect_all(self) -> None:
        """Reset every connection to every broker."""
        for broker in self.brokers.values():
            broker.disconnect_all()

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
        if to is not None:
            self._broker(to)
        moved = self.topics.existing(topic).partitions[partition]
        moved.leader = to
        moved.leader_epoch += 1

    def move_coordinator(self, key: str, to: int) -> None:
        """Let another broker coordinate a group or a transactional id; the old one answers NOT_COORDINATOR from now on."""
        self._broker(to)
        self.coordinators[key] = to

    def leader(self, topic: str, partition: int) -> int | None:
        """Who leads a partition, by number."""
        return self.topics.existing(topic).partitions[partition].leader

    # --- transactions

    @property
    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`; brokers tell another one in the answers to ApiVersions that follow."""
        return self.transactions.version

    @transaction_version.setter
    def transaction_version(self, level: int) -> None:
        if level not in range(3):
            raise ValueError(f"transaction.version is 0, 1 or 2, not {level}")
        self.transactions.version = level
        self.features_epoch += 1

    @property
    def marker_delay(self) -> float:
        """Seconds from a transaction's end to its markers, in which it answers CONCURRENT_TRANSACTIONS; at first 0."""
        return self.transactions.marker_delay

    @marker_delay.setter
    def marker_delay(self, seconds: float) -> None:
        self.transactions.marker_delay = seconds

    def forget_producers(self, topic: str, partition: int | None = None) -> None:
        """Let partitions know no producer any more, as after retention; open transactions stay."""
        for part in self.topics.existing(topic).partitions:
            if partition in {None, part.index}:
                part.log.producers.forget()

    # --- what is in it

    def log(self, topic: str, partition: int) -> PartitionLog:
        """A partition's log: its batches as they stand, offsets, records."""
        return self.topics.existing(topic).partitions[partition].log

    def records(self, topic: str, partition: int | None = None, *, isolation: Isolation = "read_uncommitted") -> list[Record]:
        """Decoded records in the order of their offsets; of all partitions, one after another.

        Args:
            topic: where.
            partition: likewise; None: in all.
            isolation: all that producers wrote, or as a consumer's `isolation.level`, what is of no transaction or of a committed one.

        Raises:
            ProtocolError: a batch whose records are not what its header says: a client's bug.
        """
        logs = [part.log for part in self.topics.existing(topic).partitions] if partition is None else [self.log(topic, partition)]
        return [record for log in logs for record in log.records(only_committed=isolation == "read_committed")]

    def values(self, topic: str, partition: int | None = None, *, isolation: Isolation = "read_uncommitted") -> list[bytes | None]:
        """The values of `records`."""
        return [record.value for record in self.records(topic, partition, isolation=isolation)]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The next offset of each partition."""
        return {partition.index: partition.log.end_offset for partition in self.topics.existing(topic).partitions}

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a consumer group has committed, by topic and partition."""
        names = {topic.topic_id: topic.name for topic in self.topics}
        offsets = self.groups[group].offsets.items()
        return {(names[topic_id], index): kept.offset for (topic_id, index), kept in offsets if topic_id in names}

    @property
    def violations(self) -> list[Violation]:
        """What clients sent that no broker takes; each cost its connection."""
        return self._journal.violations

    def requests(self, api: str | None = None) -> list[Request]:
        """The requests that brokers took, of one kind or all, in their order; of the last 100,000."""
        if api is not None:
            _check_api(api)
        return [request for request in self._journal if api is None or request.api == api]

    async def seen(self, api: str, count: int = 1) -> None:
        """Wait until so many requests of a kind have come, since the beginning.

        Raises:
            RuntimeError: the cluster was stopped before.

        Cancellation leaves nothing behind.
        """
        _check_api(api)
        await self._journal.seen(api, count)

    # --- trouble, beside what is in `Trouble`

    def on(
        self, api: str, *, keep: bool = True, broker: int | None = None, topic: str | None = None, partition: int | None = None
    ) -> Callable[[H], H]:
        """As `Trouble.on`; what the release does not speak is advertised from now on."""
        register = super().on(api, keep=keep, broker=broker, topic=topic, partition=partition)
        for node in self.brokers.values():
            node.versions = {_KEYS[api]: CLIENT_VERSIONS[_KEYS[api]], **node.versions}
        return register

    # --- for its brokers

    def handler(self, key: int) -> Handler:
        """Who answers a request that is advertised."""
        return HANDLERS[ApiKey(key)]

    def now_ms(self) -> int:
        """The wall clock, in milliseconds."""
        return int(self._wall_clock() * 1000)

    def next_connection(self) -> int:
        """A number for a connection."""
        return next(self._connections)

    def remember_request(self, broker: int, connection: int, api: str, header: RequestHeader, request: Any) -> None:
        """A broker took a request."""
        self._journal.add(Request(self._now(), broker, connection, api, header.version, header.client_id, request))

    def remember_violation(self, broker: int, connection: int, what: str) -> None:
        """A broker closed a connection for what came on it."""
        self._journal.violations.append(Violation(self._now(), broker, connection, what))

    def _now(self) -> float:
        return self._loop.time() if self._loop else 0.0


def _check_api(api: str) -> None:
    if api not in _KEYS:
        raise ValueError(f"{api!r} is no request; there are {', '.join(sorted(_KEYS))}")


def _versions(release: str, wanted: Mapping[str, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """By request number: what the release speaks, as far as the fake answers it. ValueError: a version that it does not answer."""
    spoken: dict[int, tuple[int, int]] = {}
    released = ranges(release)
    answered = {handler.name: handler for handler in HANDLERS.values()}
    for name, handler in answered.items():
        lowest, highest = released.get(name, (0, -1))
        lowest, highest = max(lowest, handler.versions[0]), min(highest, handler.versions[1])
        if lowest <= highest:
            spoken[handler.key] = (lowest, highest)
    for name, (lowest, highest) in wanted.items():
        if name not in answered:
            raise ValueError(f"the fake answers {', '.join(sorted(answered))}, not {name!r}")
        handler = answered[name]
        if not handler.versions[0] <= lowest <= highest <= handler.versions[1]:
            raise ValueError(f"the fake answers {name} in {handler.versions[0]} to {handler.versions[1]}, not {lowest} to {highest}")
        spoken[handler.key] = (lowest, highest)
    return spoken
