"""A transactional producer of any make: five records of one transaction, which it commits, or in which it stays until it is killed.

python -m tests.tools.faults.programs.transacting CLIENT SERVERS FIRST killed|commit
"""

import asyncio
import os
import sys
from types import SimpleNamespace
from typing import Any

from tests.tools.faults.clients import make


async def main(name: str, servers: str, first: str, end: str) -> None:
    client = make(name)
    cluster: Any = SimpleNamespace(bootstrap_servers=servers, client_options={"bootstrap_servers": servers})
    await client.start(cluster, {"transactional_id": "tx", "max_block_ms": 20_000})
    await client.begin()
    await asyncio.gather(*[await client.send("orders", b"%d" % (int(first) + number), 0) for number in range(5)])
    if end == "killed":
        print("sent", flush=True)
        await asyncio.sleep(60)
    await client.commit()
    print("committed", flush=True)
    os._exit(0)  # although threads of the client may still run


asyncio.run(main(*sys.argv[1:]))
