"""The `RecordAccumulator` of a transactional producer, which takes records within a transaction only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioproducer.engine.append.record_accumulator import RecordAccumulator
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from aioproducer.engine.append.batch_builder import ReadyBatch
    from aioproducer.engine.append.column_batches import ColumnWindow
    from aioproducer.engine.delivery.chosen_build import Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries
    from aioproducer.engine.memory.wait_queue import PendingSend

__all__ = ["TransactionalRecordAccumulator"]


class TransactionCheck(Protocol):
    """Checks sends against the producer's transaction."""

    def check_send(self) -> None:
        """Raise the error that forbids a send now, if any."""

    def on_refused(self, topic: str, error: BaseException | None) -> None:
        """Note that a record of the transaction was refused, and is not in it."""


class TransactionalRecordAccumulator(RecordAccumulator):
    """Accepts records within a transaction only, and reports refused records to the transaction, which may fail of them (TXN-08)."""

    transaction_manager: TransactionCheck

    def _submit(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery | PendingSend:
        self.transaction_manager.check_send()
        try:
            return super()._submit(topic, value, key, partition, timestamp_ms, headers)
        except KafkaError as error:
            self.transaction_manager.on_refused(topic, error)
            raise

    def _submit_nowait(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery:
        # WouldBlock does not fail the transaction: the caller may try again.
        self.transaction_manager.check_send()
        try:
            return super()._submit_nowait(topic, value, key, partition, timestamp_ms, headers)
        except KafkaError as error:
            self.transaction_manager.on_refused(topic, error)
            raise

    async def append_batch(self, batch: ReadyBatch) -> Deliveries:
        """Append a batch as `RecordAccumulator.append_batch` does."""
        self._check()
        self.transaction_manager.check_send()
        return await super().append_batch(batch)

    def _submit_window(self, topic: str, window: ColumnWindow) -> Delivery | PendingSend:
        self.transaction_manager.check_send()
        try:
            return super()._submit_window(topic, window)
        except KafkaError as error:
            self.transaction_manager.on_refused(topic, error)
            raise
