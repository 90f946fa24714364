"""A process that forks with a live producer."""

import asyncio
import os

from aioproducer import Producer
from aioproducer.testing import FakeCluster


async def main() -> None:
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"parent")
            child = os.fork()
            if not child:
                use(producer)
            await asyncio.to_thread(os.waitpid, child, 0)
            print("parent:", (await producer.send_and_wait("orders", b"parent again")).offset, flush=True)
        print("connections:", len({request.connection for request in cluster.requests("Produce")}), flush=True)


def use(producer: Producer[bytes, bytes]) -> None:
    """Run the first step of a send by hand in the child, as its loop is the parent's. The child ends as those of multiprocessing do."""
    try:
        producer.send("orders", b"child").send(None)
    except BaseException as error:
        print("child:", type(error).__name__, flush=True)
    else:
        print("child: sent", flush=True)
    finally:
        os._exit(0)


asyncio.run(main())
