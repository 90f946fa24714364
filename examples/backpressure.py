"""A fast source, a slow broker, and 100 KB of memory between: `await send` makes the source wait.

No record is lost.

Run it with `python examples/backpressure.py`. It needs no Kafka, as the cluster is a fake within this process.
"""

from __future__ import annotations

import asyncio

from aioproducer import Producer, WouldBlock
from aioproducer.testing import FakeCluster

BUFFER = 100_000  # bytes of records that are not acknowledged yet
RECORDS = 5_000
VALUE = b"x" * 100


async def main() -> None:
    """Send with waits for memory, then without."""
    async with FakeCluster() as cluster:
        cluster.create_topic("events", partitions=2)
        async with Producer(**cluster.client_options, buffer_memory=BUFFER) as producer:
            await wait(producer, cluster)
            await refuse(producer, cluster)
        print(f"the log has {len(cluster.values('events'))} records")


async def wait(producer: Producer[bytes, bytes], cluster: FakeCluster) -> None:
    """Call `send`, which returns at once while there is memory, and otherwise waits in the order of the calls."""
    cluster.delay("Produce", 0.01, times=10)
    least = BUFFER
    for number in range(RECORDS):
        await producer.send("events", VALUE, key=b"%d" % (number % 100))
        least = min(least, producer.buffer_available)
    summary = await producer.flush()
    print(
        f"waiting: {RECORDS} sent, {summary.failed} failed, the source was at most {(BUFFER - least) // 1000} KB ahead"
    )


async def refuse(producer: Producer[bytes, bytes], cluster: FakeCluster) -> None:
    """Call `send_nowait`, which never waits: it refuses a record without memory, which a web service may answer with 503."""
    hang = cluster.hang("Produce")
    taken = refused = 0
    for _ in range(RECORDS):
        try:
            producer.send_nowait("events", VALUE)
        except WouldBlock:
            refused += 1
        else:
            taken += 1
    hang.release()
    summary = await producer.flush()
    print(f"refusing: {taken} taken, {refused} refused, {summary.failed} failed")


if __name__ == "__main__":
    asyncio.run(main())
