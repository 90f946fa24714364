"""Copies a stream to a topic: an async generator, back-pressure, a checkpoint that is never ahead of Kafka.

Run it with `python examples/streaming_job.py FOLDER`; stop it with Ctrl-C and run it again, and it goes on at its position. It needs no
Kafka, as the cluster is a fake within this process; the checkpoint is a file in the folder.
"""

from __future__ import annotations

import asyncio
import pathlib
import sys
from collections import deque
from typing import TYPE_CHECKING

from aioproducer import Delivery, Producer, json_serializer, string_serializer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READINGS = 20_000
EVERY = 1_000  # readings between two checkpoints


async def readings(start: int) -> AsyncIterator[dict[str, object]]:
    """Yield the readings of the source from a position on. The job requests the next reading only after it has sent the last one."""
    for number in range(start, READINGS):
        if number % 100 == 0:
            await asyncio.sleep(0)  # a real one would wait for its socket here
        yield {"number": number, "sensor": f"sensor-{number % 50}", "celsius": 20 + number % 7}


class Job:
    """Copies readings; each one before `position` is acknowledged. After a crash the job copies some again, and skips none."""

    def __init__(
        self, producer: Producer[str, dict[str, object]], checkpoint: pathlib.Path
    ) -> None:
        self.position = self._saved = int(checkpoint.read_text()) if checkpoint.exists() else 0
        self._producer = producer
        self._checkpoint = checkpoint
        self._pending: deque[Delivery] = deque()

    async def run(self) -> None:
        """Copy to the end of the source."""
        try:
            async for reading in readings(self.position):
                # waits while memory is full, and so does the source: that is the back-pressure
                delivery = await self._producer.send(
                    "readings", reading, key=str(reading["sensor"])
                )
                self._pending.append(delivery)
                self._advance()
        finally:  # also after Ctrl-C or a failure: the producer sends the queued records, and the job counts them
            await self._producer.flush(timeout=10)
            try:
                self._advance()
            finally:
                self._save()

    def _advance(self) -> None:
        """Advance over acknowledged readings, in the order of the sends. A failed delivery raises, and the position stays before it."""
        while self._pending and self._pending[0].done():
            self._pending[0].result()
            self._pending.popleft()
            self.position += 1
        if self.position - self._saved >= EVERY:
            self._save()

    def _save(self) -> None:
        self._checkpoint.write_text(str(self.position))
        self._saved = self.position


async def main(folder: str) -> None:
    """Run the job once."""
    async with FakeCluster() as cluster:
        cluster.create_topic("readings", partitions=6)
        async with Producer[str, dict[str, object]](
            **cluster.client_options,  # with a real one: bootstrap_servers="host:9092"
            key_serializer=string_serializer,
            value_serializer=json_serializer,
            compression_type="zstd",
            linger_ms=5,
            buffer_memory=1_000_000,
        ) as producer:
            job = Job(producer, pathlib.Path(folder, "position.txt"))
            print(f"from reading {job.position} on")
            await job.run()
        print(f"up to {job.position}; the log has {len(cluster.values('readings'))} more")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/streaming_job.py FOLDER")
    asyncio.run(main(sys.argv[1]))
