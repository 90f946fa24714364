"""A program that is interrupted while its producer has records. It handles SIGTERM by cancelling its main task."""

import asyncio
import contextlib
import signal
import sys

from aioproducer import Producer
from aioproducer.testing import FakeCluster


async def main() -> None:
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        try:
            async with Producer(
                **cluster.client_options, linger_ms=60_000, close_timeout_ms=5000
            ) as producer:
                for number in range(100):
                    await producer.send("orders", b"%d" % number)
                print("sending", flush=True)
                await asyncio.sleep(60)
        finally:
            print("logged", len(cluster.values("orders")), flush=True)


signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a program in the background of a shell starts without this handler
try:
    asyncio.run(main())
except asyncio.CancelledError:
    sys.exit(143)
