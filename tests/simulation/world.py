"""The fake cluster of one run and its faults: counted, written to the history, and repaired at the end.

A record is safe once an acknowledgement with acks=all has left its broker. A crash may lose only records after the last safe one of its
partition (`PartitionLog.replicated`), as an unclean leader election loses records that no follower has.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from tests.simulation.faults import FAULTS
from tests.simulation.network import SeededNetwork
from tests.simulation.security import EPOCH, NO_TOKENS, PASSWORD, TOKENS, USER

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.faults import Rule
    from aioproducer.testing.jumping import JumpingLoop
    from tests.simulation.history import History
    from tests.simulation.plan import Plan

__all__ = ["GROUP", "TRANSACTIONAL_ID", "World"]

TRANSACTIONAL_ID: Final = "simulated"
GROUP: Final = "group"
_NEWEST_TRANSACTIONS: Final = 2
_TOLD: Final = {
    broker_error(name).code: kind
    for name, kind in (
        ("MESSAGE_TOO_LARGE", "oversize"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "out_of_order"),
        ("INVALID_PRODUCER_EPOCH", "stale_epoch"),
        ("NOT_LEADER_OR_FOLLOWER", "not_leader"),
    )
}

# seconds of silence after which a broker removes a producer's state: longer than any delivery_timeout_ms here plus a minute
_EXPIRATION: Final = 100.0


class World:
    """Holds the cluster and network of one run, and applies the faults.

    Attributes:
        fired: how often each class of fault happened.
        jumped: total seconds that the process slept.
        has_lost: whether a crash lost records.
        token_trouble: what is wrong with the source of tokens; empty: nothing.
    """

    def __init__(
        self, plan: Plan, cluster: FakeCluster, history: History, loop: JumpingLoop
    ) -> None:
        assert cluster.network is not None
        self.cluster = cluster
        self.fired: Counter[str] = Counter()
        self.jumped: float = 0.0
        self.has_lost: bool = False
        self._plan = plan
        self._history = history
        self._loop = loop
        self._calendar = EPOCH
        self._is_revoked = False
        self.token_trouble: str = ""
        self._rng = random.Random(f"world {plan.seed}")
        self._scripted: list[tuple[str, Rule]] = []
        self._deeds: list[asyncio.Task[None]] = []
        self.network: SeededNetwork = SeededNetwork(
            cluster.network, plan.weather, random.Random(f"network {plan.seed}"), self._on_network
        )

    # --- the run

    async def rage(self) -> None:
        """Create the topics, apply the plan's faults at their times, then end all faults."""
        for topic, partitions in self._plan.workload.topics.items():
            self.cluster.create_topic(topic, partitions, self._plan.topic_config)
        self.cluster.transactions.marker_delay = self._plan.marker_delay
        self.cluster.rewrite("Produce", self._on_answer, times=None)
        if self._plan.lag:
            self.cluster.delay("Produce", self._plan.lag, when="after")
        begin = self._loop.time()
        for fault in self._plan.faults:
            await self._until(begin + fault.at)
            self._history.tell("fault", str(fault))
            deed = FAULTS[fault.kind].do(self, *fault.args)
            if deed is not None:
                self._deeds.append(self._loop.create_task(deed))
        await self._until(begin + self._plan.calm_at)
        await self.calm()

    async def calm(self) -> None:
        """Repair everything: brokers, leaders and network. Remove scripted faults that have not happened."""
        for deed in self._deeds:
            deed.cancel()
        await asyncio.gather(*self._deeds, return_exceptions=True)
        self.settle()
        self.cluster.faults.clear()
        self.grant()
        self.token_trouble = ""
        self.cluster.transactions.marker_delay = 0.0
        self.network.calm()
        for number, broker in self.cluster.brokers.items():
            broker.latency, broker.bandwidth = 0.0, None
            if not broker.is_running:
                await self.start_broker(number)
            elif broker.is_paused:
                broker.resume()
        for topic in self.cluster.topics:
            for partition in topic.partitions:
                if partition.leader is None:
                    self.move_leader(topic.name, partition.index, partition.replicas[0])
        self._history.tell("fault", "calm")

    def settle(self) -> None:
        """Count the scripted faults that happened."""
        for kind, rule in self._scripted:
            self.fired[kind] += rule.fired
        self._scripted.clear()

    async def _until(self, when: float) -> None:
        if (left := when - self._loop.time()) > 0:
            await asyncio.sleep(left)

    # --- called by faults

    def count(self, kind: str) -> None:
        """Count one fault of a class."""
        self.fired[kind] += 1

    def script(self, kind: str, script: Callable[[FakeCluster], None]) -> None:
        """Script an answer; it counts when a broker sends it."""
        script(self.cluster)
        self._scripted.append((kind, self.cluster.faults.newest))

    def move_leader(self, topic: str, partition: int, to: int | None) -> None:
        """Make a running broker the leader of a partition, or no broker."""
        if to is not None and not self.cluster.brokers[to].is_running:
            to = None
        if self.cluster.leader(topic, partition) == to:
            return
        self.count("leader")
        self._history.tell("cluster", f"{topic}-{partition} is led by {to}")
        self.cluster.move_leader(topic, partition, to)

    def move_coordinator(self, to: int) -> None:
        """Make another broker the coordinator."""
        self.count("coordinator")
        self._history.tell("cluster", f"broker {to} coordinates")
        for key in (TRANSACTIONAL_ID, GROUP):
            self.cluster.move_coordinator(key, to)

    def fence(self) -> None:
        """Let a successor take the transactional id while the first producer still runs."""
        with contextlib.suppress(BrokerError):
            self.cluster.transactions.begin(TRANSACTIONAL_ID, 60_000, None)
            self.count("fence")

    def upgrade(self) -> None:
        """Raise the transaction version to the second version."""
        if self.cluster.transaction_version < _NEWEST_TRANSACTIONS:
            self.cluster.transaction_version = _NEWEST_TRANSACTIONS
            self.count("upgrade")

    def revoke(self) -> None:
        """Remove the producer's user."""
        if not self._is_revoked:
            self._is_revoked = True
            self.count("revoked")
            self._history.tell("cluster", f"{USER} is revoked")
            self.cluster.security.revoke(USER)
            if self._plan.security.token_seconds:
                self.cluster.security.change(tokens=NO_TOKENS)

    def grant(self) -> None:
        """Add the producer's user again."""
        if self._is_revoked:
            self._is_revoked = False
            self._history.tell("cluster", f"{USER} is granted")
            self.cluster.security.grant(USER, PASSWORD)
            if self._plan.security.token_seconds:
                self.cluster.security.change(tokens=TOKENS)

    def break_tokens(self, how: str) -> None:
        """Let the source of tokens fail in a way; empty: let it give tokens again."""
        if how:
            self.count("no_token")
        self._history.tell("tokens", how or "given")
        self.token_trouble = how

    def logins(self) -> Counter[str]:
        """Count the re-authentications, and the sessions that ended before their connection was used again."""
        security = self.cluster.security
        renewals = sum(told.is_renewal and not told.error for told in security.authentications)
        secured = self._plan.security
        return Counter(
            tls=int(secured.protocol.endswith("SSL")),
            sessions=int(secured.has_sasl and secured.session_ms > 0),
            tokens=int(secured.token_seconds > 0),
            renewed=renewals,
            expired_session=len(security.expired_sessions),
        )

    def forget_producers(self, topic: str, partition: int) -> None:
        """Remove a partition's state of idempotent producers long after the last record, as after `producer.id.expiration.ms`."""
        if not all(
            sent.refused or sent.is_acknowledged
            for sent in self._history.sent
            if sent.topic == topic
        ):
            return
        self.count("forget_producers")
        self._sleep(_EXPIRATION)
        self._history.tell("cluster", f"{topic}-{partition} forgets its producers")
        self.cluster.log(topic, partition).producers.forget()

    def hand_over(self, broker: int) -> None:
        """Move a broker's leaderships to other running brokers."""
        others = [
            number
            for number, other in self.cluster.brokers.items()
            if number != broker and other.is_running
        ]
        for topic in self.cluster.topics:
            for partition in topic.partitions:
                if partition.leader == broker:
                    self.move_leader(
                        topic.name, partition.index, self._rng.choice(others) if others else None
                    )

    async def stop_broker(self, number: int, kind: str, *, tail: bool = False) -> None:
        """Stop a broker at once; with `tail`, lose the records that its followers do not have."""
        broker = self.cluster.brokers[number]
        if not broker.is_running:
            return
        self.count(kind)
        self._history.tell("cluster", f"broker {number} ends")
        led = [
            partition
            for topic in self.cluster.topics
            for partition in topic.partitions
            if partition.leader == number
        ]
        # first, so that no lost record is acknowledged
        broker.disconnect_all()
        if tail:
            for partition in led:
                self._lose_tail(partition)
        await broker.stop(silently=self._rng.random() < 0.5)
        self.hand_over(number)

    def _lose_tail(self, partition: Any) -> None:
        log = partition.log
        if log.replicated < log.end_offset:
            kept = self._rng.randint(log.replicated, log.end_offset - 1)
            self._history.tell(
                "cluster",
                f"partition {partition.index} loses what is behind {kept} of {log.end_offset}",
            )
            if log.truncate(kept):
                self.count("lost_tail")
                self.has_lost = True

    async def start_broker(self, number: int) -> None:
        """Start a broker as a follower; it becomes the leader of partitions without one."""
        broker = self.cluster.brokers[number]
        if broker.is_running:
            return
        self._history.tell("cluster", f"broker {number} is back")
        await broker.start()
        for topic in self.cluster.topics:
            for partition in topic.partitions:
                if partition.leader is None:
                    self.move_leader(topic.name, partition.index, number)

    def jump(self, seconds: float, calendar: float) -> None:
        """Let the process sleep, and change the calendar."""
        self.count("clock")
        self._history.tell(
            "clock", f"{seconds} s pass unnoticed, the calendar moves by {calendar} s"
        )
        self._calendar += calendar
        self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        self.jumped += seconds
        self._loop.advance(seconds)

    def has_others(self, broker: int) -> bool:
        """Return whether other brokers lead partitions of a topic of which this broker leads some."""
        leaders = [
            {partition.leader for partition in topic.partitions} - {None}
            for topic in self.cluster.topics
        ]
        return any(broker in some and len(some) > 1 for some in leaders)

    def wall_clock(self) -> float:
        """Return the calendar's time, in seconds since the epoch."""
        return self._calendar + self._loop.time()

    def _on_answer(self, answer: Any) -> None:
        """Count errors that brokers answer without a script."""
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code in _TOLD:
                    self.count(_TOLD[partition.error_code])

    def _on_network(self, kind: str, where: str) -> None:
        self.count(kind)
        self._history.tell("network", f"{kind}: {where}")
