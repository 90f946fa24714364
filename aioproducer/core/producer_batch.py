"""Holds a batch of one partition from its creation to its end, and the queue of its partition.

1. A batch ends once: acknowledged, failed, or split into others. A later answer is counted and dropped.
2. Its bytes are fixed when it is encoded. A retry sends the same bytes. A new number changes the header alone (KIP-360).
3. A batch that was on the wire may have been written, regardless of the error that the client saw. Its failure has
   `persisted=maybe`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.sequence_numbers import NO_IDENTITY, UNNUMBERED
from aioproducer.model import counted

if TYPE_CHECKING:
    from aioproducer.core.batch_splitting import Piece
    from aioproducer.core.circuit_breaker import PartitionCircuit
    from aioproducer.core.sequence_numbers import ProducerIdAndEpoch, SequenceNumbers
    from aioproducer.errors import KafkaError
    from aioproducer.interfaces import Buffer, OpenBatch


# The states of a batch and the transitions between them are Kafka's (seeds/003).


class State(enum.IntEnum):
    """Lists the states of a batch. They are integers because the hash of a plain Enum is a Python function."""

    OPEN = 0
    READY = 1
    ENCODING = 2
    IN_FLIGHT = 3
    DONE = 4
    FAILED = 5
    SPLIT = 6

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


class Event(enum.IntEnum):
    """Lists the events that change the state of a batch."""

    CLOSE = 0
    DRAIN = 1
    SEND = 2
    RETRY = 3
    ACKNOWLEDGE = 4
    FAIL = 5
    SPLIT = 6

    def __str__(self) -> str:
        return self.name.lower()


class InvalidTransition(AssertionError):
    """Raised for a bug in the caller, never for a runtime condition."""


class _Transitions(dict[tuple[State, Event], State]):
    """Maps a state and an event to the next state. Raises `InvalidTransition` if there is none."""

    def __missing__(self, key: tuple[State, Event]) -> State:
        raise InvalidTransition(f"a batch that is {key[0]} cannot {key[1]}")


NEXT: Final = _Transitions(
    {
        (State.OPEN, Event.CLOSE): State.READY,
        (State.READY, Event.DRAIN): State.ENCODING,
        (State.ENCODING, Event.SEND): State.IN_FLIGHT,
        # The connection was lost while the batch was compressed. The batch was not sent.
        (State.ENCODING, Event.RETRY): State.READY,
        # The batch keeps its place.
        (State.IN_FLIGHT, Event.RETRY): State.READY,
        (State.IN_FLIGHT, Event.ACKNOWLEDGE): State.DONE,
        # The batch was too large, or the broker refused some of its records. Smaller batches replace it.
        (State.IN_FLIGHT, Event.SPLIT): State.SPLIT,
        # The batch expired, or the producer stops.
        (State.READY, Event.FAIL): State.FAILED,
        (State.ENCODING, Event.FAIL): State.FAILED,
        # Its bytes stay reserved until the connection no longer uses them (KAFKA-19012).
        (State.IN_FLIGHT, Event.FAIL): State.FAILED,
    }
)


NO_EPOCH: Final = -1
# Python 3.11 looks enum members up slowly, and every batch needs these.
_OPEN: Final = State.OPEN
# This state and all states after it.
_ENDED: Final = State.DONE


class ProducerBatch:
    """Holds the records of one batch and its delivery state (Java's `ProducerBatch`).

    Attributes:
        number: its place among the batches of its partition; the batches that it was split into have the same number.
        piece: of a part, its place among the parts of its root; the piece of a part of a part is longer, with the same beginning.
        root: of a part, the batch that it was first split from; all its parts share its deadline. None: it is a root itself.
        parts: of a root, the batches that replace it now.
        attempts: how often its records were sent; `spared` counts the attempts among them that are no failures, such as a split.
        open: accepts records while the state is OPEN, then None (an `interfaces.OpenBatch`).
        result: the outcome that its deliveries share; opaque here.
        credit: bytes of `buffer_memory` that it holds. The pool sets it.
        may_be_written: some attempt ended without an answer from the broker that rules out a write.
        on_wire: sent, and neither answered nor lost yet.
        held: drained, and the connection still uses its bytes: until that ends neither the bytes nor the credit are free.
        is_encoded: the payload is compressed, if it is to be.
        raw_size: bytes of the payload before that.
        magic: the format of the payload: 2, or after encoding for an older broker 1 or 0.
        identity, sequence: of an idempotent producer: the id and epoch, and the number of its first record under them; -1: none
            yet.
        is_alone: drained while its partition sent one batch at a time: its success ends that.
        epoch: of the leader that it was last drained to.
        error: the error of its last attempt.
        history: for `explain`: the time and place of each send, and the time and content of each answer.
    """

    __slots__ = (
        "attempts",
        "base_timestamp",
        "count",
        "credit",
        "epoch",
        "error",
        "expires_at",
        "header",
        "held",
        "history",
        "identity",
        "is_alone",
        "is_encoded",
        "magic",
        "max_timestamp",
        "may_be_written",
        "number",
        "on_wire",
        "open",
        "parts",
        "payload",
        "piece",
        "queue",
        "raw_size",
        "result",
        "root",
        "sequence",
        "settled",
        "spared",
        "state",
    )

    def __init__(
        self,
        queue: PartitionQueue,
        number: int,
        open_batch: OpenBatch | None,
        result: Any,
        *,
        expires_at: float,
        credit: int = 0,
    ) -> None:
        self.queue: PartitionQueue = queue
        self.number: int = number
        self.piece: tuple[int, ...] = ()
        self.open: OpenBatch | None = open_batch
        self.result: Any = result
        self.credit: int = credit
        self.expires_at: float = expires_at
        # None for a root, so that there is no reference cycle: a batch must not wait for the garbage collector.
        self.root: ProducerBatch | None = None
        self.parts: dict[ProducerBatch, None] | None = None
        self.state: State = _OPEN
        self.attempts: int = 0
        self.spared: int = 0
        self.count: int = 0
        self.settled: int = 0
        self.raw_size: int = 0
        self.epoch: int = NO_EPOCH
        self.error: KafkaError | None = None
        # A tuple: a list in each batch would be one more object for the garbage collector.
        self.history: tuple[tuple[float, str | KafkaError], ...] = ()
        self.base_timestamp: int = -1
        self.max_timestamp: int = -1
        self.payload: Buffer | None = None
        self.header: bytes | None = None
        self.magic: int = 2
        self.identity: ProducerIdAndEpoch = NO_IDENTITY
        self.sequence: int = UNNUMBERED
        self.may_be_written: bool = False
        self.on_wire: bool = False
        self.held: bool = False
        self.is_encoded: bool = False
        self.is_alone: bool = False

    def part(self, nth: int, piece: Piece, result: Any) -> ProducerBatch:
        """Return a smaller batch with some of its records.

        The part is as old as this batch, closed, and not sent yet. An earlier attempt may have written it.
        """
        part = ProducerBatch(self.queue, self.number, None, result, expires_at=self.expires_at)
        part.piece = (*self.piece, nth)
        part.state = NEXT[part.state, Event.CLOSE]
        part.root = self.root or self
        part.count = len(piece.indexes)
        part.payload, part.base_timestamp, part.max_timestamp = piece[1:]
        part.raw_size = len(piece.payload)
        part.attempts, part.spared = self.attempts, self.spared + 1
        part.may_be_written = self.may_be_written
        part.history = self.history
        return part

    @property
    def ended(self) -> bool:
        """Return whether it was acknowledged, failed, or split into others."""
        return self.state >= _ENDED

    @property
    def place(self) -> tuple[int, ...]:
        """Return the sort key of the batch in its partition."""
        return (self.number, *self.piece)

    def __repr__(self) -> str:
        name = f"{'.'.join(map(str, self.place))} of {self.queue.topic}-{self.queue.partition}"
        return f"<ProducerBatch {name}: {counted(self.count, 'record')}, {self.state}, sent {counted(self.attempts, 'time')}>"


class PartitionQueue:
    """Holds the batches of one partition, and the conditions that keep them from being drained.

    Attributes:
        open: the open batch; the `full` sentinel when there is none, so that the fast path needs no check.
        connection: the connection that its in-flight batches are on; opaque here.
        epoch: of the leader's election, -1 where brokers do not report it.
        numbers: the sequence numbers of an idempotent producer's batches; None until the first batch is drained.
        is_sendable: its open batch waits only for the next drain, and accepts records until then (KIP-782).
        is_held: no batch is drained until it is released (its transaction does not have it yet).
        one_at_a_time: after a failure or a change of leader, until a batch that was sent alone succeeds.
        bytes: bytes of `buffer_memory` that its batches hold.
        filled: bytes of records that its last batch closed with.
        is_full: its batches hold as much memory as is free: it gets no more for now, and is avoided.
        circuit: the circuit of a partition that fails; None: the circuit is closed.
        is_avoided: because of its circuit, the choice of a partition excludes it.
        is_muted: because of its circuit, no batch of it is drained.
        remembered_until: a batch that expires by then was created soon after the batch that was drained before it.
    """

    __slots__ = (
        "bytes",
        "circuit",
        "closed",
        "connection",
        "current",
        "epoch",
        "filled",
        "in_flight",
        "is_avoided",
        "is_full",
        "is_held",
        "is_muted",
        "is_sendable",
        "leader",
        "numbers",
        "one_at_a_time",
        "open",
        "partition",
        "remembered_until",
        "retry_at",
        "routing",
        "topic",
    )

    def __init__(self, routing: TopicState, partition: int, leader: int, full: Any) -> None:
        self.routing: TopicState = routing
        self.topic: str = routing.topic
        self.partition: int = partition
        self.leader: int = leader
        self.epoch: int = NO_EPOCH
        self.open: OpenBatch = full
        self.current: ProducerBatch | None = None
        # A list: it is mostly short, and needs a tenth of the bytes of a deque.
        self.closed: list[ProducerBatch] = []
        self.in_flight: int = 0
        self.connection: object = None
        self.numbers: SequenceNumbers | None = None
        self.is_sendable: bool = False
        self.is_held: bool = False
        self.one_at_a_time: bool = False
        self.bytes: int = 0
        self.filled: int = 0
        self.circuit: PartitionCircuit | None = None
        self.is_full: bool = False
        self.is_avoided: bool = False
        self.is_muted: bool = False
        self.remembered_until: float = 0.0
        self.retry_at: float = 0.0

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic}-{self.partition} leader {self.leader}: {len(self.closed)} closed, {self.in_flight} in flight>"


class TopicState:
    """Holds what the partition queues of one topic share.

    Attributes:
        queues: its partition queues.
        sticky: the partition queue that records without a key go to, until it has had its share.
        share: bytes that it has had since it became sticky, in closed batches.
        used_at: when a batch was last opened for the topic, or the topic was asked about.
        stamps_time: its brokers set the append time on records, as shown by the latest answer that cannot be a duplicate's.
        is_narrow: a broker refused a batch of it as too large: no batch exceeds `batch_size` from then on.
    """

    __slots__ = (
        "is_narrow",
        "queues",
        "share",
        "stamps_time",
        "sticky",
        "topic",
        "topic_id",
        "used_at",
    )

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self.topic: str = topic
        self.topic_id: bytes = topic_id
        self.queues: list[PartitionQueue] = []
        self.sticky: PartitionQueue | None = None
        self.share: int = 0
        self.used_at: float = 0.0
        self.is_narrow: bool = False
        self.stamps_time: bool = False

    def leave(self, queue: PartitionQueue) -> None:
        """Drop `queue` as the sticky partition, if it is, regardless of the bytes left in its open batch."""
        if self.sticky is queue:
            self.sticky = None
