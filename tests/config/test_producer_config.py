"""Tests of `aioproducer.config.producer_config`, and by it of the kinds of values in `aioproducer.config.option_kinds`."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import inspect
import pickle
import pydoc
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from aioproducer import Producer
from aioproducer.config.option_kinds import FLAG
from aioproducer.config.producer_config import OPTIONS, ClientIdNumber, ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.model import Acks, Compression
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


RANGES = [
    (name, option.kind.low, option.kind.high, not name.endswith("_ms"))
    for name, option in OPTIONS.items()
    if option.kind.low is not None
]
BEARER = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token": "canary-token",
}
ENDPOINT = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://id.example.test/token",
    "sasl_oauthbearer_client_credentials_client_id": "orders",
}
# The beginnings of options, and what they are used with.
BESIDE = {
    "sasl_login_": BEARER,
    "sasl_oauthbearer_assertion_": {
        **ENDPOINT,
        "sasl_oauthbearer_assertion_private_key_file": "client.pem",
    },
    "sasl_oauthbearer_header_": {
        **ENDPOINT,
        "sasl_oauthbearer_client_credentials_client_secret": "canary-secret",
    },
}
# What a delegation token is used with.
TOKEN = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "token",
    "sasl_password": "canary-hmac",
}
NUMBERS = [name for name, *_ in RANGES]
NOTHING = {
    "compression_gzip_level": -1,
    "batch_size": 1,
    "connections_max_idle_ms": -1,
    "send_buffer_bytes": -1,
    "receive_buffer_bytes": -1,
}


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(**options)


def test_defaults_that_are_not_javas() -> None:
    """The producer does not linger: a caller that awaits one record must not wait for others."""
    assert config().linger_ms == 0
    assert config().bootstrap_servers == ("localhost:9092",)


def test_a_config_does_not_change() -> None:
    """It is a value; a changed one is made of it, and checks itself again."""
    made = config(acks=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.acks = 0  # type: ignore[misc]
    assert dataclasses.replace(made, linger_ms="5") == config(acks="1", linger_ms=5)
    with pytest.raises(ConfigError):
        dataclasses.replace(made, linger_ms=-1)


@pytest.mark.parametrize("written", ["auto", " AUTO\n"])
def test_linger_by_load_is_a_word(written: Any) -> None:
    """It knows no time: none is counted where times are compared."""
    made = config(linger_ms=written, delivery_timeout_ms=30_000, request_timeout_ms=30_000)
    assert made.linger_ms == "auto"
    assert made.fixed_linger_ms == 0
    assert config(linger_ms="5").fixed_linger_ms == 5
    assert dataclasses.replace(made, client_id="other").linger_ms == "auto"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("soon", "linger_ms='soon': it is a number, or a timedelta, or 'auto'"),
        ("", "linger_ms='': it is a number, or a timedelta, or 'auto'"),
        ("auto 5", "linger_ms='auto 5': it is a number, or a timedelta, or 'auto'"),
        (-1, "linger_ms=-1: it is at least 0, or 'auto'"),
        (None, "linger_ms=None: it is a number, or a timedelta, or 'auto'"),
        (True, "linger_ms=True: it is a number, or a timedelta, or 'auto'"),
        (b"auto", "linger_ms=b'auto': it is a number, or a timedelta, or 'auto'"),
        (float("nan"), "linger_ms=nan: it is a number, or a timedelta, or 'auto'"),
    ],
    ids=repr,
)
def test_a_linger_that_cannot_be(written: Any, said: str) -> None:
    """Both things that it may be are named."""
    with pytest.raises(ConfigError) as caught:
        config(linger_ms=written)
    assert str(caught.value) == said


# Addresses


def test_an_address_that_is_named_twice(caplog: pytest.LogCaptureFixture) -> None:
    """The producer dials the address once and warns, as the user most likely meant another one."""
    assert config(bootstrap_servers="a:1,a:1,b:2").bootstrap_servers == ("a:1", "b:2")
    assert [record.getMessage() for record in caplog.records] == [
        "bootstrap_servers has an address twice: it is used once"
    ]


@pytest.mark.parametrize("given", [":9092", "a:", "a:0", "a:65536", "a:-1", "a:x", "a:９"])
def test_what_is_no_address(given: str) -> None:
    """The part that is wrong is named."""
    with pytest.raises(ConfigError, match=r"bootstrap_servers: .* is not host:port"):
        config(bootstrap_servers=given)


@pytest.mark.parametrize("given", ["", " , ", [], ()])
def test_no_address(given: Any) -> None:
    """There is nothing to start from."""
    with pytest.raises(ConfigError, match="empty"):
        config(bootstrap_servers=given)


@pytest.mark.parametrize("given", [None, 9092, b"a:1", [b"a:1"], [("a", 1)], {"a": 1}], ids=str)
def test_addresses_of_another_kind(given: Any) -> None:
    """The error says which kinds are accepted."""
    with pytest.raises(ConfigError, match="sequence of 'host:port'"):
        config(bootstrap_servers=given)


# Words


@pytest.mark.parametrize(
    ("given", "acks"),
    [
        ("all", Acks.ALL),
        ("ALL", Acks.ALL),
        (-1, Acks.ALL),
        ("-1", Acks.ALL),
        (1, Acks.LEADER),
        (" 1 ", Acks.LEADER),
        (0, Acks.NONE),
    ]
    + [(acks, acks) for acks in Acks],
)
def test_acks(given: Any, acks: Acks) -> None:
    """The values of Java and of other clients are accepted."""
    assert config(acks=given).acks is acks


@pytest.mark.parametrize("given", [2, -2, "most", None, True, False, 1.0, ""], ids=repr)
def test_what_is_no_acks(given: Any) -> None:
    """True is refused and not read as 1: a user that writes it means something else."""
    with pytest.raises(ConfigError, match="'all', 1 or 0"):
        config(acks=given)


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
def test_compression(codec: Compression) -> None:
    """The codec is accepted by its name in any case, or as the constant."""
    assert config(compression_type=codec.name.lower()).compression_type is codec
    assert config(compression_type=codec.name).compression_type is codec
    assert config(compression_type=codec).compression_type is codec


def test_no_compression() -> None:
    """None is aiokafka's word for it."""
    assert config(compression_type=None).compression_type is Compression.NONE


@pytest.mark.parametrize("given", ["brotli", 4, "", True, "__class__"], ids=repr)
def test_what_is_no_compression(given: Any) -> None:
    """The error names the codecs that exist."""
    with pytest.raises(ConfigError, match="none, gzip, snappy, lz4, zstd"):
        config(compression_type=given)


@pytest.mark.parametrize("given", ["aioproducer", "ü" * 16_383])
def test_client_ids(given: str) -> None:
    """Any text that a request's header can hold."""
    assert config(client_id=given).client_id == given


@pytest.mark.parametrize("given", [None, ""])
def test_no_client_id(given: Any) -> None:
    """The producer chooses one: None is aiokafka's default."""
    assert config(client_id=given).client_id == ""


@pytest.mark.parametrize(
    "given", [b"bytes", 1, "ü" * 16_384, "\ud800"], ids=lambda given: repr(given)[:10]
)
def test_what_is_no_client_id(given: Any) -> None:
    """Said at once; else every request would fail."""
    with pytest.raises(ConfigError, match="client_id"):
        config(client_id=given)


# Numbers


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_may_be_text(name: str) -> None:
    """They come from environment files."""
    value = getattr(config(), name)
    made = getattr(config(**{name: str(int(value))}), name)
    assert made == value
    assert isinstance(made, (int, float))


@pytest.mark.parametrize(
    "given",
    ["", "x", None, True, "nan", float("nan"), float("inf"), "inf", [], b"1", "1 000"],
    ids=repr,
)
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number(name: str, given: Any) -> None:
    """The option and the value are in the text."""
    with pytest.raises(ConfigError, match=f"^{name}="):
        config(**{name: given})


@pytest.mark.parametrize("name", [name for name, _, _, is_whole in RANGES if is_whole])
@pytest.mark.parametrize("given", [1000.5, "1000.5", "1e6"], ids=repr)
def test_sizes_are_whole_numbers(name: str, given: Any) -> None:
    """There is no half byte."""
    with pytest.raises(ConfigError, match="whole number"):
        config(**{name: given})


def beside(name: str) -> dict[str, Any]:
    return next((others for start, others in BESIDE.items() if name.startswith(start)), {})


@pytest.mark.parametrize(("name", "low"), [(name, low) for name, low, _, _ in RANGES])
def test_the_lowest_value(name: str, low: int) -> None:
    """The lowest value is accepted if no other option contradicts it. A value below it never is."""
    if name != "delivery_timeout_ms":
        others = {"batch_size": 1, "buffer_memory": 62} if name == "buffer_memory" else {}
        others = others or beside(name)
        assert (
            getattr(
                config(**{name: low, **others, **({name: 62} if name == "buffer_memory" else {})}),
                name,
            )
            >= low
        )
    below = low - 3 if name in NOTHING else low - 1
    with pytest.raises(ConfigError, match=f"{name}={below}: it is at least {low}"):
        config(**{name: below})


@pytest.mark.parametrize(
    ("name", "high"), [(name, high) for name, _, high, _ in RANGES if high is not None]
)
def test_the_highest_value(name: str, high: int) -> None:
    """The highest value is the highest of Kafka's 32-bit fields, or of a codec's levels."""
    room = {"buffer_memory": 2**33, "delivery_timeout_ms": 2**33, name: high, **beside(name)}
    assert getattr(config(**room), name) == high
    with pytest.raises(ConfigError, match=f"at most {high}"):
        config(**{**room, name: high + 1})


@pytest.mark.parametrize(("name", "held"), NOTHING.items(), ids=NOTHING)
def test_values_that_mean_none(name: str, held: int) -> None:
    """Java says -1 where librdkafka says 0; a batch of no bytes holds one record all the same."""
    assert getattr(config(**{name: held}), name) == held
    if name == "compression_gzip_level":
        with pytest.raises(
            ConfigError, match="compression_gzip_level=0: it is at least 1 and at most 9, or -1"
        ):
            config(**{name: 0})
    else:
        assert getattr(config(**{name: "0"}), name) == held


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.kind is FLAG])
def test_flags(name: str) -> None:
    """Flags are accepted as Python and property files write them. 1 is refused, as it may be a mistake for a number."""
    needed = TOKEN if name == "sasl_token_auth" else beside(name)
    for given, held in ((True, True), ("false", False), (" TRUE ", True), (False, False)):
        assert getattr(config(**{name: given}, **needed), name) is held
    for given in ("yes", 1, 0, None, ""):
        with pytest.raises(ConfigError, match=f"{name}=.*: it is true or false"):
            config(**{name: given})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("metadata_recovery_strategy", ["rebootstrap", "none"]),
        ("circuit_breaker_keyed_policy", ["strict", "available", "fail_fast"]),
        ("client_dns_lookup", ["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]),
    ],
)
def test_words(name: str, words: list[str]) -> None:
    """In any case, as Java reads them."""
    for word in words:
        assert getattr(config(**{name: f" {word.upper()}"}), name) == word
    for given in ("never", None, 1, ""):
        with pytest.raises(ConfigError, match=f"{name}=.*: it is {words[0]} or {words[1]}"):
            config(**{name: given})


def test_a_request_time_that_kafka_cannot_be_told() -> None:
    """It is an int32 of milliseconds in every Produce request."""
    with pytest.raises(ConfigError, match="request_timeout_ms"):
        config(request_timeout_ms=2**31, delivery_timeout_ms=2**40)


# Idempotence


@pytest.mark.parametrize(
    ("options", "is_idempotent"),
    [
        ({}, True),
        ({"acks": "all", "retries": 5}, True),
        ({"acks": 1}, False),
        ({"acks": 0}, False),
        ({"retries": 0}, False),
        ({"message_format_max": 1}, False),
        ({"enable_idempotence": False}, False),
        ({"enable_idempotence": "true"}, True),
        ({"transactional_id": "t"}, True),
    ],
    ids=str,
)
def test_idempotence_is_on_unless_something_was_set_against_it(
    options: dict[str, Any], *, is_idempotent: bool
) -> None:
    """CFG-07; what the user wrote stays as written."""
    made = config(**options)
    assert made.is_idempotent is is_idempotent
    assert made.enable_idempotence is {"true": True}.get(
        options.get("enable_idempotence"), options.get("enable_idempotence")
    )


@pytest.mark.parametrize("given", ["", b"t", 5])
def test_what_is_no_transactional_id(given: Any) -> None:
    """CFG-08: an empty name is refused, as all producers with it would share it."""
    with pytest.raises(ConfigError, match=r"transactional_id (is empty|must be a string)"):
        config(transactional_id=given)


# Conflicts and functions


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"delivery_timeout_ms": 30_000, "linger_ms": 1},
            "delivery_timeout_ms=30000 is below linger_ms [+] request_timeout_ms = 30001",
        ),
        ({"delivery_timeout_ms": 29_999}, "is below"),
        ({"buffer_memory": 16_384}, "buffer_memory=16384 holds no batch of batch_size=16384"),
        ({"buffer_memory": 100, "batch_size": 40}, "holds no batch"),
        (
            {"enable_idempotence": True, "acks": 1},
            "enable_idempotence needs acks=all, .* and acks=1",
        ),
        ({"enable_idempotence": True, "acks": 0}, "and acks=0"),
        ({"enable_idempotence": True, "retries": 0}, "and retries=0"),
        ({"enable_idempotence": True, "message_format_max": 1}, "and message_format_max=1"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            "=6: with idempotence it is at most 5",
        ),
        (
            {"transactional_id": "t", "enable_idempotence": False},
            "transactions need idempotence, and enable_idempotence=False forbids",
        ),
        ({"transactional_id": "t", "acks": 1}, "and acks=1 forbids it. Leave acks out"),
        ({"transactional_id": "t", "max_in_flight_requests_per_connection": 6}, "at most 5"),
    ],
)
def test_options_that_cannot_be_together(options: dict[str, Any], text: str) -> None:
    """Both are named, with their values."""
    with pytest.raises(ConfigError, match=text):
        config(**options)


@pytest.mark.parametrize(
    "name", ["key_serializer", "value_serializer", "partitioner", "on_delivery_error", "on_failed"]
)
def test_functions_are_callable(name: str) -> None:
    """A name in their place is a mistake."""
    assert getattr(config(**{name: max}), name) is max
    assert getattr(config(**{name: None}), name) is None
    for given, shown in (("json", "'json'"), (b"json", "bytes"), (1, "int")):
        with pytest.raises(ConfigError, match=f"{name} must be callable, not {shown}"):
            config(**{name: given})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("key_serializer", "await in your code, before `send`"),
        ("value_serializer", "await in your code, before `send`"),
        ("partitioner", "it is called between two steps of the loop"),
        ("on_delivery_error", "it is called between two steps of the loop"),
        ("on_failed", "it is called between two steps of the loop"),
    ],
)
def test_functions_are_plain(name: str, advice: str) -> None:
    """A coroutine function would give a coroutine where bytes or a number belong. The text says what to do instead."""

    async def later(*_given: object) -> bytes:
        return b""

    class Later:
        async def __call__(self, *_given: object) -> bytes:
            return b""

    for given in (later, Later(), functools.partial(Later())):
        with pytest.raises(
            ConfigError,
            match=f"{name} must be a plain function, not a coroutine function: {advice}",
        ):
            config(**{name: given})


# Defaults that adapt, and the user's own values, which do not

WAYS = [
    ({"linger_ms": 100_000}, {"delivery_timeout_ms": 130_000}),
    ({"request_timeout_ms": 120_000}, {}),
    ({"request_timeout_ms": 120_001}, {"delivery_timeout_ms": 120_001}),
    ({"retry_backoff_ms": 2_000}, {"retry_backoff_max_ms": 2_000}),
    ({"retry_backoff_max_ms": 10}, {"retry_backoff_ms": 10}),
    ({"retry_backoff_ms": 1_000}, {}),
    (
        {"socket_connection_setup_timeout_ms": 60_000},
        {"socket_connection_setup_timeout_max_ms": 60_000},
    ),
    (
        {"socket_connection_setup_timeout_max_ms": 5_000},
        {"socket_connection_setup_timeout_ms": 5_000},
    ),
    ({"reconnect_backoff_ms": 100}, {"reconnect_backoff_max_ms": 100}),
    ({"reconnect_backoff_ms": 5_000}, {"reconnect_backoff_max_ms": 5_000}),
    ({"reconnect_backoff_ms": 1_000}, {}),
    ({"reconnect_backoff_max_ms": 20}, {"reconnect_backoff_ms": 20}),
    ({"reconnect_backoff_ms": 100, "reconnect_backoff_max_ms": 500}, {}),
]


@pytest.mark.parametrize(("written", "moved"), WAYS, ids=str)
def test_a_default_gives_way(
    written: dict[str, Any], moved: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It shows in the config, and one warning names it, its value and what moved it. Nothing else changes."""
    made = config(**written)
    expected = {name: getattr(config(), name) for name in OPTIONS} | written | moved
    assert {name: getattr(made, name) for name in OPTIONS} == expected
    said = [record.getMessage() for record in caplog.records]
    assert [message.split(" is ")[0] for message in said] == list(moved)
    assert all(f"{name} is {value:g}" in said[0] for name, value in moved.items())
    assert all(any(option in message for option in written) for message in said)


def test_long_times_are_told_in_full(caplog: pytest.LogCaptureFixture) -> None:
    """Twenty minutes, as faust has for request_timeout_ms, were told as 1.2e+06."""
    ProducerConfig(request_timeout_ms=1_200_000)
    [record] = caplog.records
    assert record.getMessage().startswith("delivery_timeout_ms is 1200000, as ")
    assert record.getMessage().endswith("Give delivery_timeout_ms, too, to choose it.")
    with pytest.raises(
        ConfigError,
        match=r"delivery_timeout_ms=1234567 is below linger_ms \+ request_timeout_ms = 1300000: ",
    ):
        ProducerConfig(request_timeout_ms=1_300_000, delivery_timeout_ms=1_234_567)
    with pytest.raises(
        ConfigError,
        match=r"retry_backoff_ms=1234567\.5 is above retry_backoff_max_ms=1000000, to which it grows",
    ):
        ProducerConfig(retry_backoff_ms=1_234_567.5, retry_backoff_max_ms=1_000_000)


@pytest.mark.parametrize("value", [None, "never", object()], ids=["none", "word", "object"])
def test_a_value_of_another_kind_names_the_value_for_none(value: Any) -> None:
    """aiokafka's None for connections that are never closed is -1 here."""
    with pytest.raises(
        ConfigError,
        match=r"connections_max_idle_ms=.*: it is a number, or a timedelta, or -1, or 0$",
    ):
        ProducerConfig(connections_max_idle_ms=value)
    with pytest.raises(
        ConfigError, match=r"linger_ms=.*: it is a number, or a timedelta, or 'auto'$"
    ):
        ProducerConfig(linger_ms=value)


def test_a_moved_default_may_move_again(caplog: pytest.LogCaptureFixture) -> None:
    """A config made of another treats it as the default that it is."""
    made = config(request_timeout_ms=200_000)
    assert len(caplog.records) == 1
    assert made.replace(client_id="other").delivery_timeout_ms == 200_000
    assert len(caplog.records) == 2
    assert made.replace(request_timeout_ms=300_000).delivery_timeout_ms == 300_000
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"request_timeout_ms": 120_001, "delivery_timeout_ms": 120_000},
            "delivery_timeout_ms=120000 is below",
        ),
        (
            {"retry_backoff_ms": 100, "retry_backoff_max_ms": 99},
            "retry_backoff_ms=100 is above retry_backoff_max_ms=99",
        ),
        (
            {"reconnect_backoff_ms": 100, "reconnect_backoff_max_ms": 99},
            "reconnect_backoff_ms=100 is above reconnect_backoff_max_ms=99",
        ),
        (
            {"socket_connection_setup_timeout_ms": 2, "socket_connection_setup_timeout_max_ms": 1},
            "is above socket_connection_setup_timeout_max",
        ),
        (
            {"compression_type": "zstd", "message_format_max": 1},
            "zstd needs record format 2, and message_format_max=1",
        ),
        (
            {"partitioner": len, "partitioner_ignore_keys": True},
            "partitioner_ignore_keys is for Kafka's partitioner",
        ),
    ],
)
def test_what_the_user_wrote_does_not_give_way(options: dict[str, Any], text: str) -> None:
    """Even where it is what the default would have been: both are named, with their values."""
    with pytest.raises(ConfigError, match=text):
        config(**options)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name.endswith("_ms")])
def test_a_time_may_be_a_timedelta(name: str) -> None:
    """Milliseconds, with their fraction; what is out of the range is an error as for a number."""
    kind = OPTIONS[name].kind
    assert kind.read(name, timedelta(seconds=5, microseconds=500_500)) == 5500.5
    with pytest.raises(ConfigError, match=f"{name}=datetime.timedelta.*: it is at least"):
        kind.read(name, timedelta(seconds=-9))


# A config or options


def test_a_config_is_taken_as_it_is() -> None:
    """Several producers may share one."""
    made = config()
    assert ProducerConfig.of(made, {}) is made


def test_a_config_and_options() -> None:
    """The options take precedence over the config's, which stays as it is."""
    made = config(linger_ms=3, client_id="shop")
    assert ProducerConfig.of(made, {"linger_ms": 1, "acks": 1}) == config(
        linger_ms=1, acks=1, client_id="shop"
    )
    assert made == config(linger_ms=3, client_id="shop")


# replace


@pytest.mark.parametrize(
    "options",
    [{}, {"linger_ms": "auto"}, TOKEN, {"compression_type": "zstd", "acks": 1, "retries": 0}],
    ids=repr,
)
def test_nothing_replaced_is_the_same(options: dict[str, Any]) -> None:
    """Every value that a config holds is taken by another one."""
    made = config(**options)
    assert made.replace() == made
    assert made.replace(client_id="x").replace(client_id=made.client_id) == made


def test_replaced_options_are_checked() -> None:
    """As those of a new config; names of other clients are taken, too."""
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        config().replace(lingr_ms=5)
    with pytest.raises(ConfigError, match="acks"):
        config(enable_idempotence=True).replace(acks=1)
    assert (
        config(acks=1).replace(ssl_cafile="ca.pem", security_protocol="SSL").ssl_truststore_location
        == "ca.pem"
    )


def test_defaults_that_gave_way_are_defaults_again() -> None:
    """A long linger moved `delivery_timeout_ms`, which comes back with a short one; a given time stays."""
    assert config(linger_ms=100_000).delivery_timeout_ms == 130_000
    assert config(linger_ms=100_000).replace(linger_ms=0).delivery_timeout_ms == 120_000
    assert (
        config(linger_ms=0, delivery_timeout_ms=99_000).replace(linger_ms=5).delivery_timeout_ms
        == 99_000
    )


def test_a_scheme_is_kept_with_the_protocol_that_it_named() -> None:
    """The protocol that `SSL://` named belongs to the config; another scheme contradicts it."""
    made = config(bootstrap_servers="SSL://kafka")
    assert made.replace(bootstrap_servers="other:1").security_protocol == "SSL"
    with pytest.raises(ConfigError, match="has the scheme PLAINTEXT"):
        made.replace(bootstrap_servers="PLAINTEXT://kafka")


def test_replaced_secrets_stay_hidden() -> None:
    """A new password is a secret at once, and an old one stays one."""
    made = config(**TOKEN).replace(sasl_password="canary")
    assert "canary" not in repr(made)
    assert made.sasl_password.reveal() == "canary"  # type: ignore[union-attr]
    assert made.replace(linger_ms=1).sasl_password == made.sasl_password


# Circuit breakers


@pytest.mark.parametrize(
    "given",
    [
        "failure_rate",
        " failure_rate ",
        "FailureRateCircuitBreaker",
        "org.apache.kafka.FailureRateCircuitBreaker",
    ],
)
def test_the_breaker_that_is_here_by_its_names(given: str) -> None:
    """KIP-693 names a class; in which package, it does not say."""
    assert config(circuit_breaker_class=given).circuit_breaker_class == "failure_rate"


@pytest.mark.parametrize(
    "given", ["", "latency", "com.example.Breaker", 1, object(), ProducerConfig]
)
def test_what_is_no_circuit_breaker(given: object) -> None:
    """A class of Java's is none here, nor is what lacks a method."""
    with pytest.raises(ConfigError, match="circuit_breaker_class"):
        config(circuit_breaker_class=given)


@pytest.mark.parametrize(
    ("given", "held"),
    [(None, None), ({}, {}), ({"a": 1}, {"a": 1}), ([("a", 1)], {"a": 1})],
    ids=str,
)
def test_options_of_a_breaker(given: Any, held: dict[str, Any] | None) -> None:
    """Options of a breaker are kept with any names and values."""
    assert config(circuit_breaker_options=given).circuit_breaker_options == held


@pytest.mark.parametrize("given", [1, "a=1", [1], {1: 2}], ids=str)
def test_what_are_no_options_of_a_breaker(given: Any) -> None:
    with pytest.raises(ConfigError, match="circuit_breaker_options"):
        config(circuit_breaker_options=given)


def test_an_option_that_does_nothing_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """KIP-693 has it for one request in flight."""
    config(circuit_breaker_enable_mute_inflight_full=True, max_in_flight_requests_per_connection=1)
    assert caplog.records == []
    config(circuit_breaker_enable_mute_inflight_full=True)
    assert "max_in_flight_requests_per_connection=1" in caplog.text


# Classes of options are frozen dataclasses, by methods that all of them share.


def test_a_copy_and_a_pickle_are_equal() -> None:
    made = ProducerConfig(linger_ms=5, client_id="a")
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made
    assert hash(copy.copy(made)) == hash(made)


class Acknowledged(ProducerConfig):
    """Refuses acks=0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.acks == 0:
            raise ConfigError("acks=0 is not allowed here")


def test_the_checks_of_a_subclass_are_made() -> None:
    assert Acknowledged(acks=1).acks == 1
    with pytest.raises(ConfigError, match="not allowed here"):
        Acknowledged(acks=0)


class Owned(ProducerConfig):
    """Adds an attribute."""

    owner: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "owner", "billing")


class Slotted(ProducerConfig):
    """Adds a slot."""

    __slots__ = ("owner",)

    owner: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "owner", "billing")


@pytest.mark.parametrize("kind", [Owned, Slotted])
def test_a_copy_has_the_attributes_that_a_subclass_adds(kind: type[Owned | Slotted]) -> None:
    """A producer copies its config if it chooses the client id."""
    made = kind(linger_ms=5)
    for copied in (
        copy.copy(made),
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
        Producer(made).config,
    ):
        assert isinstance(copied, kind)
        assert (copied.owner, copied.linger_ms) == ("billing", 5)


class Named(ProducerConfig):
    """Has a constructor of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(client_id=name)


def test_the_signature_names_each_option() -> None:
    """Editors and `help` show what a config takes."""
    shown = inspect.signature(ProducerConfig)
    fields = {field.name: field.default for field in dataclasses.fields(ProducerConfig)}
    assert {name: one.default for name, one in shown.parameters.items()} == fields
    assert {one.kind for one in shown.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    # Python 3.14 and later write a union with bars.
    forms = (
        "Union[float, datetime.timedelta, Literal['auto']]",
        "float | datetime.timedelta | Literal['auto']",
    )
    assert str(shown.parameters["linger_ms"]) in {f"linger_ms: {form} = 0" for form in forms}
    assert "acks: " in pydoc.render_doc(ProducerConfig)
    assert inspect.signature(Acknowledged) == shown
    assert str(inspect.signature(Named)) == "(name: 'str') -> 'None'"
    assert Named("a").client_id == "a"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extended(ProducerConfig):
    """A dataclass with another field."""

    extra: int = 0


def test_a_dataclass_is_derived() -> None:
    made = Extended(linger_ms="7", extra=3)  # type: ignore[arg-type]
    assert (made.linger_ms, made.extra, made.acks) == (7, 3, ProducerConfig().acks)
    assert dataclasses.replace(ProducerConfig(), linger_ms=5).linger_ms == 5


def test_a_field_of_a_pydantic_model() -> None:
    """pydantic reads the types of the options at run time."""
    model: Any = pydantic.create_model(
        "Model",
        __config__=pydantic.ConfigDict(arbitrary_types_allowed=True),
        kafka=(ProducerConfig, ...),
    )
    config = ProducerConfig(linger_ms=5)
    assert model(kafka=config).kafka is config


def test_an_unknown_option() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'linger'"):
        ProducerConfig(linger=5)  # type: ignore[call-arg]


# Tests of `aioproducer.config.producer_config`, by the `client_id` of producers.


@pytest.fixture
def first() -> Iterator[int]:
    """The number that the next producer has: other tests may have left producers that nothing has collected yet."""
    gc.collect()
    number = ClientIdNumber()
    value = number.value
    number.release()
    yield value
    gc.collect()


def number_of(producer: Producer[bytes, bytes]) -> int:
    name, _, number = producer.config.client_id.rpartition("-")
    assert name == "aioproducer"
    return int(number)


@pytest.mark.asyncio
async def test_numbers_are_given_in_turn_and_used_again(first: int) -> None:
    """The lowest free one, from construction to the end of `stop`; brokers see it, and metrics have it."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        one, two, three = (Producer[bytes, bytes](**cluster.client_options) for _ in range(3))
        assert [number_of(each) for each in (one, two, three)] == sorted(
            {number_of(each) for each in (one, two, three)}
        )
        assert number_of(one) == first
        await two.start()
        await two.send_and_wait("orders", b"v")
        assert {request.client_id for request in cluster.requests()} == {two.config.client_id}
        assert {dict(metric.tags)["client-id"] for metric in two.metrics()} == {
            two.config.client_id
        }
        await two.stop()
        await two.stop()
        four, five = (Producer[bytes, bytes](**cluster.client_options) for _ in range(2))
        assert number_of(four) == number_of(two)
        assert number_of(five) > number_of(three)
        await one.stop()
        assert number_of(Producer()) == first


def test_a_producer_that_is_gone_gives_its_number_back(first: int) -> None:
    """Without `stop`, and also where its options were bad."""
    producer: Producer[bytes, bytes] = Producer()
    assert number_of(producer) == first
    del producer
    gc.collect()
    assert number_of(Producer()) == first


def test_a_client_id_that_is_given_is_kept() -> None:
    """A client id that is given is kept, for each producer that gets it."""
    config = ProducerConfig(client_id="mine", transactional_id="bank")
    assert Producer(config).config is config
    assert Producer(config).config.client_id == "mine"


def test_producers_of_one_config_have_their_own(first: int) -> None:
    """Also of the config that another producer shows; a chosen id is none that was given."""
    config = ProducerConfig(acks=1)
    one: Producer[bytes, bytes] = Producer(config)
    two: Producer[bytes, bytes] = Producer(one.config)
    assert (one.config.client_id, two.config.client_id) == (
        f"aioproducer-{first}",
        f"aioproducer-{first + 1}",
    )
    assert config.client_id == ""
    assert two.config.acks == config.acks


def test_a_transactional_producer_has_its_name() -> None:
    """A transactional producer's client id has its name, as in Java. A name that no request's header can hold is cut."""
    assert Producer(transactional_id="bank").config.client_id == "aioproducer-bank"
    long: Producer[bytes, bytes] = Producer(transactional_id="ü" * 16_383)
    assert long.config.client_id == "aioproducer-" + "ü" * 16_377


FORKED = """
import os
from aioproducer import Producer

parents = [Producer() for _ in range(3)]
child = os.fork()
if not child:
    mine = Producer()
    del parents  # does not give back the child's number
    print(mine.config.client_id, Producer().config.client_id, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(Producer().config.client_id)
"""


def test_a_forked_child_counts_anew() -> None:
    """The parent's producers do not run in it."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["aioproducer-1 aioproducer-2", "aioproducer-4"]
