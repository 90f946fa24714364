"""Holds the result of an experiment: rows of a table, their meaning in words, bars, a picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Holds the result of one run.

    Attributes:
        rows: of the table: each has a value, or text, by the column's heading; all have the same columns, in the order of the first.
        text: the text below the table, in Markdown.
        draw: writes the picture; the path's suffix gives its format.
        bars: the claims in words, and whether the run confirmed each.
    """

    rows: Sequence[Mapping[str, Any]]
    text: str
    draw: Callable[[Path], None]
    bars: Mapping[str, bool] = field(default_factory=dict)
