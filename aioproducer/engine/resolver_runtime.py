"""The engine of a running `TransactionResolver`: its connections and tasks, on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

from aioproducer.engine.observability.diagnostics import waiting_notice
from aioproducer.engine.tasks.supervisor import reason_of_end
from aioproducer.engine.transactions.coordinator_calls import CoordinatorCalls
from aioproducer.engine.wiring import ClusterParts
from aioproducer.errors import ProducerClosed
from aioproducer.net.dialer import close_socket

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.net.cluster import BrokerNode
    from aioproducer.net.settings import NetSettings

_log = logging.getLogger(__name__)


class ResolverRuntime:
    """Holds the parts of one resolver.

    Args:
        settings: of all connections.

    Attributes:
        calls: makes the calls to coordinators.
        is_open: the resolver runs.
    """

    def __init__(self, config: ProducerConfig, settings: NetSettings) -> None:
        loop = asyncio.get_running_loop()
        self.loop: asyncio.AbstractEventLoop = loop
        self._config = config
        self._pid = os.getpid()
        self._failure: BaseException | None = None
        self.is_open: bool = False
        self._starting = asyncio.timeout(None)
        self._parts = ClusterParts(config, settings, self)
        self.calls: CoordinatorCalls = CoordinatorCalls(
            self._parts.context, self._parts.cluster, self._parts.updater
        )

    async def start(self) -> None:
        """Start the tasks and wait for the first metadata.

        Raises:
            BootstrapFailed: no broker answered within `max_block_ms`.
            ProducerClosed: `stop` was called meanwhile.
        Cancellation, or an error: no task or connection is left.
        """
        until = self.loop.time() + self._config.max_block_ms / 1000
        try:
            async with self._starting:
                with waiting_notice(self.loop, lambda: self._notice(until)):
                    await self._parts.start()
                    await self._parts.updater.bootstrap(until - self.loop.time())
        except TimeoutError as error:
            await self.stop()
            raise ProducerClosed("the resolver was stopped while it started") from error
        # Cancellation, too: no connection may be left.
        except BaseException:
            await self.stop()
            raise
        self._parts.supervisor.spawn(self._parts.updater.run(), "metadata")
        # A task may have failed meanwhile.
        self.is_open = self._failure is None

    def _notice(self, until: float) -> str:
        told = ", ".join(node.where for node in self._parts.cluster.bootstrap)
        reason = f": {self.trouble}" if self.trouble is not None else ""
        left = max(until - self.loop.time(), 0)
        return f"{self._config.client_id}: start() waits for a first answer of any broker of {told}, at most {left:.0f} s more{reason}"

    @property
    def trouble(self) -> object | None:
        """Return the error because of which brokers cannot be used now; None: no error is known."""
        return self._parts.updater.schedule.trouble or self._parts.unreached

    # Where and when it may be used

    def check(self) -> None:
        """Raise unless a call may be made now, in this process and event loop."""
        self.check_place()
        if self._failure is not None:
            raise ProducerClosed(
                f"the resolver failed: {reason_of_end(self._failure)}. Make a new one."
            ) from self._failure
        if not self.is_open:
            raise ProducerClosed("the resolver has stopped")

    def check_place(self) -> None:
        """Raise unless this is the resolver's process and event loop."""
        if self.is_forked:
            raise ProducerClosed(
                "the resolver belongs to the process that was forked from; make one here"
            )
        if asyncio.get_running_loop() is not self.loop:
            raise ProducerClosed(
                "the resolver belongs to another event loop; make one in this loop"
            )

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a forked child of the resolver's process."""
        return os.getpid() != self._pid

    async def brokers(self) -> list[BrokerNode]:
        """Return the nodes of all brokers, after the metadata is read anew."""
        await self._parts.updater.bootstrap(None)
        return list(self._parts.cluster.nodes)

    # The end

    async def stop(self) -> None:
        """End the waiting calls, the connections and the tasks. Cancellation: they end all the same."""
        self.is_open = False
        # RuntimeError: it has started, or failed.
        with contextlib.suppress(RuntimeError):
            self._starting.reschedule(self.loop.time())
        self.calls.close(lambda: ProducerClosed("the resolver was stopped before the answer"))
        try:
            await self._parts.cluster.close_gradually(now=True)
        finally:
            self._parts.supervisor.stop()
            await self._parts.supervisor.ended()

    def fail(self, error: BaseException) -> None:
        """Fail the resolver, because a task or a callback of it ended by a bug, or was cancelled from outside."""
        # The end of a forked child cancels all tasks. The child must not use the parent's connections.
        if self.is_forked or self._failure is not None:
            return
        self._failure = error
        if not isinstance(error, asyncio.CancelledError):
            _log.error("The resolver failed: %r", error, exc_info=error)
        self._end_now(f"the resolver failed: {reason_of_end(error)}")

    on_bug = fail

    def on_node(self, node: BrokerNode) -> None:
        """Do nothing: no task here waits for a broker but in a call to it."""

    def drop(self) -> None:
        """End without waiting, because the resolver was garbage-collected. Any thread may call it."""
        try:
            self.loop.call_soon_threadsafe(self._end_now, "the resolver was dropped without stop()")
        # The event loop is closed.
        except RuntimeError:
            for stream in self._parts.cluster.leave():
                close_socket(stream)

    def _end_now(self, why: str) -> None:
        self.is_open = False
        self.calls.close(lambda: ProducerClosed(why))
        self._parts.cluster.close(now=True)
        self._parts.supervisor.stop()
