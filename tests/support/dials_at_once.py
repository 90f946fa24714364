"""A program that dials a hundred TLS connections at once, and prints the longest gap between two beats of 1 ms, in CPU seconds.

It is a process of its own, as a service is: in that of a test run, the objects of thousands of tests take part.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pathlib
import subprocess
import sys
import tempfile
import time

from nodes import running

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.core.retries import Backoff
from aioproducer.net.dialer import TcpDialer
from aioproducer.net.settings import Security
from aioproducer.net.tls_contexts import TlsContexts, TlsSettings
from aioproducer.testing.certificates import CertificateAuthority

DIALS = 100
# A server of TLS that reads, and answers nothing.
SERVER = """
import asyncio, ssl, sys

class Draining(asyncio.Protocol):
    pass

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    server = await asyncio.get_running_loop().create_server(Draining, "127.0.0.1", 0, ssl=context, backlog=200)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def longest_gap(port: int, authority: str) -> float:
    """Return the most CPU seconds of this thread between two beats, from the dials to the last handshake."""
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            gaps.append(time.thread_time() - began)

    security = Security(tls=TlsContexts(TlsSettings(ssl_truststore_certificates=authority)))
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for number in range(DIALS):
            broker = Broker(number, "localhost", port)
            nodes.append(
                await stack.enter_async_context(
                    running(TcpDialer(), broker, security=security, setup=Backoff(60.0, 60.0))
                )
            )
        heart = asyncio.create_task(beat())
        # a full collection of all that the program has imported takes 30 ms, and would come at some moment of the dials
        gc.collect()
        gc.freeze()
        await asyncio.sleep(0.05)
        gaps.clear()
        for node in nodes:
            node.control.request_connection()
        async with asyncio.timeout(60):
            while sum(len(node.control._setup.alive) for node in nodes) < DIALS:
                await asyncio.sleep(0.002)
        heart.cancel()
        for node in nodes:
            node.close(now=True)
    return max(gaps)


def main() -> None:
    # As the constructor of a producer does.
    authority = CertificateAuthority()
    with tempfile.TemporaryDirectory() as folder:
        files = authority.server().write(pathlib.Path(folder), "server")
        with subprocess.Popen(
            [sys.executable, "-c", SERVER, str(files.pem)], stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None
            try:
                print(
                    asyncio.run(longest_gap(int(server.stdout.readline()), authority.pem.decode()))
                )
            finally:
                server.kill()


if __name__ == "__main__":
    main()
