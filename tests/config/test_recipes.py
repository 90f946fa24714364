"""The recipes of docs/recipes: each options file reaches a fake cluster that is set up like its service."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import pickle
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from msk_service import ACCESS_KEY, SECRET_KEY, MskAuthority, offline
from whole import jumping

from aioproducer import (
    BootstrapFailed,
    DeliveryError,
    Persisted,
    Producer,
    ProducerConfig,
    TransactionError,
)
from aioproducer.config.secret import Secret
from aioproducer.errors import (
    AuthenticationFailed,
    CertificateNotTrusted,
    CredentialsRefused,
    TokenUnavailable,
)
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTls, ListenerTokens
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.wire.schema import message
from tests.support.kerberos import ScriptedGssapi
from tests.support.token_server import TokenServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from aioproducer.interfaces import Receiver
    from aioproducer.testing.security.listener import SecurityProtocol

ROOT = pathlib.Path(__file__).parents[2]
RECIPES = ROOT / "docs/recipes"
CA = CertificateAuthority()
CLIENT = CA.client("orders")
FOLDER = "/etc/kafka"
"""Where the recipes expect files; a test puts them elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a service demands of its clients, by which names it is reached, and what the recipe's user has of it.

    Args:
        bootstrap: the addresses that lead to some broker.
        brokers: the addresses that the brokers advertise, one each.
        names: the names of the brokers' certificate.
        mechanisms: empty: the service asks for a client certificate.
        user: the name that the service gives the client.
        users: passwords by user.
        tokens: the bearer tokens that it takes.
        endpoint: where the recipe fetches tokens; the test has an endpoint of its own there.
        keytab: the principal that has its key in the keytab.
        package: what the recipe needs of an extra.
        variables: what the environment holds.
        files: contents by their paths below /etc/kafka.
        bad: options, and `bad_variables` variables, with which the service does not let the client in.
        refusal: the error in that case.
        own_authority: whether the client gets the CA's certificate from the service; otherwise the system trusts it.
        release: of Kafka; the service speaks its requests.
        unknown: requests that the service does not speak.
    """

    bootstrap: tuple[str, ...]
    brokers: tuple[str, ...]
    names: tuple[str, ...]
    mechanisms: tuple[str, ...] = ()
    user: str = "orders"
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: ListenerTokens | None = None
    endpoint: str = ""
    keytab: str = ""
    package: str = ""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    bad: Mapping[str, Any] = field(default_factory=dict, repr=False)
    bad_variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    refusal: type[AuthenticationFailed] = CredentialsRefused
    own_authority: bool = False
    release: str = "4.3"
    unknown: tuple[str, ...] = ()

    @property
    def protocol(self) -> SecurityProtocol:
        return "SASL_SSL" if self.mechanisms else "SSL"

    def security(self, endpoint: TokenServer) -> ListenerSecurity:
        tokens = (
            dataclasses.replace(self.tokens, verify=endpoint.verify)
            if self.tokens is not None and self.endpoint
            else self.tokens
        )
        server = CA.server(*self.names)
        tls = (
            ListenerTls(server)
            if self.mechanisms
            else ListenerTls(server, client_auth="required", client_authority=CA)
        )
        more: dict[str, Any] = (
            {"mechanisms": self.mechanisms, "users": self.users, "tokens": tokens}
            if self.mechanisms
            else {}
        )
        return ListenerSecurity(self.protocol, tls=tls, **more)


def msk(port: int) -> tuple[str, ...]:
    return tuple(
        f"b-{number}.demo.a1b2c3.c2.kafka.eu-central-1.amazonaws.com:{port}" for number in (1, 2)
    )


CONNECTION = "canary-Endpoint=sb://demo.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=abc="
TRANSACTIONS = ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit")
SERVICES = {
    "msk-scram": Service(
        bootstrap=msk(9096),
        brokers=msk(9096),
        names=("*.demo.a1b2c3.c2.kafka.eu-central-1.amazonaws.com",),
        mechanisms=("SCRAM-SHA-512",),
        users={"orders": "canary-msk"},
        bad={"sasl_mechanism": "PLAIN"},
        variables={"MSK_USERNAME": "orders", "MSK_PASSWORD": "canary-msk"},
    ),
    "msk-iam": Service(
        bootstrap=msk(9098),
        brokers=msk(9098),
        names=("*.demo.a1b2c3.c2.kafka.eu-central-1.amazonaws.com",),
        mechanisms=("OAUTHBEARER",),
        user=f"arn:aws:iam::123456789012:user/{ACCESS_KEY}",
        tokens=ListenerTokens(
            unsecured=False, verify=MskAuthority("eu-central-1", {ACCESS_KEY: SECRET_KEY})
        ),
        package="aws_msk_iam_sasl_signer",
        variables={"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
        bad_variables={"AWS_SECRET_ACCESS_KEY": "canary-wrong"},
    ),
    # one address for all brokers, which is the service's
    "event-hubs": Service(
        bootstrap=("demo.servicebus.windows.net:9093",),
        brokers=("demo.servicebus.windows.net:9093",),
        names=("*.servicebus.windows.net",),
        mechanisms=("PLAIN",),
        user="$ConnectionString",
        users={"$ConnectionString": CONNECTION},
        bad={"sasl_username": "orders"},
        variables={"EVENT_HUBS_CONNECTION_STRING": CONNECTION},
        release="2.4",
        unknown=TRANSACTIONS,
    ),
    "event-hubs-entra": Service(
        bootstrap=("demo.servicebus.windows.net:9093",),
        brokers=("demo.servicebus.windows.net:9093",),
        names=("*.servicebus.windows.net",),
        mechanisms=("OAUTHBEARER",),
        tokens=ListenerTokens(
            unsecured=False, scope=("https://demo.servicebus.windows.net/.default",)
        ),
        endpoint="https://login.microsoftonline.com/00000000-0000-0000-0000-000000000000/oauth2/v2.0/token",
        variables={"AZURE_CLIENT_SECRET": "canary-oauth"},
        bad={"sasl_oauthbearer_scope": "https://other.servicebus.windows.net/.default"},
        release="2.4",
        unknown=TRANSACTIONS,
    ),
    "confluent-cloud": Service(
        bootstrap=("pkc-12345.eu-central-1.aws.confluent.cloud:9092",),
        brokers=tuple(
            f"b{number}-pkc-12345.eu-central-1.aws.confluent.cloud:9092" for number in range(3)
        ),
        names=("*.eu-central-1.aws.confluent.cloud",),
        mechanisms=("PLAIN",),
        user="ABCDEFGH12345678",
        users={"ABCDEFGH12345678": "canary-confluent"},
        variables={
            "CONFLUENT_API_KEY": "ABCDEFGH12345678",
            "CONFLUENT_API_SECRET": "canary-confluent",
        },
        bad={"sasl_mechanism": "SCRAM-SHA-512"},
    ),
    "confluent-cloud-oauth": Service(
        bootstrap=("pkc-12345.eu-central-1.aws.confluent.cloud:9092",),
        brokers=tuple(
            f"b{number}-pkc-12345.eu-central-1.aws.confluent.cloud:9092" for number in range(3)
        ),
        names=("*.eu-central-1.aws.confluent.cloud",),
        mechanisms=("OAUTHBEARER",),
        tokens=ListenerTokens(
            unsecured=False,
            extensions={"logicalCluster": "lkc-123456", "identityPoolId": "pool-1a2b"},
        ),
        endpoint="https://idp.example.com/oauth2/token",
        variables={"OAUTH_CLIENT_SECRET": "canary-oauth"},
        bad={"sasl_oauthbearer_extensions": {"logicalCluster": "lkc-123456"}},
    ),
    "keycloak": Service(
        bootstrap=("kafka.example.com:9093",),
        brokers=("kafka-1.example.com:9093", "kafka-2.example.com:9093"),
        names=("kafka.example.com", "kafka-1.example.com", "kafka-2.example.com"),
        mechanisms=("OAUTHBEARER",),
        tokens=ListenerTokens(unsecured=False, audience="kafka"),
        endpoint="https://keycloak.example.com/realms/kafka/protocol/openid-connect/token",
        files={"ca.crt": CA.pem, "keycloak/client-secret": b"canary-oauth\n"},
        bad={"sasl_oauthbearer_client_credentials_client_secret": "canary-wrong"},
        refusal=TokenUnavailable,
        own_authority=True,
    ),
    "kerberos": Service(
        bootstrap=("kafka-1.example.com:9093", "kafka-2.example.com:9093"),
        brokers=("kafka-1.example.com:9093", "kafka-2.example.com:9093"),
        names=("kafka-1.example.com", "kafka-2.example.com"),
        mechanisms=("GSSAPI",),
        users={"orders": ""},
        keytab="orders@EXAMPLE.COM",
        files={"ca.crt": CA.pem, "orders.keytab": b""},
        bad={"sasl_kerberos_service_name": "another"},
        own_authority=True,
    ),
    "aiven-mtls": Service(
        bootstrap=("kafka-demo.aivencloud.com:21701",),
        brokers=("203.0.113.1:21701", "203.0.113.2:21701"),
        names=("kafka-demo.aivencloud.com", "203.0.113.1", "203.0.113.2"),
        files={"ca.pem": CA.pem, "service.cert": CLIENT.chain_pem, "service.key": CLIENT.key_pem},
        bad={"ssl_certificate_location": None, "ssl_key_location": None},
        own_authority=True,
    ),
    "aiven-scram": Service(
        bootstrap=("kafka-demo.aivencloud.com:21712",),
        brokers=("203.0.113.1:21712", "203.0.113.2:21712"),
        names=("kafka-demo.aivencloud.com", "203.0.113.1", "203.0.113.2"),
        mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        user="avnadmin",
        users={"avnadmin": "canary-aiven"},
        bad={"sasl_password": "canary-wrong"},
        variables={"AIVEN_PASSWORD": "canary-aiven"},
        files={"ca.pem": CA.pem},
        own_authority=True,
    ),
    "strimzi-mtls": Service(
        bootstrap=("demo-kafka-bootstrap.kafka.svc:9093",),
        brokers=tuple(
            f"demo-broker-{number}.demo-kafka-brokers.kafka.svc:9093" for number in range(3)
        ),
        names=("demo-kafka-bootstrap.kafka.svc", "*.demo-kafka-brokers.kafka.svc"),
        files={
            "cluster-ca/ca.crt": CA.pem,
            "user/user.crt": CLIENT.chain_pem,
            "user/user.key": CLIENT.key_pem,
        },
        bad={"ssl_certificate_location": None, "ssl_key_location": None},
        own_authority=True,
    ),
    "redpanda": Service(
        bootstrap=("seed-1a2b3c.d4e5f6.fmc.prd.cloud.redpanda.com:9092",),
        brokers=tuple(
            f"{number}-1a2b3c.d4e5f6.fmc.prd.cloud.redpanda.com:9092" for number in range(3)
        ),
        names=("*.d4e5f6.fmc.prd.cloud.redpanda.com",),
        mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512"),
        users={"orders": "canary-redpanda"},
        bad={"sasl_mechanism": "PLAIN"},
        variables={"REDPANDA_PASSWORD": "canary-redpanda"},
    ),
}


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


class Dialer:
    """Dials the service's names on the memory network, and writes down which."""

    def __init__(self, network: Any) -> None:
        self.dialled: set[str] = set()
        self._network = network

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Any:
        self.dialled.add(f"{host}:{port}")
        return await self._network.dial(host, port, receiver)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenServer]:
    """The token endpoint of all recipes that fetch tokens."""
    with TokenServer({"orders": "canary-oauth"}, tls=CA.server()) as server:
        yield server


def mapping(name: str, folder: pathlib.Path, endpoint: TokenServer) -> dict[str, Any]:
    """Return the options of a recipe. The files are in another folder, and the token endpoint is another one."""
    text = (RECIPES / f"{name}.toml").read_text(encoding="utf-8")
    if SERVICES[name].endpoint:
        text = text.replace(SERVICES[name].endpoint, endpoint.url)
    return tomllib.loads(text.replace(FOLDER, str(folder)))


@contextlib.asynccontextmanager
async def serving(
    service: Service, folder: pathlib.Path, endpoint: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[FakeCluster, Dialer]]:
    """Run a service at its addresses, and give its user what the recipe refers to."""
    if service.package:
        pytest.importorskip(
            service.package, reason="the recipe needs an extra: pip install 'aioproducer[msk]'"
        )
    offline(monkeypatch, folder, **service.variables)
    for path, content in service.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    # OpenSSL's variable: what the system trusts
    trusted = folder / "system.pem"
    trusted.write_bytes(b"" if service.own_authority else CA.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder / "none"))
    traits: dict[str, Any] = {
        "security": service.security(endpoint),
        "version": service.release,
        "versions": dict.fromkeys(service.unknown),
    }
    with kerberized(service, folder):
        async with FakeCluster(len(service.brokers), memory=True, **traits) as cluster:
            assert cluster.network is not None
            for broker, address in zip(cluster.brokers.values(), service.brokers, strict=True):
                cluster.network.alias(*split(address), broker.address)
                broker.advertise(*split(address))
            for address in service.bootstrap:
                if address not in service.brokers:
                    cluster.network.alias(*split(address), cluster.brokers[1].address)
            cluster.create_topic("orders", partitions=len(service.brokers))
            yield cluster, Dialer(cluster.network)


@contextlib.contextmanager
def kerberized(service: Service, folder: pathlib.Path) -> Iterator[None]:
    """Stand in for the package `gssapi`, with the keytab, if the recipe has one."""
    package = ScriptedGssapi(None)
    package.keytabs[str(folder / "orders.keytab")] = service.keytab
    with package.installed() if service.keytab else contextlib.nullcontext():
        yield


# Every recipe


@pytest.mark.parametrize("name", SERVICES)
@jumping
async def test_a_recipe_reaches_its_service(
    name: str, tmp_path: pathlib.Path, endpoint: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records go to every broker, by the names that the service advertises, as the recipe's user."""
    service = SERVICES[name]
    async with serving(service, tmp_path, endpoint, monkeypatch) as (cluster, dialer):
        async with Producer(
            ProducerConfig.from_mapping(mapping(name, tmp_path, endpoint)), dialer=dialer
        ) as producer:
            for partition in range(len(service.brokers)):
                await producer.send_and_wait("orders", b"v", partition=partition)
        assert len(cluster.values("orders")) == len(service.brokers)
        assert cluster.violations == []
        assert set(service.brokers) <= dialer.dialled <= {*service.bootstrap, *service.brokers}
        logins = cluster.security.authentications
        assert {(login.principal, login.error) for login in logins} == {(service.user, 0)}
        chosen = service.mechanisms or ("TLS",)
        assert {login.mechanism for login in logins} <= set(chosen)


@pytest.mark.parametrize("name", SERVICES)
@jumping
async def test_the_service_is_strict(
    name: str, tmp_path: pathlib.Path, endpoint: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake refuses a recipe without its proof of identity, and the recipe refuses another's certificate: neither passes unseen."""
    service = SERVICES[name]
    good = mapping(name, tmp_path, endpoint)
    async with serving(service, tmp_path, endpoint, monkeypatch) as (cluster, dialer):
        for variable, value in service.bad_variables.items():
            monkeypatch.setenv(variable, value)
        with pytest.raises(BootstrapFailed) as refused:
            await Producer(
                ProducerConfig.from_mapping({**good, **service.bad}), dialer=dialer
            ).start()
        assert isinstance(refused.value.__cause__, service.refusal)
        for variable in service.bad_variables:
            monkeypatch.setenv(variable, service.variables[variable])
        stranger = CertificateAuthority("another CA").server(*service.names)
        cluster.security.change(
            tls=dataclasses.replace(service.security(endpoint).tls, certificate=stranger)
        )
        with pytest.raises(BootstrapFailed) as distrusted:
            await Producer(ProducerConfig.from_mapping(good), dialer=dialer).start()
        assert isinstance(distrusted.value.__cause__, CertificateNotTrusted)
        assert isinstance(distrusted.value.__cause__, AuthenticationFailed)


@pytest.mark.parametrize("name", SERVICES)
def test_a_recipe_has_references_in_place_of_secrets(
    name: str, tmp_path: pathlib.Path, endpoint: TokenServer
) -> None:
    """So a recipe may be committed, and its config pickled."""
    config = ProducerConfig.from_mapping(mapping(name, tmp_path, endpoint))
    secrets = [
        value
        for value in (getattr(config, field.name) for field in dataclasses.fields(config))
        if isinstance(value, Secret)
    ]
    assert all(secret.reference for secret in secrets)
    assert pickle.loads(pickle.dumps(config)) == config


# What a service lacks


def event_hubs_codecs(cluster: FakeCluster) -> None:
    """Let the fake refuse codecs other than gzip, as the documentation of Event Hubs says that the service does."""

    @cluster.on("Produce")
    def refuse(request: Any, context: Any) -> Any:
        batches = [
            bytes(partition.records) for topic in request.topics for partition in topic.partitions
        ]
        if all(batch[22] & 7 in {0, 1} for batch in batches):
            return context.PASS
        topics = [
            message(
                "Produce.response.topics",
                name=topic.name,
                partitions=[
                    message(
                        "Produce.response.topics.partitions",
                        index=partition.index,
                        base_offset=-1,
                        error_code=76,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return context.answer(topics=topics)


@pytest.mark.parametrize(
    ("codec", "is_taken"),
    [("none", True), ("gzip", True), ("lz4", False), ("zstd", False), ("snappy", False)],
)
@jumping
async def test_event_hubs_takes_gzip_alone(
    codec: str,
    *,
    is_taken: bool,
    tmp_path: pathlib.Path,
    endpoint: TokenServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record in another codec fails at once, and is certainly not written."""
    options = {**mapping("event-hubs", tmp_path, endpoint), "compression_type": codec}
    async with serving(SERVICES["event-hubs"], tmp_path, endpoint, monkeypatch) as (
        cluster,
        dialer,
    ):
        event_hubs_codecs(cluster)
        async with Producer(ProducerConfig.from_mapping(options), dialer=dialer) as producer:
            delivery = await producer.send("orders", b"v" * 1000)
            if is_taken:
                assert (await delivery).offset == 0
            else:
                with pytest.raises(DeliveryError, match="UNSUPPORTED_COMPRESSION_TYPE") as failed:
                    await delivery
                assert failed.value.persisted is Persisted.NO
        assert len(cluster.values("orders")) == is_taken


@jumping
async def test_event_hubs_without_transactions(
    tmp_path: pathlib.Path, endpoint: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start` fails at once, and names the request that the service does not offer."""
    options = {
        **mapping("event-hubs", tmp_path, endpoint),
        "transactional_id": "orders-1",
        "max_block_ms": 2000,
        "close_timeout_ms": 500,
    }
    async with serving(SERVICES["event-hubs"], tmp_path, endpoint, monkeypatch) as (
        cluster,
        dialer,
    ):
        with pytest.raises(TransactionError, match="offers no AddPartitionsToTxn"):
            await Producer(ProducerConfig.from_mapping(options), dialer=dialer).start()
        assert cluster.requests("InitProducerId") == []


@jumping
async def test_event_hubs_closes_idle_connections(
    tmp_path: pathlib.Path, endpoint: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe's producer closes them first: no record meets a connection that is dead without a word."""
    async with serving(SERVICES["event-hubs"], tmp_path, endpoint, monkeypatch) as (
        cluster,
        dialer,
    ):
        async with Producer(
            ProducerConfig.from_mapping(mapping("event-hubs", tmp_path, endpoint)), dialer=dialer
        ) as producer:
            await producer.send_and_wait("orders", b"1")
            dials = len(cluster.security.dials)
            await asyncio.sleep(239)
            await producer.send_and_wait("orders", b"2")
            assert len(cluster.security.dials) > dials
        assert cluster.values("orders") == [b"1", b"2"]
