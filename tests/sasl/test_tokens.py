"""Tests of `aioproducer.sasl.tokens`: what a JWT says of itself, and when a token is refreshed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.sasl.handshake import Session
from aioproducer.sasl.tokens import JwtClaims, RefreshPolicy, jwt_claims

NEARLY_ONE = 1 - 2**-53


def jwt(claims: Any) -> str:
    body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return f"e30.{base64.urlsafe_b64encode(body).decode().rstrip('=')}.c2ln"


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        (jwt({"exp": 1_900_000_000, "sub": "alice"}), JwtClaims(1.9e9, "alice")),
        (jwt({"exp": 1.5}), JwtClaims(1.5)),
        (jwt({"sub": "alice"}), JwtClaims(None, "alice")),
        (jwt({"exp": "1900000000", "sub": 5}), JwtClaims()),
        (jwt({"exp": True, "sub": "a\x00b"}), JwtClaims()),
        (jwt(b'{"exp": Infinity}'), JwtClaims()),
        (jwt(b'{"exp": NaN}'), JwtClaims()),
        (jwt(b"[" * 100_000), JwtClaims()),
        (jwt([1]), JwtClaims()),
        (jwt(b"\xff"), JwtClaims()),
        ("e30.***.c2ln", JwtClaims()),
        ("e30.a.c2ln", JwtClaims()),
        ("opaque", JwtClaims()),
        ("a.b", JwtClaims()),
        ("", JwtClaims()),
    ],
)
def test_what_a_token_says_of_itself(text: str, claims: JwtClaims) -> None:
    """What is no JWT, or one that is broken, is opaque: its end and its principal are not known."""
    assert jwt_claims(text) == claims


def test_a_long_subject_is_cut() -> None:
    assert jwt_claims(jwt({"sub": "x" * 1000})).principal == "x" * 200


@given(st.text() | st.text().map(lambda text: f"a.{text}.b"))
def test_no_text_is_an_error(text: str) -> None:
    assert isinstance(jwt_claims(text), JwtClaims)


def test_a_whole_integer_beyond_a_float_is_not_known() -> None:
    assert jwt_claims(jwt(b'{"exp": 1' + b"0" * 400 + b"}")) == JwtClaims()


@pytest.mark.parametrize(
    ("life", "chance", "after"),
    [
        # Java's example: 80 to 85 % of an hour
        (3600, 0.0, 2880),
        (3600, 0.5, 2970),
        # the buffer of 5 minutes begins sooner
        (1000, 0.0, 700),
        # neither a minimum nor a buffer fits
        (359, 0.0, 287.2),
        (20, 0.0, 16),
        (20, 1.0, 17),
        (0, 0.5, 0),
    ],
)
def test_when_a_token_is_refreshed(life: float, chance: float, after: float) -> None:
    assert RefreshPolicy().refresh_after(life, chance) == pytest.approx(after)


def test_options_of_the_refresh() -> None:
    """Java's: the share, its jitter, the shortest time between two refreshes, and the time that is left at the end."""
    assert RefreshPolicy(0.5, 0.0, 0, 0).refresh_after(100, 0.9) == 50
    assert RefreshPolicy(0.5, 0.1, 0, 0).refresh_after(100, 0.5) == pytest.approx(55)
    assert RefreshPolicy(0.5, 0.0, 80, 10).refresh_after(100, 0.5) == 80
    assert RefreshPolicy(0.9, 0.0, 0, 30).refresh_after(100, 0.5) == pytest.approx(70)


@given(
    life=st.floats(1.5, 1e6),
    later=st.floats(0, 1),
    chance=st.floats(0, NEARLY_ONE),
    other=st.floats(0, NEARLY_ONE),
)
def test_a_token_is_refreshed_before_a_session_that_ends_with_it_is_renewed(
    life: float, later: float, chance: float, other: float
) -> None:
    """Sarama's PR 3646: a session that is renewed by a token that is nearly over lasts for minutes."""
    began_at = later * life
    renew_at = Session(began_at, began_at, life - began_at).renew_at(other)
    if renew_at is not None:
        assert RefreshPolicy().refresh_after(life, chance) <= renew_at + 1e-6 * life
