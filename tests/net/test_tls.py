"""Tests of `aioproducer.net.tls`: the layer alone, on memory streams and on sockets, and under a node's connections."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from jumping import run, settle, until
from nodes import ask, running
from tls_peers import TlsServer, client_context, server_context, tls_in_front

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.net.security import Security
from aioproducer.net.tls import HandshakeTurns, TlsStream
from aioproducer.net.tls_contexts import TlsContexts, TlsSettings
from aioproducer.net.transport import TcpDialer
from aioproducer.testing import FakeCluster
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.memory import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

CA = CertificateAuthority()
SERVER = CA.server()


class Receiver:
    """Writes down what comes."""

    def __init__(self, on_data: Callable[[bytes], object] | None = None) -> None:
        self.events: list[Any] = []
        self.data = bytearray()
        self.stream: Any = None
        self._on_data = on_data

    def connection_made(self, transport: Any) -> None:
        self.stream = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self._on_data is not None:
            self._on_data(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(("lost", exc))

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Pair:
    """A client and a server over the layer, in memory."""

    def __init__(self, server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None, name: str = "localhost") -> None:
        self.near, self.far = Receiver(), Receiver()
        self.server = TlsServer(self.far, server or server_context(SERVER))
        self.client = TlsStream(self.near, client or client_context(CA), name, HandshakeTurns())

    async def dial(self) -> Pair:
        network = MemoryNetwork()
        network.listen("localhost", 1, lambda: self.server)
        await network.dial("localhost", 1, lambda: self.client)
        return self

    async def up(self) -> Pair:
        await self.dial()
        await self.client.handshake()
        return self


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_go_both_ways(version: ssl.TLSVersion) -> None:
    async def main() -> None:
        pair = await Pair(server_context(SERVER, version=version)).up()
        assert pair.client.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        pair.client.writelines([b"a" * 10, b"b" * 100_000, b"c"])
        pair.client.write(b"d" * 200_000)
        pair.far.stream.write(b"e" * 300_000)
        await settle()
        assert pair.far.data == b"a" * 10 + b"b" * 100_000 + b"c" + b"d" * 200_000
        assert pair.near.data == b"e" * 300_000
        pair.client.close()
        pair.client.close()
        await settle()
        assert pair.near.events == ["made", ("lost", None)]
        assert pair.far.events == ["made", ("lost", None)]

    run(main())


def test_a_node_asks_a_fake_broker_over_tls_in_virtual_time() -> None:
    async def main() -> None:
        async with FakeCluster(memory=True) as cluster:
            made = tls_in_front(cluster, server_context(CA.server("broker-1.memory")))
            fake = cluster.brokers[1]
            tls = TlsContexts(TlsSettings(ssl_context=client_context(CA)))
            async with running(cluster.network, Broker(1, fake.host, fake.port), security=Security(tls=tls)) as node:
                await ask(node)
                assert [server.tls.version() for server in made] == ["TLSv1.3"]
            await until(lambda: made[0].is_closing())

    run(main())


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_server_of_asyncio_over_a_socket(kind: str) -> None:
    """Bytes of a peer that is not ours, on both loops."""

    async def main() -> None:
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.readexactly(1_000_000)
            writer.write(data[::-1])
            await writer.drain()
            done.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context(SERVER)) as server:
            receiver = Receiver()
            stream = TlsStream(receiver, client_context(CA), "127.0.0.1", HandshakeTurns())
            port = server.sockets[0].getsockname()[1]
            async with asyncio.timeout(20):
                await TcpDialer().dial("127.0.0.1", port, lambda: stream)
                await stream.handshake()
                payload = bytes(range(250)) * 4000
                stream.write(payload)
                while len(receiver.data) < len(payload):
                    await asyncio.sleep(0.01)
                assert receiver.data == payload[::-1]
                assert stream.get_extra_info("socket").fileno() > 0
                stream.close()
                assert await done == b""

    factory = None
    if kind == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
