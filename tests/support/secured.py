"""A secured real Kafka for tests: the ways to reach it, and each client's options for a way."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka.abc import AbstractTokenProvider

from aioproducer.testing import unsecured_token
from tests.support.kafka_security import LISTENERS, KafkaSecurity, SecuredServerThread

if TYPE_CHECKING:
    from aioproducer.testing.kafka_server import ServerThread
    from tests.support.kafka_security import DelegationToken, Listener

__all__ = [
    "JAVA_WAYS",
    "PEERS_WAYS",
    "SECURITY",
    "SESSION_MS",
    "TOKENS",
    "WAYS",
    "Way",
    "java_properties",
    "read_by_aiokafka",
    "read_by_confluent",
    "values_of",
    "write_by_aiokafka",
    "write_by_confluent",
]

SESSION_MS = 3000
SECURITY = KafkaSecurity(
    users={name: f"canary-{name}" for name in ("alice", "bob", "carol")},
    session_ms=SESSION_MS,
    super_users=("alice", "carol"),
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
BEARER = MECHANISMS[-1]
_PATIENCE = 30.0


@dataclass(frozen=True)
class Way:
    """A listener, and how a client authenticates: a user by a mechanism, or by a delegation token; or a client certificate."""

    listener: Listener
    mechanism: str = ""
    is_token: bool = False
    user: str = "alice"

    def __str__(self) -> str:
        return "-".join(
            filter(None, (self.listener, self.mechanism, "token" if self.is_token else ""))
        )

    @property
    def protocol(self) -> str:
        return LISTENERS[self.listener]

    @property
    def password(self) -> str:
        return SECURITY.users[self.user]

    def bearer_token(self) -> str:
        """An unsecured JWT of the user, which lives for a minute."""
        return unsecured_token(self.user, 60.0, canary="canary-claim")

    def of_a_reader(self) -> Way:
        """The same way for peers, which have no delegation tokens: over SCRAM."""
        return Way(self.listener, self.mechanism, user=self.user)

    def ours(
        self, server: SecuredServerThread, token: DelegationToken | None = None
    ) -> dict[str, Any]:
        """Our options."""
        options: dict[str, Any] = {"bootstrap_servers": server.address(self.listener)}
        if self.protocol != "PLAINTEXT":
            options["security_protocol"] = self.protocol
        if self.protocol.endswith("SSL"):
            options["ssl_truststore_location"] = str(server.certificates.ca)
        if self.listener == "MTLS":
            options["ssl_keystore_location"] = str(server.certificates.clients[self.user].pem)
        if self.is_token:
            assert token is not None
            options |= {"sasl_mechanism": self.mechanism, "sasl_token_auth": True}
            options |= {"sasl_username": token.token_id, "sasl_password": token.hmac}
        elif self.mechanism == BEARER:
            options |= {"sasl_mechanism": BEARER, "sasl_oauthbearer_token": self.bearer_token}
        elif self.mechanism:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_username": self.user,
                "sasl_password": self.password,
            }
        return options

    def aiokafka(self, server: SecuredServerThread) -> dict[str, Any]:
        options: dict[str, Any] = {
            "bootstrap_servers": server.address(self.listener),
            "security_protocol": self.protocol,
        }
        if self.protocol.endswith("SSL"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(server.certificates.ca)
            if self.listener == "MTLS":
                context.load_cert_chain(server.certificates.clients[self.user].pem)
            options["ssl_context"] = context
        if self.mechanism == BEARER:
            options |= {"sasl_mechanism": BEARER, "sasl_oauth_token_provider": _Provider(self)}
        elif self.mechanism:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return options

    def confluent(self, server: SecuredServerThread | ServerThread) -> dict[str, Any]:
        # a server without security has one listener
        address = (
            server.address(self.listener)
            if isinstance(server, SecuredServerThread)
            else server.bootstrap_servers
        )
        options: dict[str, Any] = {"bootstrap.servers": address, "security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            options["ssl.ca.location"] = str(server.certificates.ca)
        if self.listener == "MTLS":
            files = server.certificates.clients[self.user]
            options |= {
                "ssl.key.location": str(files.key),
                "ssl.certificate.location": str(files.chain),
            }
        if self.mechanism == BEARER:
            options |= {"sasl.mechanism": BEARER, "enable.sasl.oauthbearer.unsecure.jwt": True}
            options |= {"sasl.oauthbearer.config": f"principal={self.user}"}
        elif self.mechanism:
            options |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return options


class _Provider(AbstractTokenProvider):
    """Gives aiokafka the tokens of a way."""

    def __init__(self, way: Way) -> None:
        self._way = way

    async def token(self) -> str:
        return self._way.bearer_token()


_SASL: tuple[Listener, ...] = ("SASL_PLAINTEXT", "SASL_SSL")
PEERS_WAYS = (
    Way("SSL"),
    Way("MTLS"),
    *(Way(listener, mechanism) for listener in _SASL for mechanism in MECHANISMS),
)
TOKENS = (
    Way("SASL_PLAINTEXT", "SCRAM-SHA-256", is_token=True),
    Way("SASL_SSL", "SCRAM-SHA-512", is_token=True),
)
WAYS = (*PEERS_WAYS, *TOKENS)


JAVA_WAYS = (Way("SASL_SSL", "SCRAM-SHA-512"), Way("MTLS"))
_JAVA = {
    "bootstrap_servers": {"bootstrap.servers": "{}"},
    "security_protocol": {"security.protocol": "{}"},
    "ssl_truststore_location": {"ssl.truststore.location": "{}", "ssl.truststore.type": "PEM"},
    "ssl_keystore_location": {"ssl.keystore.location": "{}", "ssl.keystore.type": "PEM"},
    "ssl_key_password": {"ssl.key.password": "{}"},
    "sasl_mechanism": {"sasl.mechanism": "{}"},
}
"""Java's properties of each of our options; user name, password and token become `sasl.jaas.config`."""


def java_properties(options: dict[str, Any]) -> dict[str, str]:
    """Return our options as Java's properties.

    Raises:
        KeyError: an option that Java has not, or not here.
    """
    options = dict(options)
    user, password, is_token = (
        options.pop(name, None) for name in ("sasl_username", "sasl_password", "sasl_token_auth")
    )
    made = {
        name: text.format(value)
        for option, value in options.items()
        for name, text in _JAVA[option].items()
    }
    if user is not None:
        kind = "plain.Plain" if options["sasl_mechanism"] == "PLAIN" else "scram.Scram"
        more = ' tokenauth="true"' if is_token else ""
        made["sasl.jaas.config"] = (
            f'org.apache.kafka.common.security.{kind}LoginModule required username="{user}" password="{password}"{more};'
        )
    return made


async def write_by_aiokafka(
    server: SecuredServerThread, way: Way, topic: str, values: list[bytes]
) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(**way.aiokafka(server)) as producer:
        await asyncio.gather(*[await producer.send(topic, value) for value in values])


def write_by_confluent(
    server: SecuredServerThread, way: Way, topic: str, values: list[bytes]
) -> None:
    from confluent_kafka import Producer

    failures: list[Any] = []
    producer = Producer(way.confluent(server))
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(_PATIENCE) == 0
    assert failures == []


def read_by_aiokafka(server: SecuredServerThread, way: Way, topic: str, count: int) -> list[bytes]:
    """Return the first `count` committed values of partition 0. On asyncio's loop: on uvloop, closing TLS sometimes takes it 30 s."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(_read_by_aiokafka(server, way, topic, count))


async def _read_by_aiokafka(
    server: SecuredServerThread, way: Way, topic: str, count: int
) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        **way.aiokafka(server),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    return await values_of(consumer, topic, count)


async def values_of(consumer: Any, topic: str, count: int) -> list[bytes]:
    """Return the first `count` values of partition 0 that a consumer of aiokafka reads; it is started and stopped."""
    from aiokafka import TopicPartition

    seen: list[bytes] = []
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        async with asyncio.timeout(_PATIENCE):
            while len(seen) < count:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    seen += [record.value for record in records]
    finally:
        await consumer.stop()
    return seen


def read_by_confluent(
    server: SecuredServerThread | ServerThread, way: Way, topic: str, count: int
) -> list[bytes]:
    """Return the first `count` committed values of partition 0."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **way.confluent(server),
            "group.id": "secured",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    seen: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + _PATIENCE
        while len(seen) < count:
            assert time.monotonic() < deadline, f"nothing more came: {len(seen)} of {count}"
            for message in consumer.consume(500, timeout=0.1):
                assert message.error() is None, message.error()
                seen.append(message.value())
    finally:
        consumer.close()
    return seen
