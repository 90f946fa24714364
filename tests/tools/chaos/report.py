"""Renders the results of a run as tables for the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .faults import FAULTS
from .judge import kinds
from .stage import COPIED, SENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from .gaps import Mark
    from .history import Told
    from .judge import Reads

__all__ = ["Judged", "Report", "figures_of", "tables"]

_FATES: Final = ("no", "maybe", "yes")
_MANY: Final = 200
_FAULT_HEAD: Final = ("fault", "#", "what", "times", "longest gap", "of all", "of the copy", "failed")


@dataclass
class Judged:
    """Holds the figures of one program by the table's words, and the complaints."""

    name: str
    figures: dict[str, int]
    complaints: list[str]
    failures: list[str] = field(default_factory=list)


@dataclass
class Report:
    """Holds all results of a run.

    `start`: milliseconds of the wall clock. `may_fail`: records may fail; by default they live longer than any fault.
    """

    command: str
    version: str
    start: int
    seconds: float
    judged: list[Judged]
    marks: list[Mark]
    may_fail: bool = False

    @property
    def is_clean(self) -> bool:
        """Return whether the run has no complaint, and no failed record unless records may fail."""
        return not any(self.complaints()) and (self.may_fail or not any(mark.failed for mark in self.marks))

    def complaints(self) -> Iterator[str]:
        """Return all complaints, in words."""
        return (f"{one.name}: {complaint}" for one in self.judged for complaint in one.complaints)

    def by_fault(self) -> list[tuple[str, int, dict[str, float], dict[str, float], int]]:
        """Return for each fault its name, its count, the longest gaps of a partition and of all by topic, and the failed records."""
        rows = []
        for fault in FAULTS:
            marks = [mark for mark in self.marks if mark.fault == fault.name]
            if marks:
                longest, silent = _most(mark.longest for mark in marks), _most(mark.silent for mark in marks)
                rows.append((fault.name, len(marks), longest, silent, sum(mark.failed for mark in marks)))
        return rows

    def as_json(self) -> dict[str, Any]:
        """Return all results, with complaints and failures cut to a limited number."""
        return {
            "command": self.command,
            "version": self.version,
            "seconds": round(self.seconds, 1),
            "is_clean": self.is_clean,
            "figures": {one.name: one.figures for one in self.judged},
            "marks": [dataclasses.asdict(mark) for mark in self.marks],
            "complaints": list(self.complaints())[:_MANY],
            "failures": [failure for one in self.judged for failure in one.failures][:_MANY],
        }


def _most(gaps: Iterable[dict[str, float]]) -> dict[str, float]:
    most: dict[str, float] = {}
    for one in gaps:
        most |= {topic: max(seconds, most.get(topic, 0.0)) for topic, seconds in one.items()}
    return most


def figures_of(told: Told, reads: Reads, complaints: Iterable[str]) -> dict[str, int]:
    """Return one program's column of the table."""
    fates = Counter(one.ends[0].persisted for one in told.history.sent if one.ends and not one.is_acknowledged)
    outcomes = Counter(str(one.fate) for one in told.history.transactions)
    return {
        "records sent": sum(one.queued_at is not None for one in told.history.sent),
        "acknowledged": sum(one.is_acknowledged for one in told.history.sent),
        **{f"failed, persisted={fate}": fates[fate] for fate in _FATES},
        **{f"transactions {outcome}": count for outcome, count in sorted(outcomes.items())},
        "read": sum(map(len, reads.values())),
        **kinds(complaints),
    }


def tables(report: Report) -> Iterator[Table]:
    """Return the tables for the terminal."""
    from rich.table import Table  # rich is installed with the demo, and this module is imported without it, too

    figures = Table("", *(one.name for one in report.judged))
    for row in _figure_rows(report):
        figures.add_row(*row)
    yield figures
    faults = Table(*_FAULT_HEAD)
    for row in _fault_rows(report):
        faults.add_row(*row)
    yield faults


def _figure_rows(report: Report) -> list[list[str]]:
    names = dict.fromkeys(name for one in sorted(report.judged, key=lambda one: -len(one.figures)) for name in one.figures)
    return [[name, *(f"{one.figures[name]:,}" if name in one.figures else "" for one in report.judged)] for name in names]


def _fault_rows(report: Report) -> list[list[str]]:
    table = {fault.name: fault for fault in FAULTS}
    return [
        [
            *(name, ", ".join(map(str, table[name].rows)), table[name].says, str(count)),
            *(f"{one[topic]:.1f}" if topic in one else "" for one, topic in ((longest, SENT), (silent, SENT), (silent, COPIED))),
            str(failed),
        ]
        for name, count, longest, silent, failed in report.by_fault()
    ]
