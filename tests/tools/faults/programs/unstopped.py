"""Closes the event loop while its producer runs."""

import asyncio
import gc

from aioproducer import Producer
from aioproducer.testing import FakeCluster


async def main() -> None:
    cluster = FakeCluster(memory=True)
    await cluster.__aenter__()
    cluster.create_topic("orders")
    producer = Producer(**cluster.client_options)
    await producer.start()
    await producer.send_and_wait("orders", b"v")
    await producer.send("orders", b"never waited for")
    print("sent")


loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
gc.collect()
