"""aiokafka, confluent-kafka and kafka-python as judges of the fake's security: they are let in, refused, and write over TLS and SASL."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from typing import TYPE_CHECKING, Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest

from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTls
from aioproducer.testing.certificates import EXPIRED, CertificateAuthority

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its modules use what Python 3.11 deprecates
    import kafka
    import kafka.errors

if TYPE_CHECKING:
    import pathlib

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
USERS = {"alice": "canary-alice", "a,b=c": "canary=,comma"}
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
        user: str = "alice",
        **more: Any,
    ) -> None:
        self.protocol, self.mechanism, self.user = protocol, mechanism, user
        self.password = more.get("password", USERS.get(user, "canary-x"))
        self.ca = str(CA.write(folder / "ca.pem"))
        self.files = more["certificate"].write(folder, "client") if "certificate" in more else None

    def aiokafka(self) -> dict[str, Any]:
        options: dict[str, Any] = {"security_protocol": self.protocol, "request_timeout_ms": 5000}
        if "SSL" in self.protocol:
            options["ssl_context"] = ssl.create_default_context(cafile=self.ca)
            if self.files is not None:
                options["ssl_context"].load_cert_chain(self.files.pem)
        if "SASL" in self.protocol:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
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
                "sasl.username": self.user,
                "sasl.password": self.password,
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
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return options


# --- each writes the values, or gives the text of its refusal


async def by_aiokafka(cluster: FakeCluster, settings: Settings) -> str:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, **settings.aiokafka()
    )
    try:
        await producer.start()
        for value in VALUES:
            await producer.send("t", value)
        await producer.flush()
    except aiokafka.errors.KafkaError as error:
        return str(error) or type(error).__name__
    finally:
        await producer.stop()
    return ""


async def by_confluent(cluster: FakeCluster, settings: Settings) -> str:
    told: list[str] = []

    def write() -> str:
        options = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 1,
            "error_cb": lambda error: told.append(error.str()),
        }
        producer = confluent_kafka.Producer({**options, **settings.confluent()})
        for value in VALUES:
            producer.produce("t", value)
        for _ in range(100):
            if not producer.flush(0.2):
                return ""
            if told and "timed out" not in told[0]:
                producer.purge()
                producer.flush(1)
                return "; ".join(told)
        return "nothing came of it"

    return await asyncio.to_thread(write)


async def by_kafka_python(cluster: FakeCluster, settings: Settings) -> str:
    def write() -> str:
        try:
            producer = kafka.KafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, linger_ms=1, **settings.kafka_python()
            )
        except kafka.errors.KafkaError as error:
            return str(error) or type(error).__name__
        try:
            for value in VALUES:
                producer.send("t", value)
            producer.flush(10)
        finally:
            producer.close()
        return ""

    return await asyncio.to_thread(write)


PEERS = {"aiokafka": by_aiokafka, "confluent": by_confluent, "kafka-python": by_kafka_python}
peers = pytest.mark.parametrize("peer", PEERS)
quick_peers = pytest.mark.parametrize(
    "peer", ["aiokafka", "confluent"]
)  # kafka-python tries for 30 s before it tells of a refusal


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
        assert await PEERS[peer](cluster, Settings(protocol, tmp_path, mechanism)) == ""
        assert sorted(cluster.values("t")) == sorted(VALUES)
        assert cluster.violations == []
        assert {
            (told.principal, told.mechanism, told.error)
            for told in cluster.security.authentications
        } == {("alice", mechanism, 0)}
        assert "canary" not in repr(cluster.requests())


@pytest.mark.parametrize("peer", ["aiokafka", "confluent"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_names_with_commas(mechanism: str, peer: str, tmp_path: pathlib.Path) -> None:
    """kafka-python does not escape them."""
    async with cluster_of("SASL_PLAINTEXT") as cluster:
        assert (
            await PEERS[peer](cluster, Settings("SASL_PLAINTEXT", tmp_path, mechanism, "a,b=c"))
            == ""
        )
        assert len(cluster.values("t")) == len(VALUES)


@quick_peers
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_peers_are_refused(mechanism: str, peer: str, tmp_path: pathlib.Path) -> None:
    """A wrong password: nothing is written."""
    async with cluster_of("SASL_PLAINTEXT") as cluster:
        refused = await PEERS[peer](
            cluster, Settings("SASL_PLAINTEXT", tmp_path, mechanism, password="canary-wrong")
        )
        assert refused
        assert cluster.values("t") == []
        assert {(told.principal, told.error) for told in cluster.security.authentications} == {
            ("alice", 58)
        }


@peers
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_peers_show_certificates(version: Any, peer: str, tmp_path: pathlib.Path) -> None:
    """Over mTLS, in each version; the principal is the CN."""
    async with cluster_of(
        "SSL", tls=ListenerTls(CA.server(), "required", CA, (version, version))
    ) as cluster:
        assert (
            await PEERS[peer](cluster, Settings("SSL", tmp_path, certificate=CA.client("carol")))
            == ""
        )
        assert sorted(cluster.values("t")) == sorted(VALUES)
        assert {told.principal for told in cluster.security.authentications} == {"carol"}
        assert cluster.violations == []


@quick_peers
async def test_peers_refuse_an_expired_certificate(peer: str, tmp_path: pathlib.Path) -> None:
    """So it is expired for others than the fake's own tests, too."""
    async with cluster_of("SSL", tls=ListenerTls(CA.server(validity=EXPIRED))) as cluster:
        assert await PEERS[peer](cluster, Settings("SSL", tmp_path))
        assert cluster.values("t") == []
        assert cluster.security.tls_failures


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
