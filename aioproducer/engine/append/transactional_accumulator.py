"""The `RecordAccumulator` of a transactional producer, which takes records within a transaction only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.engine.append.record_accumulator import RecordAccumulator
from aioproducer.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.record_validation import RecordValidation
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.column_batches import ColumnWindow
    from aioproducer.engine.append.interceptors import ProducerInterceptors
    from aioproducer.engine.chosen_build import Delivery
    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.serializers import Encoding


class TransactionalRecordAccumulator(RecordAccumulator):
    """Accepts records within a transaction only, and reports refused records to the transaction, which may fail of them (TXN-08)."""

    def __init__(
        self,
        validation: RecordValidation[PendingSend],
        admission: Admission,
        appender: Appender,
        check: Callable[[], None],
        interceptors: ProducerInterceptors | None,
        transaction: TransactionGate,
    ) -> None:
        self._transaction = transaction
        super().__init__(validation, admission, appender, check, interceptors)

    def _submit(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None = None,
    ) -> Delivery | PendingSend:
        self._transaction.check_send()
        try:
            return super()._submit(topic, value, key, partition, timestamp_ms, headers, encoding)
        except KafkaError as error:
            self._transaction.on_refused(topic, error)
            raise

    def _submit_nowait(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None = None,
    ) -> Delivery:
        # WouldBlock does not fail the transaction: the caller may try again.
        self._transaction.check_send()
        try:
            return super()._submit_nowait(
                topic, value, key, partition, timestamp_ms, headers, encoding
            )
        except KafkaError as error:
            self._transaction.on_refused(topic, error)
            raise

    def _submit_window(self, topic: str, window: ColumnWindow) -> Delivery | PendingSend:
        self._transaction.check_send()
        try:
            return super()._submit_window(topic, window)
        except KafkaError as error:
            self._transaction.on_refused(topic, error)
            raise
