"""Tests that play the rows that are data with our producer in time that jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .ours import complaints_of_ours
from .row import rows

if TYPE_CHECKING:
    from .row import Row


def case(row: Row) -> object:
    marks = [pytest.mark.xfail(reason=row.known, strict=True)] if row.known else []
    return pytest.param(row, id=row.file, marks=marks)


@pytest.mark.parametrize("row", [case(row) for row in rows() if "aioproducer" in row.clients])
def test_row(row: Row) -> None:
    """The row's expected results hold, and no task or socket is left."""
    assert complaints_of_ours(row) == []
