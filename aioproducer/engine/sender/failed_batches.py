"""Hands the records of failed batches to the user's `on_failed`, each batch in an event-loop callback of its own.

1. The records are decoded from the payload of the batch just before the call: at most one batch is decoded at a time.
2. Until the call, the payload stays counted in `buffer_memory`. So sends wait while `on_failed` is slower than batches fail.
3. `on_delivery_error` is called first: the call for a batch waits for one whole event-loop iteration after its failure.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.engine.observability.diagnostics import SlowCallbacks
from aioproducer.engine.sender.older_formats import records_of
from aioproducer.engine.sender.parcel import Parcel
from aioproducer.errors import TransactionError, UsageError
from aioproducer.interfaces import USER_FAILURES
from aioproducer.model import FailedRecord, counted
from aioproducer.records.message_set import NO_TIMESTAMP

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.errors import DeliveryError
    from aioproducer.model import Compression

_log = logging.getLogger(__name__)
# Seconds in which each kind of exception that the user's function raises is logged once: a full disk fails thousands of calls.
_LOG_EVERY: Final = 10.0


class _FailedBatch(NamedTuple):
    """Holds what is left of a failed batch. It has no reference to the batch's result, the end of which calls `on_delivery_error`.

    `credit`: the bytes of `buffer_memory` that it holds.
    """

    error: DeliveryError
    parcel: Parcel
    credit: int

    def records(self, codec: Compression) -> list[FailedRecord]:
        """Return the records of the batch, in their order."""
        error, parcel = self.error, self.parcel
        records = records_of(parcel, codec)
        # Message sets of magic 0 have no timestamps.
        times = (
            parcel.base_timestamp if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms
            for record in records
        )
        return [
            FailedRecord(
                error.topic,
                record.value,
                record.key,
                error.partition,
                time,
                record.headers,
                error.persisted,
            )
            for record, time in zip(records, times, strict=True)
        ]


class FailedBatches:
    """Holds the failed batches of one producer until `on_failed` has had their records.

    Args:
        pool: has the bytes of the batches.
    """

    def __init__(self, context: EngineContext, pool: BufferPool) -> None:
        assert context.config.on_failed is not None
        self._loop = context.loop
        self._hook = SlowCallbacks(context.loop.time).over("on_failed", context.config.on_failed)
        self._codec = cast("Compression", context.config.compression_type)
        self._pool = pool
        self._waiting: deque[_FailedBatch] = deque()
        self._due: asyncio.Handle | None = None
        self._pid = os.getpid()
        # The numbers of the batches that were queued, and of those whose call has ended.
        self._queued = self._handed_out = 0
        # What waits for the calls of the first so many batches.
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._logged_at: dict[type[BaseException], float] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no batch waits for its call."""
        return self._handed_out == self._queued

    def add(self, batch: ProducerBatch, error: DeliveryError) -> None:
        """Queue the records of a batch that fails with `error`, while the batch still has its payload.

        Records that are dropped with their transaction are left out: its commit raises, and its code sends them again.
        """
        if isinstance(error.__cause__, TransactionError):
            return
        parcel = Parcel.of(batch)
        failed = _FailedBatch(error, parcel, len(parcel.payload) + BATCH_OVERHEAD)
        # The batch gives its own credit back: now, or when its connection no longer uses the payload.
        self._pool.take(failed.credit)
        self._waiting.append(failed)
        self._queued += 1
        self._schedule()

    async def handed_out(self) -> None:
        """Wait until `on_failed` has had all batches that have failed so far."""
        if not self.is_empty:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((self._queued, waiter))
            await waiter

    async def handed_out_at_stop(self, timeout: float) -> None:
        """Wait as `handed_out`, at most `timeout` seconds. The calls go on after that, as long as the event loop runs."""
        try:
            async with asyncio.timeout(timeout):
                await self.handed_out()
        except TimeoutError:
            left = sum(failed.parcel.record_count for failed in self._waiting)
            _log.error(
                "stop() does not wait any longer for on_failed, which has not had %s yet",
                counted(left, "failed record"),
            )

    def _schedule(self) -> None:
        if self._due is None:
            self._due = self._loop.call_soon(self._after_a_turn)

    def restart(self) -> None:
        """Schedule the next call again, because the producer ends: an exception may have broken off the one that was scheduled."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._waiting:
            self._schedule()

    def _after_a_turn(self) -> None:
        # The call comes after those of `on_delivery_error` for batches that failed in the iteration before.
        self._due = self._loop.call_soon(self._hand_out)

    def _hand_out(self) -> None:
        self._due = None
        # In a forked child, the parent hands them out.
        if not self._waiting or os.getpid() != self._pid:
            return
        failed = self._waiting.popleft()
        if self._waiting:
            self._schedule()
        try:
            self._call(failed)
        finally:
            self._pool.release(failed.credit)
            self._handed_out += 1
            self._wake()

    def _wake(self) -> None:
        """Wake what waits for no other batch. The calls are in the order of the failures, so the first waiters are woken first."""
        while self._waiters and self._waiters[0][0] <= self._handed_out:
            _, waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)

    def _call(self, failed: _FailedBatch) -> None:
        """Call the user's function in a context of its own. Log what it raises, or why the records cannot be decoded."""
        try:
            answer = Context().run(self._hook, failed.error.again(), failed.records(self._codec))
            if asyncio.iscoroutine(answer):
                answer.close()
                raise UsageError(
                    "on_failed gave a coroutine: it is a plain function, called with the error and the records"
                )
        except USER_FAILURES as error:
            self._log(failed, error)

    def _log(self, failed: _FailedBatch, error: BaseException) -> None:
        now = self._loop.time()
        if now - self._logged_at.get(type(error), -_LOG_EVERY) >= _LOG_EVERY:
            self._logged_at[type(error)] = now
            told: tuple[Any, ...] = (
                counted(failed.parcel.record_count, "record"),
                failed.error.topic,
                failed.error.partition,
                error,
            )
            _log.error("on_failed could not take %s of %s-%d: %r", *told, exc_info=error)
