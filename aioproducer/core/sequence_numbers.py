"""Holds the sequence numbers of an idempotent producer for each partition (Java's `TransactionManager`).

The classes follow KIP-98, KIP-360 and Java's `TxnPartitionMap`.

1. A batch gets its number when it is first drained, and keeps it. So the broker recognizes a batch that is sent again.
2. At most five batches are numbered and not ended: a broker remembers five.
3. A broker accepts numbers without gaps only. No batch in the log may follow a number that is certainly not in the log (`lost`).
   All batches from `lost` on get new numbers under the next epoch. That happens once no batch is in flight and all batches numbered
   before it have ended.
4. A batch that has ended may or may not be in the log (`gap`). The acknowledgement of a later batch proves that the log has it. If
   no batch follows, the next batch begins a new epoch, so that the broker refuses a straggler.
5. Epochs are counted for each partition alone: brokers keep (producer id, epoch, sequence) for each. The coordinator gives the
   epochs of a transaction.
6. For all forgotten partitions together (KIP-526) only the newest epoch is kept. A new partition begins with the epoch after it.
   The new partition may be a forgotten one, and a broker could mistake its old numbers for new ones.
7. Another cluster may have given the same producer id to another producer. Its brokers would take batches for those of that one: for
   duplicates, which they do not write. So in another cluster all batches get new numbers, under a producer id of that cluster.

Numbers here never wrap, only the numbers on the wire do (`record_batch.header`). So every comparison is one of plain integers (exceeds RCD-08).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch
    from aioproducer.errors import KafkaError

# Batches of a producer that a broker remembers for each partition.
WINDOW: Final = 5
LAST_EPOCH: Final = 32_767
UNNUMBERED: Final = -1
_NOTHING: Final = -1
# Seconds of silence after which a broker may have forgotten a producer. The broker's own limit is a day.
_REMEMBERED: Final = 60.0


class ProducerIdAndEpoch(NamedTuple):
    """Holds the producer id and epoch that identify a producer to its brokers."""

    producer_id: int
    epoch: int

    @property
    def is_granted(self) -> bool:
        """Return True if a broker may grant it. Batches with a negative number would be written without a check for duplicates."""
        return self.producer_id >= 0 and self.epoch >= 0


NO_IDENTITY: Final = ProducerIdAndEpoch(-1, -1)


class Past(NamedTuple):
    """Holds the state that is kept of all forgotten partitions.

    Attributes:
        granted: the producer id and epoch that the producer was given; partitions of another id need no past.
        identity: the newest epoch of that id.
        strays: whether a batch of it may still be written.
    """

    granted: ProducerIdAndEpoch
    identity: ProducerIdAndEpoch
    strays: bool


class SequenceNumbers:
    """Holds the sequence numbers of one partition.

    Args:
        renews: whether this client may begin a new epoch. In a transaction it may not: the coordinator does so when the transaction
            has ended.
        past: the past of the forgotten partitions, of which this partition may be one.

    Attributes:
        identity: the producer id and epoch of the outstanding batches.
        outstanding: batches that are numbered and not ended, by number.
        acked: the highest number that is known to be in the log.
        lost: this number and all that follow are certainly not in the log under `identity`; -1: none.
        gap: the highest number of the ended batches that may or may not be in the log; -1: none.
        strays: whether such a batch may still be written; until the log has a batch of a later epoch.
    """

    __slots__ = (
        "acked",
        "gap",
        "granted",
        "identity",
        "lost",
        "next",
        "outstanding",
        "renews",
        "strays",
    )

    def __init__(self, *, renews: bool = True, past: Past | None = None) -> None:
        self.renews: bool = renews
        self.granted: ProducerIdAndEpoch = NO_IDENTITY
        self.identity: ProducerIdAndEpoch = NO_IDENTITY
        self.next: int = 0
        self.acked: int = _NOTHING
        self.lost: int = _NOTHING
        self.gap: int = _NOTHING
        self.strays: bool = False
        self.outstanding: list[ProducerBatch] = []
        if past is not None:
            self.granted, self.identity, self.strays = past
            self.lost = 0

    # Before a batch is sent

    def admits(
        self, granted: ProducerIdAndEpoch, closed: Sequence[ProducerBatch], in_flight: int
    ) -> bool:
        """Return whether the next batch of the partition may be sent now.

        Args:
            granted: the producer id and epoch that the producer was given last; NO_IDENTITY while it waits for them.
            closed: the closed batches of the partition, the next one first; empty: that one is still open.
            in_flight: number of batches of the partition that are in flight.
        """
        if closed and closed[0].sequence >= 0:
            if not self._is_lost(closed[0]):
                return True
            return not in_flight and closed[0] is self.outstanding[0] and self._can_renew(granted)
        if self._is_due(granted):
            return not in_flight and not self.outstanding and self._can_renew(granted)
        return len(self.outstanding) < WINDOW and granted != NO_IDENTITY

    def number(self, batch: ProducerBatch, granted: ProducerIdAndEpoch) -> bool:
        """Give an admitted batch its number, unless it has a valid one. Returns True if it is the first of a new epoch."""
        if batch.sequence >= 0 and not self._is_lost(batch):
            return False
        begins = self._is_due(granted)
        if begins:
            self._renew(granted)
        if batch.sequence < 0:
            self._append(batch)
        return begins

    def needs_identity(self, granted: ProducerIdAndEpoch) -> bool:
        """Return whether the partition needs another producer id to continue: its epochs are used up."""
        return self.renews and self._is_due(granted) and not self._can_renew(granted)

    def _is_lost(self, batch: ProducerBatch) -> bool:
        return self.renews and 0 <= self.lost <= batch.sequence

    def _is_due(self, granted: ProducerIdAndEpoch) -> bool:
        # Mostly it is the same object: to compare two tuples takes longer.
        return (
            self.lost >= 0
            or self.gap >= 0
            or (granted is not self.granted and granted != self.granted)
        )

    def _can_renew(self, granted: ProducerIdAndEpoch) -> bool:
        if granted == NO_IDENTITY:
            return False
        return granted != self.granted or self._has_epochs

    @property
    def _has_epochs(self) -> bool:
        return self.renews and self.identity.epoch < LAST_EPOCH

    def _renew(self, granted: ProducerIdAndEpoch) -> None:
        """Restart at 0 under the next epoch or another producer id. No outstanding batch is in the log: rule 3.

        Another producer id does not make the broker refuse stragglers of the old one. Only the next epoch of the old id does, so
        that epoch comes first.
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
        """Return whether batches that were numbered before `batch` have not ended."""
        return bool(self.outstanding) and self.outstanding[0] is not batch

    def lose(self, batch: ProducerBatch, *, is_fenced: bool = False) -> None:
        """Note that the broker refused the number of a batch and has not written it: the batch needs a new number.

        If `is_fenced`, the broker accepts no other batch of its epoch, either.
        """
        if self._is_ours(batch):
            self.strays &= not is_fenced
            self.lost = batch.sequence if self.lost < 0 else min(self.lost, batch.sequence)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Note that the log has a batch and all batches that were numbered before it.

        The batch may have ended before its answer arrived.
        """
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
        """Note that a batch ended without an acknowledgement."""
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
        """Replace a batch by its parts, in the order of their numbers. Together they have as many records as it had."""
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
        """Prepare for a new log of the partition, after its topic was created again.

        A new log accepts any first number, so numbered batches keep their numbers. If no batch is outstanding, the next one begins
        a new epoch. An earlier number is never used again: a broker that lags may briefly restore the old log, which would know
        that number.
        """
        if self.renews and not self.outstanding:
            self.lost = self.next

    def leave_cluster(self) -> None:
        """Number the batches that have not ended anew, because they go to another cluster: rule 7."""
        self.strays = False
        self.gap = _NOTHING
        # The other cluster may grant the same id.
        self.granted = NO_IDENTITY
        if self.outstanding:
            self.lost = self.outstanding[0].sequence

    # When it is forgotten

    def may_be_forgotten(self, granted: ProducerIdAndEpoch | None) -> bool:
        """Return whether no batch is outstanding, and no current epoch depends on the numbers of this partition.

        An epoch depends on them if it is a transactional producer's current one, in some versions.
        """
        return not self.outstanding and (self.renews or self.identity != granted)

    def past(self, granted: ProducerIdAndEpoch | None, before: Past | None) -> Past | None:
        """Return the state to keep of this partition and of the partitions forgotten before.

        Stragglers of an old producer id count until a partition of the new id is forgotten. By then they are older than that
        partition.
        """
        if not self.renews or self.identity == NO_IDENTITY:
            return before
        if before is not None and before.granted == self.granted:
            return Past(
                self.granted, max(before.identity, self.identity), before.strays or self.strays
            )
        return (
            before
            if before is not None and self.granted != granted
            else Past(self.granted, self.identity, self.strays)
        )

    def _is_ours(self, batch: ProducerBatch) -> bool:
        return batch.sequence >= 0 and (
            batch.identity is self.identity or batch.identity == self.identity
        )

    def _remove(self, batch: ProducerBatch) -> None:
        # The common case.
        if self.outstanding and self.outstanding[0] is batch:
            del self.outstanding[0]
        elif batch in self.outstanding:
            self.outstanding.remove(batch)

    def _settle(self) -> None:
        """Free the number `lost` again, if no batch is outstanding, the log has all numbers before it, and no gap is open."""
        if not self.outstanding and self.lost > self.acked and self.gap < 0:
            self.next, self.lost = self.lost, _NOTHING

    def __repr__(self) -> str:
        numbers = ", ".join(
            f"{name} {getattr(self, name)}" for name in ("next", "acked", "lost", "gap")
        )
        return f"<SequenceNumbers {self.identity.producer_id}/{self.identity.epoch}: {numbers}, {len(self.outstanding)} outstanding>"


def _no_identity_is_needed() -> None:
    """Do nothing: without idempotence, no producer id is missing."""


class Idempotence:
    """Holds the producer id of an idempotent producer, and what the sequence numbers of its partitions share.

    Args:
        granted: NO_IDENTITY; None: without idempotence.
        is_transactional: batches belong to transactions, and the transaction coordinator gives the epochs.
        on_identity_lost: called when the producer needs another producer id, and with each batch that is opened until it has one.

    Attributes:
        granted: the producer id and epoch; NO_IDENTITY while the producer waits for one, None without idempotence.
        trouble: the error of the latest request for a producer id, or of a transaction; None: it succeeded, or there was none.
        is_transactional, on_identity_lost: as given.
    """

    __slots__ = ("_past", "granted", "is_transactional", "on_identity_lost", "trouble")

    def __init__(
        self,
        granted: ProducerIdAndEpoch | None = None,
        *,
        is_transactional: bool = False,
        on_identity_lost: Callable[[], object] = _no_identity_is_needed,
    ) -> None:
        self.granted: ProducerIdAndEpoch | None = granted
        self.trouble: KafkaError | None = None
        self.is_transactional: bool = is_transactional
        self.on_identity_lost: Callable[[], object] = on_identity_lost
        self._past: Past | None = None

    def identify(self, identity: ProducerIdAndEpoch | None) -> None:
        """Set the producer id and epoch; None: no idempotence."""
        self.granted = identity

    def note(self, trouble: KafkaError | None) -> None:
        """Note how a request for a producer id, or of a transaction, has ended."""
        self.trouble = trouble

    def number(self, batch: ProducerBatch, partition: PartitionQueue) -> None:
        """Give a batch that is drained its number. The producer has its producer id.

        The broker may accept any number as the first one, until the first batch of an epoch, or after a silence, is acknowledged.
        """
        assert self.granted is not None
        numbers = partition.numbers
        if numbers is None:
            numbers = partition.numbers = SequenceNumbers(
                renews=not self.is_transactional, past=self._past
            )
        is_first = numbers.number(batch, self.granted) or (
            batch.expires_at > partition.remembered_until and not partition.in_flight
        )
        partition.one_at_a_time |= is_first
        partition.remembered_until = batch.expires_at + _REMEMBERED

    def lose_identity(self) -> None:
        """Ask for another producer id. No unnumbered batch is drained before the producer has it."""
        if self.granted not in (None, NO_IDENTITY):
            self.granted = NO_IDENTITY
            self.on_identity_lost()

    def leave_cluster(self, partitions: Iterable[PartitionQueue]) -> None:
        """Number the batches of all partitions anew, under a producer id of another cluster.

        With transactions nothing changes: the other cluster's coordinator refuses the producer id.
        """
        if self.granted is None or self.is_transactional:
            return
        self._past = None
        for partition in partitions:
            if partition.numbers is not None:
                partition.numbers.leave_cluster()
        self.lose_identity()

    def check(self, partition: PartitionQueue) -> None:
        """Ask for another producer id if a partition needs one."""
        if (
            self.granted is not None
            and partition.numbers is not None
            and partition.numbers.needs_identity(self.granted)
        ):
            self.lose_identity()

    def forget(self, partition: PartitionQueue) -> None:
        """Keep of a forgotten partition the past that later partitions need.

        If no epoch is left after it, the producer needs another producer id.
        """
        if partition.numbers is not None:
            self._past = partition.numbers.past(self.granted, self._past)
            if (
                self._past is not None
                and self._past.granted == self.granted
                and self._past.identity.epoch >= LAST_EPOCH
            ):
                self.lose_identity()
