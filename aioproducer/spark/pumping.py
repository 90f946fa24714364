"""Sends the Arrow batches of a task while its thread reads the next ones from Spark."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    import pyarrow as pa

    from aioproducer.spark.rows import RowSender
    from aioproducer.spark.worker import Worker

__all__ = ["pump", "read_ahead"]

# Bytes of the batches that were read and are not queued yet. The last one may go beyond it.
_AHEAD: Final = 4 * 1_048_576


def pump(place: Worker, sender: RowSender, batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Send batches in order; yield for each one that is queued, while the next ones are read. At the end all are queued.

    The number that it yields is that of the rows up to the end of the batch; rows behind them may be queued, too. The thread does not wait
    for each batch, because two threads that wake each other for each batch take longer than the work on it.

    An interruption of this thread, or an error of the iterator, cancels the sends that run.
    """
    line = _Line(sender)
    sending: deque[tuple[Future[None], int, int]] = deque()
    ahead = rows = 0
    try:
        for batch in batches:
            size = batch.nbytes
            rows += batch.num_rows
            while sending and (sending[0][0].done() or ahead + size > _AHEAD):
                future, taken, end = sending[0]
                place.wait(future)
                sending.popleft()
                ahead -= taken
                yield end
            sending.append((place.submit(line.send(batch)), size, rows))
            ahead += size
        while sending:
            place.wait(sending[0][0])
            yield sending.popleft()[2]
    finally:
        for future, *_ in sending:
            future.cancel()


def read_ahead(batches: Iterator[pa.RecordBatch], until: Future[Any]) -> Iterator[pa.RecordBatch]:
    """Read batches until a future is done, so that Spark makes rows meanwhile. Returns an iterator of all: those that were read, and the rest.

    An error of `batches` is raised by that iterator, at the place of the batch.

    Args:
        batches: the rows.
        until: is done by the loop's thread. A batch that is being read at that time is read to its end.
    """
    held: deque[pa.RecordBatch] = deque()
    ahead = 0
    failure = None
    try:
        while ahead < _AHEAD and not until.done():
            held.append(next(batches))
            ahead += held[-1].nbytes
    except StopIteration:
        pass
    except Exception as error:
        failure = error
    return _all(held, failure, batches)


def _all(
    held: deque[pa.RecordBatch], failure: Exception | None, rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    while held:
        yield held.popleft()
    if failure is not None:
        raise failure
    yield from rest


class _Line:
    """Sends batches one after the other, and none behind one that failed."""

    def __init__(self, sender: RowSender) -> None:
        # Not at the top: the processes of the driver import this module, and asyncio is slow to import.
        from asyncio import Lock

        self._sender = sender
        self._turn = Lock()
        self._error: BaseException | None = None

    async def send(self, batch: pa.RecordBatch) -> None:
        # A batch has failed, too, if its send is cancelled while it waits for its turn: the lock lets in the one behind it.
        try:
            # The lock is first come, first served.
            async with self._turn:
                if self._error is not None:
                    raise self._error
                await self._sender.send(batch)
        # Of a cancellation, too: no later batch may be sent behind one that was not.
        except BaseException as error:
            self._error = error
            raise
