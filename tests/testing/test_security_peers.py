"""aiokafka, confluent-kafka and kafka-python as judges of the fake's security: they write over TLS and SASL."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
import pytest

from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTls
from aioproducer.testing.certificates import CertificateAuthority

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its modules use what Python 3.11 deprecates
    import kafka

if TYPE_CHECKING:
    import pathlib

    from aioproducer.testing.certificates import Certificate

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.usefixtures("forgotten_sockets"),
    # kafka-python forgets to close sockets: "Exception ignored in: <socket...", and from Python 3.14 on "while finalizing socket <socket..."
    pytest.mark.filterwarnings(
        "ignore:Exception ignored (in.|while finalizing socket) <s.*Socket:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored (in.|while finalizing socket) <socket.socket:pytest.PytestUnraisableExceptionWarning"
    ),
]
USERS = {"alice": "canary-alice"}
CA = CertificateAuthority()
TLS = ListenerTls(CA.server())
VALUES = [b"%d" % number for number in range(50)]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Settings:
    """What a peer is told, in the words of each."""

    def __init__(
        self,
        protocol: str,
        folder: pathlib.Path,
        mechanism: str = "PLAIN",
        certificate: Certificate | None = None,
    ) -> None:
        self.protocol, self.mechanism = protocol, mechanism
        self.ca = str(CA.write(folder / "ca.pem"))
        self.files = certificate.write(folder, "client") if certificate is not None else None

    def aiokafka(self) -> dict[str, Any]:
        options: dict[str, Any] = {"security_protocol": self.protocol, "request_timeout_ms": 5000}
        if "SSL" in self.protocol:
            options["ssl_context"] = ssl.create_default_context(cafile=self.ca)
            if self.files is not None:
                options["ssl_context"].load_cert_chain(self.files.pem)
        if "SASL" in self.protocol:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": "alice",
                "sasl_plain_password": USERS["alice"],
            }
        return options

    def confluent(self) -> dict[str, Any]:
        options: dict[str, Any] = {"security.protocol": self.protocol, "log_level": 0}
        if "SSL" in self.protocol:
            options["ssl.ca.location"] = self.ca
            if self.files is not None:
                options |= {
                    "ssl.certificate.location": str(self.files.chain),
                    "ssl.key.location": str(self.files.key),
                }
        if "SASL" in self.protocol:
            options |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": "alice",
                "sasl.password": USERS["alice"],
            }
        return options

    def kafka_python(self) -> dict[str, Any]:
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if "SSL" in self.protocol:
            options["ssl_cafile"] = self.ca
            if self.files is not None:
                options |= {
                    "ssl_certfile": str(self.files.chain),
                    "ssl_keyfile": str(self.files.key),
                }
        if "SASL" in self.protocol:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": "alice",
                "sasl_plain_password": USERS["alice"],
            }
        return options


# --- each writes the values


async def by_aiokafka(cluster: FakeCluster, settings: Settings) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, **settings.aiokafka()
    ) as producer:
        for value in VALUES:
            await producer.send("t", value)


async def by_confluent(cluster: FakeCluster, settings: Settings) -> None:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1}
    producer = confluent_kafka.Producer({**options, **settings.confluent()})
    for value in VALUES:
        producer.produce("t", value)
    assert await asyncio.to_thread(producer.flush, 20) == 0


async def by_kafka_python(cluster: FakeCluster, settings: Settings) -> None:
    def write() -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=1, **settings.kafka_python()
        )
        for value in VALUES:
            producer.send("t", value)
        producer.close(10)

    await asyncio.to_thread(write)


PEERS = {"aiokafka": by_aiokafka, "confluent": by_confluent, "kafka-python": by_kafka_python}
peers = pytest.mark.parametrize("peer", PEERS)


def cluster_of(protocol: Any, **options: Any) -> FakeCluster:
    security = ListenerSecurity(
        protocol, users=USERS, **({"tls": TLS} if "SSL" in protocol else {}) | options
    )
    cluster = FakeCluster(2, security=security)
    cluster.create_topic("t", 2)
    return cluster


@peers
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_peers_write_over_sasl(
    protocol: str, mechanism: str, peer: str, tmp_path: pathlib.Path
) -> None:
    """All of them by each mechanism, and the fake finds no fault with them."""
    async with cluster_of(protocol) as cluster:
        await PEERS[peer](cluster, Settings(protocol, tmp_path, mechanism))
        assert sorted(cluster.values("t")) == sorted(VALUES)
        assert cluster.violations == []
        assert {
            (told.principal, told.mechanism, told.error)
            for told in cluster.security.authentications
        } == {("alice", mechanism, 0)}
        assert "canary" not in repr(cluster.requests())


@peers
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_peers_show_certificates(version: Any, peer: str, tmp_path: pathlib.Path) -> None:
    """Over mTLS, in each version; the principal is the CN."""
    async with cluster_of(
        "SSL", tls=ListenerTls(CA.server(), "required", CA, (version, version))
    ) as cluster:
        await PEERS[peer](cluster, Settings("SSL", tmp_path, certificate=CA.client("carol")))
        assert sorted(cluster.values("t")) == sorted(VALUES)
        assert {told.principal for told in cluster.security.authentications} == {"carol"}
        assert cluster.violations == []


async def test_librdkafka_renews_its_sessions(tmp_path: pathlib.Path) -> None:
    """KIP-368: at 90 % of each session, on the connections that it has."""
    async with cluster_of("SASL_SSL", session_ms=1500) as cluster:

        def write() -> None:
            options = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1}
            producer = confluent_kafka.Producer(
                {**options, **Settings("SASL_SSL", tmp_path, "SCRAM-SHA-256").confluent()}
            )
            while sum(told.is_renewal for told in cluster.security.authentications) < 4:
                producer.produce("t", b"v")
                producer.flush(0.1)
            assert producer.flush(10) == 0

        async with asyncio.timeout(60):
            await asyncio.to_thread(write)
        assert {told.error for told in cluster.security.authentications} == {0}
        assert cluster.security.expired_sessions == []
        assert cluster.violations == []
