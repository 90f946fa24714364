"""Tests that options are read from environment variables, and what becomes of variables that are none."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from aioproducer import ConfigError, ProducerConfig
from aioproducer.config.option_names import environment_options
from aioproducer.config.producer_config import OPTIONS

SASL = {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "PLAIN", "KAFKA_SASL_USERNAME": "shop"}


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


def test_units_are_those_of_the_name() -> None:
    """librdkafka counts its buffer in KiB."""
    assert read({"KAFKA_QUEUE_BUFFERING_MAX_KBYTES": "1000"}).buffer_memory == 1_024_000
    assert read({"KAFKA_COMPRESSION_TYPE": "gzip", "KAFKA_COMPRESSION_LEVEL": "9"}).compression_gzip_level == 9


def test_every_option_has_a_variable() -> None:
    """No name of an option is lost on its way through the variable's name."""
    environ = {f"KAFKA_{name.upper()}": "a.b" for name in OPTIONS}
    assert environment_options("KAFKA_", OPTIONS, environ).keys() == OPTIONS.keys()


def test_names_of_other_programs_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """One line names them all, and shows no value. Without such names there is no line."""
    caplog.set_level(logging.INFO)
    assert (
        read({"KAFKA_HEAP_OPTS": "canary", "KAFKA_GROUP_ID": "canary", "KAFKA_LINGR_MS": "canary", "KAFKAESQUE": "canary"})
        == ProducerConfig()
    )
    assert [record.getMessage() for record in caplog.records] == [
        "No option of a producer, and left out: KAFKA_GROUP_ID, KAFKA_HEAP_OPTS, KAFKA_LINGR_MS"
    ]
    caplog.clear()
    assert read({"KAFKA_ACKS": "1", "AIOPRODUCER_PURE": "1", "AIOPRODUCER_REQUIRE_EXT": "0"}).acks == 1
    assert caplog.records == []


def test_an_empty_variable_is_none() -> None:
    """`docker-compose` writes one for a variable that is not set."""
    assert read({"KAFKA_LINGER_MS": "", "KAFKA_CLIENT_ID": ""}) == ProducerConfig()


@pytest.mark.parametrize("prefix", ["SHOP_KAFKA", "SHOP_KAFKA_"])
def test_a_prefix_of_ones_own(prefix: str) -> None:
    """With or without an underscore at its end."""
    assert read({"SHOP_KAFKA_ACKS": "1", "KAFKA_ACKS": "0"}, prefix).acks == 1


def test_two_names_of_one_option() -> None:
    """Which one counts could only be guessed."""
    with pytest.raises(ConfigError, match="both acks"):
        read({"KAFKA_ACKS": "1", "KAFKA_REQUEST_REQUIRED_ACKS": "0"})


def test_a_reference_to_a_secret_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read at each use, and can be pickled."""
    made = read({**SASL, "KAFKA_SASL_PASSWORD": "${env:PASSWORD_OF_TODAY}"})
    assert "${env:PASSWORD_OF_TODAY}" in repr(made)
    for password in ("monday", "tuesday"):
        monkeypatch.setenv("PASSWORD_OF_TODAY", password)
        copied: Any = pickle.loads(pickle.dumps(made))
        assert copied.sasl_password.reveal() == password
