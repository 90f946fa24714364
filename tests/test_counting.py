"""Tests of `aioproducer.model`."""

from __future__ import annotations

import pytest

from aioproducer.model import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "record", "0 records"), (1, "batch", "1 batch"), (2, "batch", "2 batches")],
)
def test_a_count_has_the_noun_that_fits(count: int, noun: str, text: str) -> None:
    """One thing is named alone."""
    assert counted(count, noun) == text
