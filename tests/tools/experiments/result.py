"""What an experiment gives: rows of a table, what they say in words, bars, a picture. Knows nothing of how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All of one run.

    Attributes:
        rows: of the table: each a value, or text, by the column's heading; all have the same columns, in the order of the first.
        text: what stands below the table, Markdown.
        draw: makes the picture; the path's suffix says of which kind.
        bars: what had to be shown, in words, and whether it was.
    """

    rows: Sequence[Mapping[str, Any]]
    text: str
    draw: Callable[[Path], None]
    bars: Mapping[str, bool] = field(default_factory=dict)
