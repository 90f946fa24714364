"""The first program: sends two records and prints their results.

It needs no Kafka, as the cluster is a fake within this process.
Run it with `python examples/hello.py`.
"""

from __future__ import annotations

import asyncio

from aioproducer import Producer
from aioproducer.testing import FakeCluster


async def main() -> None:
    """Send two records of one key, then look into the log."""
    async with FakeCluster() as cluster:
        cluster.create_topic("greetings", partitions=2)
        async with Producer(
            **cluster.client_options
        ) as producer:  # with a real one: Producer(bootstrap_servers="host:9092")
            delivery = await producer.send("greetings", b"hello", key=b"world")  # queued
            metadata = await delivery  # acknowledged
            print(f"{metadata.topic}-{metadata.partition} has it at offset {metadata.offset}")
            metadata = await producer.send_and_wait(
                "greetings", b"again", key=b"world", headers=[("lang", b"en")]
            )
            print(f"{metadata.topic}-{metadata.partition} has it at offset {metadata.offset}")
        print(f"the log: {cluster.values('greetings', metadata.partition)}")


if __name__ == "__main__":
    asyncio.run(main())
