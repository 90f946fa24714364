"""Kafka's options, as the sink checks them in the driver; secrets are references, and a literal one is shown nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproducer.config.producer_config import OPTIONS
from aioproducer.spark.kafka_options import LITERAL, kafka_problems
from aioproducer.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary-in-the-options"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='u'"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId='c'"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
PROVIDERS = {
    "config.providers": "vault",
    "config.providers.vault.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def problems(kafka: dict[str, str], **options: str) -> list[str]:
    made = SinkOptions.of(
        {"topic": "t", **options, **{f"kafka.{name}": value for name, value in kafka.items()}},
        is_stream=False,
    )
    return kafka_problems(made)


def said(kafka: dict[str, str], **options: str) -> list[str]:
    return problems({"bootstrap.servers": "x:1", **kafka}, **options)


TABLE = [
    ({}, []),
    ({"linger.ms": "5", "compression.type": "zstd", "acks": "1"}, []),
    ({"value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer"}, []),
    ({"lingr.ms": "1"}, ["unknown option 'kafka.lingr.ms'; did you mean 'kafka.linger.ms'?"]),
    ({"linger.ms": "x"}, ["kafka.linger.ms='x': it is a number, or a timedelta, or 'auto'"]),
    (
        {"linger.ms": "x", "group.id": "g", "compression.type": "brotli"},
        [
            "kafka.compression.type='brotli': it is one of none, gzip, snappy, lz4, zstd",
            "kafka.linger.ms='x': it is a number, or a timedelta, or 'auto'",
            "unknown option 'kafka.group.id'",
        ],
    ),
    (
        {"delivery.timeout.ms": "1"},
        [
            (
                "delivery_timeout_ms=1 is below linger_ms + request_timeout_ms = 30000: a record would fail before its first request may. "
                "Raise it, or lower the others."
            )
        ],
    ),
    ({"acks": "0"}, ["kafka.acks=0: nothing would say that a row is written. It is all, or 1"]),
    (
        {"transactional.id": "x", "acks": "1"},
        [
            "kafka.transactional.id: the sink names its transactions: leave it out. transactionalIdPrefix is what their names begin with",
        ],
    ),
    (
        {"key.serializer": "org.apache.kafka.common.serialization.StringSerializer"},
        ["kafka.key.serializer: columns hold bytes or text already: leave it out"],
    ),
    (
        {**SASL, "sasl.jaas.config": f"{SCRAM} password={CANARY}"},
        ["kafka.sasl.jaas.config: it does not end with ';'"],
    ),
    (
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM} password='${{env:PW}}';"},
        [
            (
                "kafka.sasl.jaas.config has org.apache.kafka.common.security.scram.ScramLoginModule, and sasl_mechanism=PLAIN: "
                "the module is for SCRAM"
            )
        ],
    ),
    ({**PROVIDERS, "config.providers.vault.class": "my.Vault"}, None),
    (
        {"sasl.passwrd": CANARY},
        ["unknown option 'kafka.sasl.passwrd'; did you mean 'kafka.sasl.password'?"],
    ),
]


@pytest.mark.parametrize(("kafka", "texts"), TABLE)
def test_texts(kafka: dict[str, str], texts: list[str] | None) -> None:
    """Each mistake has its text, and all of them are told at once."""
    found = said(kafka)
    assert found == texts if texts is not None else len(found) == 1
    assert CANARY not in " ".join(found)


def test_brokers_are_named() -> None:
    """The producer's default, this machine, would be another one on each executor."""
    assert problems({}) == ["option 'kafka.bootstrap.servers' is missing"]
    assert problems({"metadata.broker.list": "x:1"}) == []


@pytest.mark.parametrize("kafka", [{"acks": "1"}, {"enable.idempotence": "false"}])
def test_exactly_once_needs_idempotence(kafka: dict[str, str]) -> None:
    assert said(kafka, delivery="exactly_once") == [
        "delivery=exactly_once needs kafka.acks=all and kafka.enable.idempotence=true: leave both out"
    ]


SECRETS = [
    name.replace("_", ".") if OPTIONS[name].java is not None else name
    for name in OPTIONS
    if OPTIONS[name].kind.is_secret
]


@pytest.mark.parametrize("name", [*SECRETS, "sasl.password", "ssl.key.pem"])
@pytest.mark.parametrize(
    "text", [CANARY, "{{secrets/scope/canary-in-the-options}}", f"${{env:X}}{CANARY}"]
)
def test_a_secret_is_a_reference(name: str, text: str) -> None:
    """Every secret option of the producer, by Java's name, librdkafka's or ours: its text is refused, and not shown."""
    found = said({name: text})
    assert f"kafka.{name}: a secret is given {LITERAL}" in found
    assert CANARY not in " ".join(found)


@pytest.mark.parametrize(
    "name", ["ssl.keystore.certificate.chain", "client.id", "sasl.nothing", "bootstrap.servers"]
)
def test_a_private_key_is_a_secret_anywhere(name: str) -> None:
    found = said({name: f"-----BEGIN PRIVATE KEY-----{CANARY}"})
    assert len(found) == 1
    assert CANARY not in found[0]


def test_all_secrets_are_told_at_once() -> None:
    """One text names them all: it says what to write instead."""
    jaas = f"{SCRAM} password='{CANARY}';"
    kafka = {
        "ssl.key.password": CANARY,
        "ssl.keystore.password": CANARY,
        "ssl.truststore.password": CANARY,
        "sasl.jaas.config": jaas,
    }
    names = ", ".join(f"kafka.{name}" for name in kafka)
    assert said({**SASL, **kafka}) == [f"{names}: a secret is given {LITERAL}"]
    for words in (
        "${env:NAME}",
        "spark.executorEnv.NAME",
        "secretKeyRef.NAME=secret:key",
        "{{secrets/scope/key}}",
        "${file:/path}",
    ):
        assert words in LITERAL


@pytest.mark.parametrize(
    "kafka",
    [
        {**SASL, "sasl.jaas.config": f'{SCRAM} password="${{env:NOT_IN_THE_DRIVER}}";'},
        {
            **SASL,
            "sasl.username": "${env:NOT_IN_THE_DRIVER}",
            "sasl.password": "${file:/not/in/the/driver:key}",
        },
        {
            **SASL,
            **PROVIDERS,
            "sasl.jaas.config": f'{SCRAM} password="${{vault:/not/in/the/driver:key}}";',
        },
        {
            **SASL,
            "sasl.jaas.config": f'kafkashaded.{SCRAM} password="${{env:NOT_IN_THE_DRIVER}}";',
        },
        {
            "bootstrap.servers": "b-1.a.b.c2.kafka.eu-central-1.amazonaws.com:9098",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"kafkashaded.{BEARER.partition(' clientId')[0]};",
            "sasl.login.callback.handler.class": "shadedmskiam.software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        },
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": "/not/here.p12",
            "ssl.keystore.password": "${env:NOT_IN_THE_DRIVER}",
        },
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "/not/here.jks",
            "ssl.truststore.type": "JKS",
        },
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "/not/here.pem",
            "ssl.truststore.type": "PEM",
        },
    ],
)
def test_what_executors_have_is_not_needed_in_the_driver(kafka: dict[str, str]) -> None:
    """References and files are read by the process that connects. These are options of Spark's own source, too."""
    assert said(kafka) == []


def test_a_client_secret_within_jaas() -> None:
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://x/token",
    }
    name = "kafka.sasl.jaas.config"
    assert said({**kafka, "sasl.jaas.config": f"{BEARER} clientSecret='{CANARY}';"}) == [
        f"{name}: a secret is given {LITERAL}"
    ]
    assert said({**kafka, "sasl.jaas.config": f"{BEARER} clientSecret='${{env:SECRET}}';"}) == []


def test_a_jks_store_that_the_driver_has(tmp_path: Path) -> None:
    """The text has the commands that convert it."""
    store = tmp_path / "store.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))
    kafka = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(store),
        "ssl.keystore.location": str(store),
    }
    commands = (
        f"keytool -importkeystore -srckeystore {store} -destkeystore {tmp_path}/store.p12 -deststoretype PKCS12, and then, for PEM: "
        f"openssl pkcs12 -in {tmp_path}/store.p12 -out {tmp_path}/store.pem"
    )
    assert said(kafka) == [
        f"kafka.ssl.{name}.location={store} is a JKS store, which only Java reads. Convert it: {commands}"
        for name in ("truststore", "keystore")
    ]
