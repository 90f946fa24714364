"""Sends the Arrow batches of a task while its thread reads the next ones from Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from aioproducer.spark.rows import RowSender
    from aioproducer.spark.worker import Worker

__all__ = ["pump"]


def pump(place: Worker, sender: RowSender, batches: Iterable[pa.RecordBatch]) -> Iterator[None]:
    """Send batches; yield after each one that is queued, while the next one is read. At the end all are queued.

    An interruption of this thread, or an error of the iterator, cancels the send that runs.
    """
    sending = None
    try:
        for batch in batches:
            if sending is not None:
                place.wait(sending)
                yield
            sending = place.submit(sender.send(batch))
        if sending is not None:
            place.wait(sending)
            yield
    finally:
        if sending is not None:
            sending.cancel()
