"""Tests of `aioproducer.config.option_kinds`, by the option `bootstrap_servers`."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from aioproducer import ConfigError, Producer


def read(given: Any) -> tuple[str, ...]:
    """The addresses that a producer would dial."""
    addresses = Producer(bootstrap_servers=given).config.bootstrap_servers
    assert isinstance(addresses, tuple)
    return addresses


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        (" a:1 , b:2,, ", ("a:1", "b:2")),
        (("b:2", "a:1", "b:2"), ("b:2", "a:1")),
        ("a:65535", ("a:65535",)),
        ("a:1,b", ("a:1", "b:9092")),
        ("PLAINTEXT://a:1", ("a:1",)),
        ("plaintext://a:1,PLAINTEXT://b:2", ("a:1", "b:2")),
        (["PLAINTEXT://a:1"], ("a:1",)),
        ("PLAINTEXT://[::1]:9092", ("[::1]:9092",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 b:2\n c:3\t", ("a:1", "b:2", "c:3")),
        ("a:1, b:2,", ("a:1", "b:2")),
        ('["a:1", "b:2"]', ("a:1", "b:2")),
        ("['a:1', 'b:2']", ("a:1", "b:2")),
        ("[a:1, b:2]", ("a:1", "b:2")),
        ("'a:1,b:2'", ("a:1", "b:2")),
        ('"PLAINTEXT://a:1"', ("a:1",)),
        ("[[::1]:1, [fe80::1%eth0]:2]", ("[::1]:1", "[fe80::1%eth0]:2")),
        (["a:1,b:2", "c:3"], ("a:1", "b:2", "c:3")),
        ("localhost", ("localhost:9092",)),
        ("[::1]", ("[::1]:9092",)),
        ("::1:9092", ("[::1]:9092",)),
        ("kafka_1.example-a:09092", ("kafka_1.example-a:9092",)),
        ("bücher.example:1", ("bücher.example:1",)),
        ("10.0.0.1:9092", ("10.0.0.1:9092",)),
    ],
    ids=repr,
)
def test_forms_that_are_read(given: Any, addresses: tuple[str, ...]) -> None:
    """Addresses are read as environment files, Terraform, docker-compose and other clients write them."""
    assert read(given) == addresses


SASL: dict[str, Any] = {
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "alice",
    "sasl_password": "canary-alice",
}


@pytest.mark.parametrize(
    ("given", "protocol", "options"),
    [
        ("SASL_SSL://a:1", "SASL_SSL", SASL),
        ("sasl_plaintext://a:1,b:2", "SASL_PLAINTEXT", SASL),
        (["SSL://a:1", "SSL://b:2"], "SSL", {}),
        ('["SSL://a:1", "b:2"]', "SSL", {"security_protocol": "ssl"}),
        ("SSL://[::1]:9092", "SSL", {}),
        ("PLAINTEXT://a:1", "PLAINTEXT", {}),
        ("a:1", "SSL", {"security_protocol": " Ssl "}),
        ("a:1", "PLAINTEXT", {}),
    ],
)
def test_a_scheme_is_the_security_protocol(
    given: Any, protocol: str, options: dict[str, Any]
) -> None:
    """A listener's name as Kafka's own tools print it; `security_protocol` need not repeat it."""
    config = Producer(bootstrap_servers=given, **options).config
    assert config.security_protocol == protocol
    assert not any("://" in address for address in config.bootstrap_servers)
    # What was read can be read again, and another address with it.
    assert dataclasses.replace(config, bootstrap_servers="c:3").security_protocol == protocol


@pytest.mark.parametrize(
    ("given", "options", "text"),
    [
        (
            "SSL://a:1",
            {"security_protocol": "PLAINTEXT"},
            "bootstrap_servers has the scheme SSL, and security_protocol=PLAINTEXT",
        ),
        (
            "PLAINTEXT://a:1",
            {"security_protocol": "ssl"},
            "bootstrap_servers has the scheme PLAINTEXT, and security_protocol=SSL",
        ),
        (
            "SASL_SSL://a:1",
            {**SASL, "security_protocol": "SASL_PLAINTEXT"},
            "scheme SASL_SSL, and security_protocol=SASL_PLAINTEXT",
        ),
        ("SSL://a:1,PLAINTEXT://b:2", {}, "bootstrap_servers has the schemes SSL and PLAINTEXT"),
        (
            "SSL://a:1",
            {"sasl_username": "alice"},
            "sasl_username needs SASL, and security_protocol is SSL",
        ),
        ("SASL_SSL://a:1", {}, "security_protocol=SASL_SSL needs sasl_mechanism"),
    ],
)
def test_a_scheme_that_contradicts(given: str, options: dict[str, Any], text: str) -> None:
    """The error names both sides: to prefer one of them might send in the clear."""
    with pytest.raises(ConfigError, match=text):
        Producer(bootstrap_servers=given, **options)


@pytest.mark.parametrize("scheme", ["kafka", "http", "EXTERNAL", "TLS", ""])
def test_another_scheme_is_refused_at_construction(scheme: str) -> None:
    """A host named like it would be looked up until `max_block_ms` is over."""
    with pytest.raises(
        ConfigError,
        match=f"has the scheme '{scheme}': it is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, or left out",
    ):
        read(f"{scheme}://pkc-1.aws.confluent.cloud:9092")


@pytest.mark.parametrize("given", ["PLAINTEXT", "a:1,ssl", ["SASL_SSL"]])
def test_a_security_protocol_is_no_host(given: Any) -> None:
    """It stands there where a variable is empty or was cut off: no host of that name is looked up."""
    with pytest.raises(
        ConfigError, match="is a security protocol, not host:port: name it by security_protocol"
    ):
        read(given)


@pytest.mark.parametrize(
    "given", ["a:1/kafka", "a:1/", "PLAINTEXT://a:1/", "//a:1", "http:/a:1", "a/b"]
)
def test_a_path_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"is not host:port: a broker's address has no path"):
        read(given)


@pytest.mark.parametrize(
    "given",
    [
        "user@a:1",
        "user:canary@a:1",
        "SASL_SSL://user:can,ary@a:1",
        ["user:canary@a:1"],
        '["canary@a:1"]',
    ],
)
def test_a_user_is_refused(given: Any) -> None:
    """A user in an address is refused, and the error does not show its password."""
    with pytest.raises(
        ConfigError, match=r"a user stands before '@a:1.*users are sasl_username and sasl_password"
    ) as caught:
        read(given)
    assert "canary" not in str(caught.value)
    assert "can," not in str(caught.value)


@pytest.mark.parametrize("given", ["", " ; , ", "[]", "[ ]", '[""]', [], [" "], ()], ids=repr)
def test_an_empty_list_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="is empty: name at least one broker as host:port"):
        read(given)


@pytest.mark.parametrize(
    "given",
    [
        "PLAINTEXT:a:1",
        "PLAINTEXT://",
        "a:1;9093",
        "a:1:2",
        "::1",
        "2001:db8::1",
        "[a]:1",
        "[::1]1",
        "[::1]:",
        "$HOST:1",
        "<host>:1",
        "a=b:1",
        "{a:1}",
    ],
)
def test_what_names_no_broker_is_refused(given: str) -> None:
    """At once: a look-up of it would be tried for `max_block_ms`."""
    with pytest.raises(ConfigError, match=r"bootstrap_servers: '.*' is not host:port"):
        read(given)


@pytest.mark.parametrize("given", ["[1]", '["a:1", 2]', [("a", 1)]], ids=repr)
def test_a_list_of_something_else_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be 'host:port,\.\.\.' or a sequence"):
        read(given)
