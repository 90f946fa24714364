"""Compares the partition queues with their rules under events in any order. Connections and clock are simulated."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from batches import FULL, RECORD_SIZE, OpenBatch, answered, install, topic
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aioproducer.core.batch_splitting import Piece
from aioproducer.core.drain_policy import DrainPolicy, Fill, Linger
from aioproducer.core.metadata.cluster_metadata import PartitionView, TopicView
from aioproducer.core.partition_queues import NO_LEADER, PartitionQueue, PartitionQueues
from aioproducer.core.producer_batch import NEXT, Event, State
from aioproducer.core.retries import ProduceAttempts

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch

BROKERS = (1, 2)
LIFETIME = 40.0
FRESH = LIFETIME / 16  # for so long a batch that waits for its drain takes more records
PARTITIONS = 3


class Accumulating(RuleBasedStateMachine):
    """Appends, drains, answers, failures, time-outs and elections."""

    @initialize(linger=st.sampled_from([0.0, 1.0, 7.0, None]))
    def begin(self, linger: float | None) -> None:
        """None: by load."""
        self.now = 1.0
        self.by_load = linger is None
        self.linger = linger or 0.0
        self.closings: Counter[ProducerBatch] = Counter()
        policy = DrainPolicy(
            Linger.LOAD if self.by_load else Linger.TIME if self.linger else Linger.NONE
        )
        self.rules = PartitionQueues(
            FULL,
            linger=self.linger,
            policy=policy,
            lifetime=LIFETIME,
            on_close=lambda batch: self.closings.update([batch]),
        )
        self.hurried: set[ProducerBatch] = set()
        self.ripe: set[ProducerBatch] = set()  # they waited enough
        self.leaders = [1] * PARTITIONS
        self.epochs = [0] * PARTITIONS
        self.sent_in: dict[ProducerBatch, int] = {}
        self.queues: list[PartitionQueue] = install(self.rules, topic(*self.leaders)).queues
        self.appended = 0
        self.opened_at: dict[ProducerBatch, float] = {}  # in order
        self.records: dict[ProducerBatch, list[int]] = {}
        self.requests: dict[int, deque[list[ProducerBatch]]] = {node: deque() for node in BROKERS}
        self.lanes: dict[int, object] = {node: f"{node}, first" for node in BROKERS}
        self.flying: dict[PartitionQueue, list[ProducerBatch]] = {
            queue: [] for queue in self.queues
        }
        self.pause_until: dict[PartitionQueue, float] = {}
        self.is_suspect: dict[PartitionQueue, bool] = dict.fromkeys(self.queues, False)
        self.highest_sent: dict[PartitionQueue, tuple[int, ...]] = dict.fromkeys(self.queues, (0,))
        self.sent_alone: dict[ProducerBatch, bool] = {}

    # Events

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def append(self, partition: int, count: int) -> None:
        queue = self.queues[partition]
        if queue.current is None:
            assert queue.open is FULL
            batch = self.rules.open(queue, OpenBatch(), None, now=self.now)
            self.opened_at[batch] = self.now
            self.records[batch] = []
            if self.rules.ready.memory_is_short:
                self.hurried.add(batch)
        assert queue.current is not None
        for _ in range(count):
            queue.open.put(self.appended)
            self.records[queue.current].append(self.appended)
            self.appended += 1

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def close(self, partition: int) -> None:
        batch = self.queues[partition].current
        assert self.rules.close(self.queues[partition]) is batch

    @precondition(lambda self: any(queue.current is not None for queue in self.queues))
    @rule(data=st.data())
    def mark_sendable(self, data: st.DataObject) -> None:
        """It is full, and takes more until it goes."""
        queue = data.draw(
            st.sampled_from([queue for queue in self.queues if queue.current is not None])
        )
        assert queue.current is not None
        self.rules.mark_sendable(queue)
        self.ripe.add(queue.current)

    @rule(
        node=st.sampled_from(BROKERS),
        limit=st.sampled_from([1, 3 * RECORD_SIZE, 1000]),
        least=st.sampled_from(Fill),
        send=st.booleans(),
    )
    def drain(self, node: int, limit: int, least: Fill, send: bool) -> None:
        waiting = {
            queue: min(self.standing(queue), default=None, key=lambda batch: batch.place)
            for queue in self.queues
        }
        filling = (
            {queue.current for queue in self.queues if self.by_load and self.flying[queue]}
            - self.hurried
            - self.ripe
        )
        filling |= {
            queue.current
            for queue in self.queues
            if not queue.closed and least > (queue.current in self.ripe)
        } - {None}
        batches = self.rules.drain(node, self.lanes[node], limit, least=least)
        assert not filling & set(batches), "it was to wait for what is in flight, or to fill"
        assert len({batch.queue for batch in batches}) == len(batches), (
            "two batches of a partition in one request"
        )
        assert (
            len(batches) == 1
            or sum(len(batch.payload or b"") for batch in batches) <= limit
            or not batches
        )
        for batch in batches:
            self.check_drained(batch, node, waiting[batch.queue])
            self.flying[batch.queue].append(batch)
            self.highest_sent[batch.queue] = max(self.highest_sent[batch.queue], batch.place)
            if send:
                batch.state = NEXT[batch.state, Event.SEND]
        if batches and send:
            self.requests[node].append(batches)
        elif batches:  # it was compressed too long: the connection is gone
            for batch in batches:
                self.retry(batch, 0.0)

    def check_drained(
        self, batch: ProducerBatch, node: int, expected: ProducerBatch | None
    ) -> None:
        queue = batch.queue
        assert batch is expected, "not the oldest that stands there"
        assert (batch.state, batch.held, queue.leader) == (State.ENCODING, True, node)
        assert self.pause_until.get(queue, 0.0) <= self.now, "it was to wait longer"
        self.sent_alone[batch] = self.is_suspect[queue]
        self.sent_in[batch] = self.epochs[queue.partition]
        if self.is_suspect[queue]:
            assert not self.flying[queue], "one at a time after a failure"
        assert batch.place > self.highest_sent[queue], (
            "the order changed, and nothing between failed"
        )

    @precondition(lambda self: any(self.requests.values()))
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["ok", "ok", "retry", "fail", "split"]),
        pause=st.sampled_from([0.0, 1.0, 20.0]),
    )
    def answer(self, data: st.DataObject, outcome: str, pause: float) -> None:
        """The oldest request of a connection."""
        node = data.draw(
            st.sampled_from([node for node, requests in self.requests.items() if requests])
        )
        for batch in self.requests[node].popleft():
            if batch.ended:
                self.land(batch)
            elif outcome == "ok":
                self.flying[batch.queue].remove(batch)
                answered(self.rules, batch)
                self.is_suspect[batch.queue] &= not self.sent_alone[batch]
            elif outcome == "split" and len(self.records[batch]) > 1:
                self.split(batch)
            elif outcome in {"retry", "split"}:
                self.retry(batch, self.now + pause if pause else 0.0)
            else:
                self.land(batch)
                ProduceAttempts(self.rules).fail(batch)

    @rule(node=st.sampled_from(BROKERS), pause=st.sampled_from([0.0, 5.0]))
    def lose_connection(self, node: int, pause: float) -> None:
        """All its requests fail, oldest first."""
        requests, self.requests[node] = self.requests[node], deque()
        for batch in (batch for request in requests for batch in request):
            if batch.ended:
                self.land(batch)
            else:
                self.retry(batch, self.now + pause if pause else 0.0)
        self.lanes[node] = f"{node}, after {self.lanes[node]}"[:50] + str(self.appended)

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        leader=st.sampled_from([*BROKERS, NO_LEADER]),
        is_told=st.booleans(),
    )
    def elect(self, partition: int, leader: int, is_told: bool) -> None:
        """A later election ends a pause; an old broker does not tell of which election a leader is."""
        queue = self.queues[partition]
        self.epochs[partition] += is_told
        if is_told and leader != NO_LEADER:
            self.pause_until.pop(queue, None)
        if leader != self.leaders[partition] and self.flying[queue]:
            self.is_suspect[queue] = True
        self.leaders[partition] = leader
        views = zip(self.leaders, self.epochs, strict=True)
        install(
            self.rules,
            TopicView(
                "t", partitions=tuple(PartitionView(leader, epoch) for leader, epoch in views)
            ),
        )

    @rule(seconds=st.sampled_from([0.5, 3.0, 7.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [
            batch for batch in self.opened_at if batch.expires_at <= self.now and not batch.ended
        ]
        assert self.rules.incomplete.expired(self.now) == due
        for batch in due:
            ProduceAttempts(self.rules).fail(batch)
        self.rules.wake(self.now)
        lingered = {
            batch for batch, when in self.opened_at.items() if when + self.linger <= self.now
        }
        self.ripe |= lingered if self.linger else set()
        assert all(
            batch.state is not State.OPEN
            for batch in lingered
            if self.opened_at[batch] + FRESH <= self.now
        ), "too old for more"
        for queue in [queue for queue, until in self.pause_until.items() if until <= self.now]:
            del self.pause_until[queue]

    @rule(is_eager=st.booleans())
    def want_memory(self, is_eager: bool) -> None:
        self.rules.ready.memory_is_short = is_eager
        if is_eager:
            self.rules.flush_partial_batches()
            for queue in self.queues:
                waits = (
                    self.linger
                    or (self.by_load and self.flying[queue])
                    or queue.current in self.ripe
                )
                assert queue.current is None or queue.closed or not waits
            self.hurried |= {queue.current for queue in self.queues if queue.current is not None}

    @rule()
    def flush(self) -> None:
        for queue in self.rules.open_queues():
            self.rules.close(queue)
        assert all(queue.current is None for queue in self.queues)

    # Invariants

    @invariant()
    def nothing_is_lost_or_twice(self) -> None:
        alive = [batch for batch in self.opened_at if not batch.ended]
        assert list(self.rules.incomplete) == alive
        places = Counter(batch for queue in self.queues for batch in self.standing(queue))
        places.update(
            batch for flying in self.flying.values() for batch in flying if not batch.ended
        )
        assert places == Counter(alive)
        for batch in alive:
            assert batch.open is None or batch.open.records == self.records[batch]  # type: ignore[attr-defined]
            assert batch.payload is None or batch.payload == b"".join(
                b"%10d" % record for record in self.records[batch]
            )
        assert max(self.closings.values(), default=1) == 1

    @invariant()
    def in_flight_is_counted_and_on_one_connection(self) -> None:
        for queue, flying in self.flying.items():
            assert queue.in_flight == len(flying)
            assert (queue.connection is None) == (not flying)
            for node, requests in self.requests.items():
                if any(batch in request for request in requests for batch in flying):
                    assert queue.connection == self.lanes[node]
            assert all(batch.held for batch in flying)

    @invariant()
    def who_may_go_is_ready_at_its_leader_and_only_there(self) -> None:
        for queue in self.queues:
            places = [node for node, queues in self.rules.ready.items() if queue in queues]
            assert places in ([], [queue.leader])
            waits = queue.current not in self.ripe and (
                self.linger or (self.by_load and self.flying[queue])
            )
            is_due = bool(queue.closed) or (queue.current is not None and not waits)
            is_held = queue in self.pause_until or (self.is_suspect[queue] and self.flying[queue])
            is_elsewhere = self.flying[queue] and queue.connection != self.lanes.get(queue.leader)
            if is_due and not is_held and not is_elsewhere:
                assert places
            if is_held or not self.standing(queue):
                assert not places
        assert all(self.rules.ready.get(node) for node in self.rules.ready.nodes())

    @invariant()
    def closed_batches_are_counted(self) -> None:
        assert self.rules.ready.closed == sum(len(queue.closed) for queue in self.queues)

    @invariant()
    def what_waits_stands_in_order(self) -> None:
        for queue in self.queues:
            numbers = [batch.place for batch in self.standing(queue)]
            assert numbers == sorted(numbers)

    @invariant()
    def what_waits_for_a_time_is_woken_then(self) -> None:
        moments = list(self.pause_until.values())
        for batch, when in self.opened_at.items():
            if batch.state is State.OPEN:
                moments.append(when + (FRESH if when + self.linger <= self.now else self.linger))
        assert all(moment > self.now for moment in moments), "it has waited longer than it was to"
        wake = self.rules.deadlines.next()
        assert not moments or (wake is not None and wake <= min(moments))
        alive = [batch.expires_at for batch in self.opened_at if not batch.ended]
        assert self.rules.incomplete.next_expiry() == (alive[0] if alive else None)

    def teardown(self) -> None:
        """With a broker that answers, everything goes."""
        if not hasattr(self, "rules"):
            return
        for node in BROKERS:
            self.lose_connection(node, 0.0)
        for partition in range(PARTITIONS):
            self.elect(partition, 1, is_told=True)
        self.rules.wake(self.now + 50)
        self.flush()
        while batches := self.rules.drain(1, "the last", 1000):
            for batch in batches:
                batch.state = NEXT[batch.state, Event.SEND]
                answered(self.rules, batch)
        assert not list(self.rules.incomplete)

    # Words

    def standing(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """Batches that are not in flight."""
        return [*queue.closed, *([queue.current] if queue.current is not None else [])]

    def land(self, batch: ProducerBatch) -> None:
        self.flying[batch.queue].remove(batch)
        ProduceAttempts(self.rules).remove_in_flight(batch)

    def split(self, batch: ProducerBatch) -> None:
        """Its first record, and the others."""
        queue: Any = batch.queue
        self.land(batch)
        records = self.records[batch]
        pieces = [
            Piece(
                range(len(some)), b"".join(b"%10d" % record for record in some), some[0], some[-1]
            )
            for some in (records[:1], records[1:])
        ]
        parts = ProduceAttempts(self.rules).split(batch, [(piece, None) for piece in pieces])
        self.records.update(zip(parts, (records[:1], records[1:]), strict=True))
        self.opened_at = in_its_place(self.opened_at, batch, parts)
        self.closings.update(parts)
        self.is_suspect[queue] = True
        self.highest_sent[queue] = min(self.highest_sent[queue], before(batch))

    def retry(self, batch: ProducerBatch, retry_at: float) -> None:
        queue: Any = batch.queue
        self.flying[queue].remove(batch)
        answered(self.rules, batch, retry_at=retry_at)
        self.is_suspect[queue] = True
        self.highest_sent[queue] = min(self.highest_sent[queue], before(batch))
        if retry_at and self.sent_in[batch] == self.epochs[queue.partition]:
            self.pause_until[queue] = max(self.pause_until.get(queue, 0.0), retry_at)


def before(batch: ProducerBatch) -> tuple[int, ...]:
    """A number just below that of a batch and of what it may be split into."""
    return (*batch.place[:-1], batch.place[-1] - 1, 1 << 30)


def in_its_place(
    ages: dict[ProducerBatch, float], batch: ProducerBatch, parts: list[ProducerBatch]
) -> dict[ProducerBatch, float]:
    """The parts of a batch are as old as it."""
    return {each: age for key, age in ages.items() for each in (parts if key is batch else (key,))}


TestAccumulating = Accumulating.TestCase
TestAccumulating.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
