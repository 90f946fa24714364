"""Tests of `aioproducer.sasl.oauthbearer`: the messages of RFC 7628 as Kafka has them, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.config.secret import Secret
from aioproducer.errors import CredentialsRefused, TokenUnavailable
from aioproducer.sasl.handshake import handshake
from aioproducer.sasl.mechanism import AskBroker, TokenStep
from aioproducer.sasl.oauthbearer import OAuthBearer
from aioproducer.sasl.tokens import Token
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Generator

VERSIONS = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}
CHALLENGE = b'{"status":"invalid_token"}'


def token(text: str = "canary-token", *extensions: tuple[str, str], user: str = "alice") -> Token:
    return Token(Secret(text), None, user, extensions)


def first(given: Token, *extensions: tuple[str, str]) -> bytes:
    exchange = OAuthBearer(extensions).exchange()
    assert exchange.send(None) == TokenStep()
    sent = exchange.send(given)
    assert isinstance(sent, bytes)
    return sent


def test_the_message_of_a_token() -> None:
    """RFC 7628 section 3.1, with an empty GS2 header, as Kafka wants it."""
    assert first(token()) == b"n,,\x01auth=Bearer canary-token\x01\x01"


def test_extensions_follow_the_token() -> None:
    """KIP-342; those that came with the token take precedence."""
    sent = first(token("canary-token", ("b", "of the token")), ("a", "1"), ("b", "of the option"))
    assert sent == b"n,,\x01auth=Bearer canary-token\x01a=1\x01b=of the token\x01\x01"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (token(""), "the token is empty"),
        (token("canary-a\n"), "the token has a blank or a line break"),
        (token("canary-a b"), "the token has a blank or a line break"),
        (token("canary-\xe9"), "the token has characters that are not ASCII"),
        (token("canary-\x01x=y"), "the token has characters that no bearer token has"),
        (token("canary-a=b"), "the token has characters that no bearer token has"),
        (
            token("canary-" + "x" * 523_300),
            "the token and its extensions have 5233[0-9]{2} bytes; brokers take at most 523264",
        ),
        (token("canary-a", ("auth", "b")), "cannot have the name 'auth'"),
        (
            token("canary-a", ("a", "b\x01")),
            "the value of the SASL extension 'a' is no string of printable ASCII",
        ),
    ],
    ids=[
        "empty",
        "newline",
        "blank",
        "not ASCII",
        "control character",
        "equals sign",
        "too large",
        "auth",
        "extension",
    ],
)
def test_fault_100_a_token_that_cannot_be_sent(given: Token, text: str) -> None:
    """It is refused before anything is sent, and the error does not quote it."""
    steps = handshake(OAuthBearer(), VERSIONS)
    assert steps.send(None) == TokenStep()
    with pytest.raises(TokenUnavailable, match=text) as caught:
        steps.send(given)
    assert (caught.value.stage, caught.value.mechanism) == ("token", "OAUTHBEARER")
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(caught.value)


def test_a_token_may_have_511_kib() -> None:
    assert len(first(token("x" * (511 * 1024 - 18)))) == 511 * 1024


def exchanged(answers: list[Any], given: Token) -> Generator[Any, None, None]:
    """Play a broker that gives these answers; yield what it was asked."""
    steps = handshake(OAuthBearer(), VERSIONS)
    steps.send(None)
    step = steps.send(given)
    for answer in answers:
        assert isinstance(step, AskBroker)
        yield step
        step = steps.send(answer)


HELLO = message("SaslHandshake.response", error_code=0, mechanisms=["OAUTHBEARER"])


def test_fault_115_the_error_challenge_is_answered_and_the_text_of_58_is_the_errors() -> None:
    """The client answers JSON by one byte. The text names the user, and has advice for what is wrong with most tokens."""
    challenged = message("SaslAuthenticate.response", auth_bytes=CHALLENGE)
    refused = message("SaslAuthenticate.response", error_code=58, error_message=CHALLENGE.decode())
    asked: list[AskBroker] = []
    with pytest.raises(CredentialsRefused) as caught:
        asked.extend(exchanged([HELLO, challenged, refused], token()))
    text = str(caught.value)
    assert text.startswith(
        "the broker refuses user 'alice' by OAUTHBEARER: SASL_AUTHENTICATION_FAILED"
    )
    assert CHALLENGE.decode() in text
    assert text.endswith(
        "Is the clock right, and are issuer and audience of the token those of the broker?"
    )
    assert (caught.value.stage, caught.value.mechanism, caught.value.code) == (
        "sasl",
        "OAUTHBEARER",
        58,
    )


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (CHALLENGE, "invalid_token"),
        (
            json.dumps({"status": "insufficient_scope\n", "scope": "x"}).encode(),
            "insufficient_scope$",
        ),
        (b"not JSON", "it does not say why"),
        (b"[" * 100_000, "it does not say why"),
        (b"\xff", "it does not say why"),
        (b"[]", "it does not say why"),
        (b'{"status": 1}', "it does not say why"),
    ],
    ids=["invalid", "scope", "text", "deep", "no UTF-8", "list", "number"],
)
def test_fault_115_an_error_challenge_is_never_success(told: bytes, why: str) -> None:
    """A broker that goes on without an error all the same: the client does not take it for success."""
    steps = handshake(OAuthBearer(), VERSIONS)
    steps.send(None)
    steps.send(token())
    steps.send(HELLO)
    step = steps.send(message("SaslAuthenticate.response", auth_bytes=told))
    assert isinstance(step, AskBroker)
    assert step.message.auth_bytes == b"\x01"
    with pytest.raises(
        CredentialsRefused, match=f"the broker refuses the token of user 'alice': {why}"
    ):
        steps.send(message("SaslAuthenticate.response"))


def test_the_user_of_an_opaque_token_is_not_known() -> None:
    mechanism = OAuthBearer()
    exchange = mechanism.exchange()
    exchange.send(None)
    exchange.send(token(user=""))
    assert mechanism.user == "(opaque token)"
