"""The life of a batch.

1. A batch ends once: acknowledged, failed, or split into others. What arrives later is counted and dropped.
2. Its bytes are fixed when it is encoded. A retry sends the same bytes; a new number changes the header alone (KIP-360).
3. A batch that was on the wire may have been written, whatever the client saw: its failure says `persisted=maybe`.

Its states are in `batch_state`. Knows nothing of clocks, loops, sockets, or who waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.batch_state import NEXT, Event, State, next_state
from aioproducer.core.sequence_numbers import NO_IDENTITY, UNNUMBERED

if TYPE_CHECKING:
    from aioproducer.core.batch_splitting import Piece
    from aioproducer.core.topic_routing import PartitionQueue
    from aioproducer.errors import KafkaError
    from aioproducer.interfaces import Buffer, OpenBatch

__all__ = ["NO_EPOCH", "ProducerBatch"]

NO_EPOCH: Final = -1
_OPEN: Final = State.OPEN  # Python 3.11 looks members up slowly, and these are asked for with every batch
_ENDED: Final = State.DONE  # it, and all that follow it


class ProducerBatch:
    """Records of one partition on their way (Java's `ProducerBatch`).

    Attributes:
        number: its place among the batches of its partition; those that it was split into have the same one.
        piece: of a part, its place among those of its root; parts of parts have longer ones of the same beginning.
        parts: of a root, what stands for it now.
        attempts: how often its records were sent; `spared` of those ended in a split, which is no failure that counts as a retry.
        open: takes records while the state is OPEN, then None (an `interfaces.OpenBatch`).
        result: what its deliveries share; opaque here.
        credit: bytes of `buffer_memory` that it holds.
        may_be_written: some attempt ended without a broker's word.
        on_wire: sent, and neither answered nor lost yet.
        held: drained, and the connection is not done with its bytes: until then they and the credit are not free.
        is_encoded: the payload is compressed, if it is to be.
        raw_size: bytes of the payload before that.
        magic: the format that the payload is in: 2, or after encoding for an older broker 1 or 0.
        identity, sequence: of an idempotent producer: under which id and epoch its first record has which number; -1: none yet.
        is_alone: drained while its partition sent one at a time: its success ends that.
        epoch: of the leader that it was last drained to.
        error: what its last attempt ended with.
        history: for `explain`: when, and where it was sent or what was said of that.
    """

    __slots__ = (
        "_root",
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
        "sequence",
        "settled",
        "spared",
        "state",
    )

    def __init__(
        self, queue: PartitionQueue, number: int, open_batch: OpenBatch | None, result: Any, *, credit: int, expires_at: float
    ) -> None:
        self.queue = queue
        self.number = number
        self.piece: tuple[int, ...] = ()
        self.open = open_batch
        self.result = result
        self.credit = credit
        self.expires_at = expires_at
        self._root: ProducerBatch | None = None  # no circle: batches must not wait for the collector
        self.parts: dict[ProducerBatch, None] | None = None
        self.state = _OPEN
        self.attempts = self.spared = 0
        self.count = 0
        self.settled = 0
        self.raw_size = 0
        self.epoch = NO_EPOCH
        self.error: KafkaError | None = None
        self.history: tuple[tuple[float, str | KafkaError], ...] = ()  # no list: each batch would give the collector one more
        self.base_timestamp = self.max_timestamp = -1
        self.payload: Buffer | None = None
        self.header: bytes | None = None
        self.magic = 2
        self.identity = NO_IDENTITY
        self.sequence = UNNUMBERED
        self.may_be_written = False
        self.on_wire = self.held = self.is_encoded = self.is_alone = False

    def part(self, nth: int, piece: Piece, result: Any) -> ProducerBatch:
        """A smaller batch of some of its records: as old as it, closed, not sent yet, though perhaps written by an earlier attempt."""
        part = ProducerBatch(self.queue, self.number, None, result, credit=0, expires_at=self.expires_at)
        part.piece = (*self.piece, nth)
        part.move(Event.CLOSE)
        part._root = self.root
        part.count = len(piece.indexes)
        part.payload, part.base_timestamp, part.max_timestamp = piece[1:]
        part.raw_size = len(piece.payload)
        part.attempts, part.spared = self.attempts, self.spared + 1
        part.may_be_written = self.may_be_written
        part.history = self.history
        return part

    def hold(self, credit: int) -> int:
        """It holds so many bytes of `buffer_memory` from now on; gives how many more than before."""
        more = credit - self.credit
        self.credit = credit
        self.queue.bytes += more
        return more

    def move(self, event: Event) -> None:
        """Go to the state that `event` leads to."""
        self.state = NEXT.get((self.state, event)) or next_state(self.state, event)  # no state that one goes to is 0

    @property
    def ended(self) -> bool:
        """Whether it was acknowledged, failed, or split into others."""
        return self.state >= _ENDED

    @property
    def place(self) -> tuple[int, ...]:
        """What its partition's batches are sorted by."""
        return (self.number, *self.piece)

    @property
    def root(self) -> ProducerBatch:
        """The batch that it was once split from, else itself; all that stand for one batch share its deadline."""
        return self._root or self

    @property
    def is_part(self) -> bool:
        """Whether it was cut from another one."""
        return self._root is not None

    def __repr__(self) -> str:
        number = ".".join(map(str, self.place))
        return (
            f"<Batch {number} of {self.queue.topic}-{self.queue.partition}: {self.count} records, {self.state}, sent {self.attempts} times>"
        )
