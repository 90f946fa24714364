"""Tests of the TLS of a fake cluster: handshakes, client certificates, what can be wrong with them. On sockets and in memory."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast

import pytest
from fake_requests import batch, produce

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster
from aioproducer.testing.certificates import EXPIRED, CertificateAuthority
from aioproducer.testing.client import WireClient
from aioproducer.testing.security.listener import ListenerSecurity, ListenerTls
from aioproducer.testing.security.tls import TlsStream

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from aioproducer.interfaces import Receiver, Stream
    from aioproducer.testing.security.listener import ServerCertificate

CA = CertificateAuthority()
SERVER = CA.server()
TLS = ListenerTls(SERVER)
memory = pytest.mark.parametrize("memory", [False, True], ids=["sockets", "memory"])


def client_context(
    authority: bytes,
    certificate: ServerCertificate | None = None,
    folder: Any = None,
) -> ssl.SSLContext:
    """A context that trusts one authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode())
    if certificate is not None:
        path = folder / "client.pem"
        path.write_bytes(certificate.pem)
        context.load_cert_chain(path)
    return context


class TlsDialer:
    """Checks the certificate for `name`. Keeps the state of TLS of each connection, and how each handshake failed."""

    def __init__(
        self, cluster: FakeCluster, context: ssl.SSLContext, name: str = "localhost"
    ) -> None:
        self._network, self._context, self._name = cluster.network, context, name
        self.up: list[ssl.SSLObject] = []
        self.failures: list[str] = []

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        stream = TlsStream(
            receiver(),
            self._context,
            on_up=self.up.append,
            on_failure=self.failures.append,
            server_hostname=self._name,
        )
        if self._network is not None:
            await self._network.dial(host, port, lambda: stream)
        else:
            await asyncio.get_running_loop().create_connection(
                lambda: cast("asyncio.Protocol", stream), host, port
            )
        return stream


async def write(cluster: FakeCluster, dialer: TlsDialer) -> int:
    """Produce one record; its error code."""
    cluster.topics.named("orders") or cluster.create_topic("orders")
    async with WireClient(cluster.bootstrap_servers, dialer=dialer) as client:
        code: int = (await produce(client, batch(b"v" * 100_000))).error_code
        return code


@memory
@pytest.mark.asyncio
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_client_is_served(version: str, *, memory: bool) -> None:
    """By the version that both have."""
    async with FakeCluster(
        memory=memory,
        security=ListenerSecurity("SSL", tls=ListenerTls(SERVER, versions=(version, version))),
    ) as cluster:
        dialer = TlsDialer(cluster, client_context(CA.pem))
        assert await write(cluster, dialer) == 0
        assert [tls.version() for tls in dialer.up] == [version]
        assert cluster.values("orders") == [b"v" * 100_000]
        assert (
            cluster.violations,
            cluster.security.tls_failures,
            cluster.security.authentications,
        ) == ([], [], [])


@memory
@pytest.mark.asyncio
async def test_a_cluster_makes_its_own_certificate(*, memory: bool) -> None:
    """For the addresses of its brokers; clients get the authority in their options."""
    async with FakeCluster(2, memory=memory, security=ListenerSecurity("SSL")) as cluster:
        assert cluster.client_options["security_protocol"] == "SSL"
        authority = cluster.client_options["ssl_truststore_certificates"].encode()
        for broker in cluster.brokers.values():
            assert await write(
                cluster, TlsDialer(cluster, client_context(authority), broker.host)
            ) in {0, 6}


@memory
@pytest.mark.asyncio
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_client_certificates(version: str, tmp_path: pathlib.Path, *, memory: bool) -> None:
    """Required: the principal is the CN. Without one, or with another authority's, the client is refused: in TLS 1.3 after its handshake."""
    tls = ListenerTls(SERVER, "required", CA, (version, version))
    async with FakeCluster(memory=memory, security=ListenerSecurity("SSL", tls=tls)) as cluster:
        alice = TlsDialer(cluster, client_context(CA.pem, CA.client("alice"), tmp_path))
        assert await write(cluster, alice) == 0
        told = cluster.security.authentications[0]
        assert (told.principal, told.mechanism, told.error) == ("alice", "TLS", 0)
        for certificate in (
            None,
            CertificateAuthority("another").client("mallory"),
            CA.client("late", validity=EXPIRED),
        ):
            dialer = TlsDialer(cluster, client_context(CA.pem, certificate, tmp_path))
            with pytest.raises(ConnectionLost):
                await write(cluster, dialer)
            assert bool(dialer.up) is (version == "TLSv1.3")
        assert len(cluster.security.tls_failures) == 3
        assert "peer did not return a certificate" in cluster.security.tls_failures[0].reason
        assert "expired" in cluster.security.tls_failures[2].reason
        cluster.security.change(tls=ListenerTls(SERVER, "requested", CA))
        assert await write(cluster, TlsDialer(cluster, client_context(CA.pem))) == 0
        assert len(cluster.security.authentications) == 1


@memory
@pytest.mark.asyncio
async def test_certificates_change_while_it_runs(*, memory: bool) -> None:
    """On one broker of two; the next connections see it, the open ones do not."""
    async with FakeCluster(2, memory=memory, security=ListenerSecurity("SSL", tls=TLS)) as cluster:
        cluster.create_topic("orders", 2)
        good = TlsDialer(cluster, client_context(CA.pem))
        async with WireClient(cluster.bootstrap_servers, dialer=good) as client:
            await client.metadata()
            assert (await produce(client, batch(b"v"), partition=1, node=2)).error_code == 0
            cluster.security.change(tls=ListenerTls(CA.server(validity=EXPIRED)), broker=2)
            assert (await produce(client, batch(b"v"), partition=1, node=2)).error_code == 0
            cluster.brokers[2].disconnect_all()
            with pytest.raises(ConnectionLost):
                await produce(client, batch(b"v"), partition=1, node=2)
            with pytest.raises(ConnectionLost, match="expired"):
                await produce(client, batch(b"v"), partition=1, node=2)
            assert (await produce(client, batch(b"v"), node=1)).error_code == 0


# --- what is wrong


@memory
@pytest.mark.asyncio
@pytest.mark.parametrize("spoil", [{"cut": 0}, {"cut": 1}, {"cut": 5}, {"cut": 200}, {"alert": 70}])
async def test_handshakes_that_end(spoil: dict[str, Any], *, memory: bool) -> None:
    """Once; the next connection is sound."""
    async with FakeCluster(memory=memory, security=ListenerSecurity("SSL", tls=TLS)) as cluster:
        cluster.spoil_tls(**spoil)
        dialer = TlsDialer(cluster, client_context(CA.pem))
        with pytest.raises(ConnectionLost):
            await write(cluster, dialer)
        assert len(dialer.failures) == len(cluster.security.tls_failures) == 1
        if "alert" in spoil:
            assert "PROTOCOL_VERSION" in dialer.failures[0].upper()
        assert await write(cluster, dialer) == 0
        assert len(cluster.security.dials) == 2
        cluster.assert_all_fired()


@memory
@pytest.mark.asyncio
@pytest.mark.parametrize("ignores", [False, True])
async def test_close_notify_is_answered_or_not(*, ignores: bool, memory: bool) -> None:
    """A client that says close_notify, and waits for the answer."""
    async with FakeCluster(memory=memory, security=ListenerSecurity("SSL", tls=TLS)) as cluster:
        if ignores:
            cluster.spoil_tls(ignore_close=True)
        cluster.create_topic("orders")
        dialer = TlsDialer(cluster, client_context(CA.pem))
        async with WireClient(cluster.bootstrap_servers, dialer=dialer) as client:
            await produce(client, batch(b"v"))
            (connection,) = cluster.brokers[1].connections
            stream: Any = client._connections[-1]._stream
            with pytest.raises(ssl.SSLWantReadError):
                stream._tls.unwrap()
            stream._transport.write(stream._out.read())
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert (connection in cluster.brokers[1].connections) is ignores


@memory
@pytest.mark.asyncio
async def test_it_leaves_nothing_behind(*, memory: bool) -> None:
    """The cluster ends while handshakes hang and clients ignore it."""
    before = asyncio.all_tasks()
    async with FakeCluster(memory=memory, security=ListenerSecurity("SSL", tls=TLS)) as cluster:
        cluster.spoil_tls(hang=True)
        cluster.spoil_tls(ignore_close=True)
        clients = [
            WireClient(cluster.bootstrap_servers, dialer=TlsDialer(cluster, client_context(CA.pem)))
            for _ in range(2)
        ]
        asking = asyncio.ensure_future(clients[0].metadata())
        await asyncio.sleep(0.01)
        await clients[1].metadata()
    with pytest.raises(ConnectionLost):
        await asking
    for client in clients:
        client.close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    "wrong",
    [{"client_auth": "maybe"}, {"client_auth": "required"}, {"versions": ("SSLv3", "TLSv1.3")}],
)
def test_tls_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ListenerTls(SERVER, **wrong)
    cluster = FakeCluster()
    with pytest.raises(ValueError):
        cluster.spoil_tls()
    with pytest.raises(ValueError):
        cluster.spoil_tls(hang=True, broker=2)
