"""Starts one real Kafka for a bench, with direct connections, or with delayed ones through proxy processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import sys
from typing import TYPE_CHECKING, Final

from aioproducer.testing.kafka_server import KafkaServer, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

ROOT = pathlib.Path(__file__).parents[3]
HOST = "127.0.0.1"
SERVER_PROPERTIES: Final[Mapping[str, object]] = {
    # the figures so far are of no use any more
    "log.segment.bytes": 64 * 2**20,
    "log.retention.bytes": 64 * 2**20,
    "log.retention.check.interval.ms": 5_000,
    "log.segment.delete.delay.ms": 1_000,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Broker:
    """Holds a running Kafka and its addresses; those of proxies by the milliseconds of their round trip."""

    server: KafkaServer
    far: Mapping[float, str] = dataclasses.field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        return self.server.bootstrap_servers

    def bootstrap_servers_at(self, rtt_ms: float) -> str:
        """Return the bootstrap servers for a round trip of so many milliseconds; 0: without a proxy."""
        return self.far[rtt_ms] if rtt_ms else self.bootstrap_servers

    async def create_topic(self, name: str, partitions: int) -> None:
        await self.server.create_topic(name, partitions)

    async def ends(self, topic: str) -> list[int]:
        """Return the end offset of each partition of a topic."""
        return await self.server.end_offsets(topic)


@contextlib.asynccontextmanager
async def real_broker(
    *, rtts_ms: Sequence[float] = (), is_server: bool = False
) -> AsyncGenerator[Broker]:
    """Run a fresh Kafka while the block runs.

    Args:
        rtts_ms: the broker gets a listener and a proxy for each of these.
        is_server: settings of a server, for a long run: all compilers, more memory, short logs. Without it Kafka starts faster.
    """
    async with contextlib.AsyncExitStack() as stack:
        proxies = {
            rtt_ms: await stack.enter_async_context(delaying_proxy(rtt_ms / 2))
            for rtt_ms in rtts_ms
        }
        server = await stack.enter_async_context(
            _ManyDoors([proxy.port for proxy in proxies.values()], is_server=is_server)
        )
        for proxy, port in zip(proxies.values(), server.far_ports, strict=True):
            await proxy.lead_to(port)
        yield Broker(server, {rtt_ms: f"{HOST}:{proxy.port}" for rtt_ms, proxy in proxies.items()})


class _ManyDoors(KafkaServer):
    """A node with one more listener for each proxy, which advertises the proxy: the broker's own address would bypass it."""

    def __init__(self, proxy_ports: Sequence[int], *, is_server: bool) -> None:
        if is_server:  # all compilers and enough memory, as the bench does not measure the broker
            super().__init__(
                properties=SERVER_PROPERTIES, heap="1g", jvm_options=("-XX:TieredStopAtLevel=4",)
            )
        else:
            super().__init__()
        self._proxy_ports = proxy_ports
        self.far_ports: tuple[int, ...] = ()

    def _settings(self) -> dict[str, object]:
        self.far_ports = free_ports(
            len(self._proxy_ports)
        )  # asked for again whenever ports were taken
        settings = super()._settings()
        for number, (port, proxy_port) in enumerate(
            zip(self.far_ports, self._proxy_ports, strict=True)
        ):
            more = {
                "listeners": f"FAR{number}://{HOST}:{port}",
                "advertised.listeners": f"FAR{number}://{HOST}:{proxy_port}",
                "listener.security.protocol.map": f"FAR{number}:PLAINTEXT",
            }
            settings |= {name: f"{settings[name]},{value}" for name, value in more.items()}
        return settings


@dataclasses.dataclass(frozen=True, slots=True)
class Proxy:
    """Holds a running `tests.tools.benchmarks.proxy`."""

    port: int
    process: asyncio.subprocess.Process

    async def lead_to(self, port: int) -> None:
        """Set the port that the proxy connects its clients to. Call it before the first client."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d\n" % port)
        await self.process.stdin.drain()


@contextlib.asynccontextmanager
async def delaying_proxy(delay_ms: float) -> AsyncGenerator[Proxy]:
    """Run a listening proxy that delays each direction by so much. It ends with the block, or with this process."""
    command = (sys.executable, "-m", "tests.tools.benchmarks.proxy", str(delay_ms))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Proxy(int(await process.stdout.readline()), process)
    finally:
        process.stdin.close()
        await process.wait()
