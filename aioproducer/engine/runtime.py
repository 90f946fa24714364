"""The engine of a running producer: starts its parts, gives `Producer` access to them, and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append.send_columns import SendColumns
from aioproducer.engine.append.send_many import SendMany
from aioproducer.engine.append.thread_bridge import LOOP_CLOSED, ThreadBridge
from aioproducer.engine.chosen_build import FastPath, here
from aioproducer.engine.gauges import unready
from aioproducer.engine.metadata.metadata_updater import forget_idle_topics
from aioproducer.engine.observability.diagnostics import backlog, waiting_notice
from aioproducer.engine.sender.record_formats import check_brokers
from aioproducer.engine.tasks import fork_safety
from aioproducer.engine.tasks.supervisor import reason_of_end
from aioproducer.engine.wiring import EngineParts
from aioproducer.errors import KafkaError, ProducerClosed, UsageError
from aioproducer.interfaces import USER_FAILURES
from aioproducer.model import counted
from aioproducer.net.dialer import close_socket, disown
from aioproducer.serializers import BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.chosen_build import Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.engine.transactions.transaction_manager import TransactionManager
    from aioproducer.metrics.registry import Snapshot
    from aioproducer.model import FlushSummary, Health, PartitionNumber
    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.settings import NetSettings
    from aioproducer.serializers import Encoding

_log = logging.getLogger(__name__)
# The least time for which a stop waits for `on_failed`. With the default `close_timeout_ms`, both are less than the 30 s that Kubernetes grants.
_HAND_OUT_SECONDS: Final = 5.0
_STOPPED_EARLY: Final = "stopped while it started"
_ELSEWHERE: Final = "the producer belongs to another event loop; make one in this loop"
_OTHER_THREAD: Final = (
    f"{_ELSEWHERE}. As another thread runs that loop, send by `producer.from_thread`, "
    "and have the loop run other calls with asyncio.run_coroutine_threadsafe"
)


class Runtime:
    """Holds the parts of one producer on one event loop.

    Args:
        fast_path: the fast path of `send`; the engine opens and closes it.
        settings: of all connections.

    Attributes:
        parts: the parts of the engine.
        is_open: records may be sent.
        is_stopping: `stop` was called.
        failure: the exception that failed the producer; None: it has not failed.
    """

    def __init__(self, config: ProducerConfig, fast_path: FastPath, settings: NetSettings) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.is_open: bool = False
        self.is_stopping: bool = False
        self.failure: BaseException | None = None
        self._config = config
        self._fast_path = fast_path
        self._pid = os.getpid()
        # A start goes on within it.
        self._starting: asyncio.Timeout | None = asyncio.timeout(None)
        self._start_ended = asyncio.Event()
        self._is_stopped_early = False
        self._is_flushed = False
        # Until then, a stop waits for `on_failed`.
        self._until = 0.0
        self.parts: EngineParts = EngineParts(config, fast_path, settings, self)
        self.pool: BufferPool = self.parts.pool
        self.from_thread: ThreadBridge = ThreadBridge(
            self.loop,
            partial(self.parts.context.loop.step, self._accept),
            config.max_block_ms / 1000,
        )

    async def flush(self, timeout: float | None) -> FlushSummary:
        """Send all records now, for at most `timeout` seconds, and return their summary."""
        return await self.parts.flushes.flush(timeout)

    # The start

    async def start(self, *, wait: bool) -> None:
        """Start the tasks and wait for the first metadata and the producer id. Without `wait`, tasks wait for them.

        Raises:
            BootstrapFailed: no broker answered within `max_block_ms`, or the brokers refuse this producer an id.
            ConfigError: `message_format_max` asks for a format that the broker no longer takes.
            ProducerClosed: `stop_starting` was called meanwhile.
        Cancellation, or an error: no task or connection is left. The interceptors that the user gave are not closed, because another
        engine may be started with them; those that were made of classes are.
        """
        fork_safety.watch(self)
        try:
            await self._start(wait=wait)
        # Cancellation, too: the start has failed.
        except BaseException:
            self.parts.close_own_interception()
            raise
        # A task may have failed while the start went on.
        if self.failure is None:
            self.parts.fast_path.here = here()
        self._fast_path.slowly, self._fast_path.now = (
            self.parts.accumulator.append,
            self.parts.accumulator.append_nowait,
        )
        self.is_open = True
        self.parts.instruments.events.tell("producer-started")

    async def _start(self, *, wait: bool) -> None:
        """Start the tasks and wait for the first metadata and the producer id. Without `wait`, tasks wait for them.

        Raises: as `start`. Cancellation, or an error: no task or connection is left.
        """
        until = self.loop.time() + self._config.max_block_ms / 1000
        assert self._starting is not None
        try:
            async with self._starting:
                with waiting_notice(self.loop, lambda: self._start_notice(until)):
                    await self._start_tasks(until, wait=wait)
            if self._is_stopped_early:
                raise ProducerClosed(_STOPPED_EARLY)
        # Cancellation, too: no connection may be left.
        except BaseException as error:
            await self._end(ProducerClosed("the producer did not start"))
            self._raise_if_given_up(error)
            raise
        finally:
            # It keeps the task, and the task keeps its result, which may be the producer: nothing would ever collect that one.
            self._starting = None
            self._start_ended.set()
        spawn = self.parts.supervisor.spawn
        spawn(self.parts.updater.run() if wait else self._run_metadata(), "metadata")
        spawn(self.parts.batch_compressor.run(), "compression")
        spawn(forget_idle_topics(self.parts), "idle topics")

    async def _start_tasks(self, until: float, *, wait: bool) -> None:
        parts = self.parts
        await parts.start()
        if wait:
            await parts.updater.bootstrap(until - self.loop.time())
            self._check_formats()
        if parts.ids is not None:
            parts.supervisor.spawn(parts.ids.run(), "producer id")
            if wait:
                await parts.ids.first(until - self.loop.time())
        if parts.transaction_manager is not None and wait:
            parts.supervisor.spawn(parts.transaction_manager.run(), "transactions")
            await parts.transaction_manager.start(until - self.loop.time())

    async def stop_starting(self) -> None:
        """End the start that runs, which then raises ProducerClosed. Returns once no task or connection of it is left."""
        if not self._is_stopped_early:
            self._is_stopped_early = True
            self._stop_waiting()
        await self._start_ended.wait()

    def _raise_if_given_up(self, error: BaseException) -> None:
        """Raise ProducerClosed if `error` is the TimeoutError of the start, whose wait `_stop_waiting` ended."""
        failure = self.failure
        if isinstance(error, TimeoutError) and (self._is_stopped_early or failure is not None):
            raise ProducerClosed(
                _STOPPED_EARLY
                if failure is None
                else f"the producer failed: {reason_of_end(failure)}"
            ) from (failure or error)

    def _stop_waiting(self) -> None:
        """End the wait of `start`."""
        # RuntimeError: it has failed by itself and is ending.
        with contextlib.suppress(RuntimeError):
            if self._starting is not None:
                self._starting.reschedule(self.loop.time())

    @property
    def has_start_ended(self) -> bool:
        """Return whether the start has succeeded or failed."""
        return self._start_ended.is_set()

    def _start_notice(self, until: float) -> str:
        parts = self.parts
        if not parts.cluster.nodes:
            told = f"a first answer of any broker of {', '.join(node.where for node in parts.cluster.bootstrap)}"
        elif parts.transaction_manager is None:
            told = "a producer id"
        else:
            told = f"the coordinator of transactional_id={self._config.transactional_id!r}"
        error = self.trouble
        reason = f": {error}" if error is not None else ""
        return f"{self._config.client_id}: start() waits for {told}, at most {max(until - self.loop.time(), 0):.0f} s more{reason}"

    async def _run_metadata(self) -> None:
        """Bootstrap as `_start_tasks` does with `wait`, as part of the task that updates metadata from then on."""
        parts = self.parts
        await parts.updater.bootstrap(None)
        self._check_formats()
        if parts.transaction_manager is not None:
            parts.supervisor.spawn(parts.transaction_manager.run(), "transactions")
        await parts.updater.run()

    def _check_formats(self) -> None:
        cluster = self.parts.cluster
        nodes = (
            *cluster.bootstrap,
            *filter(None, map(cluster.node, self.parts.updater.view.brokers)),
        )
        connections = (
            broker_connection.connection
            for node in nodes
            for broker_connection in (node.control, node.produce)
        )
        check_brokers(filter(None, connections), self._config.message_format_max)

    # Records

    def _accept(self, *record: Any) -> Delivery | PendingSend:
        self.check()
        return self.parts.accumulator.submit(*record)

    async def send_many(
        self,
        topic: str,
        records: Any,
        send: Callable[..., Awaitable[Delivery]],
        encoding: Encoding | None,
    ) -> Deliveries:
        """Send all `records`, in bulk where that is possible, and return their deliveries.

        `send` sends one of them: it is that of the producer, or of a topic. `encoding` is the topic's; None: as the options say.
        """
        self.check()
        is_encoded = encoding is not BYTES and not (
            encoding is None and self.parts.fast_path.encodings is None
        )
        singly = is_encoded or self.parts.accumulator.has_hooks
        return await self._send_many(send).send(topic, records, singly=singly)

    def _send_many(self, send: Callable[..., Awaitable[Delivery]]) -> SendMany:
        parts = self.parts
        return SendMany(
            self._config,
            parts.context.loop,
            parts.fast_path,
            parts.loop_budget,
            parts.appender,
            parts.accumulator,
            send,
        )

    async def send_columns(
        self,
        topic: str,
        values: Any,
        keys: Any,
        partition: PartitionNumber | None,
        timestamps_ms: Any,
        headers: Any,
        partitions: Any,
        send: Callable[..., Awaitable[Delivery]],
    ) -> Deliveries:
        """Send all rows of the columns and return their deliveries; `send` is the producer's."""
        self.check()
        columns = SendColumns(
            self._config, self.parts.appender, self.parts.accumulator, self._send_many(send), send
        )
        return await columns.send(
            topic, values, keys, partition, timestamps_ms, headers, partitions
        )

    @property
    def transaction_manager(self) -> TransactionManager:
        """Return the manager of the transactions. Raises UsageError if the producer has no transactional id."""
        self.check()
        if self.parts.transaction_manager is None:
            raise UsageError(
                "transactions need a name that outlives this producer: give it transactional_id"
            )
        return self.parts.transaction_manager

    def snapshot(self) -> Snapshot:
        """Return the current values of all metrics. Any thread may call it: the event loop reads the values that only it may read."""
        return self.parts.instruments.metrics.snapshot(
            *self.from_thread.ask(self.parts.gauges.read)
        )

    def health(self, patience: float | None) -> Health:
        """Return the health; `patience`: seconds for which a record may be unacknowledged. Any thread may call it."""
        if self.is_forked:
            return unready(fork_safety.FORKED)
        if self.failure is not None:
            return unready(f"the producer failed: {reason_of_end(self.failure)}")
        if not self.is_open:
            return unready("the producer has stopped")
        if self.loop.is_closed():
            return unready(LOOP_CLOSED)
        if patience is None:
            patience = self._config.request_timeout_ms / 1000
        return self.from_thread.ask(partial(self.parts.gauges.health, patience))

    def explain(self) -> list[str]:
        """Return one text for each batch or group of sends that waits, with the reason."""
        lines = [
            f"buffer_memory: {self.pool.available} of {self.pool.size} bytes free",
            *self.parts.admission.explain(),
            *backlog(
                self.parts.partition_queues,
                self.parts.cluster,
                self.loop.time(),
                self._config.delivery_timeout_ms / 1000,
            ),
        ]
        if self.is_forked:
            lines.insert(0, fork_safety.FORKED)
        elif self.failure is not None:
            lines.insert(0, f"failed: {reason_of_end(self.failure)}")
        elif self.parts.updater.schedule.trouble is not None:
            lines.insert(0, f"metadata: {self.parts.updater.schedule.trouble}")
        elif self.parts.ids is not None and self.parts.ids.trouble is not None:
            lines.insert(0, f"producer id: {self.parts.ids.trouble}")
        elif self.parts.transaction_manager is not None:
            waits_for = self.parts.transaction_manager.waits_for()
            lines.insert(
                0,
                f"transactional_id {self.parts.transaction_manager.transaction.transactional_id!r}: {waits_for}",
            )
        return lines

    def check(self) -> None:
        """Raise unless records may be sent now, in this process and event loop."""
        if os.getpid() != self._pid:
            raise ProducerClosed(fork_safety.FORKED)
        if self.failure is not None:
            raise ProducerClosed(
                f"the producer failed: {reason_of_end(self.failure)}. Make a new one."
            ) from self.failure
        if not self.is_open:
            raise ProducerClosed("the producer has stopped")
        self._check_loop()

    def check_place(self) -> None:
        """Raise unless this is the producer's process and event loop."""
        if self.is_forked:
            raise ProducerClosed(fork_safety.FORKED)
        self._check_loop()

    def _check_loop(self) -> None:
        try:
            is_here = asyncio.get_running_loop() is self.loop
        # No loop runs in this thread.
        except RuntimeError:
            is_here = False
        if not is_here:
            raise ProducerClosed(_OTHER_THREAD if self.from_thread.is_elsewhere() else _ELSEWHERE)

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a forked child of the producer's process."""
        return os.getpid() != self._pid

    def forget_fork(self) -> None:
        """Close the fast path in a forked child, so that `check` refuses every send, and let go of the parent's connections."""
        self.parts.fast_path.fast = {}
        self.parts.fast_path.here = None
        self._fast_path.slowly, self._fast_path.now = (
            self.parts.accumulator.append,
            self.parts.accumulator.append_nowait,
        )
        disown(self.parts.cluster.leave())

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for memory or metadata."""
        return self.parts.admission.waiting

    @property
    def trouble(self) -> object | None:
        """Return the error because of which brokers cannot be used now; None: no error is known."""
        ids = self.parts.ids
        return (
            self.parts.updater.schedule.trouble
            or (ids.trouble if ids is not None else None)
            or self.parts.unreached
        )

    # The end

    @property
    def has_ended(self) -> bool:
        """Return whether no task is left, and `on_failed` has had all records."""
        failed_batches = self.parts.failed_batches
        return self.parts.supervisor.has_ended and (
            failed_batches is None or failed_batches.is_empty
        )

    async def ended(self) -> None:
        """Wait until the last task has ended, and then, for a bounded time, until `on_failed` has had the records that failed."""
        await self.parts.supervisor.ended()
        if self.parts.failed_batches is not None:
            await self.parts.failed_batches.handed_out_at_stop(self._until - self.loop.time())

    async def stop(self, timeout: float) -> FlushSummary | None:
        """Flush for at most `timeout` seconds, then end. Returns the summary of the flush; None: the producer had failed.

        Cancellation: the records that are left fail at once, and the tasks end too.
        """
        try:
            self.is_stopping = True
            return await self._stop(timeout)
        except USER_FAILURES:
            raise
        except BaseException as error:
            # Fails the producer: a later stop waits for the end that was broken off.
            self.on_bug(error)
            raise

    async def _stop(self, timeout: float) -> FlushSummary | None:
        until = self._until = self.loop.time() + timeout
        summary = None
        with waiting_notice(self.loop, lambda: self._stop_notice(until)):
            try:
                summary = await self._finish_records(until)
            finally:
                self._is_flushed = summary is not None and not summary.pending
                self.parts.instruments.events.tell(
                    "producer-stopped", unfinished=len(self.parts.partition_queues.incomplete)
                )
                await self._end(ProducerClosed("the producer was stopped"), until)
                self.parts.close_interception()
        return summary

    async def _finish_records(self, until: float) -> FlushSummary | None:
        """Refuse new records, end an open transaction, and flush. Returns None if the producer had failed."""
        parts = self.parts
        self.from_thread.shut(lambda: ProducerClosed("the producer has stopped"))
        self.is_open = False
        parts.admission.shut()
        if parts.circuit_break_manager is not None:
            parts.circuit_break_manager.close()
        if self.failure is not None:
            return None
        if parts.transaction_manager is not None:
            await parts.transaction_manager.give_up(max(until - self.loop.time(), 0.0))
        return await parts.flushes.flush(max(until - self.loop.time(), 0.0))

    def _stop_notice(self, until: float) -> str:
        records = self._unacknowledged() + self.parts.admission.waiting
        told = (
            f"the acknowledgement of {counted(records, 'record')}"
            if records
            else "the end of its requests and tasks"
        )
        error = self.trouble
        reason = f": {error}" if error is not None else ""
        left = max(until - self.loop.time(), 0)
        return f"{self._config.client_id}: stop() waits for {told}, at most {left:.0f} s more (close_timeout_ms){reason}"

    def _unacknowledged(self) -> int:
        """Return the number of records that are queued or in flight."""
        return sum(
            batch.count if batch.open is None else batch.open.count
            for batch in self.parts.partition_queues.incomplete
        )

    async def _end(self, cause: KafkaError, until: float = 0.0) -> None:
        """End all parts with `cause`, and wait for the tasks.

        `until`: after a complete flush, the time until which a broker may read the bytes that are left in a write buffer. With acks=0,
        a record is acknowledged when its transport takes it.
        """
        self._until = max(self._until, self.loop.time() + _HAND_OUT_SECONDS)
        self._shut(cause, closes_connections=False)
        try:
            await self.parts.cluster.close_gradually(now=not self._is_flushed)
            if self._is_flushed:
                await self.parts.cluster.sent(until - self.loop.time())
        finally:
            self.parts.supervisor.stop()
            try:
                await self.ended()
            finally:
                self.parts.batch_compressor.close()

    def _shut(self, cause: KafkaError, *, closes_connections: bool = True) -> None:
        """Fail all waiting sends, batches and calls with `cause`, and close the connections, unless the caller does.

        Without a complete flush the connections close at once: a broker that hangs would never read the unsent bytes.
        """
        self.is_open = False
        parts = self.parts
        ends: tuple[Callable[[], None], ...] = (
            lambda: (
                parts.circuit_break_manager.close()
                if parts.circuit_break_manager is not None
                else None
            ),
            lambda: self.from_thread.shut(lambda: ProducerClosed(str(cause))),
            lambda: parts.admission.close(str(cause)),
            lambda: parts.sender.fail_all(cause),
            lambda: (
                parts.transaction_manager.close(lambda: ProducerClosed(str(cause)))
                if parts.transaction_manager is not None
                else None
            ),
            lambda: (
                parts.coordinator_calls.close(lambda: ProducerClosed(str(cause)))
                if parts.coordinator_calls is not None
                else None
            ),
            lambda: parts.cluster.close(now=not self._is_flushed) if closes_connections else None,
        )
        for end in ends:
            try:
                end()
            except Exception as error:
                _log.error(
                    "A bug: a part of the producer could not be ended: %r", error, exc_info=error
                )

    # After a bug

    def fail(self, error: BaseException) -> None:
        """Fail the producer, because a task of it ended by a bug or was cancelled from outside. Otherwise the sends would hang."""
        # The end of a forked child cancels all tasks. The child must not use the parent's connections.
        if self.is_forked:
            return
        self.failure = error
        self._stop_waiting()
        self.parts.instruments.events.tell("producer-failed", cause=repr(error))
        # `asyncio.run` cancels all tasks at its end. A later call of the producer raises this error.
        if not isinstance(error, asyncio.CancelledError):
            _log.error("The producer failed: %r", error, exc_info=error)
        cause = ProducerClosed(f"the producer failed: {reason_of_end(error)}")
        cause.__cause__ = error
        self._shut(cause)

    def on_bug(self, error: BaseException) -> None:
        """Fail the producer, because a callback of it raised an exception. A producer that has ended only logs it.

        KeyboardInterrupt and the like also fail one that starts or stops: what they have broken off would be waited for.
        """
        if self.failure is None and (self.is_open or not isinstance(error, Exception)):
            self.fail(error)
            self.parts.supervisor.stop()
        elif error is not self.failure:
            _log.error("A bug: %r", error, exc_info=error)

    def on_node(self, node: BrokerNode) -> None:
        """Let the Sender know that a connection of a broker has changed."""
        self.parts.schedule.on_node(node)

    def drop(self) -> None:
        """End at once, sending nothing, because the producer was garbage-collected, or its loop was closed. Any thread may call it.

        `Producer.__del__` may run inside any call, so the event loop ends the parts, in a step of its own.
        """
        try:
            self.loop.call_soon_threadsafe(self._end_dropped)
        # The event loop is closed.
        except RuntimeError:
            self.is_open = False
            self.parts.admission.shut()
            for stream in self.parts.cluster.leave():
                close_socket(stream)
            self.parts.close_interception()

    def _end_dropped(self) -> None:
        self.parts.instruments.events.tell(
            "producer-stopped", unfinished=len(self.parts.partition_queues.incomplete)
        )
        self._shut(ProducerClosed("the producer was dropped without stop()"))
        self.parts.supervisor.stop()
        # Interceptors hear of the records that fail now.
        self.parts.supervisor.when_ended(self.parts.close_interception)
