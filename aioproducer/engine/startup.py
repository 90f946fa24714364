"""Starts a producer: its tasks, the first metadata, and the producer id."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from aioproducer.engine.metadata.metadata_updater import forget_idle_topics
from aioproducer.engine.observability.diagnostics import waiting_notice
from aioproducer.engine.sender.record_formats import check_brokers
from aioproducer.engine.shutdown import trouble
from aioproducer.engine.tasks.supervisor import reason_of_end
from aioproducer.errors import ProducerClosed

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.engine.shutdown import Shutdown
    from aioproducer.engine.wiring import EngineParts

__all__ = ["Startup"]

_STOPPED_EARLY: Final = "stopped while it started"


class Startup:
    """Runs the start of one producer.

    Args:
        shutdown: ends what a start leaves that failed.
    """

    def __init__(self, config: ProducerConfig, parts: EngineParts, shutdown: Shutdown) -> None:
        self._config = config
        self._parts = parts
        self._shutdown = shutdown
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False
        self._ended = asyncio.Event()
        self._scope: asyncio.Timeout | None = asyncio.timeout(None)
        shutdown.on_failure = self._give_up

    async def run(self, *, wait: bool) -> None:
        """Start the tasks and wait for the first metadata and the producer id. Without `wait`, tasks wait for them.

        Raises: as `Runtime.start`. Cancellation, or an error: no task or connection is left.
        """
        until = self._loop.time() + self._config.max_block_ms / 1000
        assert self._scope is not None
        try:
            async with self._scope:
                with waiting_notice(self._loop, lambda: self._notice(until)):
                    await self._run(until, wait=wait)
            if self._is_stopped:
                raise ProducerClosed(_STOPPED_EARLY)
        except BaseException as error:
            await self._shutdown.end(ProducerClosed("the producer did not start"))
            self._raise_if_given_up(error)
            raise
        finally:
            # It keeps the task, and the task keeps its result, which may be the producer: nothing would ever collect that one.
            self._scope = None
            self._ended.set()
        spawn = self._parts.supervisor.spawn
        spawn(self._parts.updater.run() if wait else self._run_metadata(), "metadata")
        spawn(self._parts.batch_compressor.run(), "compression")
        spawn(forget_idle_topics(self._parts), "idle topics")

    async def _run(self, until: float, *, wait: bool) -> None:
        parts = self._parts
        await parts.supervisor.start()
        if parts.token_keeper is not None:
            parts.supervisor.spawn(parts.token_keeper.run(parts.instruments), "token")
        if wait:
            await parts.updater.bootstrap(until - self._loop.time())
            self._check_formats()
        if parts.ids is not None:
            parts.supervisor.spawn(parts.ids.run(), "producer id")
            if wait:
                await parts.ids.first(until - self._loop.time())
        if parts.transaction_manager is not None and wait:
            parts.supervisor.spawn(parts.transaction_manager.run(), "transactions")
            await parts.transaction_manager.start(until - self._loop.time())

    async def stop(self) -> None:
        """End the start that runs, which then raises ProducerClosed. Returns once no task or connection of it is left."""
        if not self._is_stopped:
            self._is_stopped = True
            self._give_up()
        await self._ended.wait()

    def _raise_if_given_up(self, error: BaseException) -> None:
        """Raise ProducerClosed if `error` is the TimeoutError of `_scope`, which `_give_up` ended."""
        failure = self._shutdown.failure
        if isinstance(error, TimeoutError) and (self._is_stopped or failure is not None):
            raise ProducerClosed(_STOPPED_EARLY if failure is None else f"the producer failed: {reason_of_end(failure)}") from (
                failure or error
            )

    def _give_up(self) -> None:
        """End the wait of `run`."""
        # RuntimeError: `run` has failed by itself and is ending.
        with contextlib.suppress(RuntimeError):
            if self._scope is not None:
                self._scope.reschedule(self._loop.time())

    @property
    def has_ended(self) -> bool:
        """Return whether the start has succeeded or failed."""
        return self._ended.is_set()

    def _notice(self, until: float) -> str:
        parts = self._parts
        if not parts.cluster.nodes:
            told = f"a first answer of any broker of {', '.join(node.where for node in parts.cluster.bootstrap)}"
        elif parts.transaction_manager is None:
            told = "a producer id"
        else:
            told = f"the coordinator of transactional_id={self._config.transactional_id!r}"
        error = trouble(parts)
        reason = f": {error}" if error is not None else ""
        return f"{self._config.client_id}: start() waits for {told}, at most {max(until - self._loop.time(), 0):.0f} s more{reason}"

    async def _run_metadata(self) -> None:
        """Bootstrap as `_run` does with `wait`, as part of the task that updates metadata from then on."""
        parts = self._parts
        await parts.updater.bootstrap(None)
        self._check_formats()
        if parts.transaction_manager is not None:
            parts.supervisor.spawn(parts.transaction_manager.run(), "transactions")
        await parts.updater.run()

    def _check_formats(self) -> None:
        cluster = self._parts.cluster
        nodes = (*cluster.bootstrap, *filter(None, map(cluster.node, self._parts.updater.view.brokers)))
        connections = (broker_connection.connection for node in nodes for broker_connection in (node.control, node.produce))
        check_brokers(filter(None, connections), self._config.message_format_max)
