"""Tests of `aioproducer.sasl.handshake`."""

from __future__ import annotations

import pytest

from aioproducer.sasl.handshake import Session


@pytest.mark.parametrize(
    ("seconds", "chance", "due"),
    [
        (0.0, 0.5, None),
        (0.5, 0.5, None),
        (1.19, 0.5, None),
        (1.2, 0.0, 1001.35),
        (3.0, 0.0, 1002.55),
        (3.0, 0.5, 1002.7),
        (3600.0, 1.0, 4420.0),
    ],
)
def test_when_a_session_is_renewed(seconds: float, chance: float, due: float | None) -> None:
    """At 85 to 95 %, and not within a second after the last authentication, which took 0.3 s here."""
    at = Session(1000.0, 1000.3, seconds).renew_at(chance)
    assert at == (None if due is None else pytest.approx(due))


def test_when_it_ends() -> None:
    assert Session(1000.0, 1000.3, 3.0).ends_at == 1003.0
    assert Session(1000.0, 1000.3, 0.0).ends_at is None
