"""A Kafka cluster inside the process, for tests: strict where brokers are strict, and breakable on request.

    async with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        cluster.fail("Produce", disconnect="after")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"v")
        assert cluster.values("orders") == [b"v"]

The loop's clock times delays and waits: in a loop with virtual time they take no real time. The cluster shares only `wire` and
`records` with the client. `faults` has the methods that script faults.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Self, TypeAlias

from aioproducer.records.reader import Record
from aioproducer.testing.broker import FakeBroker
from aioproducer.testing.faults import H, Trouble
from aioproducer.testing.groups import Groups
from aioproducer.testing.handlers import HANDLERS
from aioproducer.testing.log import PartitionLog
from aioproducer.testing.memory import MemoryNetwork
from aioproducer.testing.releases import NEWEST, ranges
from aioproducer.testing.request_log import Journal, Request, Violation
from aioproducer.testing.security.cluster_security import ClusterSecurity
from aioproducer.testing.security.listener import ListenerSecurity
from aioproducer.testing.topics import Topics
from aioproducer.testing.transactions import Transactions
from aioproducer.wire.api import CLIENT_VERSIONS, NAMES

__all__ = ["FakeCluster", "Isolation", "Request", "Violation"]

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
_KEYS: Final = {name: key for key, name in NAMES.items()}
_cluster_numbers: Final = itertools.count(1)
_PLAINTEXT: Final = ListenerSecurity()


class FakeCluster(Trouble):
    """Runs brokers 1, 2, ... that answer producers and consumers as Kafka's brokers do (`handlers` lists the requests).

    An asynchronous context manager; a test can read the logs after the exit too. A broker checks a batch's header (CRC-32C, counts) when
    it appends the batch. `values` and `records` decode and check the batch's records when a test calls them.

    Args:
        brokers: number of brokers.
        memory: connect clients by streams within the loop instead of sockets; give clients `client_options`.
        version: the Kafka release, from "0.9" to "4.3"; the brokers speak its request versions.
        versions: lowest and highest version of single requests, in place of the release's: `{"Produce": (3, 9)}`; None: the brokers do not
            know the request: `{"EndTxn": None}`.
        auto_create: whether Metadata creates the topics that it is asked for, as `auto.create.topics.enable` does.
        default_partitions: number of partitions of such topics.
        verify_records: decode every record when it is appended, and answer INVALID_RECORD if it does not decode.
        transaction_version: the finalized level of `transaction.version`, 0 to 2; brokers before 4.0 do not have it.
        security: the security protocol, users, SASL mechanisms, sessions and TLS of the brokers' listeners; by default PLAINTEXT.
        wall_clock: seconds since the epoch, for LogAppendTime and the dates of tokens.

    Attributes:
        brokers: `FakeBroker` by number: `stop`, `start`, `pause`, `resume`, `vanish`, `retire`, `relocate`, `renumber`, `advertise`.
        security: changes users, sessions, certificates and denied operations, and lists the authentications.
        violations: client requests that no Kafka broker accepts; the broker closed the connection after each.
        transactions: transaction states by transactional id; `transactions.ids.next` is the next producer id.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        memory: bool = False,
        version: str = NEWEST,
        versions: Mapping[str, tuple[int, int] | None] | None = None,
        auto_create: bool = False,
        default_partitions: int = 1,
        verify_records: bool = False,
        transaction_version: int = 2,
        security: ListenerSecurity = _PLAINTEXT,
        wall_clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least 1 broker, not {brokers}")
        self.network: MemoryNetwork | None = MemoryNetwork() if memory else None
        self.versions: dict[int, tuple[int, int]] = _versions(version, versions or {})
        self.brokers: dict[int, FakeBroker] = {}
        self.journal: Journal = Journal()
        self.violations: list[Violation] = self.journal.violations
        self.security: ClusterSecurity = ClusterSecurity(
            security, self.brokers, self.journal, wall_clock
        )
        super().__init__(_KEYS, self.brokers)
        for node_id in range(1, brokers + 1):
            self.brokers[node_id] = FakeBroker(self, node_id, self.versions)
        self.topics: Topics = Topics(self.brokers.keys(), verify=verify_records)
        self.groups: Groups = Groups()
        self.transactions: Transactions = Transactions(self.topics, self.groups, self.now_ms)
        self.features_epoch: int = 0
        self.transaction_version = transaction_version
        # groups and transactional ids that `move_coordinator` moved, with their coordinators
        self.coordinators: dict[str, int] = {}
        # of one length, so that a seed of the simulation has the same bytes in every process
        self.cluster_id: str = f"fake-cluster-{next(_cluster_numbers):08}"
        self.auto_create = auto_create
        self.default_partitions = default_partitions
        self._wall_clock = wall_clock
        self.connection_numbers: itertools.count[int] = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        try:
            for broker in self.brokers.values():
                await broker.start()
        # whatever ends the start, a cancellation too, closes the listeners that are open by then
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for broker in self.brokers.values():
            await broker.close()
        self.journal.close()
        self.groups.close()
        self.transactions.close()

    # --- addresses

    @property
    def bootstrap_servers(self) -> str:
        """Return the brokers' addresses in the form of the client option.

        Raises:
            RuntimeError: the loop that runs now is not the cluster's, which does not run, so that no broker would answer.
        """
        self._check_loop()
        return ",".join(
            f"{host}:{port}" for host, port in (broker.address for broker in self.brokers.values())
        )

    @property
    def client_options(self) -> dict[str, Any]:
        """Return the options that connect a `Producer` to the cluster: `bootstrap_servers` and, with `memory`, `dialer`.

        With security also the protocol and the authority that the cluster made; the test adds user and password, or its own authority.

        Raises:
            RuntimeError: as for `bootstrap_servers`.
        """
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            **self.security.client_options,
        }
        return options if self.network is None else {**options, "dialer": self.network}

    def _check_loop(self) -> None:
        if self._loop is None or self._loop.is_running():
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # Plain code may run the cluster's loop later.
            return
        raise RuntimeError(
            "this FakeCluster belongs to an event loop that does not run now, so its brokers do not answer. Start it in the loop that uses it. "
            "With pytest-asyncio, the fixture and the test need one loop_scope"
        )

    # --- its brokers

    async def add_broker(self, node_id: int | None = None) -> FakeBroker:
        """Start one more broker, with the next free number or `node_id`. It leads no partition until `move_leader`."""
        number = max(self.brokers, default=0) + 1 if node_id is None else node_id
        if number in self.brokers:
            raise ValueError(f"there is a broker {number}")
        added = FakeBroker(self, number, self.versions)
        await added.start()
        self.brokers[number] = added
        return added

    def speak(
        self,
        version: str = NEWEST,
        versions: Mapping[str, tuple[int, int] | None] | None = None,
        *,
        broker: int | None = None,
    ) -> None:
        """Switch all brokers, or one of them, to another release from now on, as in an upgrade or downgrade.

        The brokers reset their connections, as the restart of a real change does. Arguments and errors are those of the class.
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

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic.

        Args:
            name: a topic name that Kafka allows.
            partitions: number of partitions; the brokers lead them in round-robin order.
            config: topic options by Kafka's names; `max.message.bytes` and `message.timestamp.type` have effect, others are only stored.

        Raises:
            ValueError: the topic exists, or Kafka would refuse an argument.
        """
        self.topics.create(name, partitions, config or {})

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its log. A topic that is created again gets another id."""
        self.topics.delete(name)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Raise a topic's number of partitions to `partitions`."""
        self.topics.grow(topic, partitions)

    def move_leader(self, topic: str, partition: int, to: int | None) -> None:
        """Make another broker the leader of a partition, or no broker with None. Adds 1 to its leader epoch."""
        if to is not None:
            self._broker(to)
        moved = self.topics.existing(topic).partitions[partition]
        moved.leader = to
        moved.leader_epoch += 1

    def move_coordinator(self, key: str, to: int) -> None:
        """Make another broker the coordinator of a group or transactional id. The old one answers NOT_COORDINATOR from now on."""
        self._broker(to)
        self.coordinators[key] = to

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the number of the broker that leads a partition; None: no leader."""
        return self.topics.existing(topic).partitions[partition].leader

    # --- transactions

    @property
    def transaction_version(self) -> int:
        """Return the finalized level of `transaction.version`. A new level appears in the ApiVersions answers that follow."""
        return self.transactions.version

    @transaction_version.setter
    def transaction_version(self, level: int) -> None:
        if level not in range(3):
            raise ValueError(f"transaction.version is 0, 1 or 2, not {level}")
        self.transactions.version = level
        self.features_epoch += 1

    @property
    def marker_delay(self) -> float:
        """Return the seconds from a transaction's end to its markers, at first 0.

        Meanwhile the coordinator answers CONCURRENT_TRANSACTIONS.
        """
        return self.transactions.marker_delay

    @marker_delay.setter
    def marker_delay(self, seconds: float) -> None:
        self.transactions.marker_delay = seconds

    def forget_producers(self, topic: str, partition: int | None = None) -> None:
        """Remove all producer state from a topic's partitions, as after retention; open transactions remain."""
        for part in self.topics.existing(topic).partitions:
            if partition in {None, part.index}:
                part.log.producers.forget()

    # --- contents

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return a partition's log: its stored batches, offsets and records."""
        return self.topics.existing(topic).partitions[partition].log

    def records(
        self, topic: str, partition: int | None = None, *, isolation: Isolation = "read_uncommitted"
    ) -> list[Record]:
        """Return decoded records in the order of their offsets, one partition after another.

        Args:
            topic: the topic's name.
            partition: the partition's index; None: all partitions.
            isolation: "read_uncommitted" returns all records; "read_committed" leaves out records of open and aborted transactions.

        Raises:
            ProtocolError: a batch's records contradict its header, which is a client's bug.
        """
        logs = (
            [part.log for part in self.topics.existing(topic).partitions]
            if partition is None
            else [self.log(topic, partition)]
        )
        return [
            record
            for log in logs
            for record in log.records(only_committed=isolation == "read_committed")
        ]

    def values(
        self, topic: str, partition: int | None = None, *, isolation: Isolation = "read_uncommitted"
    ) -> list[bytes | None]:
        """Return the values of `records`."""
        return [record.value for record in self.records(topic, partition, isolation=isolation)]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the next offset of each partition."""
        return {
            partition.index: partition.log.end_offset
            for partition in self.topics.existing(topic).partitions
        }

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets that a consumer group has committed, by topic and partition."""
        names = {topic.topic_id: topic.name for topic in self.topics}
        offsets = self.groups[group].offsets.items()
        return {
            (names[topic_id], index): kept.offset
            for (topic_id, index), kept in offsets
            if topic_id in names
        }

    def requests(self, api: str | None = None) -> list[Request]:
        """Return the requests that brokers received, in order, of one kind or all; at most the last 100,000."""
        if api is not None:
            _check_api(api)
        return [request for request in self.journal if api is None or request.api == api]

    async def seen(self, api: str, count: int = 1) -> None:
        """Wait until brokers have received `count` requests of a kind since the cluster's start.

        Raises:
            RuntimeError: the cluster was stopped before that.

        Cancellation changes no state.
        """
        _check_api(api)
        await self.journal.seen(api, count)

    # --- fault scripting that needs the brokers

    def on(
        self,
        api: str,
        *,
        keep: bool = True,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Callable[[H], H]:
        """Register a handler as `Trouble.on` does. Brokers advertise the request from now on if their release does not have it."""
        register = super().on(api, keep=keep, broker=broker, topic=topic, partition=partition)
        for node in self.brokers.values():
            node.versions = {_KEYS[api]: CLIENT_VERSIONS[_KEYS[api]], **node.versions}
        return register

    # --- called by brokers

    def now_ms(self) -> int:
        """Return the wall clock's time, in milliseconds."""
        return int(self._wall_clock() * 1000)


def _check_api(api: str) -> None:
    if api not in _KEYS:
        raise ValueError(f"{api!r} is no request; there are {', '.join(sorted(_KEYS))}")


def _versions(
    release: str, wanted: Mapping[str, tuple[int, int] | None]
) -> dict[int, tuple[int, int]]:
    """Return the version range of each request number that both the release and the fake support.

    Raises:
        ValueError: `wanted` names a request or version that the fake does not answer.
    """
    spoken: dict[int, tuple[int, int]] = {}
    released = ranges(release)
    answered = {handler.name: handler for handler in HANDLERS.values()}
    for name, handler in answered.items():
        lowest, highest = released.get(name, (0, -1))
        lowest, highest = max(lowest, handler.versions[0]), min(highest, handler.versions[1])
        if lowest <= highest:
            spoken[handler.key] = (lowest, highest)
    for name, range_ in wanted.items():
        if name not in answered:
            raise ValueError(f"the fake answers {', '.join(sorted(answered))}, not {name!r}")
        handler = answered[name]
        if range_ is None:
            spoken.pop(handler.key, None)
            continue
        lowest, highest = range_
        if not handler.versions[0] <= lowest <= highest <= handler.versions[1]:
            raise ValueError(
                f"the fake answers {name} in {handler.versions[0]} to {handler.versions[1]}, not {lowest} to {highest}"
            )
        spoken[handler.key] = (lowest, highest)
    return spoken
