"""A running producer: its start, the doors to its parts, and their end. Knows nothing of the face, or of how the parts are connected."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from aioproducer.engine import forks
from aioproducer.engine.assembly import Assembly
from aioproducer.engine.columns import Columns
from aioproducer.engine.formats import check_brokers
from aioproducer.engine.gauges import unready
from aioproducer.engine.hot import Delivery, FastPath, here
from aioproducer.engine.many import Many
from aioproducer.engine.threads import FromThread
from aioproducer.errors import KafkaError, ProducerClosed, UsageError
from aioproducer.model import FlushSummary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.deliveries import Deliveries
    from aioproducer.engine.pool import Parked
    from aioproducer.engine.ready import ReadyBatch
    from aioproducer.engine.transactor import Transactor
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.metrics.registry import Snapshot
    from aioproducer.model import Health

__all__ = ["Engine"]

_log = logging.getLogger(__name__)


class Engine:
    """The parts of one producer on one loop.

    Args:
        way: what `send` looks at; the engine opens and closes it.
        version: of this software, for brokers' metrics.
        chance: a random number in [0, 1).
        wall_clock: seconds since the epoch.
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
        self._config = config
        self._way = way
        self._pid = os.getpid()
        parts = Assembly(
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
        )
        self.pool = parts.pool
        self._supervisor = parts.supervisor
        self._telling = parts.telling
        self._accumulator = parts.accumulator
        self._encoder = parts.encoder
        self._sender = parts.sender
        self._turn = parts.turn
        self._appender = parts.appender
        self._parking = parts.parking
        self._intake = parts.intake
        self._interception = parts.interception
        self._take, self._take_now = parts.take, parts.take_now
        self._cluster = parts.cluster
        self._refresher = parts.refresher
        self._idle = parts.idle
        self._idling, self._ratios = parts.idling, parts.ratios
        self._ids = parts.ids
        self._transactor = parts.transactor
        self._breaking = parts.breaking
        self.from_thread: FromThread[Any, Any] = FromThread(self.loop, self._accept, config.max_block_ms / 1000)
        way.tick = self._tick

    async def start(self, *, wait: bool) -> None:
        """Start the tasks and wait for the first metadata and the producer id, or let tasks wait for them.

        Raises:
            BootstrapFailed: no broker answered within `max_block_ms`, or none gives this producer an id.
            ConfigError: `message_format_max` asks for a format that the broker no longer takes.
        Cancellation, or an error: nothing is left.
        """
        try:
            await self._supervisor.start()
            until = self.loop.time() + self._config.max_block_ms / 1000
            if wait:
                await self._refresher.bootstrap(until - self.loop.time())
                self._check_formats()
            if self._ids is not None:
                self._spawn(self._ids.run(), "producer id")
                if wait:
                    await self._ids.first(until - self.loop.time())
            if self._transactor is not None and wait:
                self._spawn(self._transactor.run(), "transactions")
                with self._telling.meter.spent("txn-init-time"):
                    await self._transactor.start(until - self.loop.time())
        except BaseException:
            await self._end(ProducerClosed("the producer did not start"))
            raise
        self._spawn(self._run_metadata(is_known=wait), "metadata")
        self._spawn(self._encoder.run(), "compression")
        self._spawn(self._idle.run(), "idle topics")
        self._way.here = here()
        self.is_open = True
        self._telling.events.tell("producer-started")
        forks.watch(self)

    async def _run_metadata(self, *, is_known: bool) -> None:
        if not is_known:
            await self._refresher.bootstrap(None)
            self._check_formats()
            if self._transactor is not None:
                self._spawn(self._transactor.run(), "transactions")
        await self._refresher.run()

    def _check_formats(self) -> None:
        nodes = (*self._cluster.bootstrap, *filter(None, map(self._cluster.node, self._refresher.view.brokers)))
        connections = (lane.connection for node in nodes for lane in (node.control, node.produce))
        check_brokers(filter(None, connections), self._config.message_format_max)

    def _spawn(self, coroutine: Coroutine[None, None, None], name: str) -> None:
        self._supervisor.spawn(coroutine, name)

    def _tick(self) -> int:
        self.check()
        return self._sender.tick()

    def _accept(self, *record: Any) -> Delivery | Parked:
        self.check()
        return self._take(*record)

    def send_now(self, *record: Any) -> Delivery:
        """`send`, or WouldBlock."""
        self.check()
        return self._take_now(*record)

    async def send_many(self, topic: str, records: Any, send: Callable[..., Awaitable[Delivery]]) -> Deliveries:
        """All of them, in bulk where that can be; `send` is the producer's."""
        self.check()
        return await Many(self._config, self.loop, self._way, self._turn, self._appender, self._parking, send).send(topic, records)

    async def send_columns(
        self, topic: str, values: Any, keys: Any, partition: int | None, timestamps_ms: Any, send: Callable[..., Awaitable[Delivery]]
    ) -> Deliveries:
        """All rows of these columns; `send` is the producer's."""
        self.check()
        columns = Columns(self._config, self._appender, self._parking, take=self._accept_window, send=send)
        return await columns.send(topic, values, keys, partition, timestamps_ms)

    def _accept_window(self, parked: Parked) -> Delivery | Parked:
        self.check()
        return self._intake.accept_window(parked)

    async def partitions(self, topic: str) -> int:
        """How many a topic has, waiting for its metadata."""
        self.check()
        return await self._intake.partitions(topic)

    def create_batch(self, topic: str, partition: int) -> ReadyBatch:
        """An empty one, for the user to fill."""
        self.check()
        return self._intake.create_batch(topic, partition)

    async def send_batch(self, batch: ReadyBatch) -> Deliveries:
        """Queue a batch that the user filled, behind what its partition has."""
        self.check()
        return await self._intake.send_batch(batch)

    async def send(self, topic: Any, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> Delivery:
        """Every send that is not fast."""
        self.check()
        outcome = self._take(topic, value, key, partition, timestamp_ms, headers)
        return outcome if type(outcome) is Delivery else await self._intake.wait(outcome)  # type: ignore[arg-type]

    @property
    def transactor(self) -> Transactor:
        """What carries transactions out. UsageError: this producer has none."""
        self.check()
        if self._transactor is None:
            raise UsageError("transactions need a name that outlives this producer: give it transactional_id")
        return self._transactor

    def snapshot(self) -> Snapshot:
        """All metrics, as they stand. From any thread: the loop is asked for what only it knows, the rest is read here."""
        return self._telling.metrics.snapshot(*self.from_thread.ask(self._telling.read))

    def health(self, patience: float | None) -> Health:
        """Whether it can do its work; `patience`: seconds that a record may be unacknowledged. From any thread."""
        return self.from_thread.ask(partial(self._health, patience))

    def _health(self, patience: float | None) -> Health:
        if self.failure is not None:
            return unready(f"the producer failed: {self.failure!r}")
        if not self.is_open:
            return unready("the producer has stopped")
        return self._telling.gauges.health(self._config.request_timeout_ms / 1000 if patience is None else patience)

    def explain(self) -> list[str]:
        """What waits, and for what, a line each."""
        lines = [f"buffer_memory: {self.pool.available} of {self.pool.size} bytes free", *self._parking.explain(), *self._sender.explain()]
        if self.failure is not None:
            lines.insert(0, f"failed: {self.failure!r}")
        elif self._refresher.trouble is not None:
            lines.insert(0, f"metadata: {self._refresher.trouble}")
        elif self._ids is not None and self._ids.trouble is not None:
            lines.insert(0, f"producer id: {self._ids.trouble}")
        elif self._transactor is not None:
            lines.insert(0, self._transactor.explain())
        return lines

    def check(self) -> None:
        """Raise unless records may be sent, here and now."""
        if self.failure is not None:
            raise ProducerClosed(f"the producer failed: {self.failure!r}. Make a new one.") from self.failure
        if not self.is_open:
            raise ProducerClosed("the producer has stopped")
        if os.getpid() != self._pid:
            raise ProducerClosed("the producer belongs to the process that was forked from; make one here")
        if asyncio.get_running_loop() is not self.loop:
            raise ProducerClosed("the producer belongs to another event loop; make one in this loop")

    async def flush(self, timeout: float | None) -> FlushSummary:
        """Send everything now, and wait until what was queued or parked has ended, at most `timeout` seconds."""
        with self._telling.meter.spent("flush-time"):
            return await self._flush(timeout)

    async def _flush(self, timeout: float | None) -> FlushSummary:
        marks = self._parking.mark()
        flush = None
        done = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                for mark in marks:
                    await mark.wait()
                flush = self._sender.start_flush(done.set)
                if flush.pending:
                    await done.wait()
        except TimeoutError:
            pass  # the summary says what is pending
        finally:
            if flush is not None:
                self._sender.stop_flush(flush)
        if flush is None:
            flush = self._sender.start_flush(done.set)
            self._sender.stop_flush(flush)
            return FlushSummary(0, 0, flush.pending + self._parking.waiting)
        return FlushSummary(flush.acknowledged, flush.failed, flush.pending)

    async def stop(self, timeout: float) -> FlushSummary | None:
        """Flush, bounded, then end. Cancellation: what is left fails at once; the tasks end all the same."""
        self.from_thread.shut(lambda: ProducerClosed("the producer has stopped"))
        self.is_open = False
        self._parking.shut()
        if self._breaking is not None:
            self._breaking.close()
        summary = None
        until = self.loop.time() + timeout
        try:
            if self.failure is None:
                if self._transactor is not None:
                    await self._transactor.give_up(timeout)
                summary = await self.flush(max(until - self.loop.time(), 0.0))
        finally:
            self._is_flushed = summary is not None and not summary.pending
            self._telling.events.tell("producer-stopped", unfinished=len(self._accumulator.incomplete))
            await self._end(ProducerClosed("the producer was stopped before the record was acknowledged"), until)
        return summary

    async def _end(self, cause: KafkaError, until: float = 0.0) -> None:
        """`until`: how long a broker may take to read what was acknowledged when its transport took it (acks=0)."""
        forks.forget(self)
        self._shut(cause)
        try:
            if self._is_flushed:
                await self._cluster.sent(until - self.loop.time())
        finally:
            self._supervisor.stop()
            try:
                await self.ended()
            finally:
                self._encoder.close()
                self._interception.close()

    async def ended(self) -> None:
        """Until the last task is gone."""
        await self._supervisor.ended()

    def _shut(self, cause: KafkaError) -> None:
        """Everything that waits learns why; connections close, at once if a broker hangs that would not take what is still to be written."""
        self.is_open = False
        ends: tuple[Callable[[], None], ...] = (
            lambda: self._breaking.close() if self._breaking is not None else None,
            lambda: self.from_thread.shut(lambda: ProducerClosed(str(cause))),
            lambda: self._parking.close(lambda: ProducerClosed(str(cause))),
            lambda: self._sender.fail_all(cause),
            lambda: self._transactor.close(lambda: ProducerClosed(str(cause))) if self._transactor is not None else None,
            lambda: self._cluster.close(now=not self._is_flushed),
        )
        for end in ends:
            try:
                end()
            except Exception as error:  # noqa: BLE001  (after a bug, whatever can still be ended is)
                _log.error("A bug: a part of the producer could not be ended: %r", error, exc_info=error)

    def _on_crash(self, error: BaseException) -> None:
        """A task of ours ended by a bug, or was cancelled from outside: never a silent hang."""
        self.failure = error
        self._telling.events.tell("producer-failed", cause=repr(error))
        if not isinstance(error, asyncio.CancelledError):  # `asyncio.run` ends so; who uses the producer after it is told
            _log.error("The producer failed: %r", error, exc_info=error)
        cause = ProducerClosed(f"the producer failed: {error!r}")
        cause.__cause__ = error
        self._shut(cause)

    def _on_bug(self, error: BaseException) -> None:
        """A callback of ours raised."""
        if self.failure is None and self.is_open:
            self._on_crash(error)
            self._supervisor.stop()
        else:
            _log.error("A bug: %r", error, exc_info=error)

    def forget_fork(self) -> None:
        """In a forked child: the parent's connections and loop are not ours to use."""
        self._way.fast = {}
        self._way.here = None

    @property
    def waiting(self) -> int:
        """Records that wait for memory or metadata."""
        return self._parking.waiting
