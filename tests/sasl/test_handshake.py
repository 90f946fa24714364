"""Tests of `aioproducer.sasl.handshake`: the two requests, their versions, errors and the session's lifetime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from exchanges import VERSIONS, authenticate, plain, say

from aioproducer.errors import (
    AuthenticationFailed,
    BrokerNotTrusted,
    CredentialsRefused,
    ProtocolError,
)
from aioproducer.sasl.handshake import MAX_SESSION, handshake
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    pass


def told(**fields: Any) -> Any:
    return message("SaslAuthenticate.response", **fields)


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        (0, 0.0),
        (3000, 3.0),
        (-1, 0.0),
        (-(2**63), 0.0),
        (2**63 - 1, MAX_SESSION),
        (86_399_661, 86_399.661),
    ],
)
def test_the_lifetime_of_the_session(milliseconds: int, seconds: float) -> None:
    """Row 106: clamped to a year; a negative one is none."""
    assert authenticate(plain(), told(session_lifetime_ms=milliseconds)) == seconds


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_versions_that_the_broker_has(version: int) -> None:
    """SaslHandshake is always 1, SaslAuthenticate the newest that both have."""
    steps = handshake(
        plain(), {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, version)}
    )
    asked = say(steps, None)
    assert (asked.key, asked.version, asked.message.mechanism) == (
        ApiKey.SASL_HANDSHAKE,
        1,
        "PLAIN",
    )
    asked = say(steps, message("SaslHandshake.response"))
    assert (asked.key, asked.version) == (ApiKey.SASL_AUTHENTICATE, version)


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {17: (0, 0), 36: (0, 2)},
        {17: (0, 1)},
        {17: (2, 9), 36: (0, 2)},
        {17: (0, 1), 36: (3, 4)},
    ],
)
def test_a_broker_that_is_too_old(versions: dict[int, tuple[int, int]]) -> None:
    """Before Kafka 1.0; nothing is sent."""
    with pytest.raises(ProtocolError, match=r"Kafka 1\.0"):
        say(handshake(plain(), versions), None)
    assert say(handshake(plain(), VERSIONS), None).key is ApiKey.SASL_HANDSHAKE


def test_a_mechanism_that_is_not_enabled() -> None:
    """Row 93: the text has the broker's list."""
    answer = message(
        "SaslHandshake.response", error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-512\x1b[31m"]
    )
    with pytest.raises(
        CredentialsRefused, match=r"no SASL mechanism PLAIN; it has GSSAPI, SCRAM-SHA-512 \[31m"
    ) as caught:
        authenticate(plain(), handshake_answer=answer)
    assert (caught.value.code, caught.value.mechanism) == (33, "PLAIN")


def test_a_listener_without_sasl() -> None:
    answer = message("SaslHandshake.response", error_code=34)
    with pytest.raises(
        CredentialsRefused, match="a listener without SASL: security_protocol=PLAINTEXT or SSL"
    ) as caught:
        authenticate(plain(), handshake_answer=answer)
    assert caught.value.code == 34


def test_credentials_that_are_refused() -> None:
    """Row 92: the broker's text, 500 printable characters of it, mechanism and user; and no password."""
    words = "Authentication failed\n\x00" + "!" * 600
    with pytest.raises(CredentialsRefused) as caught:
        authenticate(plain(), told(error_code=58, error_message=words))
    text = str(caught.value)
    assert (
        "user 'alice' by PLAIN: SASL_AUTHENTICATION_FAILED (58): Authentication failed  !!!" in text
    )
    assert text.count("!") == 500 - 23
    assert text.isprintable()
    assert "canary" not in text
    assert caught.value.code == 58


def test_another_error_is_no_refusal_of_the_credentials() -> None:
    """It puts no credentials in doubt."""
    with pytest.raises(AuthenticationFailed, match=r"UNKNOWN_SERVER_ERROR \(-1\)") as caught:
        authenticate(plain(), told(error_code=-1, error_message=None))
    assert type(caught.value) is AuthenticationFailed


@pytest.mark.parametrize("answer", [b"\x01", b'{"status":"invalid_token"}', b"more"])
def test_plain_is_over_after_one_message(answer: bytes) -> None:
    with pytest.raises(BrokerNotTrusted, match="goes on"):
        authenticate(plain(), answer)


@pytest.mark.parametrize(("user", "password"), [("a\0b", "canary"), ("alice", "canary-\0")])
def test_plain_cannot_send_nul(user: str, password: str) -> None:
    with pytest.raises(CredentialsRefused, match="NUL") as caught:
        authenticate(plain(user, password))
    assert "canary" not in str(caught.value)


def test_the_steps_show_no_password() -> None:
    steps = handshake(plain(), VERSIONS)
    say(steps, None)
    asked = say(steps, message("SaslHandshake.response"))
    assert asked.message.auth_bytes == b"\0alice\0canary-alice"
    assert "canary" not in repr(asked)
