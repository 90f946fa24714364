"""The engine of a running producer: gives `Producer` access to its parts."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.engine.append.not_started import has_hooks
from aioproducer.engine.append.send_columns import SendColumns
from aioproducer.engine.append.send_many import SendMany
from aioproducer.engine.append.thread_bridge import LOOP_CLOSED, ThreadBridge
from aioproducer.engine.chosen_build import FastPath, here
from aioproducer.engine.gauges import unready
from aioproducer.engine.observability.diagnostics import backlog
from aioproducer.engine.shutdown import Shutdown
from aioproducer.engine.startup import Startup
from aioproducer.engine.tasks import fork_safety
from aioproducer.engine.tasks.supervisor import reason_of_end
from aioproducer.engine.wiring import EngineParts
from aioproducer.errors import ProducerClosed, UsageError
from aioproducer.net.dialer import disown
from aioproducer.net.settings import net_settings
from aioproducer.serializers import BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer.config import ProducerConfig
    from aioproducer.engine.chosen_build import Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries
    from aioproducer.engine.memory.buffer_pool import BufferPool
    from aioproducer.engine.memory.wait_queue import PendingSend
    from aioproducer.engine.transactions.transaction_manager import TransactionManager
    from aioproducer.interfaces import Dialer, Resolver
    from aioproducer.metrics.registry import Snapshot
    from aioproducer.model import FlushSummary, Health, PartitionNumber
    from aioproducer.serializers import Encoding

__all__ = ["Runtime"]

_ELSEWHERE: Final = "the producer belongs to another event loop; make one in this loop"
_OTHER_THREAD: Final = (
    f"{_ELSEWHERE}. As another thread runs that loop, send by `producer.from_thread`, "
    "and have the loop run other calls with asyncio.run_coroutine_threadsafe"
)


class Runtime:
    """Holds the parts of one producer on one event loop.

    Args:
        fast_path: the fast path of `send`; the engine opens and closes it.
        version: of this software, for brokers' metrics.
        chance: returns a random number in [0, 1).
        wall_clock: returns the seconds since the epoch.

    Attributes:
        parts: the parts of the engine.
        startup, shutdown: its start and its end.
        flush: sends all records now, for at most so many seconds, and returns their summary.
    """

    def __init__(
        self,
        config: ProducerConfig,
        fast_path: FastPath,
        dialer: Dialer,
        resolver: Resolver,
        version: str,
        *,
        chance: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._config = config
        self._fast_path = fast_path
        self._pid = os.getpid()
        settings = net_settings(config, version, dialer, resolver, chance, wall_clock)
        parts = EngineParts(config, fast_path, settings, wall_clock, self)
        self.parts: EngineParts = parts
        self.pool: BufferPool = parts.pool
        self.flush: Callable[[float | None], Awaitable[FlushSummary]] = parts.flushes.flush
        self.from_thread: ThreadBridge = ThreadBridge(self.loop, self._accept, config.max_block_ms / 1000)
        self.shutdown: Shutdown = Shutdown(config, parts, self.from_thread)
        self.startup: Startup = Startup(config, parts, self.shutdown)

    async def start(self, *, wait: bool) -> None:
        """Start the tasks and wait for the first metadata and the producer id. Without `wait`, tasks wait for them.

        Raises:
            BootstrapFailed: no broker answered within `max_block_ms`, or the brokers refuse this producer an id.
            ConfigError: `message_format_max` asks for a format that the broker no longer takes.
            ProducerClosed: `startup.stop` was called meanwhile.
        Cancellation, or an error: no task or connection is left. The interceptors that the user gave are not closed, because another
        engine may be started with them; those that were made of classes are.
        """
        fork_safety.watch(self)
        try:
            await self.startup.run(wait=wait)
        except BaseException:
            self.parts.close_own_interception()
            raise
        # A task may have failed while the start went on.
        if self.shutdown.failure is None:
            self._fast_path.here = here()
        self._fast_path.slowly, self._fast_path.now = self.parts.accumulator.append, self.parts.accumulator.append_nowait
        self.shutdown.open()

    def fail(self, error: BaseException) -> None:
        self.shutdown.fail(error)

    def on_bug(self, error: BaseException) -> None:
        self.shutdown.on_bug(error)

    def _accept(self, *record: Any) -> Delivery | PendingSend:
        self.check()
        return self.parts.accumulator.submit(*record, None)

    async def send_many(self, topic: str, records: Any, send: Callable[..., Awaitable[Delivery]], encoding: Encoding | None) -> Deliveries:
        """Send all `records`, in bulk where that is possible, and return their deliveries.

        `send` sends one of them: it is that of the producer, or of a topic. `encoding` is the topic's; None: as the options say.
        """
        self.check()
        is_encoded = encoding is not BYTES and not (encoding is None and self._fast_path.encodings is None)
        singly = is_encoded or has_hooks(self._config)
        return await self._send_many(send).send(topic, records, singly=singly)

    def _send_many(self, send: Callable[..., Awaitable[Delivery]]) -> SendMany:
        parts = self.parts
        return SendMany(self._config, self.loop, self._fast_path, parts.loop_budget, parts.appender, parts.accumulator, send)

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
        columns = SendColumns(self._config, self.parts.appender, self.parts.accumulator, self._send_many(send), send)
        return await columns.send(topic, values, keys, partition, timestamps_ms, headers, partitions)

    @property
    def transaction_manager(self) -> TransactionManager:
        """Return the manager of the transactions. Raises UsageError if the producer has no transactional id."""
        self.check()
        if self.parts.transaction_manager is None:
            raise UsageError("transactions need a name that outlives this producer: give it transactional_id")
        return self.parts.transaction_manager

    def snapshot(self) -> Snapshot:
        """Return the current values of all metrics. Any thread may call it: the event loop reads the values that only it may read."""
        return self.parts.instruments.metrics.snapshot(*self.from_thread.ask(self.parts.gauges.read))

    def health(self, patience: float | None) -> Health:
        """Return the health; `patience`: seconds for which a record may be unacknowledged. Any thread may call it."""
        if self.is_forked:
            return unready(fork_safety.FORKED)
        if self.shutdown.failure is not None:
            return unready(f"the producer failed: {reason_of_end(self.shutdown.failure)}")
        if not self.shutdown.is_open:
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
            *self.parts.admission.pending.explain(),
            *backlog(self.parts.partition_queues, self.parts.cluster, self.loop.time(), self._config.delivery_timeout_ms / 1000),
        ]
        if self.is_forked:
            lines.insert(0, fork_safety.FORKED)
        elif self.shutdown.failure is not None:
            lines.insert(0, f"failed: {reason_of_end(self.shutdown.failure)}")
        elif self.parts.updater.schedule.trouble is not None:
            lines.insert(0, f"metadata: {self.parts.updater.schedule.trouble}")
        elif self.parts.ids is not None and self.parts.ids.trouble is not None:
            lines.insert(0, f"producer id: {self.parts.ids.trouble}")
        elif self.parts.transaction_manager is not None:
            waits_for = self.parts.transaction_manager.waits_for()
            lines.insert(0, f"transactional_id {self.parts.transaction_manager.transaction.transactional_id!r}: {waits_for}")
        return lines

    def check(self) -> None:
        """Raise unless records may be sent now, in this process and event loop."""
        if os.getpid() != self._pid:
            raise ProducerClosed(fork_safety.FORKED)
        shutdown = self.shutdown
        if shutdown.failure is not None:
            raise ProducerClosed(f"the producer failed: {reason_of_end(shutdown.failure)}. Make a new one.") from shutdown.failure
        if not shutdown.is_open:
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
        self._fast_path.fast = {}
        self._fast_path.here = None
        self._fast_path.slowly, self._fast_path.now = self.parts.accumulator.append, self.parts.accumulator.append_nowait
        disown(self.parts.cluster.leave())

    @property
    def waiting(self) -> int:
        """Return the number of records that wait for memory or metadata."""
        return self.parts.admission.pending.waiting
