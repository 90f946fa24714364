"""Tests of `aioproducer.testing.security.oauthbearer`: the example of RFC 7628, which tokens are taken, and malformed messages."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from aioproducer.testing import ListenerSecurity, ListenerTokens, unsecured_token
from aioproducer.testing.security.mechanisms import Refusal
from aioproducer.testing.security.oauthbearer import OAuthBearerServer

NOW = 1_900_000_000.0
INVALID = b'{"status":"invalid_token"}'


def server(**tokens: Any) -> OAuthBearerServer:
    return OAuthBearerServer(ListenerTokens(**tokens), now=100.0, wall_now=NOW)


def message(token: str, *pairs: str, header: str = "n,,") -> bytes:
    return "\x01".join((header, f"auth=Bearer {token}", *pairs, "", "")).encode()


def test_the_example_of_rfc_7628() -> None:
    """Section 4.1, with the hosts of its example as extensions, which Kafka ignores unless they are asked for; and section 4.3."""
    bearer = server(
        unsecured=False, opaque={"vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==": "user@example.com"}
    )
    first = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert bearer.respond(first) == b""
    assert (bearer.principal, bearer.ends) == ("user@example.com", None)
    refusing = server(unsecured=False)
    assert refusing.respond(first) == INVALID
    with pytest.raises(Refusal, match="invalid_token"):
        refusing.respond(b"\x01")
    assert refusing.principal is None


def test_an_unsecured_token_ends_the_session() -> None:
    """In the loop's time."""
    bearer = server()
    assert bearer.respond(message(unsecured_token("alice", 20, now=NOW))) == b""
    assert (bearer.claimed, bearer.principal, bearer.ends) == ("alice", "alice", 120.0)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW},
        {"exp": None},
        {"exp": "soon"},
        {"sub": None},
        {"sub": 5},
        {"nbf": NOW + 5},
        {"iat": NOW + 5},
        {"aud": None},
        {"aud": ["elsewhere"]},
    ],
    ids=repr,
)
def test_claims_that_are_refused(claims: dict[str, Any]) -> None:
    token = unsecured_token("alice", 20, now=NOW, **{"aud": ["kafka"], **claims})
    assert server(audience="kafka").respond(message(token)) == INVALID


def test_scopes() -> None:
    """A text with blanks between, or a list, as Kafka takes both."""
    for scope in ("produce read", ["read", "produce"]):
        assert (
            server(scope=("produce",)).respond(
                message(unsecured_token("alice", now=NOW, scope=scope))
            )
            == b""
        )
    told = server(scope=("produce",)).respond(
        message(unsecured_token("alice", now=NOW, scope="read"))
    )
    assert json.loads(told) == {"status": "insufficient_scope", "scope": "produce"}


def test_a_function_verifies_other_tokens() -> None:
    signed = unsecured_token("alice", 20, now=NOW) + "c2ln"
    claims = {"sub": "bob", "exp": NOW + 5}
    bearer = server(verify=lambda token: claims if token == signed else None)
    assert bearer.respond(message(signed)) == b""
    assert (bearer.principal, bearer.ends) == ("bob", 105.0)
    assert server(verify=lambda _: None).respond(message(signed)) == INVALID
    assert server().respond(message(signed)) == INVALID
    assert (
        server(unsecured=False).respond(message(unsecured_token("alice", 20, now=NOW))) == INVALID
    )


def test_a_header_that_names_an_algorithm_is_no_unsecured_token() -> None:
    header = base64.urlsafe_b64encode(b'{"alg":"HS256"}').decode().rstrip("=")
    token = ".".join((header, *unsecured_token("alice", now=NOW).split(".")[1:]))
    assert server().respond(message(token)) == INVALID
    assert server().respond(message("a.b.")) == INVALID


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"n,,\x01auth=Bearer a\x01a-b=c\x01\x01",
        b"n,,\x01auth=Bearer a\x01a=\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01a=b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer a\x01\x01",
    ],
)
def test_messages_that_are_malformed(first: bytes) -> None:
    """They are refused at once, without JSON, and without a word why."""
    with pytest.raises(Refusal) as refused:
        server().respond(first)
    assert refused.value.text is None


def test_names_that_differ() -> None:
    """An authorization id is the token's principal; extensions are as the listener wants them."""
    token = unsecured_token("alice", now=NOW)
    with pytest.raises(
        Refusal,
        match=r"authorization id \(bo=b\) that is different from the token's principal name \(alice\)",
    ):
        server().respond(message(token, header="n,a=bo=3Db,"))
    for pairs in ((), ("logicalCluster=lkc-2",)):
        with pytest.raises(Refusal, match="1 extensions are invalid! They are: logicalCluster"):
            server(extensions={"logicalCluster": "lkc-1"}).respond(message(token, *pairs))
    assert (
        server(extensions={"logicalCluster": "lkc-1"}).respond(
            message(token, "logicalCluster=lkc-1", "more=x")
        )
        == b""
    )


def test_a_client_that_does_not_take_the_error() -> None:
    bearer = server()
    bearer.respond(message("opaque"))
    with pytest.raises(Refusal) as refused:
        bearer.respond(b"more")
    assert refused.value.text is None


def test_tokens_enable_the_mechanism() -> None:
    assert ListenerSecurity("SASL_SSL").mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert ListenerSecurity("SASL_SSL", tokens=ListenerTokens()).mechanisms[-1] == "OAUTHBEARER"
    assert ListenerSecurity(
        "SASL_SSL", mechanisms=("OAUTHBEARER",), tokens=ListenerTokens()
    ).mechanisms == ("OAUTHBEARER",)
    assert "canary" not in repr(ListenerTokens(opaque={"canary-token": "alice"}))
