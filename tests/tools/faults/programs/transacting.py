"""A transactional producer: five records of one transaction, which it commits, or in which it stays until it is killed.

python -m tests.tools.faults.programs.transacting SERVERS FIRST killed|commit
"""

import asyncio
import sys

from aioproducer import Producer


async def main(servers: str, first: str, end: str) -> None:
    async with Producer(bootstrap_servers=servers, transactional_id="tx", max_block_ms=20_000) as producer:
        await producer.begin_transaction()
        await asyncio.gather(*[producer.send_and_wait("orders", b"%d" % (int(first) + number)) for number in range(5)])
        if end == "killed":
            print("sent", flush=True)
            await asyncio.sleep(60)
        await producer.commit_transaction()
        print("committed", flush=True)


asyncio.run(main(*sys.argv[1:]))
