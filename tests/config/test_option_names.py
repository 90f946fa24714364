"""Tests of `aioproducer.config.option_names`, by `ProducerConfig.from_mapping`: other clients' names, values and units."""

from __future__ import annotations

import ctypes
import logging
import pathlib
import pickle
from typing import Any

import confluent_kafka
import pytest

from aioproducer.config.option_names import environment_options
from aioproducer.config.producer_config import OPTIONS, ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.model import Acks, Compression
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import string_serializer


def made(**options: Any) -> ProducerConfig:
    """A config of dotted names, written here with underscores in place of dots."""
    return ProducerConfig.from_mapping(
        {name.replace("_", "."): value for name, value in options.items()}
    )


@pytest.fixture(scope="module")
def librdkafkas(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str, str]]:
    """Return every property of librdkafka as its own table has it: name, owner (P, C or *), range, default."""
    folder = pathlib.Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    [library] = folder.glob("librdkafka*")
    rdkafka, libc = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = rdkafka.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    page = tmp_path_factory.mktemp("librdkafka") / "properties.md"
    file = libc.fopen(str(page).encode(), b"w")
    rdkafka.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [
        [cell.strip() for cell in line.split("|")]
        for line in page.read_text().splitlines()
        if line.count("|") >= 4
    ]
    found = [(row[0], row[1], row[2], row[3]) for row in rows if row[1] in {"P", "C", "*"}]
    assert len(found) > 180
    return found


# Names


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_has_its_own_name_and_javas(name: str) -> None:
    """Both spellings mean the field; what Java has not is known by its own name alone."""
    value = getattr(ProducerConfig(), name)
    java = OPTIONS[name].java
    for spelling in [name] if java is None else [name, java or name.replace("_", ".")]:
        assert getattr(ProducerConfig.from_mapping({spelling: value}), name) == value


def test_librdkafkas_names_are_librdkafkas(librdkafkas: list[tuple[str, str, str, str]]) -> None:
    """No option claims a name with dots that librdkafka has not, but for those of proposals."""
    ours = {name for option in OPTIONS.values() for name in option.aliases if "." in name}
    assert ours - {name for name, *_ in librdkafkas} == {"batch.max.size", "metadata.evict.ms"}


def test_librdkafkas_defaults_are_taken(librdkafkas: list[tuple[str, str, str, str]]) -> None:
    """Its numbers mean the same here, in its units: each that it has as default can be written.

    Not so its CRC-32 partitioner, and what is of SASL alone: the mechanism GSSAPI and the principal "kafkaclient".
    """
    names = {name: field for field, option in OPTIONS.items() for name in option.aliases}
    defaults = {
        name: default
        for name, _, _, default in librdkafkas
        if name in names and default not in {"", "inherit", "GSSAPI", "kafkaclient"}
    }
    assert len(defaults) > 10
    for name, default in defaults.items():
        written = {
            name: default,
            "enable.idempotence": "false",
        }  # its own default, with which as many requests are in flight as it likes
        assert getattr(ProducerConfig.from_mapping(written), names[name]) is not None


@pytest.mark.parametrize(
    "name",
    [
        "group.id",
        "ssl.engine.factory.class",
        "sasl.oauthbearer.assertion.claim.aud",
        "batch.num.messages",
    ],
)
def test_what_is_not_here_is_unknown(name: str) -> None:
    """By its dotted name, and as an argument. docs/topics/porting.md says what else there is."""
    with pytest.raises(ConfigError, match=f"^unknown option '{name}'"):
        ProducerConfig.from_mapping({name: "x"})
    with pytest.raises(ConfigError, match="^unknown option"):
        ProducerConfig.of(None, {name.replace(".", "_"): "x"})


PACKAGE = "org.apache.kafka.common.security.oauthbearer."


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.grant.type", "client_credentials"),
        ("sasl.oauthbearer.jwt.retriever.class", f"{PACKAGE}DefaultJwtRetriever"),
        ("sasl.oauthbearer.jwt.retriever.class", f"{PACKAGE}ClientCredentialsJwtRetriever"),
        ("sasl.oauthbearer.jwt.validator.class", f"{PACKAGE}ClientJwtValidator"),
        ("sasl.login.callback.handler.class", f"{PACKAGE}secured.OAuthBearerLoginCallbackHandler"),
        (
            "sasl.client.callback.handler.class",
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        ),
        ("loop", None),
        ("api_version", "auto"),
    ],
)
def test_what_says_what_is_so_in_any_case(name: str, value: Any) -> None:
    """It is left out, and another value of it is refused: for a token that is had in another way there is a function."""
    assert ProducerConfig.from_mapping({name: value}) == ProducerConfig()
    with pytest.raises(ConfigError, match=f"{name} has no place here, but as "):
        ProducerConfig.from_mapping({name: "com.example.Mine"})


@pytest.mark.parametrize(
    ("unknown", "near"),
    [
        ("linger.msec", "linger.ms"),
        ("bootstrap.server", "bootstrap.servers"),
        ("queue.bufering.max.kbytes", "queue.buffering.max.kbytes"),
    ],
)
def test_an_unknown_name_names_the_nearest(unknown: str, near: str) -> None:
    """The error names the nearest option as it is written there."""
    with pytest.raises(ConfigError, match=f"unknown option '{unknown}'; did you mean '{near}'"):
        ProducerConfig.from_mapping({unknown: 1})


def test_a_name_that_is_near_to_none() -> None:
    with pytest.raises(ConfigError, match=r"^unknown option 'zzz'$"):
        ProducerConfig.from_mapping({"zzz": 1})
    with pytest.raises(ConfigError, match="an option's name is a string, not int"):
        ProducerConfig.from_mapping({1: "x"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "mapping",
    [
        {"linger.ms": 1, "queue.buffering.max.ms": 1},
        {"acks": "all", "request.required.acks": "all"},
        {"linger_ms": 1, "linger.ms": 1},
        {"buffer.memory": 2**20, "queue.buffering.max.kbytes": 1024},
        {"compression.type": "zstd", "compression.level": 3, "compression.zstd.level": 3},
        {"request.timeout.ms": 1, "socket.timeout.ms": 1},
    ],
    ids="+".join,
)
def test_one_option_by_two_names(mapping: dict[str, Any]) -> None:
    """Which would win could only be guessed, even where they agree."""
    with pytest.raises(ConfigError, match=r"'.*' and '.*' are both \w+: keep one"):
        ProducerConfig.from_mapping(mapping)


# Values and units


def test_a_properties_file_of_javas() -> None:
    """Everything is text, and serializers are names of classes."""
    config = ProducerConfig.from_mapping(
        {
            "bootstrap.servers": "a:1,b:2",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
            "acks": "-1",
            "linger.ms": "5",
            "batch.size": "0",
            "compression.type": "lz4",
            "compression.lz4.level": "12",
            "metadata.recovery.strategy": "NONE",
            "partitioner.ignore.keys": "true",
            "partitioner.adaptive.partitioning.enable": "false",
            "partitioner.availability.timeout.ms": "1500",
            "partitioner.rack.aware": "true",
            "client.rack": "eu-1a",
            "send.buffer.bytes": "-1",
        }
    )
    assert config == ProducerConfig(
        bootstrap_servers=("a:1", "b:2"),
        key_serializer=string_serializer,
        acks=Acks.ALL,
        linger_ms=5,
        batch_size=1,
        compression_type=Compression.LZ4,
        compression_lz4_level=12,
        metadata_recovery_strategy="none",
        partitioner_ignore_keys=True,
        partitioner_adaptive_partitioning_enable=False,
        partitioner_availability_timeout_ms=1500,
        partitioner_rack_aware=True,
        client_rack="eu-1a",
        send_buffer_bytes=-1,
    )


def test_a_configuration_of_librdkafkas() -> None:
    """In its units: KiB of memory, 0 for the system's own."""
    config = ProducerConfig.from_mapping(
        {
            "metadata.broker.list": "a:1",
            "queue.buffering.max.ms": "0.5",
            "queue.buffering.max.kbytes": "1024",
            "message.max.bytes": 2_000_000,
            "message.timeout.ms": 40_000,
            "message.send.max.retries": 7,
            "max.in.flight": 1,
            "request.required.acks": 1,
            "compression.codec": "zstd",
            "compression.level": "7",
            "partitioner": "murmur2_random",
            "socket.send.buffer.bytes": 0,
            "connections.max.idle.ms": 0,
            "topic.metadata.refresh.interval.ms": 60_000,
            "allow.auto.create.topics": "false",
        }
    )
    assert config == ProducerConfig(
        bootstrap_servers="a:1",
        linger_ms=0.5,
        buffer_memory=1_048_576,
        max_request_size=2_000_000,
        delivery_timeout_ms=40_000,
        retries=7,
        max_in_flight_requests_per_connection=1,
        acks=1,
        compression_type="zstd",
        compression_zstd_level=7,
        send_buffer_bytes=-1,
        connections_max_idle_ms=-1,
        metadata_max_age_ms=60_000,
        allow_auto_create_topics=False,
    )


def test_the_names_of_expandable_batches() -> None:
    """KIP-782, which no released Kafka has."""
    assert ProducerConfig.from_mapping({"batch.max.size": "65536"}).batch_max_size == 65_536
    with pytest.raises(ConfigError, match=r"unknown option 'batch\.initial\.size'"):
        ProducerConfig.from_mapping({"batch.initial.size": "4096"})


@pytest.mark.parametrize(
    "name", ["metadata.max.idle.ms", "metadata.evict.ms", "metadata_max_idle_ms"]
)
def test_a_name_that_a_proposal_had_is_accepted(name: str) -> None:
    """KIP-526 was discussed with one name and built with another. A mapping with both names is an error."""
    assert ProducerConfig.from_mapping({name: "60000"}).metadata_max_idle_ms == 60_000
    with pytest.raises(ConfigError, match="at least 5000"):
        ProducerConfig.from_mapping({name: "4999"})
    other = "metadata.evict.ms" if name != "metadata.evict.ms" else "metadata.max.idle.ms"
    with pytest.raises(ConfigError, match="are both metadata_max_idle_ms: keep one"):
        ProducerConfig.from_mapping({name: 60_000, other: 60_000})


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_librdkafkas_one_level_is_the_codecs(codec: str) -> None:
    """The level is the chosen codec's, with options in either order. -1 is each codec's own level."""
    field = f"compression_{codec}_level"
    assert getattr(made(compression_level=5, compression_type=codec), field) == 5
    assert (
        getattr(made(compression_codec=Compression[codec.upper()], compression_level="5"), field)
        == 5
    )
    assert getattr(made(compression_type=codec, compression_level=-1), field) == getattr(
        ProducerConfig(), field
    )


@pytest.mark.parametrize(
    "options", [{}, {"compression_type": "snappy"}, {"compression_type": "none"}], ids=str
)
def test_a_level_without_a_codec_that_has_levels(options: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError,
        match=r"compression.level=5: compression \w+ has no levels; leave it out, or choose gzip, lz4, zstd",
    ):
        made(compression_level=5, **options)
    assert made(compression_level=-1, **options).compression_zstd_level == 3


@pytest.mark.parametrize("word", ["consistent_random", "random", "fnv1a", "Murmur2_random"])
def test_a_partitioner_that_is_not_here(word: str) -> None:
    """Its keys would go elsewhere than before: that must not pass in silence."""
    with pytest.raises(
        ConfigError,
        match=f"partitioner='{word}': of librdkafka's only murmur2_random is here. Give a function that chooses as it did",
    ):
        made(partitioner=word)


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        ({"linger.ms": "soon"}, "linger_ms='soon': it is a number, or a timedelta, or 'auto'"),
        (
            {"queue.buffering.max.kbytes": "many"},
            "queue.buffering.max.kbytes='many': it is a whole number",
        ),
        (
            {"queue.buffering.max.kbytes": None},
            "queue.buffering.max.kbytes=None: it is a whole number",
        ),
        ({"queue.buffering.max.kbytes": 0}, "buffer_memory=0: it is at least 1"),
        ({"message.timeout.ms": 0}, "delivery_timeout_ms=0 is below"),
        ({"acks": "2"}, "acks='2': it is 'all', 1 or 0"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be(mapping: dict[str, Any], text: str) -> None:
    """Said of the field, which is near enough to the name."""
    with pytest.raises(ConfigError, match=text):
        ProducerConfig.from_mapping(mapping)


def test_javas_round_robin() -> None:
    """The one partitioner class of Java's that has a twin here; each producer makes its own."""
    config = ProducerConfig.from_mapping(
        {"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    )
    assert config.partitioner is RoundRobinPartitioner


def test_the_mapping_is_left_as_it_was() -> None:
    """It is the caller's."""
    mapping = {
        "compression.type": "zstd",
        "compression.level": 3,
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": "64",
    }
    before = dict(mapping)
    ProducerConfig.from_mapping(mapping)
    assert mapping == before


# KIP-693


def test_names_of_circuit_breakers() -> None:
    """Those of the proposal are fields; what it leaves to a breaker goes to that, by the name behind the prefix."""
    read = made(
        producer_circuit_breaker_class="FailureRateCircuitBreaker",
        producer_circuit_breaker_trigger_message_count="7",
        producer_circuit_breaker_trigger_failure_perc="30",
        producer_circuit_breaker_mute_retry_interval="500",
        producer_circuit_breaker_my_own="a",
        producer_circuit_breaker_another="b",
    )
    assert read.circuit_breaker_class == "failure_rate"
    assert (
        read.circuit_breaker_trigger_message_count,
        read.circuit_breaker_trigger_failure_perc,
    ) == (7, 30)
    assert read.circuit_breaker_mute_retry_interval_ms == 500
    assert read.circuit_breaker_options == {"my.own": "a", "another": "b"}


# Tests that options are read from environment variables, and what becomes of variables that are none.


SASL = {
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_SASL_MECHANISM": "PLAIN",
    "KAFKA_SASL_USERNAME": "shop",
}


def read(environ: dict[str, str], prefix: str = "KAFKA_") -> ProducerConfig:
    return ProducerConfig.from_env(prefix, environ)


@pytest.mark.parametrize(
    ("variable", "option", "value"),
    [
        ("KAFKA_BOOTSTRAP_SERVERS", "bootstrap_servers", "a:1,b"),
        ("KAFKA_LINGER_MS", "linger_ms", "5"),
        ("KAFKA_ACKS", "acks", "1"),
        ("KAFKA_ENABLE_IDEMPOTENCE", "enable_idempotence", "false"),
        ("KAFKA_MESSAGE_TIMEOUT_MS", "delivery_timeout_ms", "40000"),  # librdkafka's
        ("KAFKA_SSL_CA_LOCATION", "ssl_truststore_location", "/ca.pem"),  # librdkafka's
        ("KAFKA_SSL_CAFILE", "ssl_truststore_location", "/ca.pem"),  # aiokafka's
    ],
)
def test_each_name_of_an_option(variable: str, option: str, value: str) -> None:
    """The option's own name, and those of other clients, with underscores and in upper case."""
    others = {"security_protocol": "SSL"} if option.startswith("ssl") else {}
    environ = {variable: value, **{f"KAFKA_{name.upper()}": text for name, text in others.items()}}
    assert read(environ) == ProducerConfig(**{option: value}, **others)


def test_every_option_has_a_variable() -> None:
    """No name of an option is lost on its way through the variable's name."""
    environ = {f"KAFKA_{name.upper()}": "a.b" for name in OPTIONS}
    assert environment_options("KAFKA_", OPTIONS, environ).keys() == OPTIONS.keys()


def test_names_of_other_programs_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One line names them all, and shows no value. Without such names there is no line."""
    caplog.set_level(logging.INFO)
    assert (
        read(
            {
                "KAFKA_HEAP_OPTS": "canary",
                "KAFKA_GROUP_ID": "canary",
                "KAFKA_LINGR_MS": "canary",
                "KAFKAESQUE": "canary",
            }
        )
        == ProducerConfig()
    )
    assert [record.getMessage() for record in caplog.records] == [
        "No option of a producer, and left out: KAFKA_GROUP_ID, KAFKA_HEAP_OPTS, KAFKA_LINGR_MS"
    ]
    caplog.clear()
    assert (
        read({"KAFKA_ACKS": "1", "AIOPRODUCER_PURE": "1", "AIOPRODUCER_REQUIRE_EXT": "0"}).acks == 1
    )
    assert caplog.records == []


def test_an_empty_variable_is_none() -> None:
    """`docker-compose` writes one for a variable that is not set."""
    assert read({"KAFKA_LINGER_MS": "", "KAFKA_CLIENT_ID": ""}) == ProducerConfig()


@pytest.mark.parametrize("prefix", ["SHOP_KAFKA", "SHOP_KAFKA_"])
def test_a_prefix_of_ones_own(prefix: str) -> None:
    """With or without an underscore at its end."""
    assert read({"SHOP_KAFKA_ACKS": "1", "KAFKA_ACKS": "0"}, prefix).acks == 1


def test_a_reference_to_a_secret_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read at each use, and can be pickled."""
    made = read({**SASL, "KAFKA_SASL_PASSWORD": "${env:PASSWORD_OF_TODAY}"})
    assert "${env:PASSWORD_OF_TODAY}" in repr(made)
    for password in ("monday", "tuesday"):
        monkeypatch.setenv("PASSWORD_OF_TODAY", password)
        copied: Any = pickle.loads(pickle.dumps(made))
        assert copied.sasl_password.reveal() == password
