"""Tests that play the rows that are functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .coded import coded_rows

if TYPE_CHECKING:
    from .coded import Coded


def case(coded: Coded) -> object:
    marks = [pytest.mark.xfail(reason=coded.known, strict=True)] if coded.known else []
    return pytest.param(coded, id=f"{coded.number}-{coded.function.__name__}", marks=marks)


@pytest.mark.parametrize("coded", [case(coded) for coded in coded_rows()])
def test_row(coded: Coded) -> None:
    """The row's expected results hold, and no task or socket is left."""
    assert coded.run() == []
