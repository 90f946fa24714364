"""Tests that play the rows that are functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .coded import coded_rows

if TYPE_CHECKING:
    from .coded import Coded


@pytest.mark.parametrize("coded", coded_rows(), ids=lambda coded: f"{coded.number}-{coded.function.__name__}")
def test_row(coded: Coded) -> None:
    """The row's expected results hold, and no task or socket is left."""
    assert coded.run() == []
