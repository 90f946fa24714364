"""Sequence numbers of an idempotent producer's batches, a partition at a time (KIP-98, KIP-360; Java's `TransactionManager`, `TxnPartitionMap`).

1. A batch gets its number when it is first drained, and keeps it: whatever is sent again is known again by its broker.
2. At most five are numbered and not ended: so many a broker remembers.
3. A broker takes numbers without gaps. What is certainly not in its log (`lost`) is followed by nothing that is: all from there on is
   numbered anew, under the next epoch, once nothing is in flight and what was numbered before it has ended.
4. What ended and may be in the log (`gap`) is found out by what follows it: an acknowledgement shows that it is there. If nothing
   follows, the next batch begins a new epoch, so that a straggler is refused.
5. Epochs are counted for each partition alone: brokers keep (producer id, epoch, sequence) for each. A transaction's are its coordinator's.
6. Of partitions that are forgotten (KIP-526) the newest epoch of all is kept, nothing of each: whoever is new begins with the next one,
   for it may be one of those, and a broker would take numbers of theirs for its.

Numbers here never wrap, only those on the wire do; so that every comparison is one of plain integers (exceeds RCD-08).
Knows nothing of clocks, connections or errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.core.producer_batch import ProducerBatch

__all__ = ["LAST_EPOCH", "NO_IDENTITY", "UNNUMBERED", "WINDOW", "Past", "ProducerIdAndEpoch", "SequenceNumbers", "on_wire"]

WINDOW: Final = 5  # batches of a producer that a broker remembers of a partition
LAST_EPOCH: Final = 32_767
UNNUMBERED: Final = -1
_NOTHING: Final = -1
_WRAP: Final = 0x7FFF_FFFF


class ProducerIdAndEpoch(NamedTuple):
    """Who a producer is to its brokers."""

    producer_id: int
    epoch: int


NO_IDENTITY: Final = ProducerIdAndEpoch(-1, -1)


def on_wire(sequence: int) -> int:
    """A number as brokers know it: 0 follows 2**31 - 1."""
    return sequence & _WRAP


class Past(NamedTuple):
    """What is kept of all partitions that were forgotten.

    Attributes:
        granted: what the producer was given; of another id's partitions nothing needs to be known.
        identity: the newest epoch of that id.
        strays: whether something of it may yet be written.
    """

    granted: ProducerIdAndEpoch
    identity: ProducerIdAndEpoch
    strays: bool


class SequenceNumbers:
    """The numbers of one partition.

    Args:
        renews: whether this client may begin a new epoch. Not in a transaction: there the coordinator does, when it has ended.
        past: the partition may be one of those that were forgotten.

    Attributes:
        identity: under which the outstanding batches are numbered.
        outstanding: numbered and not ended, by number.
        acked: the highest number that is known to be in the log.
        lost: this number and all that follow are certainly not in the log under `identity`; -1: none.
        gap: the highest number of those that ended and may or may not be in the log; -1: none.
        strays: whether what ended so may yet be written; until something of a later epoch is in the log.
    """

    __slots__ = ("acked", "gap", "granted", "identity", "lost", "next", "outstanding", "renews", "strays")

    def __init__(self, *, renews: bool = True, past: Past | None = None) -> None:
        self.renews = renews
        self.granted = self.identity = NO_IDENTITY
        self.next = 0
        self.acked = self.lost = self.gap = _NOTHING
        self.strays = False
        self.outstanding: list[ProducerBatch] = []
        if past is not None:
            self.granted, self.identity, self.strays = past
            self.lost = 0

    # Before a batch is sent

    def admits(self, granted: ProducerIdAndEpoch, batch: ProducerBatch | None, in_flight: int) -> bool:
        """Whether the partition's next batch may be sent now.

        Args:
            batch: that one; None: it is still open.
            granted: what the producer was given last; NO_IDENTITY while it asks.
            in_flight: batches of the partition that are on their way.
        """
        if batch is not None and batch.sequence >= 0:
            if not self._is_lost(batch):
                return True
            return not in_flight and batch is self.outstanding[0] and self._can_renew(granted)
        if self._is_due(granted):
            return not in_flight and not self.outstanding and self._can_renew(granted)
        return len(self.outstanding) < WINDOW and granted != NO_IDENTITY

    def number(self, batch: ProducerBatch, granted: ProducerIdAndEpoch) -> bool:
        """Give an admitted batch its number, unless it has one that still holds; True: it is the first of a new epoch."""
        if batch.sequence >= 0 and not self._is_lost(batch):
            return False
        begins = self._is_due(granted)
        if begins:
            self._renew(granted)
        if batch.sequence < 0:
            self._append(batch)
        return begins

    def needs_identity(self, granted: ProducerIdAndEpoch) -> bool:
        """Whether nothing can go on before the producer has another id: its epochs are used up."""
        return self.renews and self._is_due(granted) and not self._can_renew(granted)

    def _is_lost(self, batch: ProducerBatch) -> bool:
        return self.renews and 0 <= self.lost <= batch.sequence

    def _is_due(self, granted: ProducerIdAndEpoch) -> bool:
        return self.lost >= 0 or self.gap >= 0 or granted != self.granted

    def _can_renew(self, granted: ProducerIdAndEpoch) -> bool:
        if granted == NO_IDENTITY:
            return False
        return granted != self.granted or self._has_epochs

    @property
    def _has_epochs(self) -> bool:
        return self.renews and self.identity.epoch < LAST_EPOCH

    def _renew(self, granted: ProducerIdAndEpoch) -> None:
        """Begin at 0, under the next epoch or another id. What is outstanding is not in the log: rule 3.

        Another id does not refuse strays of the old one, only its next epoch does: that comes first.
        """
        if granted != self.granted and not (self.strays and self._has_epochs):
            self.identity = self.granted = granted
            self.strays = False
        else:
            self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        self.next = 0
        self.acked = self.lost = self.gap = _NOTHING
        batches = tuple(self.outstanding)
        self.outstanding.clear()
        for batch in batches:
            batch.may_be_written = False
            batch.header = None
            self._append(batch)

    def _append(self, batch: ProducerBatch) -> None:
        batch.identity = self.identity
        batch.sequence = self.next
        self.next += batch.count
        self.outstanding.append(batch)

    # After it was sent

    def is_behind(self, batch: ProducerBatch) -> bool:
        """Whether others that were numbered before it have not ended."""
        return bool(self.outstanding) and self.outstanding[0] is not batch

    def lose(self, batch: ProducerBatch, *, is_fenced: bool = False) -> None:
        """The broker will not take it under its number, and has not: it is to be numbered anew. Fenced: nor anything else of its epoch."""
        if self._is_ours(batch):
            self.strays &= not is_fenced
            self.lost = batch.sequence if self.lost < 0 else min(self.lost, batch.sequence)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """It is in the log, and so is all that was numbered before it. Also for one that has ended, whose answer came late."""
        if not self._is_ours(batch):
            return
        self._remove(batch)
        self.acked = max(self.acked, batch.sequence + batch.count - 1)
        if self.acked >= self.gap:
            self.gap = _NOTHING
            self.strays = False
        if self.lost >= 0:
            self._settle()

    def failed(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        """It ended without an acknowledgement."""
        if not self._is_ours(batch):
            return
        self._remove(batch)
        last = batch.sequence + batch.count - 1
        if not may_be_written:
            self.lose(batch)
        elif last > self.acked:
            self.gap = max(self.gap, last)
            self.strays = True
        self._settle()

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Smaller batches stand for it, in the order of their numbers; together they have as many records as it had."""
        if not self._is_ours(batch):
            return
        at = self.outstanding.index(batch)
        del self.outstanding[at]
        sequence = batch.sequence
        for place, part in enumerate(parts, at):
            part.identity, part.sequence = batch.identity, sequence
            sequence += part.count
            self.outstanding.insert(place, part)

    def restart(self) -> None:
        """The log is another one. A new log takes any first number: what is numbered goes on as it is; else begin a new epoch.

        Never an earlier number again: a broker that is behind may bring the old log back for a moment, which would know it.
        """
        if self.renews and not self.outstanding:
            self.lost = self.next

    # When it is forgotten

    def may_be_forgotten(self, granted: ProducerIdAndEpoch | None) -> bool:
        """Whether nothing is under way, and no epoch goes on in which brokers know its numbers: a transactional producer's, of some versions."""
        return not self.outstanding and (self.renews or self.identity != granted)

    def past(self, granted: ProducerIdAndEpoch | None, before: Past | None) -> Past | None:
        """What is to be kept of this partition, and of those that were forgotten before.

        Strays of an id that is no longer the producer's count until a partition of the new one is forgotten: they are older than that by then.
        """
        if not self.renews or self.identity == NO_IDENTITY:
            return before
        if before is not None and before.granted == self.granted:
            return Past(self.granted, max(before.identity, self.identity), before.strays or self.strays)
        return before if before is not None and self.granted != granted else Past(self.granted, self.identity, self.strays)

    def _is_ours(self, batch: ProducerBatch) -> bool:
        return batch.sequence >= 0 and batch.identity == self.identity

    def _remove(self, batch: ProducerBatch) -> None:
        if self.outstanding and self.outstanding[0] is batch:  # mostly
            del self.outstanding[0]
        elif batch in self.outstanding:
            self.outstanding.remove(batch)

    def _settle(self) -> None:
        """When nothing is outstanding, all before `lost` is in the log, and nothing behind it, its number is simply free again."""
        if not self.outstanding and self.lost > self.acked and self.gap < 0:
            self.next, self.lost = self.lost, _NOTHING

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {getattr(self, name)}" for name in ("next", "acked", "lost", "gap"))
        return f"<Numbering {self.identity.producer_id}/{self.identity.epoch}: {numbers}, {len(self.outstanding)} outstanding>"
