"""Writes a source that is not Kafka into Kafka exactly once, although the program dies again and again.

The position in the source is part of each transaction. After a death the program asks Kafka for its position and continues behind it.

Run it with `python examples/resume.py`. It needs no Kafka, as the cluster is a fake within this process. At the end every line of the source
is in the topic once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioproducer import Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LINES = [b"line %d" % number for number in range(1_000)]
CHUNK = 50


class Death(Exception):
    """Stands for kill -9: the program ends within a transaction."""


async def read(start: int) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Read the source from a line on. Yields the number of lines that were read so far, and the next lines."""
    for at in range(start, len(LINES), CHUNK):
        await asyncio.sleep(0)
        yield at + CHUNK, LINES[at : at + CHUNK]


async def job(bootstrap: dict[str, Any], dies_at: int | None = None) -> int:
    """Write what is left of the source, or die within a transaction. Returns the line at which the job began."""
    async with Producer(**bootstrap, transactional_id="import-1") as producer:
        position = await producer.committed_position("import", topic="lines")
        start = 0 if position is None else position.number
        async for number, lines in read(start):
            await producer.begin_transaction()
            for line in lines:
                await producer.send("lines", line)
            await producer.send_position_to_transaction("import", number, topic="lines")
            if number == dies_at:
                raise Death
            await producer.commit_transaction()
    return start


async def main() -> None:
    """Run the job until it ends: it dies three times."""
    async with FakeCluster() as cluster:
        cluster.create_topic("lines", partitions=3)
        for dies_at in (200, 450, 800):
            try:
                await job(cluster.client_options, dies_at)
            except Death:
                print(f"died before the commit of line {dies_at}")
        start = await job(cluster.client_options)
        print(f"the last run began at line {start}")
        written = cluster.values("lines", isolation="read_committed")
        print(
            f"{len(written)} lines in Kafka, {len(set(written))} different ones, {len(LINES)} in the source"
        )


if __name__ == "__main__":
    asyncio.run(main())
