"""The `RecordAccumulator`: the coroutine `append`, by which a record is appended to its partition's queue, and waits if it must.

`record_validation` checks a record, and `admission` appends it at once or queues it in call order. Rows of columns and a question for a
topic's partitions come here, too. Its rules, a queue of batches for each partition, are
`core/partition_queues.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from aioproducer import partitioners
from aioproducer.core.record_validation import Unencoded, check_topic
from aioproducer.engine.append.batch_sizing import MOST_OVERHEAD
from aioproducer.engine.chosen_build import SLICE_RECORDS, Delivery, Encoded
from aioproducer.engine.memory.pending_send import FOR_SERIALIZER, FOR_TOPIC, PendingSend
from aioproducer.errors import KafkaError, RecordTooLarge
from aioproducer.records.record_batch import OVERHEAD
from aioproducer.serializers import BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.partition_queues import TopicRouting
    from aioproducer.core.record_validation import RecordValidation
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.append.appender import Appender
    from aioproducer.engine.append.column_batches import ColumnWindow
    from aioproducer.engine.append.interceptors import ProducerInterceptors
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.serializers import Encoding

    # What a partitioner chose, with the topic routing that it was given.
    _Choice: TypeAlias = tuple[TopicRouting, int]

_PLAIN: Final = frozenset({bytes, type(None)})


class RecordAccumulator:
    """Appends what callers send to the queues of partitions. Each coroutine waits while metadata, memory or the loop budget is missing.

    Args:
        check: raises the error that forbids any call now.
        interceptors: called around each record; None: there are none.
        transaction: takes records while it is open, and may fail of a refused one (TXN-08); None: the producer has no transactions.

    Attributes:
        has_hooks: interceptors, or a partitioner of the user's, are called for each record. They come before it is appended, so that
            `send` has not tried the fast path.
        submit: appends a record or queues it: takes the arguments of `append` and `nowait`, and returns a delivery or the pending send.
            With `nowait` it raises WouldBlock instead.
    """

    def __init__(
        self,
        validation: RecordValidation[PendingSend],
        admission: Admission,
        appender: Appender,
        check: Callable[[], None],
        interceptors: ProducerInterceptors | None = None,
        transaction: TransactionGate | None = None,
    ) -> None:
        self._check = check
        self._fast_path = appender.fast_path
        self._choose = appender.partitioner
        # Bytes of a key and value for which the partitioner is called on the fast path: no such record is refused.
        self._longest = appender.room.first - MOST_OVERHEAD
        self.has_hooks: bool = interceptors is not None or self._choose is not None
        self._validated = validation.record
        self._check_size = validation.size
        self._encodings = validation.encodings
        self._admission = admission
        self._transaction = transaction
        submit = self._submit_behind_hooks if self.has_hooks else self._submit
        self.submit: Callable[..., Delivery | PendingSend] = (
            submit if interceptors is None else interceptors.around(submit)
        )

    async def append(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None = None,
        encoded: Encoded | None = None,
    ) -> Delivery:
        """Append a record, and wait while it must wait. Returns its delivery. Raises an error of the caller's.

        Cancellation: the record is not queued, and the sends behind it move up.
        """
        self._check()
        outcome = self.submit(
            topic, value, key, partition, timestamp_ms, headers, encoding, encoded
        )
        if type(outcome) is Delivery:
            return outcome
        return await self._admission.wait(outcome)  # type: ignore[arg-type]

    def append_nowait(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None = None,
        encoded: Encoded | None = None,
    ) -> Delivery:
        """Append a record. Returns its delivery, or raises WouldBlock or an error of the caller's.

        Metadata of an unknown topic is requested.
        """
        self._check()
        return self.submit(  # type: ignore[return-value]
            topic, value, key, partition, timestamp_ms, headers, encoding, encoded, True
        )

    def _submit_behind_hooks(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None = None,
        _encoded: None = None,
        nowait: bool = False,
    ) -> Delivery | PendingSend:
        """Append a record on the fast path, which `send` has not tried, or as `_submit` does."""
        chosen: _Choice | None = None
        if self._choose is None or partition is not None:
            made: Any = self._fast_path.append_encoded(
                topic, value, key, partition, timestamp_ms, headers, encoding
            )
        # The partitioner is called for a record that is valid: headers and a time are looked at first.
        elif timestamp_ms is not None or headers:
            made = None
        else:
            made, chosen = self._append_to_chosen(self._choose, topic, value, key, encoding)
        if type(made) is Delivery:
            return made
        return self._submit(
            topic,
            value,
            key,
            partition,
            timestamp_ms,
            headers,
            encoding,
            made,
            nowait,
            chosen,
        )

    def _submit(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        encoding: Encoding | None = None,
        encoded: tuple[Any, ...] | None = None,
        nowait: bool = False,
        chosen: _Choice | None = None,
    ) -> Delivery | PendingSend:
        # Behind the hooks: a function of the user's may have failed the transaction by a record of its own.
        if self._transaction is not None:
            self._transaction.check_send()
        try:
            if encoded is not None:
                value, key, headers = encoded
                encoding = BYTES
            record = self._validated(topic, value, key, partition, timestamp_ms, headers, encoding)
            record.chosen = chosen
            return (
                self._admission.submit_nowait(record) if nowait else self._admission.submit(record)
            )
        except KafkaError as error:
            self._on_refused(topic, error)
            raise

    def _on_refused(self, topic: str, error: KafkaError) -> None:
        # WouldBlock does not fail the transaction: the caller may try again.
        if self._transaction is not None:
            self._transaction.on_refused(topic, error)

    def _append_to_chosen(
        self,
        choose: partitioners.Choose,
        topic: str,
        value: Any,
        key: Any,
        encoding: Encoding | None,
    ) -> tuple[Delivery | tuple[Any, ...] | None, _Choice | None]:
        """Append a plain record to the partition that the user's partitioner chooses, as the fast path does: 2 us, where `Admission` takes 7.

        Returns its delivery, or what was encoded; and the choice, None if the partitioner was not called.
        """
        fast_path = self._fast_path
        routing = fast_path.fast.get(topic) if type(topic) is str else None
        if routing is None:
            return None, None
        if encoding is None:
            encoding = BYTES if fast_path.encodings is None else fast_path.encodings.get(topic)
        encoded = None
        if encoding is not BYTES:
            if encoding is None or not encoding.is_current():
                return None, None
            encoded = encoding.encode(topic, value, key, (), fast_path.watch.call)
            value, key, headers = encoded
            if headers:
                return encoded, None
            # A serializer may have sent, too.
            routing = fast_path.fast.get(topic)
        if (
            routing is None
            or type(value) not in _PLAIN
            or type(key) not in _PLAIN
            or len(value or b"") + len(key or b"") > self._longest
            or (fast_path.taken >= SLICE_RECORDS and not fast_path.goes_on())
        ):
            return encoded, None
        number = partitioners.choose(
            choose, topic, key, value, len(routing.queues), routing.available
        )
        chosen, queue = (routing, number), routing.queues[number]
        # The partitioner may have sent, too.
        if fast_path.fast.get(topic) is not routing:
            return encoded, chosen
        now_ms = fast_path.turn_ms or fast_path.tick()
        fast_path.taken += 1
        delivery = queue.open.append(now_ms, key, value)
        if delivery is None:
            delivery = fast_path.make_room(None, queue, key, value)
        return encoded if delivery is None else delivery, chosen

    async def append_window(self, topic: str, window: ColumnWindow) -> None:
        """Append rows of columns. Waits as `append` does.

        Raises:
            RecordTooLarge: the only row of the window is too large.
        """
        self._check()
        outcome = self._submit_window(topic, window)
        if isinstance(outcome, PendingSend):
            await self._admission.wait(outcome)

    def _submit_window(self, topic: str, window: ColumnWindow) -> Delivery | PendingSend:
        if self._transaction is not None:
            self._transaction.check_send()
        try:
            if window.rows == 1:
                try:
                    self._check_size(topic, OVERHEAD + window.size)
                except RecordTooLarge as error:
                    raise RecordTooLarge(f"row {window.piece.first + window.at}: {error}") from None
            record = PendingSend(topic, partition=window.partition, size=window.size)
            record.window = window
            return self._admission.submit(record)
        except KafkaError as error:
            self._on_refused(topic, error)
            raise

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Waits for its metadata as `append` does."""
        self._check()
        topic = check_topic(topic)
        routing = self._admission.topics.known(topic)
        if routing is None:
            question = self._admission.wait_for(FOR_TOPIC, PendingSend(topic, asks=True))
            await self._admission.wait(question)
            routing = self._admission.topics.known(topic)
            assert routing is not None
        return len(routing.queues)

    async def ready(self, topic: str, encoding: Encoding | None) -> None:
        """Wait until a topic is known and its serializers are prepared, as `append` does for a record.

        Args:
            topic: the topic.
            encoding: has the serializers; None: those of the options.

        Raises:
            SerializationError: a serializer could not be prepared.
        """
        self._check()
        if encoding is None:
            encoding = self._encodings.of(topic)
        if not encoding.is_current():
            self._admission.preparations.begin(encoding)
        await self.partitions(topic)
        if not encoding.is_current():
            question = PendingSend(topic, asks=True)
            question.unencoded = Unencoded(encoding, _no_record)
            await self._admission.wait(self._admission.wait_for(FOR_SERIALIZER, question))

    async def next_slice(self) -> None:
        """Wait for the next slice of the loop budget."""
        await self._admission.wait(self._admission.next_slice())


def _no_record() -> NoReturn:
    raise AssertionError("a question has no record to encode")
