"""What a partition remembers of its producers: epochs, the last five batches of each, transactions that are open in it, and aborted ones.

As Kafka 4.3's ProducerStateManager and ProducerAppendInfo:

1. A batch that is one of its producer's last five, by epoch and sequences, is a duplicate; it has its offset already.
2. An epoch may not sink. A new one begins at sequence 0, and so does what a transaction of version 2 writes first (KIP-890); otherwise a
   producer that is not known may begin anywhere (KIP-360).
3. Within an epoch each batch follows the last one; after 2147483647 comes 0.
4. A transactional batch is taken within an open transaction, or when the transaction's coordinator knows that the partition is in it.

DUPLICATE_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID are not among the answers: no release since 1.0 and 2.5 gives them; script them.
Knows no bytes and no request; the offsets are its log's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from aioproducer.errors import broker_error
from aioproducer.records.control import ControlType, control_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.records.reader import RecordBatch

__all__ = ["Aborted", "Producers", "Wrote"]

_WINDOW: Final = 5  # Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN
_SEQUENCES: Final = 1 << 31
_UNKNOWN: Final = -1


class Wrote(NamedTuple):
    """A batch that a producer wrote."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int


class Aborted(NamedTuple):
    """An aborted transaction's place in a log, up to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class _Known:
    """One producer; `began_at` is the first offset of its open transaction."""

    epoch: int = _UNKNOWN
    batches: deque[Wrote] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    began_at: int | None = None
    coordinator_epoch: int = _UNKNOWN

    def adopt(self, epoch: int) -> None:
        """Another epoch: what was written in the one before is no measure any more."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _UNKNOWN


@dataclass(slots=True)
class _Asked:
    """A producer whose coordinator was asked about its transaction here; nothing behind the lowest sequence asked about may come first."""

    epoch: int
    lowest_sequence: int
    bumps_epochs: bool


class Producers:
    """The producers of one partition, by their ids.

    Attributes:
        aborted: its aborted transactions, in the order of their markers.
    """

    def __init__(self) -> None:
        self.aborted: list[Aborted] = []
        self._known: dict[int, _Known] = {}
        self._asked: dict[int, _Asked] = {}

    @classmethod
    def of(cls, batches: Iterable[RecordBatch]) -> Self:
        """What a log's batches tell of them, as after a restart or a truncation."""
        told = cls()
        for batch in batches:
            if batch.is_control:
                [record] = map(control_record, batch.records())
                told.end(batch.producer_id, batch.producer_epoch, batch.base_offset, is_abort=record.type is ControlType.ABORT)
            elif batch.producer_id >= 0:
                told.add(batch, batch.base_offset, batch.max_timestamp)
        return told

    # --- what tests ask and change

    def forget(self) -> None:
        """Know none any more, as after `producer.id.expiration.ms`, or when retention has deleted all that they wrote."""
        self._known = {producer: known for producer, known in self._known.items() if known.began_at is not None}

    def set(self, producer_id: int, epoch: int, last_sequence: int, *, offset: int = 0) -> None:
        """Know a producer as if its last batch had been one record with this sequence."""
        known = self._known[producer_id] = _Known(epoch)
        known.batches.append(Wrote(last_sequence, last_sequence, offset, _UNKNOWN))

    def epoch_of(self, producer_id: int) -> int:
        """The highest epoch seen of a producer; -1: it is not known."""
        return self._known.get(producer_id, _Known()).epoch

    def last_sequence_of(self, producer_id: int) -> int:
        """The last sequence of a producer in its epoch; -1: none."""
        return self._known.get(producer_id, _Known()).last_sequence

    @property
    def first_unstable(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min((known.began_at for known in self._known.values() if known.began_at is not None), default=None)

    def aborted_within(self, start: int, end: int) -> list[Aborted]:
        """Aborted transactions that have records or their marker from `start` on, and begin before `end`."""
        return [one for one in self.aborted if one.last_offset >= start and one.first_offset < end]

    # --- what a log asks before it appends

    def must_verify(self, batch: RecordBatch, *, bumps_epochs: bool) -> bool:
        """Whether a transactional batch's coordinator is to be asked first: until the transaction is open here.

        Args:
            batch: as it was sent.
            bumps_epochs: the producer speaks the second version of transactions (Produce from version 12 on).

        Raises:
            BrokerError: INVALID_PRODUCER_EPOCH.
        """
        known = self._known.get(batch.producer_id)
        if known is not None:
            _check_epoch(known, batch)
            if known.began_at is not None and known.epoch == batch.producer_epoch:
                return False
        asked = self._asked.setdefault(batch.producer_id, _Asked(batch.producer_epoch, batch.base_sequence, bumps_epochs))
        if batch.producer_epoch > asked.epoch or (batch.producer_epoch == asked.epoch and batch.base_sequence < asked.lowest_sequence):
            asked.epoch, asked.lowest_sequence = batch.producer_epoch, batch.base_sequence
        return True

    def duplicate(self, batch: RecordBatch) -> Wrote | None:
        """What was written already, if it is this batch."""
        known = self._known.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            return None
        sequences = (batch.base_sequence, _last_sequence(batch))
        return next((wrote for wrote in known.batches if wrote[:2] == sequences), None)

    def check(self, batch: RecordBatch, *, is_verified: bool) -> None:
        """Whether a producer's batch may be appended.

        Args:
            batch: which is no duplicate.
            is_verified: its transaction's coordinator knows that the partition is in the transaction.

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
            raise broker_error("INVALID_TXN_STATE", f"Expected transactional write from producer {batch.producer_id}")

    def _check_sequence(self, known: _Known, batch: RecordBatch) -> None:
        asked = self._asked.get(batch.producer_id)
        if asked is not None and asked.bumps_epochs and batch.base_sequence and not known.batches:
            raise _out_of_order(batch, "0 is expected of a transaction of version 2 with no existing state")
        if asked is not None and batch.base_sequence > asked.lowest_sequence:
            raise _out_of_order(batch, f"{asked.lowest_sequence} is the earliest seen sequence")
        if known.epoch == _UNKNOWN:
            return
        if batch.producer_epoch != known.epoch:
            if batch.base_sequence:
                raise _out_of_order(batch, f"0 is expected in a new epoch; the current one is {known.epoch}")
        elif batch.base_sequence != (known.last_sequence + 1) % _SEQUENCES:
            raise _out_of_order(batch, f"{known.last_sequence} is the current end sequence number")

    # --- what was appended

    def add(self, batch: RecordBatch, base_offset: int, max_timestamp: int) -> None:
        """A producer's batch was appended."""
        known = self._known.setdefault(batch.producer_id, _Known())
        known.adopt(batch.producer_epoch)
        known.batches.append(Wrote(batch.base_sequence, _last_sequence(batch), base_offset, max_timestamp))
        if batch.is_transactional:
            self._asked.pop(batch.producer_id, None)
            if known.began_at is None:
                known.began_at = base_offset

    def end(self, producer_id: int, epoch: int, marker_offset: int, *, is_abort: bool) -> None:
        """A transaction's marker was appended: its records are stable from now on."""
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
