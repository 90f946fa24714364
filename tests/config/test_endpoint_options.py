"""Tests of the options of token endpoints, of their URLs, and of which of them fit each other."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from canary_plugin import is_shown

from aioproducer.config import ProducerConfig
from aioproducer.config.secret import Secret
from aioproducer.config.security_options import file_of
from aioproducer.errors import ConfigError

BEARER: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
URL = {**BEARER, "sasl_oauthbearer_token_endpoint_url": "https://id.example.test/token"}
CLIENT = {**URL, "sasl_oauthbearer_client_credentials_client_id": "orders"}
SECRET = {**CLIENT, "sasl_oauthbearer_client_credentials_client_secret": "canary-secret"}
FILE = {**BEARER, "sasl_oauthbearer_token_endpoint_url": "file:///run/token"}
PEM = "-----BEGIN PRIVATE KEY-----\ncanary-key\n-----END PRIVATE KEY-----\n"


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig(**options)


# Values


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "http://id.example.com/token",
            "is http, which would send secrets to id.example.com unencrypted",
        ),
        ("http://127.0.0.1.example.com/", "is http"),
        ("ftp://id.example.com/", "must be an https:// URL"),
        ("id.example.com/token", "must be an https:// URL"),
        ("https:///token", "must be an https:// URL"),
        ("https://id.example.com:0/", "must be an https:// URL"),
        ("https://id.example.com:port/canary-a", "is no URL"),
        ("https://[::1/canary-a", "is no URL"),
        ("https://id.example.com/to ken", "must be an https:// URL"),
        ("https://id.example.com/\r\nX-canary-a: 1", "must be an https:// URL"),
        ("https://bücher.example/", "must be an https:// URL with a host, in ASCII"),
        ("https://orders:canary-a@id.example.com/", "has a user or password, which it cannot"),
        ("file:token", "must name its file by the whole path"),
        ("file://server/share/token", "must name its file by the whole path"),
        ("file:///run/{token}", "names a file with a brace in its path"),
        ("", "is empty: leave it out"),
        (7, "must be a string, not int"),
        ("${env:URL}", "references are read in secret options"),
    ],
)
def test_urls_that_are_refused(url: Any, reason: str) -> None:
    """Without quoting one that may hold a secret."""
    with pytest.raises(
        ConfigError, match=f"sasl_oauthbearer_token_endpoint_url.*{reason}"
    ) as caught:
        config(**{**SECRET, "sasl_oauthbearer_token_endpoint_url": url})
    assert not is_shown(str(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        "https://id.example.com/token?tenant=7",
        " https://id.example.com:8443 ",
        "http://localhost:80/",
        "http://id.localhost/",
        "http://127.8.9.10/",
        "http://[::1]:8080/",
    ],
)
def test_urls_that_are_taken(url: str) -> None:
    """Without TLS only this machine's."""
    held = config(
        **{**SECRET, "sasl_oauthbearer_token_endpoint_url": url}
    ).sasl_oauthbearer_token_endpoint_url
    assert held == url.strip()
    assert file_of(held) is None


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///run/token", "/run/token"),
        ("file:/run/token", "/run/token"),
        ("FILE://localhost/run/a%20token", "/run/a token"),
        ("file:///C:/run/token", "C:/run/token"),
        (pathlib.Path("/run/a token"), "/run/a token"),
    ],
)
def test_files(url: Any, path: str) -> None:
    held = config(
        **{**BEARER, "sasl_oauthbearer_token_endpoint_url": url}
    ).sasl_oauthbearer_token_endpoint_url
    assert file_of(held or "") == path


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("sasl_oauthbearer_client_credentials_client_secret", 7, "must be a string, not int"),
        ("https_ca_pem", PEM, "has a private key, which is a secret"),
    ],
)
def test_values_that_are_refused(name: str, value: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*{reason}") as caught:
        config(**{**SECRET, name: value})
    assert not is_shown(str(caught.value))


# Options that fit


@pytest.mark.parametrize(
    "options",
    [
        SECRET,
        {
            **SECRET,
            "sasl_oauthbearer_scope": "produce",
            "sasl_oauthbearer_header_urlencode": True,
            "https_ca_location": "ca.pem",
        },
        {
            **SECRET,
            "sasl_oauthbearer_client_credentials_client_id": "a:b",
            "sasl_oauthbearer_header_urlencode": True,
        },
        FILE,
    ],
    ids=range(4),
)
def test_options_that_fit(options: dict[str, Any]) -> None:
    """Each grant, with what it needs and what it may have."""
    made = config(**options)
    assert {name for name in options if getattr(made, name) in (None, "", False)} == set()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        # without an endpoint
        (
            {**BEARER, "sasl_oauthbearer_token": "canary-t", "sasl_oauthbearer_scope": "s"},
            "sasl_oauthbearer_scope needs a token endpoint in sasl_.*_endpoint_url, which is not given",
        ),
        (
            {**BEARER, "sasl_oauthbearer_token": "canary-t", "https_ca_location": "c"},
            "https_ca_location needs a token endpoint",
        ),
        (
            {**SECRET, "sasl_oauthbearer_token": "canary-t"},
            "sasl_oauthbearer_token and sasl_.*_endpoint_url are both given: keep one",
        ),
        (
            {"https_ca_location": "ca.pem"},
            "https_ca_location needs SASL, and security_protocol is PLAINTEXT by default",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_password": "canary-a",
                "https_ca_pem": "p",
            },
            "https_ca_pem is for sasl_mechanism=OAUTHBEARER, and sasl_mechanism=PLAIN",
        ),
        # client credentials
        (
            URL,
            "_endpoint_url needs sasl_oauthbearer_client_credentials_client_id, which is not given",
        ),
        (
            CLIENT,
            "_endpoint_url needs sasl_oauthbearer_client_credentials_client_secret, which is not given",
        ),
        (
            {**SECRET, "sasl_oauthbearer_client_credentials_client_secret": ""},
            "sasl_oauthbearer_client_credentials_client_secret, which is empty",
        ),
        (
            {**SECRET, "sasl_oauthbearer_client_credentials_client_id": "a:b"},
            "client_id has a colon, .*sasl_oauthbearer_header_urlencode=True",
        ),
        # files
        (
            {**FILE, "sasl_oauthbearer_scope": "s"},
            "sasl_oauthbearer_scope needs a token endpoint in .*, and that is a file",
        ),
        # TLS
        (
            {**SECRET, "https_ca_location": "a", "https_ca_pem": "b"},
            "https_ca_location and https_ca_pem are both given: keep one",
        ),
        (
            {
                **SECRET,
                "sasl_oauthbearer_token_endpoint_url": "http://localhost/",
                "https_ca_location": "a",
            },
            "https_ca_location needs TLS, and sasl_oauthbearer_token_endpoint_url is http",
        ),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], reason: str) -> None:
    """The error names both, and shows no secret."""
    with pytest.raises(ConfigError, match=reason) as caught:
        config(**options)
    assert not is_shown(str(caught.value))


# Names of other clients


def test_javas_properties() -> None:
    """Those of an OIDC client of Kafka 4.3, and its older form, with JAAS."""
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.test/token",
    }
    named = {
        "sasl.oauthbearer.client.credentials.client.id": "orders",
        "sasl.oauthbearer.client.credentials.client.secret": "canary-secret",
        "sasl.oauthbearer.scope": "produce",
    }
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = {
        "sasl.jaas.config": f'{module} required clientId="orders" clientSecret="canary-secret" scope="produce";'
    }
    expected = config(**SECRET, sasl_oauthbearer_scope="produce")
    assert (
        ProducerConfig.from_mapping(java | named)
        == ProducerConfig.from_mapping(java | jaas)
        == expected
    )
    assert expected.sasl_oauthbearer_client_credentials_client_secret == Secret("canary-secret")


def test_librdkafkas_properties() -> None:
    """Those of `sasl.oauthbearer.method=oidc`."""
    common = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "OIDC",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.test/token",
        "https.ca.location": "ca.pem",
    }
    by_secret = {
        "sasl.oauthbearer.client.id": "orders",
        "sasl.oauthbearer.client.secret": "canary-secret",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        "sasl.oauthbearer.grant.type": "client_credentials",
    }
    assert ProducerConfig.from_mapping(common | by_secret) == config(
        **SECRET,
        https_ca_location="ca.pem",
        sasl_oauthbearer_extensions={"logicalCluster": "lkc-1"},
    )
