"""The engine of a running producer: starts its parts, gives `Producer` access to them, and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append.chosen_build import FastPath, here
from aioproducer.engine.append.send_columns import SendColumns
from aioproducer.engine.append.send_many import SendMany
from aioproducer.engine.append.thread_bridge import ThreadBridge, running_loop
from aioproducer.engine.dropped_producer import DroppedProducer
from aioproducer.engine.gauges import unready
from aioproducer.engine.observability.waiting_notice import waiting_notice
from aioproducer.engine.sender.record_formats import check_brokers
from aioproducer.engine.tasks import fork_safety
from aioproducer.engine.wiring import Wiring
from aioproducer.errors import KafkaError, ProducerClosed, UsageError
from aioproducer.model import FlushSummary
from aioproducer.net.transport import close_socket, disown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.append.batch_builder import ReadyBatch
    from aioproducer.engine.delivery.chosen_build import Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries
    from aioproducer.engine.memory.wait_queue import PendingSend
    from aioproducer.engine.transactions.transaction_manager import TransactionManager
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.metrics.registry import Snapshot
    from aioproducer.model import Health, PartitionNumber

__all__ = ["Runtime"]

_log = logging.getLogger(__name__)
_ELSEWHERE: Final = "the producer belongs to another event loop; make one in this loop"
_OTHER_THREAD: Final = (
    f"{_ELSEWHERE}. As another thread runs that loop, send by `producer.from_thread`, "
    "and have the loop run other calls with asyncio.run_coroutine_threadsafe"
)
_STOPPED_EARLY: Final = "stopped while it started"


class Runtime:
    """Holds the parts of one producer on one event loop.

    Args:
        way: the fast path of `send`; the engine opens and closes it.
        version: of this software, for brokers' metrics.
        chance: returns a random number in [0, 1).
        wall_clock: returns the seconds since the epoch.
    """

    def __init__(
        self,
        config: ProducerConfig,
        way: FastPath,
        dialer: Dialer,
        resolver: Resolver,
        version: str,
        *,
        chance: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.failure: BaseException | None = None
        self.is_open = False
        self._is_flushed = False
        self._is_start_stopped = False
        self._start_ended = asyncio.Event()
        self._start_scope = asyncio.timeout(None)
        self._dropped: DroppedProducer | None = None
        # Records that had not ended when the producer failed or was dropped.
        self._lost = 0
        self._config = config
        self._fast_path = way
        self._pid = os.getpid()
        parts = Wiring(
            config,
            self.loop,
            way,
            dialer,
            resolver,
            version,
            chance=chance,
            wall_clock=wall_clock,
            on_crash=self._on_crash,
            on_bug=self._on_bug,
            flush=self.flush,
            check=self.check,
        )
        self._delivery_context = parts.delivery_context
        self.pool = parts.pool
        self._supervisor = parts.supervisor
        self._instruments = parts.instruments
        self._gauges = parts.gauges
        self._partition_queues = parts.partition_queues
        self._batch_compressor = parts.batch_compressor
        self._sender = parts.sender
        self._turn = parts.turn
        self._appender = parts.appender
        self._admission = parts.admission
        self._accumulator = parts.accumulator
        self._interception = parts.interception
        self._cluster = parts.cluster
        self._updater = parts.updater
        self._idle = parts.idle
        self._idling, self._ratios = parts.idling, parts.ratios
        self._ids = parts.ids
        self._transaction_manager = parts.transaction_manager
        self._circuit_break_manager = parts.circuit_break_manager
        self.from_thread = ThreadBridge(self.loop, self._accept, config.max_block_ms / 1000)
        way.tick = self._tick

    async def start(self, *, wait: bool) -> None:
        """Start the tasks and wait for the first metadata and the producer id. Without `wait`, tasks wait for them.

        Raises:
            BootstrapFailed: no broker answered within `max_block_ms`, or the brokers refuse this producer an id.
            ConfigError: `message_format_max` asks for a format that the broker no longer takes.
            ProducerClosed: `stop_start` was called meanwhile.
        Cancellation, or an error: no task or connection is left. The user's interceptors are not closed, because another engine may be
        started with them.
        """
        fork_safety.watch(self)
        until = self.loop.time() + self._config.max_block_ms / 1000
        try:
            async with self._start_scope:
                with waiting_notice(self.loop, lambda: self._start_notice(until)):
                    await self._start(until, wait=wait)
            if self._is_start_stopped:
                raise ProducerClosed(_STOPPED_EARLY)
        except BaseException as error:
            await self._end(ProducerClosed("the producer did not start"))
            # The TimeoutError is that of `_start_scope`.
            if self._is_start_stopped and isinstance(error, TimeoutError):
                raise ProducerClosed(_STOPPED_EARLY) from error
            raise
        finally:
            self._start_ended.set()
        self._spawn(self._run_metadata(is_known=wait), "metadata")
        self._spawn(self._batch_compressor.run(), "compression")
        self._spawn(self._idle.run(), "idle topics")
        self._fast_path.here = here()
        self._fast_path.slowly, self._fast_path.now = self._accumulator.append, self._accumulator.append_nowait
        self.is_open = True
        self._instruments.events.tell("producer-started")

    async def _start(self, until: float, *, wait: bool) -> None:
        await self._supervisor.start()
        if wait:
            await self._updater.bootstrap(until - self.loop.time())
            self._check_formats()
        if self._ids is not None:
            self._spawn(self._ids.run(), "producer id")
            if wait:
                await self._ids.first(until - self.loop.time())
        if self._transaction_manager is not None and wait:
            self._spawn(self._transaction_manager.run(), "transactions")
            with self._instruments.meter.spent("txn-init-time"):
                await self._transaction_manager.start(until - self.loop.time())

    async def stop_start(self) -> None:
        """End the `start` that runs, which then raises ProducerClosed. Returns once no task or connection of it is left."""
        if not self._is_start_stopped:
            self._is_start_stopped = True
            # RuntimeError: `start` has failed by itself and is ending.
            with contextlib.suppress(RuntimeError):
                self._start_scope.reschedule(self.loop.time())
        await self._start_ended.wait()

    def _start_notice(self, until: float) -> str:
        servers = ", ".join(node.where for node in self._cluster.bootstrap)
        if not self._cluster.nodes:
            told = f"a first answer of any broker of {servers}"
        else:
            told = (
                "a producer id"
                if self._transaction_manager is None
                else f"the coordinator of transactional_id={self._config.transactional_id!r}"
            )
        trouble = self._trouble()
        reason = f": {trouble}" if trouble is not None else ""
        return f"{self._config.client_id}: start() waits for {told}, at most {max(until - self.loop.time(), 0):.0f} s more{reason}"

    def _trouble(self) -> object | None:
        """Return the error because of which brokers cannot be used now; None: no error is known."""
        unreached = next((node.last_error for node in (*self._cluster.nodes, *self._cluster.bootstrap) if node.last_error), None)
        return self._updater.trouble or (self._ids.trouble if self._ids is not None else None) or unreached

    async def _run_metadata(self, *, is_known: bool) -> None:
        if not is_known:
            await self._updater.bootstrap(None)
            self._check_formats()
            if self._transaction_manager is not None:
                self._spawn(self._transaction_manager.run(), "transactions")
        await self._updater.run()

    def _check_formats(self) -> None:
        nodes = (*self._cluster.bootstrap, *filter(None, map(self._cluster.node, self._updater.view.brokers)))
        connections = (broker_connection.connection for node in nodes for broker_connection in (node.control, node.produce))
        check_brokers(filter(None, connections), self._config.message_format_max)

    def _spawn(self, coroutine: Coroutine[None, None, None], name: str) -> None:
        self._supervisor.spawn(coroutine, name)

    def _tick(self) -> int:
        self.check()
        return self._sender.tick()

    def _accept(self, *record: Any) -> Delivery | PendingSend:
        self.check()
        return self._accumulator.submit(*record)

    async def send_many(self, topic: str, records: Any, send: Callable[..., Awaitable[Delivery]]) -> Deliveries:
        """Send all `records`, in bulk where that is possible, and return their deliveries; `send` is the producer's."""
        self.check()
        return await SendMany(self._config, self.loop, self._fast_path, self._turn, self._appender, self._accumulator, send).send(
            topic, records
        )

    async def send_columns(
        self,
        topic: str,
        values: Any,
        keys: Any,
        partition: PartitionNumber | None,
        timestamps_ms: Any,
        send: Callable[..., Awaitable[Delivery]],
    ) -> Deliveries:
        """Send all rows of the columns and return their deliveries; `send` is the producer's."""
        self.check()
        columns = SendColumns(self._config, self._appender, self._accumulator, send)
        return await columns.send(topic, values, keys, partition, timestamps_ms)

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Waits for its metadata."""
        return await self._accumulator.partitions(topic)

    def create_batch(self, topic: str, partition: PartitionNumber) -> ReadyBatch:
        """Return an empty batch, which the user fills."""
        return self._accumulator.create_batch(topic, partition)

    async def send_batch(self, batch: ReadyBatch) -> Deliveries:
        """Queue a batch that the user filled, behind the batches of its partition. Returns its deliveries."""
        return await self._accumulator.append_batch(batch)

    @property
    def transaction_manager(self) -> TransactionManager:
        """Return the manager of the transactions. Raises UsageError if the producer has no transactional id."""
        self.check()
        if self._transaction_manager is None:
            raise UsageError("transactions need a name that outlives this producer: give it transactional_id")
        return self._transaction_manager

    def snapshot(self) -> Snapshot:
        """Return the current values of all metrics. Any thread may call it: the event loop reads the values that only it may read."""
        return self._instruments.metrics.snapshot(*self.from_thread.ask(partial(self._instruments.read, self._gauges)))

    def health(self, patience: float | None) -> Health:
        """Return the health; `patience`: seconds for which a record may be unacknowledged. Any thread may call it."""
        if self.is_forked:
            return unready(fork_safety.FORKED)
        return self.from_thread.ask(partial(self._health, patience))

    def _health(self, patience: float | None) -> Health:
        if self.failure is not None:
            return unready(f"the producer failed: {self.failure!r}")
        if not self.is_open:
            return unready("the producer has stopped")
        return self._gauges.health(self._config.request_timeout_ms / 1000 if patience is None else patience)

    def explain(self) -> list[str]:
        """Return one text for each batch or group of sends that waits, with the reason."""
        lines = [
            f"buffer_memory: {self.pool.available} of {self.pool.size} bytes free",
            *self._admission.pending.explain(),
            *self._sender.explain(),
        ]
        if self.is_forked:
            lines.insert(0, fork_safety.FORKED)
        elif self.failure is not None:
            lines.insert(0, f"failed: {self.failure!r}")
        elif self._updater.trouble is not None:
            lines.insert(0, f"metadata: {self._updater.trouble}")
        elif self._ids is not None and self._ids.trouble is not None:
            lines.insert(0, f"producer id: {self._ids.trouble}")
        elif self._transaction_manager is not None:
            lines.insert(0, self._transaction_manager.explain())
        return lines

    def check(self) -> None:
        """Raise unless records may be sent now, in this process and event loop."""
        if self.is_forked:
            raise ProducerClosed(fork_safety.FORKED)
        if self.failure is not None:
            raise ProducerClosed(f"the producer failed: {self.failure!r}. Make a new one.") from self.failure
        if not self.is_open:
            raise ProducerClosed("the producer has stopped")
        self._check_loop()

    def check_place(self) -> None:
        """Raise unless this is the producer's process and event loop."""
        if self.is_forked:
            raise ProducerClosed(fork_safety.FORKED)
        self._check_loop()

    def _check_loop(self) -> None:
        if running_loop() is not self.loop:
            raise ProducerClosed(_OTHER_THREAD if self.from_thread.is_elsewhere() else _ELSEWHERE)

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a forked child of the producer's process."""
        return os.getpid() != self._pid

    async def flush(self, timeout: float | None) -> FlushSummary:
        """Send all records now, and wait until the queued records and the pending sends have ended, at most `timeout` seconds.

        Returns how many records were acknowledged, failed, or are left.
        """
        with self._instruments.meter.spent("flush-time"):
            return await self._flush(timeout)

    async def _flush(self, timeout: float | None) -> FlushSummary:
        marks = self._admission.mark()
        flush = None
        done = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                for mark in marks:
                    await mark.wait()
                flush = self._sender.start_flush(done.set)
                if flush.pending:
                    await done.wait()
        # The summary says how many records are pending.
        except TimeoutError:
            pass
        finally:
            if flush is not None:
                self._sender.stop_flush(flush)
        if flush is None:
            flush = self._sender.start_flush(done.set)
            self._sender.stop_flush(flush)
            return FlushSummary(0, 0, flush.pending + self._admission.pending.waiting)
        return FlushSummary(flush.acknowledged, flush.failed, flush.pending)

    async def stop(self, timeout: float) -> FlushSummary | None:
        """Flush for at most `timeout` seconds, then end. Returns the summary of the flush; None: the producer had failed.

        Cancellation: the records that are left fail at once, and the tasks end too.
        """
        until = self.loop.time() + timeout
        summary = None
        with waiting_notice(self.loop, lambda: self._stop_notice(until)):
            try:
                summary = await self._finish_records(until)
            finally:
                self._is_flushed = summary is not None and not summary.pending
                self._instruments.events.tell("producer-stopped", unfinished=len(self._partition_queues.incomplete))
                await self._end(ProducerClosed("the producer was stopped before the record was acknowledged"), until)
                self.close_interceptors()
        return summary

    async def _finish_records(self, until: float) -> FlushSummary | None:
        """Refuse new records, end an open transaction, and flush. Returns None if the producer had failed."""
        self.from_thread.shut(lambda: ProducerClosed("the producer has stopped"))
        self.is_open = False
        self._admission.shut()
        if self._circuit_break_manager is not None:
            self._circuit_break_manager.close()
        if self.failure is not None:
            return None
        if self._transaction_manager is not None:
            await self._transaction_manager.give_up(max(until - self.loop.time(), 0.0))
        return await self.flush(max(until - self.loop.time(), 0.0))

    def _stop_notice(self, until: float) -> str:
        records = self._unacknowledged() + self._admission.pending.waiting
        told = f"the acknowledgement of {records} records" if records else "the end of its requests and tasks"
        trouble = self._trouble()
        reason = f": {trouble}" if trouble is not None else ""
        left = max(until - self.loop.time(), 0)
        return f"{self._config.client_id}: stop() waits for {told}, at most {left:.0f} s more (close_timeout_ms){reason}"

    def _unacknowledged(self) -> int:
        """Return the number of records that are queued or in flight."""
        return sum(batch.count if batch.open is None else batch.open.count for batch in self._partition_queues.incomplete)

    async def _end(self, cause: KafkaError, until: float = 0.0) -> None:
        """End all parts with `cause`, and wait for the tasks.

        `until`: after a complete flush, the time until which a broker may read the bytes that are left in a write buffer. With acks=0,
        a record is acknowledged when its transport takes it.
        """
        self._shut(cause)
        try:
            if self._is_flushed:
                await self._cluster.sent(until - self.loop.time())
        finally:
            self._supervisor.stop()
            try:
                await self.ended()
            finally:
                fork_safety.forget(self)
                self._batch_compressor.close()

    def close_interceptors(self) -> None:
        """Close the user's interceptors. They are not called after the outcome of the last record."""
        self._interception.close()

    @property
    def has_ended(self) -> bool:
        """Return whether `start` has ended and no task is left."""
        return self._start_ended.is_set() and self._supervisor.has_ended

    async def ended(self) -> None:
        """Wait until the last task has ended."""
        await self._supervisor.ended()

    def _shut(self, cause: KafkaError) -> None:
        """Fail all waiting sends, batches and calls with `cause`, and close the connections.

        Without a complete flush the connections close at once: a broker that hangs would never read the unsent bytes.
        """
        self.is_open = False
        ends: tuple[Callable[[], None], ...] = (
            lambda: self._circuit_break_manager.close() if self._circuit_break_manager is not None else None,
            lambda: self.from_thread.shut(lambda: ProducerClosed(str(cause))),
            lambda: self._admission.close(lambda: ProducerClosed(str(cause))),
            lambda: self._sender.fail_all(cause),
            lambda: self._transaction_manager.close(lambda: ProducerClosed(str(cause))) if self._transaction_manager is not None else None,
            lambda: self._cluster.close(now=not self._is_flushed),
        )
        for end in ends:
            try:
                end()
            except Exception as error:  # noqa: BLE001  (after a bug, whatever can still be ended is)
                _log.error("A bug: a part of the producer could not be ended: %r", error, exc_info=error)

    def _on_crash(self, error: BaseException) -> None:
        """Fail the producer, because a task of it ended by a bug or was cancelled from outside. Otherwise the sends would hang."""
        # The end of a forked child cancels all tasks. The child must not use the parent's connections.
        if self.is_forked:
            return
        self.failure = error
        self._instruments.events.tell("producer-failed", cause=repr(error))
        # `asyncio.run` cancels all tasks at its end. A later call of the producer raises this error.
        if not isinstance(error, asyncio.CancelledError):
            _log.error("The producer failed: %r", error, exc_info=error)
        cause = ProducerClosed(f"the producer failed: {error!r}")
        cause.__cause__ = error
        self._count_lost()
        self._shut(cause)

    # Without stop()

    def drop(self, timeout: float) -> None:
        """Send the queued records for at most `timeout` seconds, then end, because the producer was garbage-collected.

        Any thread may call it.
        """
        servers = ",".join(node.where for node in self._cluster.bootstrap)
        self._dropped = DroppedProducer(
            self.loop,
            f"{self._config.client_id} of {servers}",
            spawn=self._supervisor.spawn,
            flush=partial(self._flush_dropped, timeout),
            end=self.end_now,
        )
        self._dropped.schedule()

    async def _flush_dropped(self, timeout: float) -> None:
        until = self.loop.time() + timeout
        summary = await self._finish_records(until)
        if summary is not None:
            self._lost += summary.failed
            self._is_flushed = not summary.pending
        if self._is_flushed:
            self._shut(ProducerClosed("the producer was dropped without stop()"))
            await self._cluster.sent(until - self.loop.time())

    def end_now(self) -> int:
        """End without waiting, also if the event loop is closed. Returns the number of records that were lost."""
        self._count_lost()
        fork_safety.forget(self)
        if self.loop.is_closed():
            self.is_open = False
            self._admission.shut()
            for stream in self._cluster.leave():
                close_socket(stream)
        else:
            self._instruments.events.tell("producer-stopped", unfinished=len(self._partition_queues.incomplete))
            self._shut(ProducerClosed("the producer was dropped without stop()"))
            self._supervisor.stop()
        self._supervisor.when_ended(self._end_workers)
        return self._lost

    def _count_lost(self) -> None:
        """Count the queued records, which fail now, as lost."""
        self._lost += self._unacknowledged() + self.from_thread.queued
        # The warning of `DroppedProducer` reports their number, so their failures are not reported again.
        if self._dropped is not None:
            for batch in self._partition_queues.incomplete:
                batch.result.look()

    def _end_workers(self) -> None:
        self._batch_compressor.close()
        self._interception.close()

    def _on_bug(self, error: BaseException) -> None:
        """Fail the producer, because a callback of it raised an exception. A producer that has ended only logs it."""
        if self.failure is None and self.is_open:
            self._on_crash(error)
            self._supervisor.stop()
        else:
            _log.error("A bug: %r", error, exc_info=error)

    def forget_fork(self) -> None:
        """Drop the connections and the event loop in a forked child: they belong to the parent process."""
        self._fast_path.fast = {}
        self._fast_path.here = None
        self._fast_path.slowly, self._fast_path.now = self._accumulator.append, self._accumulator.append_nowait
        self._delivery_context.on_unseen = _untold
        self.from_thread.forget_fork()
        disown(self._cluster.leave())

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for memory or metadata."""
        return self._admission.pending.waiting


def _untold(_error: object, _count: int) -> None:
    """Ignore failures that no code looked at, in a forked child: the parent process reports them."""
