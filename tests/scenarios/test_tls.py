"""A whole producer over TLS on the fake cluster: starts that are refused, and TLS that is not there (the rows 92 to 119 of tests/tools/faults show more)."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from tls_peers import (
    has_verify_error,
    seen_by_s_client,
    server_context,
    tls_in_front,
)
from whole import jumping, now, running

from aioproducer import Producer
from aioproducer.errors import (
    BootstrapFailed,
    CertificateNotTrusted,
    ConfigError,
    DeliveryError,
)
from aioproducer.testing import FakeCluster
from aioproducer.testing.certificates import EXPIRED, NOT_YET_VALID, CertificateAuthority

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from aioproducer.interfaces import Receiver

CA = CertificateAuthority(key_type="rsa")
NAMES = tuple(f"broker-{number}.memory" for number in range(1, 5))
SERVER = CA.server(*NAMES)
TLS = {"security_protocol": "SSL", "ssl_truststore_certificates": CA.pem.decode()}
OPENSSL = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="OpenSSL's s_client shows first what the peer serves"
)


class Counted:
    """A dialer that counts."""

    def __init__(self, network: Any) -> None:
        self.dials: list[tuple[float, str]] = []
        self._network = network

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Any:
        self.dials.append((now(), host))
        return await self._network.dial(host, port, receiver)


@pytest.mark.parametrize(
    "options", [{}, {"transactional_id": "t"}, {"enable_idempotence": False, "acks": 0}]
)
@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"]
)
@jumping
async def test_records_over_tls(version: ssl.TLSVersion, options: dict[str, Any]) -> None:
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        made = tls_in_front(cluster, server_context(SERVER, version=version))
        async with running(cluster, **TLS, **options) as (_, producer):
            if "transactional_id" in options:
                await producer.begin_transaction()
            for number in range(300):
                await producer.send("orders", b"%d" % number * 100)
            if "transactional_id" in options:
                await producer.commit_transaction()
            await producer.flush()
        assert sum(len(cluster.records("orders", partition)) for partition in (0, 1)) == 300
        assert {server.tls.version() for server in made} == {version.name.replace("_", ".")}


# Starts that are refused


@OPENSSL
@pytest.mark.parametrize(
    ("certificate", "number", "reason"),
    [
        (CA.server(*NAMES, validity=EXPIRED), 10, "it has expired"),
        (CA.server(*NAMES, validity=NOT_YET_VALID), 9, "it is not yet valid"),
        (CertificateAuthority("another CA").server(*NAMES), 20, "its CA is not trusted"),
        (CA.server("elsewhere.test"), 62, "it is not for the name 'broker-1.memory'"),
    ],
    ids=["expired", "not yet", "unknown CA", "wrong name"],
)
@pytest.mark.parametrize(("brokers", "dials"), [(1, 2), (2, 3), (3, 3)])
@jumping
async def test_a_start_that_is_refused_fails_early(
    brokers: int, dials: int, certificate: Any, number: int, reason: str
) -> None:
    """Row 95: within 1.5 s, and it may be tried again.

    The second refusal of one address is final, or the third in all: of two addresses, one is not dialed again.
    """
    assert has_verify_error(server_context(certificate), number, CA, "broker-1.memory")
    async with FakeCluster(brokers=brokers, memory=True) as cluster:
        tls_in_front(cluster, server_context(certificate))
        dialer = Counted(cluster.network)
        before, began = asyncio.all_tasks(), now()
        producer = Producer(**{**cluster.client_options, "dialer": dialer}, **TLS)
        with pytest.raises(BootstrapFailed) as raised:
            await producer.start()
        assert now() - began <= 1.5
        assert len(dialer.dials) == dials
        assert reason in str(raised.value)
        assert (
            "no broker let this client in. broker-1.memory:9092: the broker's certificate is refused"
            in str(raised.value)
        )
        assert "Trusted: ssl_truststore_certificates" in str(raised.value)
        assert isinstance(raised.value.__cause__, CertificateNotTrusted)
        assert asyncio.all_tasks() == before
        await producer.stop()


@jumping
async def test_one_address_that_refuses_and_one_that_lets_in() -> None:
    """The order of the addresses does not matter, and a refusal is no reason to fail while another may let us in."""
    for server in ("broker-2.memory:9092", "broker-1.memory:9092"):
        async with FakeCluster(brokers=2, memory=True) as cluster:
            cluster.create_topic("orders")
            good, bad = server_context(SERVER), server_context(CA.server("elsewhere.test"))
            contexts = iter([bad, *[good] * 50])
            tls_in_front(cluster, lambda contexts=contexts: next(contexts))
            servers = f"{server},broker-{3 - int(server[7])}.memory:9092"
            async with Producer(
                **{**cluster.client_options, "bootstrap_servers": servers}, **TLS
            ) as producer:
                await producer.send_and_wait("orders", b"v")
            assert cluster.values("orders") == [b"v"]


@jumping
async def test_an_address_that_is_down_beside_one_that_refuses() -> None:
    """Every address was tried, one refused twice and none let us in."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        tls_in_front(cluster, server_context(CA.server("elsewhere.test")))
        await cluster.brokers[2].stop()
        began = now()
        with pytest.raises(
            BootstrapFailed, match=r"is not for the name.*broker-2.memory:9092: nobody listens"
        ):
            await Producer(**cluster.client_options, **TLS).start()
        assert now() - began <= 1.5


@jumping
async def test_a_start_that_does_not_wait_is_not_refused() -> None:
    """It gets through by itself when the certificate is right."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        current = [server_context(CA.server("elsewhere.test"))]
        tls_in_front(cluster, lambda: current[0])
        producer = Producer(**cluster.client_options, **TLS)
        await producer.start(wait=False)
        delivery = asyncio.create_task(producer.send_and_wait("orders", b"v"))
        await asyncio.sleep(10)
        assert not delivery.done()
        current[0] = server_context(SERVER)
        await delivery
        await producer.stop()


@jumping
async def test_files_that_cannot_be_used_fail_the_start_at_once(tmp_path: pathlib.Path) -> None:
    async with FakeCluster(memory=True) as cluster:
        producer = Producer(
            **cluster.client_options,
            security_protocol="SSL",
            ssl_truststore_location=tmp_path / "none.pem",
        )
        began = now()
        with pytest.raises(
            ConfigError,
            match=r"ssl_truststore_location=.*none.pem cannot be read: No such file or directory",
        ):
            await producer.start()
        assert now() == began
        CA.write(tmp_path / "none.pem")
        tls_in_front(cluster, server_context(SERVER))
        await producer.start()
        await producer.stop()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"], ids=["closes", "HTTP"]
)
@jumping
async def test_a_start_without_tls_waits_at_a_port_that_answers_no_alert(answer: bytes) -> None:
    """Row 97: a broker that stops closes its connections, too, and a proxy speaks for a broker that is not there yet: neither is certain."""
    async with FakeCluster(memory=True) as cluster:
        if answer:
            cluster.raw("ApiVersions", answer, times=12)
        else:
            cluster.fail("ApiVersions", disconnect="before", times=12)
        began = now()
        async with Producer(**cluster.client_options):
            assert now() - began > 1.5


# In mid-life


@OPENSSL
@jumping
async def test_without_tls_nothing_is_ever_sent() -> None:
    """Row 119: TLS is asked for, and the listener, or a broker that the cluster advertises, has none: no byte of Kafka's goes out."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        network: Any = cluster.network
        plain = dict(network._listeners)
        tls_in_front(cluster, server_context(SERVER))
        seen: list[bytes] = []

        class Plaintext:
            """A listener without TLS, which closes when it reads what is no frame."""

            def connection_made(self, transport: Any) -> None:
                self.stream = transport

            def data_received(self, data: bytes) -> None:
                seen.append(data)
                self.stream.close()

            def eof_received(self) -> None: ...
            def connection_lost(self, exc: Exception | None) -> None: ...

        assert "SSL handshake has read 0 bytes" in seen_by_s_client(Plaintext)
        seen.clear()
        # the bootstrap address has TLS, the other broker none
        network._listeners["broker-2.memory", 9092] = Plaintext
        assert ("broker-2.memory", 9092) in plain
        options = {**cluster.client_options, "bootstrap_servers": "broker-1.memory:9092"}
        async with Producer(
            **options, **TLS, delivery_timeout_ms=3000, request_timeout_ms=1000
        ) as producer:
            theirs = next(
                partition for partition in (0, 1) if cluster.leader("orders", partition) == 2
            )
            with pytest.raises(DeliveryError) as raised:
                await producer.send_and_wait("orders", b"v", partition=theirs)
            assert "is it a listener without TLS" in str(raised.value) + raised.value.explain()
        login = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "canary-alice",
        }
        for more in ({}, login):
            seen.clear()
            with pytest.raises(BootstrapFailed, match="is it a listener without TLS"):
                await Producer(
                    **{**options, "bootstrap_servers": "broker-2.memory:9092", **TLS, **more},
                    max_block_ms=500,
                ).start()
            assert seen
            assert all(data.startswith(b"\x16\x03\x01") and b"alice" not in data for data in seen)
