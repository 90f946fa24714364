"""One real Kafka for a bench, near and, through a proxy in a process of its own, far. Knows nothing of clients and workloads."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import sys
from typing import TYPE_CHECKING

from aioproducer.testing.kafka_node import free_ports
from aioproducer.testing.kafka_server import KafkaServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ROOT = pathlib.Path(__file__).parents[2]
HOST = "127.0.0.1"
DELAY_MS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Broker:
    """A running Kafka and the two ways to it; the far one is empty where it was not asked for."""

    server: KafkaServer
    far_bootstrap_servers: str = ""

    @property
    def bootstrap_servers(self) -> str:
        return self.server.bootstrap_servers

    async def create_topic(self, name: str, partitions: int) -> None:
        await self.server.create_topic(name, partitions)

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()


@contextlib.asynccontextmanager
async def real_broker(*, is_far: bool = False, delay_ms: float = DELAY_MS) -> AsyncGenerator[Broker]:
    """A fresh Kafka for as long as the block lasts; `is_far`: with the proxy before its second listener, which delays each way."""
    if not is_far:
        async with KafkaServer() as server:
            yield Broker(server)
        return
    async with delaying_proxy(delay_ms) as proxy, _TwoDoors(proxy.port) as server:
        await proxy.lead_to(server.far_port)
        yield Broker(server, f"{HOST}:{proxy.port}")


class _TwoDoors(KafkaServer):
    """A node with a second listener, which sends clients to the proxy: a broker's own address would lead them around it."""

    def __init__(self, proxy_port: int) -> None:
        super().__init__()
        self._proxy_port = proxy_port
        self.far_port = 0

    def _settings(self) -> dict[str, object]:
        (self.far_port,) = free_ports(1)  # asked for again whenever ports were taken
        settings = super()._settings()
        more = {
            "listeners": f"FAR://{HOST}:{self.far_port}",
            "advertised.listeners": f"FAR://{HOST}:{self._proxy_port}",
            "listener.security.protocol.map": "FAR:PLAINTEXT",
        }
        return settings | {name: f"{settings[name]},{value}" for name, value in more.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Proxy:
    """A running `tests.benchmarks.proxy`."""

    port: int
    process: asyncio.subprocess.Process

    async def lead_to(self, port: int) -> None:
        """Where it connects its clients to; before the first of them."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d\n" % port)
        await self.process.stdin.drain()


@contextlib.asynccontextmanager
async def delaying_proxy(delay_ms: float) -> AsyncGenerator[Proxy]:
    """A proxy that listens, and ends with the block, or with this process."""
    command = (sys.executable, "-m", "tests.benchmarks.proxy", str(delay_ms))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Proxy(int(await process.stdout.readline()), process)
    finally:
        process.stdin.close()
        await process.wait()
