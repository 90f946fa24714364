"""Tests of `aioproducer.net.client_assertion`, and of the grants of `oidc` that carry assertions; `TokenServer` verifies them."""

from __future__ import annotations

import base64
import json
import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from canary_plugin import is_shown
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from aioproducer.config.secret import Secret
from aioproducer.errors import ConfigError, TokenUnavailable
from aioproducer.net import client_assertion
from aioproducer.net.client_assertion import AssertionClaims, AssertionFile, SignedAssertion
from aioproducer.net.oidc import AssertedClient, JwtBearer, OidcSource
from aioproducer.net.token_endpoint import EndpointTrust, TokenEndpoint
from aioproducer.testing import TokenServer

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

KEYS: dict[str, Any] = {"RS256": rsa.generate_private_key(65537, 2048), "ES256": ec.generate_private_key(ec.SECP256R1())}
CLAIMS = AssertionClaims({"iss": "orders", "sub": "orders", "aud": "https://id.example.test"})
PASSPHRASE = "canary-passphrase"


def pem(key: Any, passphrase: str | None = None) -> bytes:
    encryption = serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def public(algorithm: str) -> bytes:
    key = KEYS[algorithm].public_key()
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module", params=KEYS)
def endpoint(request: pytest.FixtureRequest) -> Iterator[TokenServer]:
    with TokenServer(assertion_key=public(request.param)) as running:
        running.algorithm = request.param  # type: ignore[attr-defined]
        yield running


def decoded(assertion: Secret) -> tuple[dict[str, Any], dict[str, Any]]:
    header, payload, _ = assertion.reveal().split(".")
    return json.loads(base64.urlsafe_b64decode(header + "==")), json.loads(base64.urlsafe_b64decode(payload + "=="))


def source(endpoint: TokenServer, grant: Any, **more: Any) -> OidcSource:
    return OidcSource(TokenEndpoint(endpoint.url, EndpointTrust()), grant, **more)


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_signed_assertion_is_the_clients_identity(endpoint: TokenServer, tmp_path: pathlib.Path, *, is_encrypted: bool) -> None:
    """Client credentials (KIP-1258), with a key of either algorithm, in a file, encrypted or not."""
    algorithm = endpoint.algorithm  # type: ignore[attr-defined]
    path = tmp_path / "client.pem"
    path.write_bytes(pem(KEYS[algorithm], PASSPHRASE if is_encrypted else None))
    passphrase = Secret(PASSPHRASE) if is_encrypted else None
    assertion = SignedAssertion(str(path), None, passphrase, algorithm=algorithm, claims=CLAIMS)
    token = source(endpoint, AssertedClient("orders-client", assertion), scope="produce").fetch()
    assert token.principal == "orders-client"
    asked = endpoint.requests[-1]
    assert (asked.grant, asked.scope, asked.authentication) == ("client_credentials", "produce", "assertion")
    assert asked.assertion["aud"] == "https://id.example.test"


def test_an_assertion_is_the_grant(endpoint: TokenServer) -> None:
    """JWT bearer (KIP-1139), with a key as text: the principal is that of the assertion."""
    algorithm = endpoint.algorithm  # type: ignore[attr-defined]
    key = Secret(pem(KEYS[algorithm]).decode())
    assertion = SignedAssertion(None, key, algorithm=algorithm, claims=AssertionClaims({"sub": "alice"}))
    assert source(endpoint, JwtBearer(assertion)).fetch().principal == "alice"
    assert endpoint.requests[-1].grant == "urn:ietf:params:oauth:grant-type:jwt-bearer"


def test_a_ready_assertion_is_read_anew(endpoint: TokenServer, tmp_path: pathlib.Path) -> None:
    """Another program renews the file; an assertion that has expired is refused by the server, and is not quoted."""
    algorithm = endpoint.algorithm  # type: ignore[attr-defined]
    key = Secret(pem(KEYS[algorithm]).decode())
    path = tmp_path / "assertion.jwt"
    asked = source(endpoint, AssertedClient("", AssertionFile(str(path))))
    old = SignedAssertion(None, key, algorithm=algorithm, claims=CLAIMS, clock=lambda: time.time() - 1000).make()
    path.write_text(old.reveal())
    with pytest.raises(TokenUnavailable, match="answers 401: invalid_client") as caught:
        asked.fetch()
    assert old.reveal() not in str(caught.value)
    path.write_text(SignedAssertion(None, key, algorithm=algorithm, claims=CLAIMS).make().reveal() + "\n")
    assert asked.fetch().principal == "orders"


def test_the_claims() -> None:
    """Those of the options, and those of the moment; `jti` on demand, another one each time."""
    key = Secret(pem(KEYS["ES256"]).decode())
    plain = SignedAssertion(None, key, algorithm="ES256", claims=CLAIMS, clock=lambda: 1000.9)
    header, payload = decoded(plain.make())
    assert header == {"alg": "ES256", "typ": "JWT"}
    assert payload == {"iss": "orders", "sub": "orders", "aud": "https://id.example.test", "iat": 1000, "exp": 1300, "nbf": 940}
    numbered = SignedAssertion(None, key, algorithm="ES256", claims=AssertionClaims({}, 30, 0, jti_include=True), clock=lambda: 1000.0)
    first, second = (decoded(numbered.make())[1] for _ in range(2))
    assert (first["iat"], first["exp"], first["nbf"]) == (1000, 1030, 1000)
    assert len(first["jti"]) == len(second["jti"]) == 32
    assert first["jti"] != second["jti"]


def test_a_template(tmp_path: pathlib.Path) -> None:
    """Its claims take precedence over the options', and those of the moment over its own, as in Java. It is read at each use."""
    path = tmp_path / "template.json"
    key = Secret(pem(KEYS["ES256"]).decode())
    signed = SignedAssertion(None, key, algorithm="ES256", claims=CLAIMS, template_file=str(path), clock=lambda: 1000.0)
    path.write_text('{"header": {"kid": "k1", "alg": "none"}, "payload": {"aud": ["a", "b"], "exp": 1, "tenant": 7}}')
    header, payload = decoded(signed.make())
    assert header == {"kid": "k1", "alg": "ES256", "typ": "JWT"}
    assert (payload["aud"], payload["iss"], payload["exp"], payload["tenant"]) == (["a", "b"], "orders", 1300, 7)
    path.write_text('{"payload": {"aud": "c"}}')
    assert decoded(signed.make())[1]["aud"] == "c"


def refusals(folder: pathlib.Path) -> list[tuple[dict[str, Any], str]]:
    """Return what cannot sign, and the words for it."""
    (folder / "rsa.pem").write_bytes(pem(KEYS["RS256"]))
    (folder / "p256.pem").write_bytes(pem(KEYS["ES256"]))
    (folder / "p384.pem").write_bytes(pem(ec.generate_private_key(ec.SECP384R1())))
    (folder / "locked.pem").write_bytes(pem(KEYS["RS256"], PASSPHRASE))
    (folder / "no.pem").write_text("canary-no-key")
    (folder / "binary.pem").write_bytes(b"\xff\xfecanary-binary")
    (folder / "large.pem").write_text("x" * 1_048_577)
    (folder / "list.json").write_text('["canary-a"]')
    (folder / "more.json").write_text('{"payload": {}, "canary-more": 1}')
    (folder / "part.json").write_text('{"payload": "canary-part"}')
    file = "sasl_oauthbearer_assertion_private_key_file="
    template = f"sasl_oauthbearer_assertion_template_file={folder}"
    return [
        ({"key_file": "gone.pem"}, f"{file}{folder}/gone.pem cannot be read: No such file or directory"),
        ({"key_file": "no.pem"}, f"{file}{folder}/no.pem is no private key in PEM"),
        ({"key_file": "binary.pem"}, f"{file}{folder}/binary.pem is no UTF-8 text"),
        ({"key_file": "large.pem"}, f"{file}{folder}/large.pem is larger than 1 MiB"),
        (
            {"key_file": "locked.pem"},
            f"{file}{folder}/locked.pem is encrypted, and there is no sasl_oauthbearer_assertion_private_key_passphrase",
        ),
        (
            {"key_file": "locked.pem", "passphrase": Secret("canary-wrong")},
            f"{file}{folder}/locked.pem is no private key in PEM, or sasl_oauthbearer_assertion_private_key_passphrase is not its passphrase",
        ),
        ({"key_file": "rsa.pem", "passphrase": Secret("canary-needless")}, f"{file}{folder}/rsa.pem is not encrypted"),
        (
            {"key_file": "p256.pem"},
            f"sasl_oauthbearer_assertion_algorithm=RS256 needs a key of type RSA, and that of {file}{folder}/p256.pem is another",
        ),
        (
            {"key_file": "p384.pem", "algorithm": "ES256"},
            f"sasl_oauthbearer_assertion_algorithm=ES256 needs a key on the curve P-256, and that of {file}{folder}/p384.pem is another",
        ),
        ({"key_pem": Secret("canary-no-key")}, "sasl_oauthbearer_assertion_private_key_pem is no private key in PEM"),
        ({"key_pem": Secret("${env:NO_SUCH_THING}")}, "${env:NO_SUCH_THING}: there is no environment variable NO_SUCH_THING"),
        ({"template_file": "no.pem"}, f"{template}/no.pem is no JSON object of `header` and `payload`"),
        ({"template_file": "list.json"}, f"{template}/list.json is no JSON object of `header` and `payload`"),
        ({"template_file": "more.json"}, f"{template}/more.json is no JSON object of `header` and `payload`"),
        ({"template_file": "part.json"}, f"{template}/part.json: `payload` is no JSON object"),
    ]


def test_what_cannot_sign(tmp_path: pathlib.Path) -> None:
    """The option and the file are named, and no key or passphrase is in the text, or in a frame."""
    for options, reason in refusals(tmp_path):
        options = {"key_file": None if "key_pem" in options else "rsa.pem"} | options
        files = {name: str(tmp_path / options[name]) for name in ("key_file", "template_file") if options.get(name)}
        with pytest.raises(ConfigError) as caught:
            SignedAssertion(**{**options, **files}, claims=CLAIMS).make()
        assert str(caught.value) == reason
        assert caught.value.__cause__ is None
        shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        assert not any(is_shown(str(frame.locals)) for frame in shown.stack if "/aioproducer/" in frame.filename), reason


def test_a_ready_assertion_that_is_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "assertion.jwt"
    with pytest.raises(ConfigError, match=r"sasl_oauthbearer_assertion_file=.*assertion\.jwt cannot be read: No such file"):
        AssertionFile(str(path)).make()
    path.write_text("${env:HOME}")
    with pytest.raises(ConfigError, match="has a reference, which is read in options alone"):
        AssertionFile(str(path)).make()
    path.write_text(" \n")
    with pytest.raises(ConfigError, match=r"sasl_oauthbearer_assertion_file=.*assertion\.jwt is empty"):
        AssertionFile(str(path)).make()


def test_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    """One error, at construction, that names the extra."""
    monkeypatch.setattr(client_assertion, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'aioproducer\[crypto\]'"):
        SignedAssertion("client.pem", claims=CLAIMS)
