"""How to reach Kafka through an HTTP proxy, with TLS inside the tunnel: `python examples/proxy_dialer.py`.

A dialer makes the connections of a producer. This one connects to a proxy and asks it for a tunnel (CONNECT, RFC 9110). The producer then
runs TLS through the tunnel, and checks the certificate against the broker's name, not the proxy's. A fake cluster and a small proxy stand in
for the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from aioproducer import Producer
from aioproducer.testing import CertificateAuthority, FakeCluster, ListenerSecurity, ListenerTls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from aioproducer.interfaces import Receiver, Stream


class ProxyDialer:
    """Dials brokers through an HTTP proxy.

    Args:
        proxy: host and port of the proxy.
    """

    def __init__(self, proxy: tuple[str, int]) -> None:
        self._proxy = proxy

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Return a stream to `host`, through the proxy. The producer limits the time. Cancellation leaves no socket open.

        Raises:
            OSError: the proxy cannot be reached, or makes no tunnel.
        """
        loop = asyncio.get_running_loop()
        transport, tunnel = await loop.create_connection(
            lambda: _Tunnel(f"{host}:{port}"), *self._proxy
        )
        try:
            rest = await tunnel.opened
        except BaseException:
            transport.abort()
            raise
        connection = cast("asyncio.Protocol", receiver())  # which has its methods
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if rest:
            connection.data_received(rest)
        return transport


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel to `target`.

    Attributes:
        opened: the bytes that came behind the proxy's answer, when there is a tunnel.
    """

    def __init__(self, target: str) -> None:
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._target = target
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request for the tunnel. A proxy with a password wants a Proxy-Authorization header here."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(f"CONNECT {self._target} HTTP/1.1\r\nHost: {self._target}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Read the proxy's answer up to its blank line."""
        self._head += data
        head, blank, rest = self._head.partition(b"\r\n\r\n")
        if self.opened.done() or not blank:
            return
        status = head.split(b"\r\n")[0].decode("latin-1")
        if " 200" in status:
            self.opened.set_result(rest)
        else:
            self.opened.set_exception(
                ConnectionError(f"the proxy makes no tunnel to {self._target}: {status}")
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the dial if there is no tunnel yet."""
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the proxy closed the connection"))


@contextlib.asynccontextmanager
async def proxy(brokers: dict[str, int]) -> AsyncGenerator[tuple[str, int]]:
    """Run a proxy in this process, which makes tunnels to ports of this machine by the brokers' names. Yields its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        host = head.split()[1].decode().rpartition(":")[0]
        print(f"the proxy is asked for {host}")
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", brokers[host])
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main() -> None:
    """Send one record through the proxy. This machine cannot look up the broker's name: only the proxy knows it."""
    authority = CertificateAuthority()
    name = "kafka-1.example.com"
    async with FakeCluster(
        security=ListenerSecurity("SSL", tls=ListenerTls(authority.server(name)))
    ) as cluster:
        cluster.create_topic("orders")
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        cluster.brokers[1].advertise(name, port)
        async with (
            proxy({name: port}) as address,
            Producer(
                bootstrap_servers=f"{name}:{port}",
                dialer=ProxyDialer(address),
                security_protocol="SSL",
                ssl_truststore_certificates=authority.pem.decode(),
            ) as producer,
        ):
            metadata = await producer.send_and_wait("orders", b"through the tunnel")
            print(f"{metadata.topic}-{metadata.partition} has it at offset {metadata.offset}")


if __name__ == "__main__":
    asyncio.run(main())
