"""Producer state of a partition: epochs, last five batches of each producer, open and aborted transactions.

As Kafka 4.3's ProducerStateManager and ProducerAppendInfo:

1. A batch that has the epoch and sequences of one of its producer's last five is a duplicate; its offset is known already.
2. An epoch never decreases. A new epoch begins at sequence 0, and so does the first batch of a transaction of version 2 (KIP-890).
   Otherwise an unknown producer may begin at any sequence (KIP-360).
3. Within an epoch each batch follows the last one; after 2147483647 comes 0.
4. A transactional batch is appended within an open transaction, or if the coordinator has the partition in the transaction.

DUPLICATE_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID are not among the answers: no release since 1.0 and 2.5 sends them. Tests can script
them. The log supplies the offsets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from aioproducer.errors import broker_error
from aioproducer.testing.record_batches import ControlType, control_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.testing.record_batches import RecordBatch

__all__ = ["Aborted", "Producers", "Wrote"]

_WINDOW: Final = 5  # Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN
_SEQUENCES: Final = 1 << 31
_UNKNOWN: Final = -1


class Wrote(NamedTuple):
    """Holds sequences, offset and timestamp of a batch that a producer wrote."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int


class Aborted(NamedTuple):
    """Holds an aborted transaction's offsets in a log, up to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class _Known:
    """Holds one producer's state; `began_at` is the first offset of its open transaction."""

    epoch: int = _UNKNOWN
    batches: deque[Wrote] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    began_at: int | None = None

    def adopt(self, epoch: int) -> None:
        """Switch to an epoch; a new one starts without batches."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _UNKNOWN


@dataclass(slots=True)
class _Asked:
    """Holds the verification of a producer's transaction in this partition.

    The first batch to be appended must not have a higher sequence than `lowest_sequence`.
    """

    epoch: int
    lowest_sequence: int
    bumps_epochs: bool


class Producers:
    """Holds the producers of one partition, by their ids.

    Attributes:
        aborted: the partition's aborted transactions, in the order of their markers.
    """

    def __init__(self) -> None:
        self.aborted: list[Aborted] = []
        self._known: dict[int, _Known] = {}
        self._asked: dict[int, _Asked] = {}

    @classmethod
    def of(cls, batches: Iterable[RecordBatch]) -> Self:
        """Build the state from a log's batches, as after a restart or a truncation."""
        told = cls()
        for batch in batches:
            if batch.is_control:
                [record] = batch.records()
                told.end(
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_offset,
                    is_abort=control_type(record) is ControlType.ABORT,
                )
            elif batch.producer_id >= 0:
                told.add(batch, batch.base_offset, batch.max_timestamp)
        return told

    # --- called by tests

    def forget(self) -> None:
        """Remove producers without an open transaction.

        Kafka does so after `producer.id.expiration.ms`, or when retention has deleted all their batches.
        """
        self._known = {
            producer: known for producer, known in self._known.items() if known.began_at is not None
        }

    def set(self, producer_id: int, epoch: int, last_sequence: int, *, offset: int = 0) -> None:
        """Set a producer's state as if its last batch had been one record with this sequence."""
        known = self._known[producer_id] = _Known(epoch)
        known.batches.append(Wrote(last_sequence, last_sequence, offset, _UNKNOWN))

    def epoch_of(self, producer_id: int) -> int:
        """Return the highest epoch seen of a producer; -1: unknown producer."""
        return self._known.get(producer_id, _Known()).epoch

    def last_sequence_of(self, producer_id: int) -> int:
        """Return the last sequence of a producer in its epoch; -1: none."""
        return self._known.get(producer_id, _Known()).last_sequence

    @property
    def first_unstable(self) -> int | None:
        """Return the first offset of the oldest open transaction; None: no transaction is open."""
        return min(
            (known.began_at for known in self._known.values() if known.began_at is not None),
            default=None,
        )

    def aborted_within(self, start: int, end: int) -> list[Aborted]:
        """Return the aborted transactions that begin before `end` and have their marker at or after `start`."""
        return [one for one in self.aborted if one.last_offset >= start and one.first_offset < end]

    # --- checks before an append

    def must_verify(self, batch: RecordBatch, *, bumps_epochs: bool) -> bool:
        """Return whether the coordinator must first verify a transactional batch: until the transaction is open in this partition.

        Args:
            batch: the batch as it was sent.
            bumps_epochs: the producer speaks the second version of transactions (Produce from version 12 on).

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH.
        """
        known = self._known.get(batch.producer_id)
        if known is not None:
            _check_epoch(known, batch)
            if known.began_at is not None and known.epoch == batch.producer_epoch:
                return False
        asked = self._asked.setdefault(
            batch.producer_id, _Asked(batch.producer_epoch, batch.base_sequence, bumps_epochs)
        )
        if batch.producer_epoch > asked.epoch or (
            batch.producer_epoch == asked.epoch and batch.base_sequence < asked.lowest_sequence
        ):
            asked.epoch, asked.lowest_sequence = batch.producer_epoch, batch.base_sequence
        return True

    def duplicate(self, batch: RecordBatch) -> Wrote | None:
        """Return the earlier write of this batch; None: it is no duplicate."""
        known = self._known.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            return None
        sequences = (batch.base_sequence, _last_sequence(batch))
        return next((wrote for wrote in known.batches if wrote[:2] == sequences), None)

    def check(self, batch: RecordBatch, *, is_verified: bool) -> None:
        """Check that a producer's batch may be appended.

        Args:
            batch: a batch that is no duplicate.
            is_verified: the transaction's coordinator has the partition in the transaction.

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        known = self._known.get(batch.producer_id, _Known())
        is_open = known.began_at is not None and known.epoch == batch.producer_epoch
        _check_epoch(known, batch)
        if batch.is_transactional and not is_open and not is_verified:
            raise broker_error("INVALID_TXN_STATE", "Record was not part of an ongoing transaction")
        self._check_sequence(known, batch)
        if known.began_at is not None and not batch.is_transactional:
            raise broker_error(
                "INVALID_TXN_STATE",
                f"Expected transactional write from producer {batch.producer_id}",
            )

    def _check_sequence(self, known: _Known, batch: RecordBatch) -> None:
        asked = self._asked.get(batch.producer_id)
        if asked is not None and asked.bumps_epochs and batch.base_sequence and not known.batches:
            raise _out_of_order(
                batch, "0 is expected of a transaction of version 2 with no existing state"
            )
        if asked is not None and batch.base_sequence > asked.lowest_sequence:
            raise _out_of_order(batch, f"{asked.lowest_sequence} is the earliest seen sequence")
        if known.epoch == _UNKNOWN:
            return
        if batch.producer_epoch != known.epoch:
            if batch.base_sequence:
                raise _out_of_order(
                    batch, f"0 is expected in a new epoch; the current one is {known.epoch}"
                )
        elif batch.base_sequence != (known.last_sequence + 1) % _SEQUENCES:
            raise _out_of_order(batch, f"{known.last_sequence} is the current end sequence number")

    # --- called after an append

    def add(self, batch: RecordBatch, base_offset: int, max_timestamp: int) -> None:
        """Note an appended batch."""
        known = self._known.setdefault(batch.producer_id, _Known())
        known.adopt(batch.producer_epoch)
        known.batches.append(
            Wrote(batch.base_sequence, _last_sequence(batch), base_offset, max_timestamp)
        )
        if batch.is_transactional:
            self._asked.pop(batch.producer_id, None)
            if known.began_at is None:
                known.began_at = base_offset

    def end(self, producer_id: int, epoch: int, marker_offset: int, *, is_abort: bool) -> None:
        """Note an appended marker: the transaction's records are stable from now on."""
        known = self._known.setdefault(producer_id, _Known())
        known.adopt(epoch)
        if is_abort and known.began_at is not None:
            self.aborted.append(Aborted(producer_id, known.began_at, marker_offset))
        known.began_at = None
        self._asked.pop(producer_id, None)


def _check_epoch(known: _Known, batch: RecordBatch) -> None:
    if batch.producer_epoch < known.epoch:
        raise broker_error(
            "INVALID_PRODUCER_EPOCH",
            f"Epoch of producer {batch.producer_id} is {batch.producer_epoch}, which is smaller than the last seen epoch {known.epoch}",
        )


def _out_of_order(batch: RecordBatch, expected: str) -> Exception:
    return broker_error(
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        f"Out of order sequence number for producer {batch.producer_id} in epoch {batch.producer_epoch}: {batch.base_sequence} came, and {expected}",
    )


def _last_sequence(batch: RecordBatch) -> int:
    return (batch.base_sequence + batch.last_offset_delta) % _SEQUENCES
