"""How to reach Kafka through an HTTP proxy, with TLS inside the tunnel: `python examples/proxy_dialer.py`.

A dialer makes the connections of a producer. This one connects to a proxy and asks it for a tunnel (CONNECT, RFC 9110). The producer then
runs TLS through the tunnel, and checks the certificate against the broker's name, not the proxy's. A fake cluster and a small proxy stand in
for the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aioproducer import Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

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
        transport, tunnel = await loop.create_connection(lambda: _Tunnel(f"{host}:{port}"), *self._proxy)
        try:
            rest = await tunnel.opened
        except BaseException:
            transport.abort()
            raise
        connection = receiver()
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
            self.opened.set_exception(ConnectionError(f"the proxy makes no tunnel to {self._target}: {status}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the dial if there is no tunnel yet."""
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the proxy closed the connection"))
