"""Explores all states of a few batches of one partition. `explore(World((2, 1, 1), 4))`, with four faults, goes further than the test.

The partition queues, the sequence numbers and the verdicts are
the real ones. This file simulates connections, time and brokers. The exploration applies each event that is possible in a state,
as long as the faults are not used up. It does not visit a state twice. After each event it checks these promises:

1. The log has an acknowledged record once. 2. The log does not have a record that failed with `persisted=no`.
3. The log's order is that of the calls.
4. From every state, without more faults, the client comes to an end at which no batch is left.
5. As long as nothing was refused or has expired, and brokers remember what they must, no record fails and no epoch begins.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from batches import FULL, RECORD_SIZE, install, put, topic

from aioproducer.core.batch_splitting import Piece
from aioproducer.core.partition_queues import PartitionQueue, PartitionQueues
from aioproducer.core.produce_errors import Action, fate
from aioproducer.core.producer_batch import NEXT, Event
from aioproducer.core.retries import AGAIN, ProduceAttempts, over
from aioproducer.core.sequence_numbers import LAST_EPOCH, ProducerIdAndEpoch
from aioproducer.errors import BrokerError, ConnectionLost, Persisted, TransportError, broker_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.core.producer_batch import ProducerBatch

__all__ = ["Explored", "Violation", "World", "explore"]

_NEVER = 1e9
_FAR = 1_000_000  # a sequence that these few batches never have
_CALLS = 100  # numbers of a batch's records begin at its own multiple of this
_OUT_OF_ORDER, _FENCED = "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"
_MOVED, _LATE = "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"
_BATCHES_REMEMBERED = 5

Move = tuple[Any, ...]  # an event's name and what it is about


class Violation(AssertionError):
    """A promise that was not kept."""


class Sent(NamedTuple):
    """A batch as it is on the wire."""

    identity: ProducerIdAndEpoch
    sequence: int
    records: tuple[int, ...]


class Told(NamedTuple):
    """A broker's answer: an error's name or none, whether it has an offset, and how many records it blames."""

    error: str | None
    appended: bool = False
    named: int = 0


_REFUSED = {
    "late": Told(_LATE),
    "moved": Told(_MOVED),
    "refused": Told("INVALID_RECORD"),
    "too large": Told("MESSAGE_TOO_LARGE"),
    "named": Told("INVALID_RECORD", named=1),
}
_EXCUSES = frozenset({"refused", "named", "fenced", "too large", "expiry", "forget"})
_AFTER_APPEND = {
    "late, appended": Told(_LATE, appended=True),
    "moved, appended": Told(_MOVED, appended=True),
}


class Log:
    """A partition's log, and what its leader knows of producers (Kafka's ProducerStateManager): for each id an epoch and its last batches.

    Attributes:
        committed: so many batches at the log's beginning outlive any leader.
    """

    def __init__(self) -> None:
        self.batches: list[Sent] = []
        self.committed = 0
        self.known: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}

    def append(self, sent: Sent) -> str | None:
        """Return the leader's answer when it appends the batch, or knows that the log has it."""
        epoch, remembered = self.known.get(sent.identity.producer_id, (-1, ()))
        last = sent.sequence + len(sent.records) - 1
        if sent.identity.epoch == epoch and (sent.sequence, last) in remembered:
            return None
        if sent.identity.epoch < epoch:
            return _FENCED
        if epoch >= 0:
            expected = remembered[-1][1] + 1 if sent.identity.epoch == epoch else 0
            if sent.sequence != expected:
                return _OUT_OF_ORDER
        self._take(sent)
        self.batches.append(sent)
        return None

    def commit(self, sent: Sent) -> None:
        """Its followers have a batch, and all before it."""
        place = next(at for at, each in enumerate(self.batches) if each[:2] == sent[:2])
        self.committed = max(self.committed, place + 1)

    def fence(self, producer_id: int) -> None:
        """Another producer writes to the log under the client's id and the last epoch."""
        self.batches.append(Sent(ProducerIdAndEpoch(producer_id, LAST_EPOCH), _FAR, ()))
        self._take(self.batches[-1])
        self.committed = len(self.batches)

    def forget(self) -> None:
        """As a broker that starts from a snapshot: of each producer the last batch is known."""
        self.known = {
            producer: (epoch, remembered[-1:])
            for producer, (epoch, remembered) in self.known.items()
        }

    def elect(self, lost: int) -> None:
        """The cluster elects another leader. That leader has all but the last few batches."""
        del self.batches[len(self.batches) - lost :]
        self.known = {}
        for batch in self.batches:
            self._take(batch)

    def _take(self, sent: Sent) -> None:
        epoch, remembered = self.known.get(sent.identity.producer_id, (-1, ()))
        before = remembered if epoch == sent.identity.epoch else ()
        last = sent.sequence + len(sent.records) - 1
        self.known[sent.identity.producer_id] = (
            sent.identity.epoch,
            (*before, (sent.sequence, last))[-_BATCHES_REMEMBERED:],
        )


class _Numbers:
    """Counts as `itertools.count` does, but can be pickled."""

    def __next__(self) -> int:
        return 0


def _nothing(_batch: ProducerBatch) -> None:
    pass


class World:
    """A client with batches for one partition, two brokers, and the requests in flight between them.

    Args:
        sizes: the number of records of each batch.
        trouble: the number of faults that may happen.
        epoch: the epoch of each identity that the cluster gives out.

    Attributes:
        lanes: for each broker, the connection's name and the requests that were sent over it.
        is_excused: a batch was refused or has expired, or a broker broke its own rules.
        strays: requests of connections that are gone, which brokers may still read.
        fates: for each record that has ended, True if it was acknowledged, else the `persisted` of its failure.
    """

    def __init__(self, sizes: tuple[int, ...], trouble: int, epoch: int = 0) -> None:
        self.rules = PartitionQueues(FULL, linger=0.0, lifetime=_NEVER, on_close=_nothing)
        self.rules.deadlines.ties = _Numbers()  # type: ignore[assignment]
        self.rules.idempotence.on_identity_lost = self.ask
        self.epoch = epoch
        self.rules.idempotence.granted = ProducerIdAndEpoch(1, epoch)
        self.queue: PartitionQueue = install(self.rules, topic(1)).queues[0]
        self.trouble = trouble
        self.leader = 1
        self.election = 0
        self.is_told = True
        self.is_excused = False
        self.asks = False
        self.log = Log()
        self.lanes: dict[int, tuple[str, list[tuple[ProducerBatch, Sent]]]] = {
            1: ("1", []),
            2: ("2", []),
        }
        self.strays: list[tuple[int, Sent]] = []
        self.fates: dict[int, Persisted | bool] = {}
        for number, size in enumerate(sizes):
            for place in range(size):
                put(self.rules, self.queue, _CALLS * number + place)
            self.rules.close(self.queue)

    def ask(self) -> None:
        """The client wants another identity."""
        self.asks = True

    # Events

    def moves(self) -> list[tuple[Move, int]]:
        """Each event that may come next, and how much trouble it is."""
        return [*self._of_the_client(), *self._of_the_network(), *self._of_the_brokers()]

    def _of_the_client(self) -> Iterator[tuple[Move, int]]:
        if self.rules.ready.get(self.queue.leader) or self.rules.deadlines.next() is not None:
            yield ("drain",), 0
            yield ("drain_unsent",), 1
        if self.asks:
            yield ("identify",), 0
        else:
            yield ("identity_lost",), 1
        if not self.is_told:
            yield ("metadata",), 0
        for at, _ in enumerate(self.rules.incomplete):
            yield ("expiry", at), 1

    def _of_the_network(self) -> Iterator[tuple[Move, int]]:
        for node, (_, flights) in self.lanes.items():
            if not flights:
                continue
            yield ("answer", node, ""), 0
            for trouble in (*_REFUSED, *_AFTER_APPEND, "fenced"):
                if trouble != "named" or len(flights[0][1].records) > 1:
                    yield ("answer", node, trouble), 1
            strays = (
                len(flights) if flights[0][1].identity.epoch < LAST_EPOCH else 0
            )  # no later epoch could refuse those of the last
            for read in range(len(flights) + 1):
                for stray in range(min(len(flights) - read, strays) + 1):
                    yield ("cut", node, read, stray), 1
        if self.strays:
            yield ("stray",), 0

    def _of_the_brokers(self) -> Iterator[tuple[Move, int]]:
        for lost in range(len(self.log.batches) - self.log.committed + 1):
            yield ("election", lost), 1
        if any(len(remembered) > 1 for _, remembered in self.log.known.values()) and not any(
            flights for _, flights in self.lanes.values()
        ):
            yield ("forget",), 1

    def happen(self, move: Move) -> bool:
        """Do it; False: nothing came of it."""
        name, *about = move
        self.is_excused |= not _EXCUSES.isdisjoint(move)
        return getattr(self, f"_on_{name}")(*about) is not False

    # Brokers

    def _on_answer(self, node: int, how: str) -> None:
        batch, sent = self.lanes[node][1].pop(0)
        self._hear(batch, self._answer(node, sent, how))

    def _answer(self, node: int, sent: Sent, how: str) -> Told:
        if node != self.leader:
            return _REFUSED["moved"]
        if how in _REFUSED:
            return _REFUSED[how]
        if how == "fenced":
            self.log.fence(sent.identity.producer_id)
        error = self.log.append(sent)
        if error is None and how in _AFTER_APPEND:
            return _AFTER_APPEND[how]
        if error is None:
            self.log.commit(sent)
        return Told(error)

    def _on_stray(self) -> None:
        """A broker reads a request of a connection that is gone."""
        node, sent = self.strays.pop(0)
        if node == self.leader:
            self.log.append(sent)

    def _on_election(self, lost: int) -> None:
        self.log.elect(lost)
        self.leader, self.election, self.is_told = 3 - self.leader, self.election + 1, False

    def _on_forget(self) -> None:
        self.log.forget()

    # The client, as the engine does it

    def _on_metadata(self) -> None:
        self.is_told = True
        install(self.rules, topic(self.leader, epoch=self.election))

    def _on_drain_unsent(self) -> bool:
        """The connection goes while the batch is compressed."""
        return self._on_drain(is_sent=False)

    def _on_drain(self, *, is_sent: bool = True) -> bool:
        node = self.queue.leader
        name, flights = self.lanes[node]
        self.rules.wake(_NEVER)
        batches = self.rules.drain(node, name, 1_000_000)
        for batch in batches:
            if not is_sent:
                ProduceAttempts(self.rules).remove_in_flight(batch)
                ProduceAttempts(self.rules).requeue(batch, 0.0)
                continue
            if batch.header is None:
                batch.header = pickle.dumps((batch.identity, batch.sequence))
            batch.state = NEXT[batch.state, Event.SEND]
            batch.attempts += 1
            batch.on_wire = True
            flights.append((batch, Sent(*pickle.loads(batch.header), _records(batch))))
        return bool(batches)

    def _on_identity_lost(self) -> None:
        """Another partition needs another one."""
        self.rules.idempotence.lose_identity()

    def _on_identify(self) -> None:
        before = max(self.log.known, default=0)
        numbers = self.queue.numbers
        self.asks = False
        self.rules.identify(
            ProducerIdAndEpoch(
                max(before, numbers.identity.producer_id if numbers else 0) + 1, self.epoch
            )
        )

    def _on_cut(self, node: int, read: int, stray: int) -> None:
        name, flights = self.lanes[node]
        self.lanes[node] = (name + "'", [])
        if node == self.leader:
            for _, sent in flights[:read]:
                self.log.append(sent)
        self.strays += [(node, sent) for _, sent in flights[read : read + stray]]
        for batch, _ in flights:
            self._hear(batch, None)

    def _on_expiry(self, at: int) -> None:
        self._fail(list(self.rules.incomplete)[at])

    def _hear(self, batch: ProducerBatch, told: Told | None) -> None:
        """An answer, or None: there will be none."""
        batch.on_wire = False
        ProduceAttempts(self.rules).remove_in_flight(batch)
        error: BrokerError | TransportError | None = ConnectionLost("cut")
        if told is not None:
            error = None if told.error is None else broker_error(told.error)
        if batch.ended:
            if error is None:
                ProduceAttempts(self.rules).complete_late(batch)
            return
        named, appended = (told.named, told.appended) if told else (0, False)
        verdict = over(
            batch,
            error,
            now=0.0,
            retries=1_000,
            transactional=False,
            named=named,
            appended=appended,
        )
        if verdict.action is Action.COMPLETE:
            self.fates.update(dict.fromkeys(_records(batch), True))
            ProduceAttempts(self.rules).complete(batch)
        elif verdict.action is Action.FAIL:
            self._fail(batch)
        elif verdict.action in AGAIN:
            ProduceAttempts(self.rules).retry(
                batch, verdict.action, 0.0 if verdict.action is Action.AWAIT else 1.0
            )
        else:
            first, _ = self._split(batch, named or batch.count // 2)
            if verdict.action is Action.EXCLUDE:
                self._fail(first)

    def _split(self, batch: ProducerBatch, at: int) -> list[ProducerBatch]:
        assert isinstance(batch.payload, bytes)
        payload = batch.payload
        pieces = [
            Piece(range(at), payload[: at * RECORD_SIZE], 0, 0),
            Piece(range(at, batch.count), payload[at * RECORD_SIZE :], 0, 0),
        ]
        return ProduceAttempts(self.rules).split(batch, [(piece, None) for piece in pieces])

    def _fail(self, batch: ProducerBatch) -> None:
        said = fate(batch)
        self.fates.update(dict.fromkeys(_records(batch), said))
        ProduceAttempts(self.rules).fail(batch)

    # Invariants

    def check(self) -> None:
        """Raise Violation where a promise is broken."""
        written = [record for sent in self.log.batches for record in sent.records]
        safe = {
            record for sent in self.log.batches[: self.log.committed] for record in sent.records
        }
        times = Counter(written)
        if doubles := [record for record, count in times.items() if count > 1]:
            raise Violation(f"twice in the log: {doubles}")
        if written != sorted(written):
            raise Violation(f"not in the order of the calls: {written}")
        if lost := [
            record for record, said in self.fates.items() if said is True and record not in safe
        ]:
            raise Violation(f"acknowledged, and not in the log for good: {lost}")
        if there := [
            record
            for record, said in self.fates.items()
            if said is Persisted.NO and record in times
        ]:
            raise Violation(f"certainly not in the log, it was said: {there}")
        numbers = self.queue.numbers
        if not self.is_excused and (
            not all(said is True for said in self.fates.values())
            or (numbers and numbers.identity.epoch != self.epoch)
        ):
            raise Violation(f"a failure or an epoch without need: {self.fates}, {numbers}")
        if self.is_at_rest and (
            self.queue.in_flight
            or self.queue.closed
            or (self.queue.numbers and self.queue.numbers.outstanding)
        ):
            raise Violation(f"something is left behind: {self.queue}, {self.queue.numbers}")

    @property
    def is_at_rest(self) -> bool:
        """Return whether the client has nothing to wait for."""
        return not any(self.rules.incomplete) and not any(
            flights for _, flights in self.lanes.values()
        )

    def key(self) -> object:
        """Equal for worlds that nothing that may come can tell apart."""
        queue, numbers, rules = self.queue, self.queue.numbers, self.rules
        live = tuple(
            (
                *_look(batch),
                batch.state,
                batch.may_be_written,
                batch.header,
                batch.is_alone,
                batch.epoch < queue.epoch,
            )
            for batch in rules.incomplete
        )
        flights = tuple(
            (node, tuple((batch.ended, batch.number, sent) for batch, sent in sent_))
            for node, (_, sent_) in self.lanes.items()
        )
        on_lane = next(
            (node for node, (name, _) in self.lanes.items() if name == queue.connection), None
        )
        counts = numbers and (
            numbers.granted,
            numbers.identity,
            numbers.next,
            numbers.acked,
            numbers.lost,
            numbers.gap,
            numbers.strays,
        )
        outstanding = numbers and tuple(batch.number for batch in numbers.outstanding)
        gates = (
            queue.one_at_a_time,
            queue.retry_at > 0,
            queue.leader,
            queue.in_flight,
            on_lane,
            tuple(batch.number for batch in queue.closed),
        )
        log = (tuple(self.log.batches), self.log.committed, tuple(sorted(self.log.known.items())))
        ready = tuple(node for node in (1, 2) if rules.ready.get(node))
        client = (
            live,
            counts,
            outstanding,
            gates,
            ready,
            rules.idempotence.granted,
            self.asks,
            tuple(sorted(self.fates.items())),
        )
        return (
            client,
            flights,
            tuple(self.strays),
            log,
            self.leader,
            self.is_told,
            self.is_excused,
            self.trouble,
        )


def _records(batch: ProducerBatch) -> tuple[int, ...]:
    assert isinstance(batch.payload, bytes)
    return tuple(
        int(batch.payload[at : at + RECORD_SIZE])
        for at in range(0, len(batch.payload), RECORD_SIZE)
    )


def _look(batch: ProducerBatch) -> tuple[object, ...]:
    return (batch.number, batch.identity, batch.sequence, batch.count)


class Explored(NamedTuple):
    """Counts the explored states, the transitions between them, and the states in which the client has nothing to wait for."""

    states: int
    ways: int
    rests: int


class _Space:
    """The states that were reached, how, and what leads on from each without trouble."""

    def __init__(self, start: World) -> None:
        self.numbers: dict[object, int] = {start.key(): 0}
        self.came: list[tuple[int, Move]] = [(-1, ())]
        self.before: list[list[int]] = [
            []
        ]  # of each, those from which it is reached without trouble
        self.rests: list[int] = []
        self.ways = 0

    def reach(self, world: World, origin: int, move: Move, cost: int) -> bool:
        """True: for the first time."""
        self.ways += 1
        number = self.numbers.setdefault(world.key(), len(self.came))
        is_new = number == len(self.came)
        if is_new:
            self.came.append((origin, move))
            self.before.append([])
        if not cost:
            self.before[number].append(origin)
        return is_new

    def story(self, number: int) -> str:
        """Return the shortest path to a state, one event per line of text."""
        moves = []
        while number > 0:
            number, move = self.came[number]
            moves.append(move)
        return "\n".join("  " + " ".join(map(str, move)) for move in reversed(moves))

    def check_ends(self) -> None:
        """Check that every state has a path to the end that needs no more trouble."""
        seen = set(self.rests)
        todo = list(seen)
        while todo:
            for origin in self.before[todo.pop()]:
                if origin not in seen:
                    seen.add(origin)
                    todo.append(origin)
        for number in range(len(self.came)):
            if number not in seen:
                raise Violation(f"it never ends, after:\n{self.story(number)}")


def explore(start: World) -> Explored:
    """Visit every state that can be reached.

    Raises:
        Violation: a promise was broken. Its text has the shortest path to that state.
    """
    space = _Space(start)
    todo = deque([(0, pickle.dumps(start, -1))])
    while todo:
        number, frozen = todo.popleft()
        world: World = pickle.loads(frozen)
        if world.is_at_rest:
            space.rests.append(number)
        moves = [(move, cost) for move, cost in world.moves() if cost <= world.trouble]
        for left, (move, cost) in zip(range(len(moves) - 1, -1, -1), moves, strict=True):
            after: World = pickle.loads(frozen) if left else world
            after.trouble -= cost
            if not after.happen(move):
                continue
            if space.reach(after, number, move, cost):
                try:
                    after.check()
                except Violation as broken:
                    raise Violation(
                        f"{broken}, after:\n{space.story(len(space.came) - 1)}"
                    ) from None
                todo.append((len(space.came) - 1, pickle.dumps(after, -1)))
    space.check_ends()
    return Explored(len(space.came), space.ways, len(space.rests))
