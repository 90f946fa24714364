"""Tests of the options of TLS and SASL: their values, their conflicts, and that nothing made of them shows a secret."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import logging
import pathlib
import pickle
import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer import Producer
from aioproducer.config.producer_config import OPTIONS, ProducerConfig, with_client_id
from aioproducer.config.secret import Secret
from aioproducer.config.security_options import SECURITY_NAMES, regions_of
from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = [*SECURITY_NAMES]
SECRETS = [name for name in NAMES if OPTIONS[name].kind.is_secret]
SASL: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "canary-alice",
}
PLAIN = SASL | {"sasl_mechanism": "PLAIN"}
BEARER: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
KERBEROS: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
TLS: dict[str, Any] = {"security_protocol": "SSL"}
KEY = "-----BEGIN PRIVATE KEY-----\ncanary-key\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
UNCHECKED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
UNCHECKED.check_hostname = False
CHECKED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(**options)


# Values


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"logicalCluster": "lkc-1"}, (("logicalCluster", "lkc-1"),)),
        (
            "logicalCluster=lkc-1, identityPoolId=pool-a=b",
            (("logicalCluster", "lkc-1"), ("identityPoolId", "pool-a=b")),
        ),
        ((("a", "b"),), (("a", "b"),)),
        (None, ()),
        ("", ()),
    ],
    ids=repr,
)
def test_sasl_extensions(given: Any, held: Any) -> None:
    assert (
        config(
            **BEARER, sasl_oauthbearer_token="canary-t", sasl_oauthbearer_extensions=given
        ).sasl_oauthbearer_extensions
        == held
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"auth": "x"}, "cannot have the name 'auth'"),
        ({"a-b": "x"}, "letters of ASCII alone"),
        ({1: "x"}, "letters of ASCII alone"),
        ({"a": ""}, "the value of the SASL extension 'a' is no string of printable ASCII"),
        ({"a": "\xe9"}, "the value of the SASL extension 'a'"),
        ({"a": 1}, "the value of the SASL extension 'a'"),
        ("a=b,a=c", "the SASL extension 'a' is given twice"),
        ("canary", "a mapping, or a text as name=value,name=value"),
        (["a=b"], "a mapping, or a text as name=value,name=value"),
    ],
    ids=repr,
)
def test_sasl_extensions_that_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=f"sasl_oauthbearer_extensions.*{text}"):
        config(**BEARER, sasl_oauthbearer_token="canary-t", sasl_oauthbearer_extensions=given)


class Provider:
    """As aiokafka's AbstractTokenProvider; its state may have a secret."""

    def __init__(self) -> None:
        self.secret = "canary-state"

    def __repr__(self) -> str:
        return self.secret

    async def token(self) -> str:
        return "canary-token"


def give() -> str:
    return "canary-token"


@pytest.mark.parametrize(
    "source",
    [give, Provider(), functools.partial(str, "canary-a"), Provider().token],
    ids=["function", "object", "partial", "method"],
)
def test_a_source_of_tokens_is_not_shown(source: Any) -> None:
    """The repr of a partial has its arguments."""
    made = config(**BEARER, sasl_oauthbearer_token=source)
    assert made.sasl_oauthbearer_token is source
    assert "canary" not in repr(made)
    assert copy.copy(made) == made == config(**BEARER, sasl_oauthbearer_token=source)


@pytest.mark.parametrize(
    "source",
    [b"canary-a", ["canary-a"], Provider, 1, object()],
    ids=["bytes", "list", "class", "int", "object"],
)
def test_what_is_no_source_of_tokens(source: Any) -> None:
    with pytest.raises(
        ConfigError,
        match=r"sasl_oauthbearer_token must be a string, a function, or an object with token\(\), not \w+",
    ) as caught:
        config(**BEARER, sasl_oauthbearer_token=source)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl_login_refresh_window_factor", 0.4),
        ("sasl_login_refresh_window_jitter", "much"),
        ("sasl_login_refresh_window_factor", True),
    ],
)
def test_shares_of_a_tokens_life_that_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value!r}: it is a number from 0"):
        config(**BEARER, sasl_oauthbearer_token="canary-t", **{name: value})


def test_scram_over_tls() -> None:
    """The usual case: the secret is hidden, the rest is what was written."""
    made = config(**SASL, ssl_truststore_location="ca.pem")
    assert (made.security_protocol, made.sasl_mechanism, made.sasl_username) == (
        "SASL_SSL",
        "SCRAM-SHA-256",
        "alice",
    )
    assert made.sasl_password == Secret("canary-alice")
    assert made.ssl_truststore_location == "ca.pem"
    assert made.ssl_endpoint_identification_algorithm == "https"
    assert made.ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert made.ssl_cipher_suites == ()
    assert made.sasl_token_auth is False
    assert dataclasses.replace(made, linger_ms=1).sasl_password == made.sasl_password


def test_kerberos() -> None:
    """Nothing is needed but the mechanism; a keytab may be a path."""
    made = config(**KERBEROS)
    assert (made.sasl_kerberos_service_name, made.sasl_kerberos_domain_name) == ("kafka", None)
    assert (made.sasl_kerberos_principal, made.sasl_kerberos_keytab) == (None, None)
    made = config(
        **KERBEROS,
        sasl_kerberos_principal="alice/a@B.TEST",
        sasl_kerberos_keytab=pathlib.Path("/etc/a.keytab"),
    )
    assert (made.sasl_kerberos_principal, made.sasl_kerberos_keytab) == (
        "alice/a@B.TEST",
        "/etc/a.keytab",
    )
    assert pickle.loads(pickle.dumps(made)) == made
    # aiokafka's and kafka-python's defaults say nothing
    assert (
        ProducerConfig.of(
            None, {"sasl_kerberos_service_name": "kafka", "sasl_kerberos_domain_name": None}
        )
        == config()
    )


@pytest.mark.parametrize("written", ["sasl_ssl", " SASL_SSL\n", "Sasl_Ssl"])
def test_words_in_any_case(written: str) -> None:
    assert config(
        **SASL | {"security_protocol": written, "sasl_mechanism": "scram-sha-256"}
    ) == config(**SASL)


@pytest.mark.parametrize(
    ("name", "given", "held"),
    [
        ("ssl_truststore_location", pathlib.Path("ca.pem"), "ca.pem"),
        ("ssl_truststore_certificates", CERTIFICATE, CERTIFICATE),
        ("ssl_keystore_location", "client.p12", "client.p12"),
        ("ssl_crl_location", "crl.pem", "crl.pem"),
        ("ssl_truststore_type", "pkcs12", "PKCS12"),
        ("ssl_truststore_type", "JKS", None),
        ("ssl_keystore_type", " Pem", "PEM"),
        ("ssl_enabled_protocols", "TLSv1.3", ("TLSv1.3",)),
        ("ssl_enabled_protocols", "tlsv1.3, TLSv1.2,", ("TLSv1.2", "TLSv1.3")),
        ("ssl_enabled_protocols", ["TLSv1.2", "TLSv1.2"], ("TLSv1.2",)),
        ("ssl_cipher_suites", "TLS_A,TLS_B", ("TLS_A", "TLS_B")),
        ("ssl_cipher_suites", "ECDHE+AESGCM:!RC4", ("ECDHE+AESGCM", "!RC4")),
        ("ssl_cipher_suites", ("TLS_A",), ("TLS_A",)),
        ("ssl_cipher_suites", None, ()),
        ("ssl_context", len, len),
        ("ssl_context", CHECKED, CHECKED),
    ],
    ids=repr,
)
def test_values_that_are_read(name: str, given: Any, held: Any) -> None:
    assert getattr(config(**TLS, **{name: given}), name) == held


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        (
            "security_protocol",
            "TLS",
            "security_protocol='TLS': it is PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL",
        ),
        ("security_protocol", None, "security_protocol=None: it is PLAINTEXT or"),
        (
            "sasl_mechanism",
            "SCRAM",
            "sasl_mechanism='SCRAM': it is PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (
            "sasl_kerberos_service_name",
            None,
            "sasl_kerberos_service_name must be a string, not NoneType",
        ),
        (
            "sasl_kerberos_service_name",
            "kafka/broker",
            "sasl_kerberos_service_name='kafka/broker': it is a name without '@', '/' and blanks",
        ),
        (
            "sasl_kerberos_domain_name",
            "a@b",
            "sasl_kerberos_domain_name='a@b': it is a name without '@'",
        ),
        ("sasl_kerberos_principal", " ", "sasl_kerberos_principal is empty"),
        ("sasl_kerberos_principal", "ali\0ce", "a character that cannot be printed"),
        (
            "sasl_kerberos_keytab",
            "${env:KEYTAB}",
            "sasl_kerberos_keytab=.*references are read in secret options and sasl_username alone",
        ),
        ("sasl_kerberos_keytab", 1, "sasl_kerberos_keytab must be a string, not int"),
        ("sasl_username", "", "sasl_username is empty: leave it out"),
        ("sasl_username", b"alice", "sasl_username must be a string, not bytes"),
        ("sasl_username", "\ud800", "sasl_username has characters that UTF-8 does not"),
        ("sasl_password", b"canary-a", "sasl_password must be a string, not bytes"),
        ("sasl_password", ["canary-a"], "sasl_password must be a string, not list"),
        ("sasl_password", "canary-\ud800", "sasl_password has characters that UTF-8 does not"),
        (
            "sasl_password",
            "canary-${env:A}",
            "sasl_password has a reference within other text: a reference is the whole value",
        ),
        ("ssl_truststore_location", "", "ssl_truststore_location is empty: leave it out"),
        ("ssl_truststore_location", 1, "ssl_truststore_location must be a string, not int"),
        (
            "ssl_truststore_location",
            "${env:CA}",
            "ssl_truststore_location=.*references are read in secret options and sasl_username alone",
        ),
        (
            "ssl_keystore_certificate_chain",
            KEY,
            "ssl_keystore_certificate_chain has a private key, .* give it as ssl_keystore_key",
        ),
        ("ssl_keystore_type", "BKS", "ssl_keystore_type='BKS': it is PEM or PKCS12"),
        (
            "ssl_enabled_protocols",
            "TLSv1.1,TLSv1.2",
            r"ssl_enabled_protocols='TLSv1.1,TLSv1.2': it is TLSv1.2 or TLSv1.3, as older .* not safe",
        ),
        ("ssl_enabled_protocols", "TLSv1", "ssl_enabled_protocols='TLSv1': it is"),
        ("ssl_enabled_protocols", "", "ssl_enabled_protocols='': it is"),
        (
            "ssl_enabled_protocols",
            1.2,
            "ssl_enabled_protocols must be a string or a sequence of strings, not float",
        ),
        (
            "ssl_endpoint_identification_algorithm",
            "ldaps",
            "ssl_endpoint_identification_algorithm='ldaps': it is 'https', or 'none'",
        ),
        (
            "ssl_endpoint_identification_algorithm",
            None,
            "ssl_endpoint_identification_algorithm=None: it is 'https', or 'none'",
        ),
        (
            "ssl_context",
            "ca.pem",
            "ssl_context must be an ssl.SSLContext, or a function that returns one, not str",
        ),
        ("ssl_context", True, "ssl_context must be an ssl.SSLContext, .* not bool"),
        (
            "ssl_context",
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            "ssl_context is a server's: make one by ssl.create_default_context",
        ),
    ],
)
def test_values_that_are_refused(name: str, given: Any, text: str) -> None:
    """The error names the option, and shows no secret."""
    options = SASL | {name: given} if name.startswith("sasl") else TLS | {name: given}
    with pytest.raises(ConfigError, match=text) as caught:
        config(**options)
    assert "canary" not in str(caught.value)


def test_a_context_is_given_by_a_plain_function() -> None:
    async def later() -> ssl.SSLContext:
        return CHECKED

    with pytest.raises(
        ConfigError, match="ssl_context must be a plain function, not a coroutine function"
    ):
        config(**TLS, ssl_context=later)


def test_names_that_are_literals() -> None:
    """Azure's user has a dollar sign; another system's reference is none of Kafka's."""
    made = config(
        **PLAIN | {"sasl_username": "$ConnectionString", "sasl_password": "canary-${unknown:x}"}
    )
    assert made.sasl_username == "$ConnectionString"
    assert isinstance(made.sasl_password, Secret)
    assert made.sasl_password.reveal() == "canary-${unknown:x}"


def test_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not read by the config, and shown; a config of references alone can be pickled."""
    monkeypatch.delenv("KAFKA_USER", raising=False)
    made = config(
        **SASL
        | {
            "sasl_username": "${env:KAFKA_USER}",
            "sasl_password": " ${file:/run/secrets/kafka:password} ",
        }
    )
    assert made.sasl_username == Secret("${env:KAFKA_USER}")
    assert "<Secret ${file:/run/secrets/kafka:password}>" in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made


# Conflicts


CONFLICTS: list[tuple[dict[str, Any], str]] = [
    # the protocol
    (
        {"security_protocol": "SASL_SSL"},
        "security_protocol=SASL_SSL needs sasl_mechanism, which has no default here",
    ),
    (
        {"security_protocol": "SASL_PLAINTEXT", "sasl_password": "canary-a"},
        "security_protocol=SASL_PLAINTEXT needs sasl_mechanism",
    ),
    (
        {"sasl_mechanism": "SCRAM-SHA-256"},
        "sasl_mechanism needs SASL, and security_protocol is PLAINTEXT by default. Give security_protocol=SASL_SSL",
    ),
    (
        {"sasl_password": "canary-a"},
        "sasl_password needs SASL, and security_protocol is PLAINTEXT by default",
    ),
    (
        {**TLS, "sasl_mechanism": "PLAIN", "sasl_username": "a"},
        "sasl_username needs SASL, and security_protocol is SSL. .*=SASL_SSL, or leave",
    ),
    (
        {"ssl_truststore_location": "ca.pem"},
        "ssl_truststore_location needs TLS, and security_protocol is PLAINTEXT by default. .*SSL or SASL_SSL",
    ),
    (
        {"security_protocol": "PLAINTEXT", "ssl_key_password": "canary-a"},
        "ssl_key_password needs TLS, and security_protocol is PLAINTEXT",
    ),
    (
        {**SASL, "security_protocol": "SASL_PLAINTEXT", "ssl_crl_location": "crl"},
        "ssl_crl_location needs TLS, and .* is SASL_PLAINTEXT. .*=SASL_SSL",
    ),
    # an own context
    (
        {**TLS, "ssl_context": CHECKED, "ssl_truststore_location": "ca.pem"},
        "ssl_context and ssl_truststore_location are both given",
    ),
    (
        {**TLS, "ssl_context": UNCHECKED, "ssl_endpoint_identification_algorithm": "https"},
        "ssl_endpoint_identification_algorithm=https, and ssl_context has check_hostname=False. Change one of them",
    ),
    (
        {**TLS, "ssl_context": CHECKED, "ssl_endpoint_identification_algorithm": ""},
        "ssl_endpoint_identification_algorithm=none, and ssl_context has check_hostname=True",
    ),
    # keys and certificates
    (
        {**TLS, "ssl_key_location": "key"},
        "ssl_key_location needs ssl_certificate_location, which is not given",
    ),
    (
        {**TLS, "ssl_certificate_location": "c"},
        "ssl_certificate_location needs ssl_key_location, .* a file that holds both is ssl_keystore_location",
    ),
    (
        {**TLS, "ssl_keystore_key": KEY},
        "ssl_keystore_key needs ssl_keystore_certificate_chain, which is not given",
    ),
    (
        {**TLS, "ssl_keystore_certificate_chain": CERTIFICATE},
        "ssl_keystore_certificate_chain needs ssl_keystore_key",
    ),
    (
        {**TLS, "ssl_key_password": "canary-a"},
        "ssl_key_password needs ssl_keystore_location or ssl_keystore_key or ssl_key_location",
    ),
    (
        {**TLS, "ssl_keystore_password": "canary-a"},
        "ssl_keystore_password needs ssl_keystore_location",
    ),
    (
        {**TLS, "ssl_truststore_password": "canary-a"},
        "ssl_truststore_password needs ssl_truststore_location",
    ),
    (
        {
            **TLS,
            "ssl_keystore_location": "k",
            "ssl_keystore_type": "PEM",
            "ssl_keystore_password": "canary-a",
        },
        "ssl_keystore_password is given, and ssl_keystore_type=PEM: the password of an encrypted key is ssl_key_password",
    ),
    (
        {
            **TLS,
            "ssl_keystore_key": KEY,
            "ssl_keystore_certificate_chain": CERTIFICATE,
            "ssl_keystore_type": "PKCS12",
        },
        "ssl_keystore_key is given, and ssl_keystore_type=PKCS12: it is PEM",
    ),
    (
        {**TLS, "ssl_truststore_location": "a", "ssl_truststore_certificates": CERTIFICATE},
        "ssl_truststore_location and ssl_truststore_certificates are both given",
    ),
    (
        {
            **TLS,
            "ssl_keystore_location": "a",
            "ssl_key_location": "b",
            "ssl_certificate_location": "c",
        },
        "ssl_keystore_location and ssl_key_location are both given",
    ),
    # SASL
    (
        {**SASL, "sasl_password": None},
        "sasl_mechanism=SCRAM-SHA-256 needs sasl_username and sasl_password: sasl_password is not given",
    ),
    (
        {**SASL, "sasl_username": None},
        "sasl_mechanism=SCRAM-SHA-256 needs sasl_username and sasl_password: sasl_username is not given",
    ),
    (
        {**SASL, "sasl_password": ""},
        "sasl_mechanism=SCRAM-SHA-256 needs sasl_password, which is empty",
    ),
    ({**PLAIN, "sasl_token_auth": True}, "sasl_token_auth needs SCRAM, and sasl_mechanism=PLAIN"),
    # tokens
    (
        BEARER,
        "sasl_mechanism=OAUTHBEARER needs sasl_oauthbearer_token or sasl_oauthbearer_token_endpoint_url, which is not given",
    ),
    (
        {**BEARER, "sasl_oauthbearer_token": ""},
        "sasl_mechanism=OAUTHBEARER needs sasl_oauthbearer_token, which is empty",
    ),
    (
        {**BEARER, "sasl_oauthbearer_token": "canary-t", "sasl_username": "alice"},
        "sasl_mechanism=OAUTHBEARER has no sasl_username. Leave",
    ),
    (
        {**SASL, "sasl_oauthbearer_token": "canary-t"},
        "sasl_oauthbearer_token is for sasl_mechanism=OAUTHBEARER, and sasl_mechanism=SCRAM",
    ),
    (
        {**BEARER, "sasl_oauthbearer_token": "canary-${env:A}"},
        "sasl_oauthbearer_token has a reference within other text",
    ),
    (
        {**SASL, "sasl_kerberos_keytab": "/a"},
        "sasl_kerberos_keytab is for sasl_mechanism=GSSAPI, and sasl_mechanism=SCRAM-SHA-256",
    ),
    # other options, with a secret beside them
    (
        {**SASL, "bootstrap_servers": "PLAINTEXT://a:1"},
        "bootstrap_servers has the scheme PLAINTEXT, and security_protocol=SASL_SSL",
    ),
]
NAMELESS: list[tuple[dict[str, Any], str]] = [
    (
        {**SASL, "sasl_pasword": "canary-b"},
        "unknown option 'sasl_pasword'; did you mean 'sasl_password'",
    ),
    ({**SASL, "password": "canary-b"}, "unknown option 'password'"),
    ({**SASL, "ssl_key": KEY}, "unknown option 'ssl_key'"),
    (
        {**SASL, "sasl_oauthbearer_client_secret": "canary-b"},
        "unknown option 'sasl_oauthbearer_client_secret'; did you mean 'sasl.oauthbearer",
    ),
    (
        {**SASL, "sasl_plain_password": "canary-b"},
        "'sasl_password' and 'sasl_plain_password' are both sasl_password: keep one",
    ),
    ({**SASL, "sasl_jaas_config": "canary-b"}, "sasl_jaas_config: it does not end with ';'"),
    (
        {**SASL, "enable_ssl_certificate_verification": "false"},
        "any broker would be believed. Give the CA's certificate as ssl_truststore_location",
    ),
    ({**SASL, "ssl_protocol": "TLSv1.1"}, "ssl_protocol='TLSv1.1': it is TLS, TLSv1.2 or TLSv1.3"),
    ({**SASL, "ssl_check_hostname": "maybe"}, "ssl_check_hostname='maybe': it is true or false"),
    (
        {**TLS, "ssl_context": CHECKED, "ssl_check_hostname": False},
        "ssl_endpoint_identification_algorithm=none, and ssl_context has check_hostname=True",
    ),
    (
        {**TLS, "ssl_context": UNCHECKED, "ssl_check_hostname": "true"},
        "ssl_endpoint_identification_algorithm=https, and ssl_context has check_hostname=False",
    ),
]


@pytest.mark.parametrize(("options", "text"), CONFLICTS)
def test_options_that_contradict_each_other(options: dict[str, Any], text: str) -> None:
    """Both are named, and no secret."""
    mapping = dict(options)
    for make in (
        lambda: ProducerConfig(**mapping),
        lambda: Producer(**mapping),
        lambda: ProducerConfig.from_mapping(mapping),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            make()
        assert "canary" not in str(caught.value)
    assert mapping == options


@pytest.mark.parametrize(("options", "text"), NAMELESS)
def test_names_that_are_no_option(options: dict[str, Any], text: str) -> None:
    """No value is shown, as that of a misspelt password is a secret, too."""
    for make in (lambda: Producer(**options), lambda: ProducerConfig.from_mapping(options)):
        with pytest.raises(ConfigError, match=text) as caught:
            make()
        assert "canary" not in str(caught.value)
    with pytest.raises(TypeError) as unexpected:
        config(**{"sasl_pasword": "canary-b"} if "sasl_jaas_config" in options else options)
    assert "canary" not in str(unexpected.value)


def test_a_config_and_options() -> None:
    """Both are given, and one is wrong."""
    with pytest.raises(ConfigError, match="did you mean 'sasl_mechanism'"):
        Producer(config(**SASL), sasl_password="canary-b", sasl_mechanismus="PLAIN")


def test_a_dict_as_other_clients_take_it() -> None:
    """confluent-kafka's `Producer({...})`: the caller's dict stays as it was."""
    given = {"bootstrap.servers": "a:1", "sasl.username": "alice", "sasl.password": "canary-b"}
    with pytest.raises(ConfigError, match=r"not dict; .*from_mapping makes one of it") as caught:
        Producer(given)  # type: ignore[call-overload]
    assert "canary" not in str(caught.value)
    assert given["sasl.password"] == "canary-b"
    with pytest.raises(ConfigError, match="not str; options are given by name") as caught:
        Producer("sasl.password=canary-b")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"sasl_mechanism": "PLAIN"},
        {**TLS, "sasl_mechanism": "PLAIN"},
        {
            "ssl_endpoint_identification_algorithm": "https",
            "ssl_enabled_protocols": "TLSv1.2,TLSv1.3",
            "ssl_truststore_type": "JKS",
        },
        {
            "sasl_token_auth": False,
            "ssl_context": None,
            "sasl_mechanism": None,
            "ssl_cipher_suites": None,
        },
    ],
    ids=str,
)
def test_defaults_are_no_contradiction(options: dict[str, Any]) -> None:
    """Other clients' defaults, which their users may write down, and ours."""
    assert config(**options).sasl_mechanism is None


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (SASL, []),
        (PLAIN, []),
        (SASL | {"security_protocol": "SASL_PLAINTEXT"}, []),
        (
            PLAIN | {"security_protocol": "SASL_PLAINTEXT"},
            ["sasl_mechanism=PLAIN with security_protocol=SASL_PLAINTEXT sends the password unenc"],
        ),
        (
            TLS | {"ssl_endpoint_identification_algorithm": ""},
            ["Host names of brokers are not checked"],
        ),
        (
            TLS | {"ssl_endpoint_identification_algorithm": "NONE"},
            ["Host names of brokers are not checked"],
        ),
        (TLS | {"ssl_context": UNCHECKED}, ["Host names of brokers are not checked"]),
        (
            BEARER | {"security_protocol": "SASL_PLAINTEXT", "sasl_oauthbearer_token": "canary-t"},
            [
                "sasl_mechanism=OAUTHBEARER with security_protocol=SASL_PLAINTEXT sends the token unenc"
            ],
        ),
        (TLS | {"ssl_context": CHECKED}, []),
        (SASL | {"sasl_password": "${env:KAFKA_PASSWORD}"}, []),
        (SASL | {"sasl_password": "$ConnectionString"}, []),
        (
            SASL | {"sasl_password": "${canary_password}"},
            ["sasl_password looks like a variable, and is the secret itself: write ${env:NAME}"],
        ),
    ],
)
def test_warnings(
    options: dict[str, Any], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One, of what is not safe and was asked for."""
    made = config(**options)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * len(warned)
    assert all(
        text in record.getMessage() for text, record in zip(warned, caplog.records, strict=True)
    )
    assert (made.ssl_endpoint_identification_algorithm == "") is (
        bool(warned) and options["security_protocol"] == "SSL"
    )
    with_client_id(made)
    assert len(caplog.records) == len(warned)
    assert "canary" not in caplog.text


# Names of config providers


FILE = "org.apache.kafka.common.config.provider.FileConfigProvider"
DIRECTORY = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
JAVA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "config.providers": "directory, secrets,env",
    "config.providers.directory.class": DIRECTORY,
    "config.providers.secrets.class": FILE,
}


def test_kafkas_own_providers() -> None:
    """Under each name that a mapping may use: in secret options, and in fields of a JAAS text."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    made = ProducerConfig.from_mapping(
        JAVA
        | {
            "sasl.jaas.config": f'{module} required username="${{env:USER}}" password="${{directory:/run/kafka:password}}";',
            "ssl.truststore.location": "store.p12",
            "ssl.truststore.password": "${secrets:/run/stores:trust}",
        }
    )
    assert (made.sasl_username, made.sasl_password) == (
        Secret("${env:USER}"),
        Secret("${dir:/run/kafka:password}"),
    )
    assert made.ssl_truststore_password == Secret("${file:/run/stores:trust}")
    by_name = ProducerConfig.from_mapping(
        JAVA
        | {"sasl.username": "${directory:/run/kafka:user}", "sasl.password": "canary-${other:x}"}
    )
    assert (by_name.sasl_username, by_name.sasl_password) == (
        Secret("${dir:/run/kafka:user}"),
        Secret("canary-${other:x}"),
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"config.providers": "vault"},
            "config.providers names 'vault', and config.providers.vault.class is not given",
        ),
        (
            {"config.providers": "vault", "config.providers.vault.class": "com.example.Vault"},
            "config.providers.vault.class: the providers here",
        ),
        (
            {"config.providers": "file", "config.providers.file.param.allowed.paths": "/run"},
            "providers have no parameters. Leave it out",
        ),
        (
            {**JAVA, "ssl.truststore.location": "${secrets:/run/a:b}"},
            "'ssl.truststore.location' has a reference: references are read in secret",
        ),
        (
            {**JAVA, "client.id": "${secrets:/run/a:b}"},
            "'client.id' has a reference: references are read in secret options",
        ),
    ],
)
def test_other_providers(options: dict[str, Any], text: str) -> None:
    """What cannot be read as Kafka reads it is an error, and not taken for the value."""
    with pytest.raises(ConfigError, match=text):
        ProducerConfig.from_mapping(options)


def test_names_of_librdkafkas() -> None:
    """In its own words; TLS is verified, which is its default."""
    made = ProducerConfig.from_mapping(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "canary-alice",
            "ssl.ca.pem": CERTIFICATE,
            "ssl.key.pem": KEY,
            "ssl.certificate.pem": CERTIFICATE,
            "ssl.key.password": "canary-key",
            "ssl.crl.location": "crl.pem",
            "ssl.endpoint.identification.algorithm": "https",
            "enable.ssl.certificate.verification": "true",
        }
    )
    assert made == config(
        **SASL | {"sasl_mechanism": "SCRAM-SHA-512"},
        ssl_truststore_certificates=CERTIFICATE,
        ssl_keystore_key=KEY,
        ssl_keystore_certificate_chain=CERTIFICATE,
        ssl_key_password="canary-key",
        ssl_crl_location="crl.pem",
    )


# Nothing shows a secret


WITH_ALL = {
    **SASL,
    "ssl_truststore_location": "trust.p12",
    "ssl_truststore_password": "canary-trust",
    "ssl_keystore_key": KEY,
    "ssl_keystore_certificate_chain": CERTIFICATE,
    "ssl_key_password": "canary-key",
}
WITH_TOKEN = {**BEARER, "sasl_oauthbearer_token": "canary-token"}
WITH_ENDPOINT = {
    **BEARER,
    "sasl_oauthbearer_token_endpoint_url": "https://id.example.test/token",
    "sasl_oauthbearer_client_credentials_client_id": "orders",
}
WITH_SECRET = {
    **WITH_ENDPOINT,
    "sasl_oauthbearer_client_credentials_client_secret": "canary-secret",
}
WITH_STORE = {**SASL, "ssl_keystore_location": "key.p12", "ssl_keystore_password": "canary-store"}


def test_all_secret_options_are_walked() -> None:
    assert {
        name for name in (*WITH_ALL, *WITH_STORE, *WITH_TOKEN, *WITH_SECRET) if name in SECRETS
    } == set(SECRETS)


@pytest.mark.parametrize(
    "options",
    [WITH_ALL, WITH_STORE, WITH_TOKEN, WITH_SECRET],
    ids=["inline", "store", "token", "secret"],
)
@pytest.mark.parametrize("make", [ProducerConfig, Producer])
def test_what_is_made_of_secrets_shows_none(
    make: Callable[..., Any], options: dict[str, Any]
) -> None:
    """Neither config nor producer, by any way in which a program writes down an object."""
    thing = make(**options)
    held = thing if isinstance(thing, ProducerConfig) else thing.config
    shown = [
        repr(thing),
        str(thing),
        f"{thing}",
        repr(held),
        repr(dataclasses.asdict(held)),
        repr(dataclasses.astuple(held)),
    ]
    shown += [
        json.dumps(dataclasses.asdict(held), default=repr),
        repr(copy.copy(held)),
        repr(copy.deepcopy(held)),
        repr(held.__getstate__()),
    ]
    shown += [
        repr({name: getattr(held, name) for name in dir(held)}),
        repr(getattr(thing, "__dict__", "")),
        repr({held: 1}),
    ]
    shown += [
        str(getattr(thing, name)()) for name in ("explain", "health") if isinstance(thing, Producer)
    ]
    assert [text for text in shown if "canary" in text] == []
    assert shown[3].count("<Secret hidden>") == len(
        [name for name in options if name in SECRETS and name != "sasl_oauthbearer_token"]
    )
    assert copy.deepcopy(held) == held
    with pytest.raises(TypeError, match="a secret that was given as text is not pickled"):
        pickle.dumps(held)


def test_a_config_holds_secrets() -> None:
    """The constructor takes text; what a config holds is a `Secret`."""
    made = config(**WITH_ALL)
    assert {type(getattr(made, name)) for name in SECRETS if getattr(made, name) is not None} == {
        Secret
    }


# The options of Amazon MSK's IAM: the region of names, what contradicts each other, and the extra that is missing.


IAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
BROKER = "b-1.demo.a1b2c3.c2.kafka.eu-central-1.amazonaws.com:9098"


@pytest.mark.parametrize(
    ("address", "region"),
    [
        (BROKER, "eu-central-1"),
        (BROKER.upper(), "eu-central-1"),
        ("b-1-public.demo.a1b2c3.c2.kafka.us-east-1.amazonaws.com:9198", "us-east-1"),
        ("boot-a1b2c3.c1.kafka-serverless.ap-southeast-2.amazonaws.com:9098", "ap-southeast-2"),
        ("b-1.iam.demo.a1b2c3.c2.kafka.us-gov-west-1.amazonaws.com:14001", "us-gov-west-1"),
        ("b-2.demo.a1b2c3.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("b-2.demo.a1b2c3.c2.kafka.cn-north-1.amazonaws.com.:9098", "cn-north-1"),
        ("kafka.example.com:9098", None),
        ("b-1.kafka.eu-central-1.amazonaws.com.example.org:9098", None),
        ("kafka-eu-central-1.amazonaws.com:9098", None),
        ("10.0.0.1:9098", None),
    ],
)
def test_the_region_of_a_name(address: str, region: str | None) -> None:
    assert regions_of([address, address]) == ([] if region is None else [region])


def test_options_that_fit() -> None:
    config = ProducerConfig(
        bootstrap_servers=BROKER,
        **IAM,
        sasl_aws_profile_name="orders",
        sasl_login_refresh_window_factor=0.6,
    )
    assert config.sasl_mechanism == "AWS_MSK_IAM"
    assert (
        ProducerConfig(
            bootstrap_servers="kafka.example.com:9098", **IAM, sasl_aws_region="eu-west-1"
        ).sasl_aws_region
        == "eu-west-1"
    )


ROLE = "arn:aws:iam::123456789012:role/orders"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"bootstrap_servers": "kafka.example.com:9098"},
            r"needs sasl_aws_region: no name in bootstrap_servers=kafka.example.com:9098",
        ),
        (
            {"bootstrap_servers": f"{BROKER},{BROKER.replace('eu-central', 'eu-west')}"},
            "brokers in eu-central-1 and eu-west-1",
        ),
        ({"security_protocol": "SASL_PLAINTEXT"}, "needs security_protocol=SASL_SSL"),
        (
            {"sasl_oauthbearer_token": "canary-token"},
            "sasl_oauthbearer_token is for sasl_mechanism=OAUTHBEARER",
        ),
        (
            {"sasl_aws_profile_name": "p", "sasl_aws_role_arn": ROLE},
            "sasl_aws_profile_name and sasl_aws_role_arn are both given",
        ),
        ({"sasl_aws_role_session_name": "orders"}, "needs sasl_aws_role_arn"),
        (
            {"sasl_aws_role_arn": "orders"},
            r"sasl_aws_role_arn='orders': it is a role as arn:aws:iam",
        ),
        ({"sasl_aws_region": "Frankfurt"}, r"sasl_aws_region='Frankfurt': it is a region of AWS"),
        (
            {"sasl_aws_role_arn": ROLE, "sasl_aws_role_session_name": "o/1"},
            "sasl_aws_role_session_name='o/1': it is 2 to 64 letters",
        ),
        ({"sasl_aws_region": 1}, "sasl_aws_region must be a string, not int"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_aws_region": "eu-west-1"},
            "sasl_aws_region is for sasl_mechanism=AWS_MSK_IAM, and sasl_mech",
        ),
    ],
)
def test_options_that_contradict(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        ProducerConfig(**{"bootstrap_servers": BROKER, **IAM, **options})
    assert "canary-" not in str(refused.value)


MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ("", {}),
        ('awsProfileName="orders"', {"sasl_aws_profile_name": "orders"}),
        (
            f'awsRoleArn="{ROLE}" awsRoleSessionName="orders-1" awsStsRegion="eu-west-1"',
            {"sasl_aws_role_arn": ROLE, "sasl_aws_role_session_name": "orders-1"},
        ),
        ('awsDebugCreds=true awsMaxRetries="7" awsMaxBackOffTimeMs="500"', {}),
    ],
)
def test_properties_of_java(options: str, fields: dict[str, str]) -> None:
    """Those of Amazon's documentation, with its login module and its callback handler."""
    config = ProducerConfig.from_mapping(
        {
            "bootstrap.servers": BROKER,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"{MODULE} {options};",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        }
    )
    assert config == ProducerConfig(bootstrap_servers=BROKER, **IAM, **fields)


@pytest.mark.parametrize("package", ["", "shadedmskiam."])
@pytest.mark.parametrize("kind", ["login", "client"])
def test_amazons_tokens_by_their_callback_handler(kind: str, package: str) -> None:
    """Amazon documents OAUTHBEARER for clients without its mechanism: the handler alone says that tokens are IAM's."""
    bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    handler = f"{package}software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    mapping = {
        "bootstrap.servers": BROKER,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{bearer} required awsProfileName="orders" awsStsRegion="eu-west-1";',
    }
    config = ProducerConfig.from_mapping(
        {**mapping, f"sasl.{kind}.callback.handler.class": handler}
    )
    assert config == ProducerConfig(bootstrap_servers=BROKER, **IAM, sasl_aws_profile_name="orders")
    with pytest.raises(ConfigError, match="sasl_aws_profile_name is for sasl_mechanism=AWS_MSK"):
        ProducerConfig.from_mapping(mapping)


def test_the_module_of_another_mechanism() -> None:
    with pytest.raises(
        ConfigError, match="IAMLoginModule, and sasl_mechanism=PLAIN: the module is for AWS_MSK_IAM"
    ):
        ProducerConfig.from_mapping({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{MODULE};"})


@pytest.mark.asyncio
async def test_without_the_extra_one_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start fails before a connection is made."""
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'aioproducer\[msk\]'"):
        async with Producer(bootstrap_servers=BROKER, **IAM):
            pass
