"""Ends a producer: flushes and stops it, fails it after a bug, or ends what its application dropped."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from aioproducer.engine.observability.diagnostics import waiting_notice
from aioproducer.engine.tasks.supervisor import reason_of_end
from aioproducer.errors import KafkaError, ProducerClosed
from aioproducer.model import counted
from aioproducer.net.dialer import close_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.append.thread_bridge import ThreadBridge
    from aioproducer.engine.wiring import EngineParts
    from aioproducer.model import FlushSummary

__all__ = ["Shutdown", "trouble"]

_log = logging.getLogger(__name__)
# The least time for which a stop waits for `on_failed`. With the default `close_timeout_ms`, both are less than the 30 s that Kubernetes grants.
_HAND_OUT_SECONDS: Final = 5.0


class Shutdown:
    """Holds whether a producer is open or has failed, and ends its parts.

    Args:
        from_thread: refuses records of other threads from the end on.

    Attributes:
        is_open: records may be sent.
        failure: the exception that failed the producer; None: it has not failed.
        on_failure: called when the producer fails.
    """

    def __init__(self, config: ProducerConfig, parts: EngineParts, from_thread: ThreadBridge) -> None:
        self.is_open: bool = False
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._config = config
        self._parts = parts
        self._from_thread = from_thread
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._events = parts.instruments.events
        self._is_flushed = False
        # Until then, a stop waits for `on_failed`.
        self._until = 0.0

    @property
    def has_ended(self) -> bool:
        """Return whether no task is left, and `on_failed` has had all records."""
        failed_batches = self._parts.failed_batches
        return self._parts.supervisor.has_ended and (failed_batches is None or failed_batches.is_empty)

    async def ended(self) -> None:
        """Wait until the last task has ended, and then, for a bounded time, until `on_failed` has had the records that failed."""
        await self._parts.supervisor.ended()
        if self._parts.failed_batches is not None:
            await self._parts.failed_batches.handed_out_at_stop(self._until - self._loop.time())

    def open(self) -> None:
        """Note that the producer has started."""
        self.is_open = True
        self._events.tell("producer-started")

    async def stop(self, timeout: float) -> FlushSummary | None:
        """Flush for at most `timeout` seconds, then end. Returns the summary of the flush; None: the producer had failed.

        Cancellation: the records that are left fail at once, and the tasks end too.
        """
        until = self._until = self._loop.time() + timeout
        summary = None
        with waiting_notice(self._loop, lambda: self._notice(until)):
            try:
                summary = await self._finish_records(until)
            finally:
                self._is_flushed = summary is not None and not summary.pending
                self._events.tell("producer-stopped", unfinished=len(self._parts.partition_queues.incomplete))
                await self.end(ProducerClosed("the producer was stopped"), until)
                self._parts.close_interception()
        return summary

    async def _finish_records(self, until: float) -> FlushSummary | None:
        """Refuse new records, end an open transaction, and flush. Returns None if the producer had failed."""
        parts = self._parts
        self._from_thread.shut(lambda: ProducerClosed("the producer has stopped"))
        self.is_open = False
        parts.admission.shut()
        if parts.circuit_break_manager is not None:
            parts.circuit_break_manager.close()
        if self.failure is not None:
            return None
        if parts.transaction_manager is not None:
            await parts.transaction_manager.give_up(max(until - self._loop.time(), 0.0))
        return await parts.flushes.flush(max(until - self._loop.time(), 0.0))

    def _notice(self, until: float) -> str:
        records = self._unacknowledged() + self._parts.admission.pending.waiting
        told = f"the acknowledgement of {counted(records, 'record')}" if records else "the end of its requests and tasks"
        error = trouble(self._parts)
        reason = f": {error}" if error is not None else ""
        left = max(until - self._loop.time(), 0)
        return f"{self._config.client_id}: stop() waits for {told}, at most {left:.0f} s more (close_timeout_ms){reason}"

    def _unacknowledged(self) -> int:
        """Return the number of records that are queued or in flight."""
        return sum(batch.count if batch.open is None else batch.open.count for batch in self._parts.partition_queues.incomplete)

    async def end(self, cause: KafkaError, until: float = 0.0) -> None:
        """End all parts with `cause`, and wait for the tasks.

        `until`: after a complete flush, the time until which a broker may read the bytes that are left in a write buffer. With acks=0,
        a record is acknowledged when its transport takes it.
        """
        self._until = max(self._until, self._loop.time() + _HAND_OUT_SECONDS)
        self._shut(cause, closes_connections=False)
        try:
            await self._parts.cluster.close_gradually(now=not self._is_flushed)
            if self._is_flushed:
                await self._parts.cluster.sent(until - self._loop.time())
        finally:
            self._parts.supervisor.stop()
            try:
                await self.ended()
            finally:
                self._parts.batch_compressor.close()

    def _shut(self, cause: KafkaError, *, closes_connections: bool = True) -> None:
        """Fail all waiting sends, batches and calls with `cause`, and close the connections, unless the caller does.

        Without a complete flush the connections close at once: a broker that hangs would never read the unsent bytes.
        """
        self.is_open = False
        parts = self._parts
        ends: tuple[Callable[[], None], ...] = (
            lambda: parts.circuit_break_manager.close() if parts.circuit_break_manager is not None else None,
            lambda: self._from_thread.shut(lambda: ProducerClosed(str(cause))),
            lambda: parts.admission.close(str(cause)),
            lambda: parts.sender.fail_all(cause),
            lambda: parts.transaction_manager.close(lambda: ProducerClosed(str(cause))) if parts.transaction_manager is not None else None,
            lambda: parts.coordinator_calls.close(lambda: ProducerClosed(str(cause))) if parts.coordinator_calls is not None else None,
            lambda: parts.cluster.close(now=not self._is_flushed) if closes_connections else None,
        )
        for end in ends:
            try:
                end()
            except Exception as error:
                _log.error("A bug: a part of the producer could not be ended: %r", error, exc_info=error)

    # After a bug

    def fail(self, error: BaseException) -> None:
        """Fail the producer, because a task of it ended by a bug or was cancelled from outside. Otherwise the sends would hang."""
        # The end of a forked child cancels all tasks. The child must not use the parent's connections.
        if os.getpid() != self._pid:
            return
        self.failure = error
        self.on_failure()
        self._events.tell("producer-failed", cause=repr(error))
        # `asyncio.run` cancels all tasks at its end. A later call of the producer raises this error.
        if not isinstance(error, asyncio.CancelledError):
            _log.error("The producer failed: %r", error, exc_info=error)
        cause = ProducerClosed(f"the producer failed: {reason_of_end(error)}")
        cause.__cause__ = error
        self._shut(cause)

    def on_bug(self, error: BaseException) -> None:
        """Fail the producer, because a callback of it raised an exception. A producer that has ended only logs it."""
        if self.failure is None and self.is_open:
            self.fail(error)
            self._parts.supervisor.stop()
        else:
            _log.error("A bug: %r", error, exc_info=error)

    def drop(self) -> None:
        """End at once, sending nothing, because the producer was garbage-collected, or its loop was closed. Any thread may call it.

        `Producer.__del__` may run inside any call, so the event loop ends the parts, in a step of its own.
        """
        try:
            self._loop.call_soon_threadsafe(self._end_dropped)
        # The event loop is closed.
        except RuntimeError:
            self.is_open = False
            self._parts.admission.shut()
            for stream in self._parts.cluster.leave():
                close_socket(stream)
            self._parts.close_interception()

    def _end_dropped(self) -> None:
        self._events.tell("producer-stopped", unfinished=len(self._parts.partition_queues.incomplete))
        self._shut(ProducerClosed("the producer was dropped without stop()"))
        self._parts.supervisor.stop()
        # Interceptors hear of the records that fail now.
        self._parts.supervisor.when_ended(self._parts.close_interception)


def trouble(parts: EngineParts) -> object | None:
    """Return the error because of which brokers cannot be used now; None: no error is known."""
    cluster = parts.cluster
    unreached = next((node.last_error for node in (*cluster.nodes, *cluster.bootstrap) if node.last_error), None)
    return parts.updater.schedule.trouble or (parts.ids.trouble if parts.ids is not None else None) or unreached
