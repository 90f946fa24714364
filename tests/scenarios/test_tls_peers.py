"""A whole producer and peers of TLS that no sound broker is: row 98 of security's faults."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tls_peers import openssl_server, seen_by_s_client, server_context, tls_in_front
from whole import jumping, running

from aioproducer import Producer
from aioproducer.net.dialer import TcpDialer
from aioproducer.net.tls_contexts import TlsContexts, TlsSettings
from aioproducer.testing import FakeCluster
from aioproducer.testing.certificates import CertificateAuthority

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from aioproducer.interfaces import Receiver
    from aioproducer.testing.memory import MemoryNetwork

CA = CertificateAuthority()
SERVER = CA.server("broker-1.memory")
TLS = {"security_protocol": "SSL", "ssl_truststore_certificates": CA.pem.decode()}
OPENSSL = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the peer, or what shows it, is OpenSSL's"
)
# a ServerHello, and an alert, of the version 3.0
SSLV3_HELLO = bytes.fromhex("16 0300 002a 02 000026 0300") + bytes(32) + bytes.fromhex("00 002f 00")
SSLV3_ALERT = bytes.fromhex("15 0300 0002 02 28")


class OfSslV3:
    """A listener that answers a ClientHello by a ServerHello of SSLv3."""

    def __init__(self) -> None:
        self.seen = b""

    def connection_made(self, transport: Any) -> None:
        self.stream = transport

    def data_received(self, data: bytes) -> None:
        if not self.seen:
            self.stream.write(SSLV3_HELLO)
        self.seen += data

    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


@OPENSSL
@jumping
async def test_bytes_of_sslv3() -> None:
    """Row 98: the connection ends, in the handshake and in mid-life; the records go again, each once."""
    assert "unsupported protocol" in seen_by_s_client(OfSslV3)
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        made = tls_in_front(cluster, server_context(SERVER))
        network: Any = cluster.network
        (place, listener), *_ = network._listeners.items()
        old = [OfSslV3() for _ in range(3)]
        async with running(cluster, **TLS) as (_, producer):
            left = iter(old)
            network._listeners[place] = lambda: next(left, None) or listener()
            for number in range(60):
                await producer.send("orders", b"%d" % number)
                if number % 20 == 10:
                    for server in made:
                        server.stream.write(SSLV3_ALERT)
                await asyncio.sleep(0.02)
            await producer.flush()
        for hello in old:
            assert hello.seen.startswith(b"\x16\x03\x01")
            # the client answers the ServerHello by the fatal alert protocol_version
            assert hello.seen.endswith(bytes.fromhex("15 0303 0002 02 46"))
        assert len(made) >= 5
        assert cluster.values("orders") == [b"%d" % number for number in range(60)]


class Behind:
    """The broker's end of a connection that `openssl s_server` decrypts: what the broker answers goes to its standard input."""

    def __init__(self, server: asyncio.subprocess.Process) -> None:
        self.server = server
        self.stream: Any = None

    def connection_made(self, transport: Any) -> None:
        self.stream = transport

    def data_received(self, data: bytes) -> None:
        assert self.server.stdin is not None
        self.server.stdin.write(data)

    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class ThroughOpenssl:
    """A dialer: each connection goes to an `openssl s_server` of TLS 1.2 of its own, over a socket, and from there to the fake broker."""

    def __init__(
        self, network: MemoryNetwork, pem: pathlib.Path, stack: contextlib.AsyncExitStack
    ) -> None:
        self.servers: list[asyncio.subprocess.Process] = []
        self._network, self._pem, self._stack = network, pem, stack
        self._starting: list[asyncio.Task[tuple[asyncio.subprocess.Process, int]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Any:
        served = openssl_server("-tls1_2", "-cert", str(self._pem), "-naccept", "1")
        starting = asyncio.create_task(self._stack.enter_async_context(served))
        self._starting.append(starting)
        # a dial that `stop` cancels leaves no process behind
        server, tls_port = await asyncio.shield(starting)
        stream = await TcpDialer().dial("127.0.0.1", tls_port, receiver)
        self.servers.append(server)
        self._tasks.append(asyncio.create_task(self._pass_on(server, host, port)))
        return stream

    async def _pass_on(self, server: asyncio.subprocess.Process, host: str, port: int) -> None:
        assert server.stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError):
            await server.stdout.readuntil(b"Secure Renegotiation IS supported\n")
            behind = Behind(server)
            await self._network.dial(host, port, lambda: behind)
            while data := await server.stdout.read(65536):
                behind.stream.write(data)
            behind.stream.abort()

    async def end(self) -> None:
        await asyncio.gather(*self._starting, *self._tasks)

    def order(self, letter: bytes) -> None:
        """Give a command to each server that still runs: R and r ask for a renegotiation."""
        for server in self.servers:
            assert server.stdin is not None
            if server.returncode is None:
                server.stdin.write(letter + b"\n")


@OPENSSL
@pytest.mark.asyncio
async def test_a_renegotiation_of_tls_1_2(tmp_path: pathlib.Path) -> None:
    """Row 98: renegotiation is off. The connection ends, and the records go again, each once."""
    files = SERVER.write(tmp_path, "server")
    hello_requests: list[int] = []

    def note(
        _tls: Any, direction: str, _version: int, _type: int, message: int, _data: bytes
    ) -> None:
        if (direction, message) == ("read", 0):
            hello_requests.append(message)

    # the product's own context, which shows that HelloRequests come
    context: Any = await TlsContexts(
        TlsSettings(ssl_truststore_certificates=CA.pem.decode())
    ).context()
    context._msg_callback = note
    async with (
        FakeCluster(memory=True) as cluster,
        contextlib.AsyncExitStack() as stack,
        asyncio.timeout(60),
    ):
        cluster.create_topic("orders")
        assert cluster.network is not None
        dialer = ThroughOpenssl(cluster.network, files.pem, stack)
        options = {
            **cluster.client_options,
            "dialer": dialer,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with Producer(**options) as producer:
            for number in range(30):
                await producer.send("orders", b"%d" % number)
                if number % 10 == 5:
                    await producer.flush()
                    dials = len(dialer.servers)
                    dialer.order(b"R" if number < 15 else b"r")
                    await producer.send_and_wait("orders", b"behind %d" % number)
            await producer.flush()
        await dialer.end()
        assert len(hello_requests) >= 3
        assert len(dialer.servers) > dials
        wanted: list[bytes] = []
        for number in range(30):
            wanted += [b"%d" % number, *([b"behind %d" % number] if number % 10 == 5 else [])]
        assert cluster.values("orders") == wanted
