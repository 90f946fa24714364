"""Ends attempts and batches: a batch is acknowledged, requeued, renumbered, split, or failed.

`core.produce_errors` decides which. The bytes of a batch stay reserved until the connection no longer uses them, also when its
records have failed long before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from aioproducer.core.batch_splitting import in_halves, without
from aioproducer.core.produce_errors import TOO_LARGE, Action, append_time, fate
from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.core.retries import AGAIN, ProduceAttempts, failures, over
from aioproducer.engine.chosen_build import uncollected
from aioproducer.engine.observability.diagnostics import story, waits_for
from aioproducer.engine.sender.parcel import Parcel
from aioproducer.engine.sender.record_formats import unpack
from aioproducer.errors import BrokerError, DeliveryError, DeliveryTimeout, RecordTooLarge
from aioproducer.model import counted
from aioproducer.records.record_batch import OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioproducer.core.batch_splitting import Piece
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.produce_exchange import PartitionResponse
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.circuit_breaker.circuit_break_manager import ProducerCircuitBreakManager
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.delivery.completion_queue import CompletionQueue
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.sender.flush import Flush
    from aioproducer.engine.transactions.transaction_gate import TransactionGate
    from aioproducer.errors import KafkaError, TransportError
    from aioproducer.model import Compression
    from aioproducer.net.cluster import Cluster
    from aioproducer.records.compression import CompressionRatios

# Maximum seconds of backoff while the coordinator writes the markers of the previous transaction (TV2-06). Kafka uses the same value
# for AddPartitionsToTxn.
_BRIEF: Final = 0.02


class BatchCompletion:
    """Ends attempts and batches, and updates the flushes that wait for them.

    Args:
        completions: notifies what waits for the records of ended batches.
        ratios: forgets the compression ratio of a batch that was too large.
        cluster: the brokers, which the error texts name.
        circuit_break_manager: is told of each attempt, and of freed memory; None: the producer has none.
        transaction: is told of each batch that fails; None: the producer has none.

    Attributes:
        attempts: ends attempts in the partition queues.
        pool, completions, circuit_break_manager, transaction: as given.
    """

    def __init__(
        self,
        context: EngineContext,
        partition_queues: PartitionQueues,
        pool: BufferPool,
        completions: CompletionQueue,
        ratios: CompressionRatios,
        cluster: Cluster,
        circuit_break_manager: ProducerCircuitBreakManager | None,
        transaction: TransactionGate | None,
    ) -> None:
        config = context.config
        self.pool = pool
        self.completions = completions
        self.circuit_break_manager = circuit_break_manager
        self.transaction = transaction
        self._config = config
        self._recorder = context.instruments.recorder
        self._loop = context.loop
        self._partition_queues = partition_queues
        self.attempts: ProduceAttempts = ProduceAttempts(partition_queues)
        self._failed_batches = completions.failed_batches
        self._ratios = ratios
        self._cluster = cluster
        self._backoff = context.backoff
        self._chance = context.chance
        self._codec = cast("Compression", config.compression_type)
        self._is_transactional = config.transactional_id is not None
        self._flushes: list[Flush] = []

    def watch(self, flush: Flush) -> Flush:
        """Register a flush, which is then updated as its batches end. Returns `flush`."""
        self._flushes.append(flush)
        return flush

    def unwatch(self, flush: Flush) -> None:
        """Remove a flush: it is no longer updated."""
        if flush in self._flushes:
            self._flushes.remove(flush)

    def wake_all(self) -> None:
        """Wake all that waits for batches: none is left. What would have woken it may be what an exception has broken off."""
        for flush in self._flushes:
            flush.wake()
        self.completions.restart()
        if self._failed_batches is not None:
            self._failed_batches.restart()

    # Attempts

    def end_attempt(self, batch: ProducerBatch, response: PartitionResponse, now: float) -> bool:
        """End one attempt to send a batch, at `now`. Returns True if the metadata of its partition is stale.

        `response` is the broker's response, or the transport error in place of it.
        """
        had_ended = self.attempts.remove_in_flight(batch)
        if had_ended:
            self._give_back(batch)
        error = response.error
        if error is None and not had_ended:
            batch.error = None
            self._complete(batch, response)
            return False
        # The batch expired and its deliveries have failed: a late answer does not change their outcome (DLV-03, DLV-04).
        if had_ended:
            if error is None:
                self.attempts.complete_late(batch)
            return False
        assert error is not None
        batch.history += ((now, error),)
        self._recorder.attempt_failed(error)
        verdict = over(
            batch,
            error,
            now=now,
            retries=self._config.retries,
            transactional=self._is_transactional,
            named=len(response.refused),
            appended=response.base_offset >= 0,
        )
        self._carry_out(verdict.action, batch, response, error, now)
        return verdict.refresh

    def _complete(self, batch: ProducerBatch, response: PartitionResponse) -> None:
        """Complete a batch that is in the log."""
        stamped = response.log_append_time_ms
        if stamped >= 0 or batch.queue.routing.stamps_time:
            stamped = append_time(batch, stamped)
        batch.result.complete(response.base_offset, stamped)
        if uncollected is not None:
            uncollected(batch.result)
        self.completions.add(batch.result)
        self.attempts.complete(batch)
        self._finish(batch)

    def _carry_out(
        self,
        action: Action,
        batch: ProducerBatch,
        response: PartitionResponse,
        error: BrokerError | TransportError,
        now: float,
    ) -> None:
        if action is Action.COMPLETE:
            self._complete(batch, response)
        elif action is Action.FAIL:
            self._refuse(batch, error, response.refused)
        elif action in AGAIN:
            pause = self._pause(batch, action, error)
            self._recorder.retried(now, batch)
            self.attempts.retry(batch, action, now + pause if pause else 0.0)
        elif action is Action.SPLIT:
            self._ratios.retract(
                batch.queue.topic, self._codec, len(batch.payload or b"") / batch.raw_size
            )
            batch.queue.routing.is_narrow = True
            self._split(
                batch, in_halves(self._raw(batch), batch.base_timestamp, self._config.batch_size)
            )
        else:
            self._exclude(batch, error, response.refused)

    def _pause(
        self, batch: ProducerBatch, action: Action, error: BrokerError | TransportError
    ) -> float:
        if action is Action.AWAIT:
            return 0.0
        pause = self._backoff.after(failures(batch), self._chance())
        is_brief = isinstance(error, BrokerError) and error.name == "CONCURRENT_TRANSACTIONS"
        return min(pause, _BRIEF) if is_brief else pause

    # Splitting

    def _raw(self, batch: ProducerBatch) -> bytes:
        """Return the payload of a batch as it was before compression."""
        return unpack(Parcel.of(batch), self._codec)

    def _split(self, batch: ProducerBatch, pieces: Sequence[Piece]) -> list[ProducerBatch]:
        """Replace a batch by smaller batches, one for each piece, and return them.

        The deliveries and flushes of the batch wait for the smaller batches.
        """
        self._recorder.record("batch-split", self._loop.time())
        results = batch.result.split([piece.indexes for piece in pieces])
        self.completions.add(batch.result)
        parts = self.attempts.split(batch, list(zip(pieces, results, strict=True)))
        self.pool.hold(batch, 0)
        for part in parts:
            self.pool.hold(part, part.raw_size + BATCH_OVERHEAD)
        batch.payload = batch.header = None
        for flush in self._flushes:
            flush.split(batch, parts)
        return parts

    def _exclude(
        self,
        batch: ProducerBatch,
        error: BrokerError | TransportError,
        refused: Mapping[int, str | None],
    ) -> list[ProducerBatch]:
        """Fail the records that the broker named, each with its own message, and requeue the others without them.

        Returns the batches of the other records.
        """
        assert isinstance(error, BrokerError)
        parts = self._split(batch, without(self._raw(batch), batch.base_timestamp, refused))
        for part, index in zip(parts, sorted(refused), strict=False):
            self.fail(part, _in_the_words_of(error, refused[index]))
        return parts[len(refused) :]

    def _refuse(
        self,
        batch: ProducerBatch,
        error: BrokerError | TransportError,
        refused: Mapping[int, str | None],
    ) -> None:
        """Fail a batch. Each record that the broker named fails with its own message.

        Only that message names the range of valid timestamps: the message of the batch does not.
        """
        if not refused or not isinstance(error, BrokerError):
            self.fail(batch, self._too_large(batch, error) or error)
        elif batch.count == 1:
            self.fail(batch, _in_the_words_of(error, refused[0]))
        else:
            for part in self._exclude(batch, error, refused):
                self.fail(part, error)

    def _too_large(
        self, batch: ProducerBatch, error: BrokerError | TransportError
    ) -> RecordTooLarge | None:
        """Return the error of a single record that its broker refused as too large; None: the error is another one."""
        if batch.count > 1 or not isinstance(error, BrokerError) or error.name not in TOO_LARGE:
            return None
        sent = OVERHEAD + len(batch.payload or b"")
        cause = RecordTooLarge(
            f"a record of {batch.raw_size} bytes, {sent} as it was sent, is more than the broker takes ({error}). "
            f"Raise max.message.bytes of {batch.queue.topic!r}, compress, or send less."
        )
        cause.__cause__ = error
        return cause

    def let_go(self, batch: ProducerBatch) -> bool:
        """Note that the connection no longer uses the bytes of a batch. Returns True if the batch has ended."""
        has_ended = self.attempts.remove_in_flight(batch)
        if has_ended:
            self._give_back(batch)
        return has_ended

    def _give_back(self, batch: ProducerBatch) -> None:
        """Release the bytes of a batch."""
        self.pool.hold(batch, 0)
        if self.circuit_break_manager is not None:
            self.circuit_break_manager.freed(batch.queue)

    # Ends

    def fail(self, batch: ProducerBatch, cause: KafkaError, late: str | None = None) -> None:
        """Fail a batch: its records were not acknowledged. `late`: the error's text, if `delivery_timeout_ms` is over; else that of `cause`."""
        queue = batch.queue
        kind = DeliveryError if late is None else DeliveryTimeout
        reason, partitions = late or str(cause), len(queue.routing.queues)
        if queue.partition >= partitions:
            reason += f": the topic has {counted(partitions, 'partition')} by now"
        error = kind(
            reason,
            topic=queue.topic,
            partition=queue.partition,
            persisted=fate(batch),
            attempts=batch.attempts,
        )
        error.__cause__ = cause
        waits = self.waits_for(batch)
        end = f"failed: {error.reason}" + (
            "" if batch.on_wire or waits in error.reason else f"; it {waits}"
        )
        error.history = story(
            batch, self._loop.time(), self._config.delivery_timeout_ms / 1000, end
        )
        self.attempts.close(batch)
        self._recorder.failed(self._loop.time(), batch, cause)
        if self.transaction is not None:
            self.transaction.on_failure(batch, error)
        if self._failed_batches is not None:
            self._failed_batches.add(batch, error)
        # An exception may have broken off what split it.
        for result in (batch.result, *batch.result.parts):
            result.fail(error)
            self.completions.add(result)
        self.attempts.fail(batch)
        self._finish(batch)

    def waits_for(self, batch: ProducerBatch) -> str:
        """Return a text that names what a batch waited for."""
        return f"waited for {waits_for(batch, self._cluster, self._partition_queues)}"

    def _finish(self, batch: ProducerBatch) -> None:
        """Drop the payload of an ended batch, and update the flushes.

        Its bytes are released at once, unless a connection still uses them.
        """
        batch.payload = batch.header = None
        if not batch.held:
            self._give_back(batch)
        for flush in tuple(self._flushes) if self._flushes else ():
            if flush.ended(batch):
                self._flushes.remove(flush)


def _in_the_words_of(error: BrokerError, words: str | None) -> BrokerError:
    """Return the error of one record: with the broker's message for it, or with that for its batch."""
    return BrokerError(error.error, words or error.message)
