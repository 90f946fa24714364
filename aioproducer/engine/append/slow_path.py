"""The slow path of `send`: validates a record or a batch that the user filled, then appends it or lets it wait.

`record_validation` checks a record, and `admission` appends it at once or queues it in call order. Rows of columns and a question for a
topic's partitions come here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioproducer.engine.append.batch_builder import ReadyBatch
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.engine.memory.buffer_pool import BATCH_OVERHEAD, PendingSend
from aioproducer.errors import KafkaError, RecordTooLarge, UsageError
from aioproducer.record_validation import check_batch, check_topic
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.delivery.chosen_build import Delivery, DeliveryContext
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.model import PartitionNumber
    from aioproducer.record_validation import RecordValidation

__all__ = ["SlowPath", "TransactionalSlowPath"]


class TransactionCheck(Protocol):
    """Checks sends against the producer's transaction."""

    def check_send(self) -> None:
        """Raise the error that forbids a send now, if any."""

    def on_refused(self, topic: str, error: BaseException | None) -> None:
        """Note that a record of the transaction was refused, and is not in it."""


class SlowPath:
    """Validates and submits what callers send.

    Args:
        limit: bytes of records in a batch that the user fills.
    """

    def __init__(
        self, checks: RecordValidation[PendingSend], admission: Admission, pool: BufferPool, delivery_context: DeliveryContext, limit: int
    ) -> None:
        self._checked = checks.record
        self._check_size = checks.size
        self._admission = admission
        self._pool = pool
        self._delivery_context = delivery_context
        self._limit = limit

    def accept(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery | PendingSend:
        """Append a record, or queue it. Returns its delivery, or the pending send to `wait` for. Raises an error of the caller's."""
        return self._admission.submit(self._checked(topic, value, key, partition, timestamp_ms, headers))

    def accept_now(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery:
        """Append a record. Returns its delivery, or raises WouldBlock or an error of the caller's.

        Metadata of an unknown topic is requested.
        """
        return self._admission.submit_nowait(self._checked(topic, value, key, partition, timestamp_ms, headers))

    async def wait(self, parked: PendingSend) -> Delivery:
        """Wait for a pending send. Returns its delivery. Cancellation: the record is not queued, and the sends behind it move up."""
        await self._admission.wait(parked)
        delivery: Delivery = parked.delivery
        # The queue of deadlines keeps the pending send until its deadline.
        parked.delivery = None
        assert delivery is not None
        return delivery

    def create_batch(self, topic: str, partition: PartitionNumber) -> ReadyBatch:
        """Return an empty batch for the user to fill."""
        topic, number = check_batch(topic, partition)
        return ReadyBatch(topic, number, self._delivery_context, self._limit, self._checked)

    async def send_batch(self, batch: ReadyBatch) -> Deliveries:
        """Queue a batch that the user filled. Returns its deliveries. Waits as `wait` does."""
        if not isinstance(batch, ReadyBatch) or not batch.is_of(self._delivery_context):
            raise UsageError("send_batch takes what create_batch of this producer gave")
        if batch.is_sent or not len(batch):
            raise UsageError(f"{batch!r} {'was sent before' if batch.is_sent else 'is empty'}")
        batch.is_sent = True
        size = min(batch.size + BATCH_OVERHEAD, self._pool.size)
        record = PendingSend(batch.topic, partition=batch.partition, size=size, whole=batch)
        try:
            taken = self._admission.submit(record)
            if isinstance(taken, PendingSend):
                await self._admission.wait(taken)
        except BaseException:
            batch.is_sent = False
            raise
        deliveries = Deliveries()
        deliveries.add(batch.records.count, [[[batch.result, 0, batch.records.count]]])
        return deliveries

    def accept_window(self, parked: PendingSend) -> Delivery | PendingSend:
        """Append rows of columns, or queue them. Returns the delivery of the first row, or the pending send to wait for.

        Raises:
            RecordTooLarge: the only row of the window is too large.
        """
        window = parked.window
        assert window is not None
        if window.rows == 1:
            try:
                self._check_size(str(parked.topic), OVERHEAD + window.size)
            except RecordTooLarge as error:
                raise RecordTooLarge(f"row {window.piece.first + window.at}: {error}") from None
        return self._admission.submit(parked)

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Waits for its metadata as `wait` does."""
        topic = check_topic(topic)
        return len((await self._admission.routing(topic)).queues)


class TransactionalSlowPath(SlowPath):
    """Accepts records within a transaction only, and reports refused records to the transaction, which may fail of them (TXN-08)."""

    def __init__(
        self,
        checks: RecordValidation[PendingSend],
        admission: Admission,
        pool: BufferPool,
        delivery_context: DeliveryContext,
        limit: int,
        transaction: TransactionCheck,
    ) -> None:
        super().__init__(checks, admission, pool, delivery_context, limit)
        self._transaction = transaction

    def accept(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery | PendingSend:
        """Accept a record as `SlowPath.accept` does."""
        self._transaction.check_send()
        try:
            return super().accept(topic, value, key, partition, timestamp_ms, headers)
        except KafkaError as error:
            self._transaction.on_refused(topic, error)
            raise

    def accept_now(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery:
        """Accept a record as `SlowPath.accept_now` does. WouldBlock does not fail the transaction: the caller may try again."""
        self._transaction.check_send()
        try:
            return super().accept_now(topic, value, key, partition, timestamp_ms, headers)
        except KafkaError as error:
            self._transaction.on_refused(topic, error)
            raise

    async def send_batch(self, batch: ReadyBatch) -> Deliveries:
        """Queue a batch as `SlowPath.send_batch` does."""
        self._transaction.check_send()
        return await super().send_batch(batch)

    def accept_window(self, parked: PendingSend) -> Delivery | PendingSend:
        """Append or queue rows as `SlowPath.accept_window` does."""
        self._transaction.check_send()
        try:
            return super().accept_window(parked)
        except KafkaError as error:
            self._transaction.on_refused(str(parked.topic), error)
            raise
