"""Tests of `aioproducer.core.retries`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.retries import Backoff

KAFKAS = Backoff(0.1, 1.0)
MIDDLE = 0.5  # the chance that neither lengthens nor shortens


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (6, 1.0), (10_000, 1.0)],
)
def test_a_pause_doubles_up_to_the_longest(failures: int, seconds: float) -> None:
    """KIP-580."""
    assert KAFKAS.after(failures, MIDDLE) == pytest.approx(seconds)


def test_jitter_is_a_fifth_to_either_side() -> None:
    """So that clients which failed together do not come back together."""
    assert KAFKAS.after(1, 0.0) == pytest.approx(0.08)
    assert KAFKAS.after(1, 0.9999999) == pytest.approx(0.12)
    assert KAFKAS.after(9, 0.0) == pytest.approx(0.8), (
        "also at the longest, or all would come back together there"
    )


@given(
    st.floats(0, 1e6), st.floats(0, 1e6), st.integers(-5, 10**6), st.floats(0, 1, exclude_max=True)
)
def test_no_pause_exceeds_the_longest(
    first: float, longest: float, failures: int, chance: float
) -> None:
    """The backoff is never negative and never exceeds its longest value, for any count of failures."""
    assert 0 <= Backoff(first, longest).after(failures, chance) <= longest


@given(st.integers(-5, 1))
def test_what_has_not_failed_yet_pauses_as_after_the_first_failure(failures: int) -> None:
    """A count from 0 is no half pause."""
    assert KAFKAS.after(failures, MIDDLE) == KAFKAS.after(1, MIDDLE)


def test_no_pause() -> None:
    """Backoff 0 is a choice."""
    assert Backoff(0.0, 1.0).after(5, MIDDLE) == 0.0
