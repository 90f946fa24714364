"""Sends all queued records, and waits until they and the pending sends have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer.engine.memory.pending_send import FOR_METADATA
from aioproducer.engine.sender.flush import Flush
from aioproducer.model import FlushSummary

if TYPE_CHECKING:
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.engine.append.admission import Admission
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.memory.pending_send import PendingSend
    from aioproducer.engine.sender.batch_completion import BatchCompletion
    from aioproducer.engine.sender.sender import Sender


class Flushes:
    """Runs the flushes of one producer."""

    def __init__(
        self,
        context: EngineContext,
        partition_queues: PartitionQueues,
        completion: BatchCompletion,
        admission: Admission,
        sender: Sender,
    ) -> None:
        self._step = context.loop.step
        self._recorder = context.instruments.recorder
        self._partition_queues = partition_queues
        self._completion = completion
        self._failed_batches = completion.completions.failed_batches
        self._admission = admission
        self._sender = sender

    async def flush(self, timeout: float | None) -> FlushSummary:
        """Send all records now, and wait until the queued records and the pending sends have ended, at most `timeout` seconds.

        `on_failed` has had the records that failed, unless the time was over. Returns how many records were acknowledged, failed, or are left.
        """
        with self._recorder.spent("flush-time"):
            return await self._flush(timeout)

    async def _flush(self, timeout: float | None) -> FlushSummary:
        covered = [pending for pending in self._admission.waiting_sends() if not pending.asks]
        placed = [_placed(pending) for pending in covered]
        done = asyncio.Event()
        # Records that wait for memory, or for their full partition, are appended and may end while others wait behind them.
        takes_all = any(pending.reason not in FOR_METADATA for pending in covered)
        flush = self._completion.watch(
            Flush(self._partition_queues.incomplete, done.set, waits=True, takes_all=takes_all)
        )
        try:
            async with asyncio.timeout(timeout):
                if placed:
                    await asyncio.wait(placed, return_when=asyncio.FIRST_COMPLETED)
                    # From now on others that waited for metadata may wait for memory, too.
                    flush.takes_all = True
                    await asyncio.wait(placed)
                self._step(self._start, flush)
                if flush.pending:
                    await done.wait()
                if self._failed_batches is not None:
                    await self._failed_batches.handed_out()
        # The summary says how many records are pending.
        except TimeoutError:
            pass
        finally:
            self._completion.unwatch(flush)
        waiting = 0
        if flush.waits:
            self._step(self._start, flush)
            waiting = self._admission.waiting
        return FlushSummary(flush.acknowledged, flush.failed, flush.pending + waiting)

    def _start(self, flush: Flush) -> None:
        """Close and drain every batch. The flush covers those that have not ended."""
        for queue in self._partition_queues.open_queues():
            self._partition_queues.close(queue)
        flush.cover_last(self._partition_queues.incomplete)
        self._sender.drain_all()


def _placed(pending: PendingSend) -> asyncio.Future[None]:
    """Return the future that is done once a record that waits is in a batch, or will never be."""
    if pending.placed is None:
        pending.placed = asyncio.get_running_loop().create_future()
    return pending.placed
