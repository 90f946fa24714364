"""The random numbers of a producer that is given none."""

from __future__ import annotations

import pytest

from aioproducer.net import settings
from aioproducer.net.settings import random_number


@pytest.mark.parametrize(
    ("drawn", "number"), [(bytes(7), 0.0), (b"\x80" + bytes(6), 0.5), (b"\xff" * 7, 1 - 2.0**-53)]
)
def test_a_random_number_is_below_one(
    monkeypatch: pytest.MonkeyPatch, drawn: bytes, number: float
) -> None:
    """From 0 on, for any bytes of the operating system; 1 would be behind the last partition of a choice."""
    monkeypatch.setattr(settings, "urandom", lambda count: drawn[:count])
    assert random_number() == number


def test_random_numbers_differ() -> None:
    """Each call draws anew."""
    assert len({random_number() for _ in range(100)}) == 100
