"""Judges the counts: makes the rows of a table, and says whether any is beyond the limit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["LIMIT", "Row", "rows", "smaller", "table"]

LIMIT: Final = 1.03
"""What a record may cost, over what it cost before, where no other limit is given."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Instructions for each record of one workload in one build, before and after; None: it was not there. The limit is of their ratio."""

    workload: str
    build: str
    before: float | None
    after: float
    limit: float = LIMIT

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before else None

    @property
    def is_beyond(self) -> bool:
        return self.ratio is not None and self.ratio > self.limit


def rows(
    build: str, before: Mapping[str, float], after: Mapping[str, float], limit: float = LIMIT
) -> list[Row]:
    """Of one build; a workload that only one tree can run has no ratio."""
    return [
        Row(workload, build, before.get(workload), instructions, limit)
        for workload, instructions in after.items()
    ]


def smaller(counts: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    """Return the smaller count of each workload. `others` may be empty."""
    return {workload: min(count, others.get(workload, count)) for workload, count in counts.items()}


def table(shown: Sequence[Row]) -> Iterator[str]:
    """As lines."""
    yield f"{'workload':14} {'build':9} {'before':>10} {'after':>10} {'ratio':>7}   instructions for each record"
    for row in shown:
        before = "-" if row.before is None else f"{row.before:,.0f}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.4f}"
        mark = f"BEYOND {row.limit:.2f}" if row.is_beyond else ""
        yield f"{row.workload:14} {row.build:9} {before:>10} {row.after:>10,.0f} {ratio:>7}   {mark}".rstrip()
