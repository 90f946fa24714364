"""Tests of `aioproducer.net.tls_contexts`: what a user reads of each failure, by a real handshake or by a peer's bytes."""

from __future__ import annotations

import shutil
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from certificates import self_signed, without_intermediate
from jumping import jumping, run
from nodes import ask, running
from tls_peers import (
    client_context,
    has_verify_error,
    openssl_server,
    s_client,
    seen_by_s_client,
    server_context,
    tls_in_front,
    wants_a_client_certificate,
)

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.errors import (
    AuthenticationFailed,
    CertificateNotTrusted,
    ConnectionLost,
    CredentialsRefused,
    KafkaError,
)
from aioproducer.net.dialer import TcpDialer
from aioproducer.net.settings import Security
from aioproducer.net.tls_contexts import TlsContexts, TlsSettings, after_handshake, in_handshake
from aioproducer.testing import FakeCluster
from aioproducer.testing.certificates import EXPIRED, Certificate, CertificateAuthority
from aioproducer.testing.memory import MemoryNetwork

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

NAME = "broker-1.memory"
CA = CertificateAuthority()
OTHER = CertificateAuthority("another CA")
TRUST = "Trusted: ssl_truststore_certificates"
OPENSSL = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="OpenSSL's s_client shows first what the peer serves"
)


def tls(**options: Any) -> TlsContexts:
    return TlsContexts(TlsSettings(**{"ssl_truststore_certificates": CA.pem.decode(), **options}))


def failure(server: ssl.SSLContext, client: TlsContexts) -> KafkaError:
    """What a node's caller gets that asks a broker over TLS."""

    async def main() -> KafkaError:
        async with FakeCluster(memory=True) as cluster:
            tls_in_front(cluster, server)
            fake = cluster.brokers[1]
            async with running(
                cluster.network, Broker(1, fake.host, fake.port), security=Security(tls=client)
            ) as node:
                with pytest.raises(KafkaError) as raised:
                    await ask(node)
                assert str(raised.value).startswith(f"{NAME}:9092: ")
                return raised.value

    return run(main())


@OPENSSL
@pytest.mark.parametrize(
    ("make", "number", "reason"),
    [
        (
            lambda: without_intermediate(CA, NAME),
            20,
            "its CA is not trusted, or an intermediate certificate is missing",
        ),
        (lambda: self_signed(NAME), 18, "it is self-signed, and not among the trusted ones"),
    ],
    ids=["intermediate missing", "self-signed"],
)
def test_a_certificate_that_is_not_trusted(
    make: Callable[[], Certificate], number: int, reason: str
) -> None:
    """Row 95: the reason, the host and the source of the trusted certificates. tests/scenarios/test_tls.py has the other reasons."""
    server = server_context(make())
    assert has_verify_error(server, number, CA, NAME)
    error = failure(server, tls())
    assert type(error) is CertificateNotTrusted
    assert f"the broker's certificate is refused: {reason}" in str(error)
    assert TRUST in str(error)
    assert error.stage == "tls"
    assert isinstance(error.__cause__, CertificateNotTrusted)
    assert isinstance(error.__cause__.__cause__.__cause__, ssl.SSLCertVerificationError)  # type: ignore[union-attr]


@OPENSSL
@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"]
)
@pytest.mark.parametrize("kind", ["none", "another CA's", "expired"])
def test_a_client_certificate_that_is_refused(version: ssl.TLSVersion, kind: str) -> None:
    """Row 99: OpenSSL's alerts, in 1.2 within the handshake and in 1.3 after it."""
    certificate = {
        "none": None,
        "another CA's": OTHER.client("mallory"),
        "expired": CA.client("alice", validity=EXPIRED),
    }[kind]
    options = {}
    if certificate is not None:
        options = {
            "ssl_keystore_key": _Text(certificate.key_pem.decode()),
            "ssl_keystore_certificate_chain": certificate.chain_pem.decode(),
        }
    server = server_context(CA.server(NAME), clients=CA, version=version)
    assert wants_a_client_certificate(server, CA, certificate)
    error = failure(server, tls(**options))
    assert type(error) is CredentialsRefused
    expected = {
        (
            "none",
            "TLSv1_2",
        ): "it shares no cipher suite (ssl_cipher_suites), or wants a client certificate (ssl_keystore_location)",
        (
            "none",
            "TLSv1_3",
        ): "the broker wants a client certificate: ssl_keystore_location, or ssl_keystore_key (alert: certificate required)",
        (
            "another CA's",
            version.name,
        ): "does not take this client's certificate, ssl_keystore_key (alert: unknown CA)",
        (
            "expired",
            version.name,
        ): "does not take this client's certificate, ssl_keystore_key (alert: certificate expired)",
    }
    assert expected[kind, version.name] in str(error)


class _Text:
    """A Secret's shape."""

    reference = None

    def __init__(self, text: str) -> None:
        self.reveal = lambda: text


ALERTS = [
    ("SSLV3_ALERT_BAD_CERTIFICATE", CredentialsRefused, "wants a client certificate"),
    ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", CredentialsRefused, "wants a client certificate"),
    ("TLSV1_ALERT_PROTOCOL_VERSION", AuthenticationFailed, "takes none of TLSv1.2 and TLSv1.3"),
    ("UNSUPPORTED_PROTOCOL", AuthenticationFailed, "takes none of TLSv1.2 and TLSv1.3"),
    ("TLSV1_UNRECOGNIZED_NAME", AuthenticationFailed, "has no certificate for the name 'b'"),
    ("TLSV1_ALERT_INTERNAL_ERROR", ConnectionLost, "TLS failed: tlsv1 alert internal error"),
    (
        "DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
        ConnectionLost,
        "TLS failed: decryption failed or bad record mac",
    ),
]


@pytest.mark.parametrize(("reason", "kind", "text"), ALERTS)
def test_alerts(reason: str, kind: type[Exception], text: str) -> None:
    """Those of Java's brokers, which no server here sends: a real Kafka answers them."""
    error = ssl.SSLError(1, reason)
    error.reason = reason
    for told in (in_handshake(error, "b", tls(), "PLAINTEXT"), after_handshake(error, "b", tls())):
        assert type(told) is kind
        assert text in str(told)


def test_a_reset_after_the_handshake_names_the_possibility() -> None:
    """Row 99: a reset may overtake TLS 1.3's alert. It is a fault of the network, which is tried again."""
    told = after_handshake(ConnectionResetError("reset by peer"), "b", tls())
    assert type(told) is ConnectionLost
    assert (
        "perhaps the broker wants a client certificate (ssl_keystore_location): reset by peer"
        in str(told)
    )
    given = TlsContexts(TlsSettings(ssl_context=client_context(CA)))
    assert "perhaps the broker refuses ours (the given ssl_context)" in str(
        after_handshake(ConnectionResetError(), "b", given)
    )
    assert after_handshake(None, "b", given) is None


@OPENSSL
@pytest.mark.parametrize("is_close", [True, False])
@jumping
async def test_a_handshake_that_ends(*, is_close: bool) -> None:
    """Row 97: TLS to a listener without it. Kafka closes, or resets."""

    class Closing:
        def connection_made(self, transport: Any) -> None:
            self.stream = transport

        def data_received(self, _: bytes) -> None:
            end = self.stream.close if is_close else self.stream.abort
            end()

        def eof_received(self) -> None: ...
        def connection_lost(self, _: Exception | None) -> None: ...

    assert "SSL handshake has read 0 bytes" in seen_by_s_client(Closing)
    network = MemoryNetwork()
    network.listen("host", 9092, Closing)
    async with running(network, security=Security(tls=tls())) as node:
        with pytest.raises(ConnectionLost) as raised:
            await ask(node)
    end = (
        "closed during the TLS handshake"
        if is_close
        else "lost during the TLS handshake (the peer aborted the connection)"
    )
    text = f"host:9092: the connection was {end}: is it a listener without TLS (security_protocol=PLAINTEXT)?"
    assert str(raised.value).startswith(text)
    assert not isinstance(raised.value, AuthenticationFailed)


@OPENSSL
@jumping
async def test_other_bytes_come() -> None:
    """Row 97: the other side does not speak TLS."""

    class Http:
        def connection_made(self, transport: Any) -> None:
            self.stream = transport

        def data_received(self, _: bytes) -> None:
            self.stream.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        def eof_received(self) -> None: ...
        def connection_lost(self, _: Exception | None) -> None: ...

    assert "wrong version number" in seen_by_s_client(Http)
    network = MemoryNetwork()
    network.listen("host", 9092, Http)
    async with running(network, security=Security(tls=tls())) as node:
        with pytest.raises(
            ConnectionLost,
            match="host:9092: the other side does not speak TLS: is it a listener without TLS",
        ):
            await ask(node)


@pytest.mark.parametrize("encrypted", [False, True])
@jumping
async def test_no_sasl_to_a_listener_with_sasl(*, encrypted: bool) -> None:
    """Row 97: ApiVersions is answered, and the next request ends the connection."""
    async with FakeCluster(memory=True) as cluster:
        security = None
        if encrypted:
            tls_in_front(cluster, server_context(CA.server(NAME)))
            security = Security(tls=tls())
        fake = cluster.brokers[1]
        cluster.fail("Metadata", disconnect="before")
        async with running(
            cluster.network, Broker(-2, fake.host, fake.port), security=security
        ) as node:
            with pytest.raises(ConnectionLost) as raised:
                await ask(node)
            wanted = "SASL_SSL" if encrypted else "SASL_PLAINTEXT"
            text = f"closed the connection after ApiVersions was answered: does the listener want SASL (security_protocol={wanted})?"
            assert text in str(raised.value)
            # the second connection answers, and then its end means nothing of the kind
            await ask(node)
            cluster.fail("Metadata", disconnect="before")
            with pytest.raises(ConnectionLost) as raised:
                await ask(node)
            assert "SASL" not in str(raised.value)


@OPENSSL
@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
@pytest.mark.asyncio
async def test_old_versions(tmp_path: pathlib.Path, version: str) -> None:
    """Row 98: a server of TLS 1.0 or 1.1 alone, which `openssl s_client` with @SECLEVEL=0 gets in touch with."""
    authority = CertificateAuthority(key_type="rsa")
    files = authority.server().write(tmp_path, "server")
    async with openssl_server(version, "-cipher", "ALL:@SECLEVEL=0", "-cert", str(files.pem)) as (
        _,
        port,
    ):
        seen = await s_client(port, version, "-cipher", "ALL:@SECLEVEL=0")
        assert {"-tls1": "Protocol  : TLSv1\n", "-tls1_1": "Protocol  : TLSv1.1\n"}[version] in seen
        assert "unsupported protocol" in await s_client(port, "-tls1_2")
        client = TlsContexts(TlsSettings(ssl_truststore_certificates=authority.pem.decode()))
        async with running(
            TcpDialer(), Broker(1, "localhost", port), security=Security(tls=client)
        ) as node:
            with pytest.raises(
                AuthenticationFailed,
                match=r"takes none of TLSv1.2 and TLSv1.3, or none of ssl_enabled_protocols",
            ):
                await ask(node)
