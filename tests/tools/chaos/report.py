"""Renders the results of a run as tables for the terminal, JSON, and docs/topics/chaos.md with its picture."""

from __future__ import annotations

import dataclasses
import pathlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .faults import FAULTS
from .judge import kinds
from .stage import COPIED, SENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.table import Table

    from .gaps import Mark
    from .history import Told
    from .judge import Reads

__all__ = ["PAGE", "PICTURE", "Judged", "Report", "draw", "figures_of", "page", "tables"]

PAGE: Final = pathlib.Path(__file__).parents[3] / "docs/topics/chaos.md"
PICTURE: Final = PAGE.with_suffix(".svg")
_COLOURS: Final = ("#12a594", "#2f6fde", "#b03a6f")
_FATES: Final = ("no", "maybe", "yes")
_MANY: Final = 200
_FAULT_HEAD: Final = ("fault", "#", "what", "times", "longest gap", "of all", "of the copy", "failed")
_HEAD: Final = """# Real chaos

Three Kafka {version} nodes have three copies of everything, `min.insync.replicas=2` and no unclean elections. The test kills them,
stops them, puts them to sleep, cuts them off and moves their leaders, one fault after the other, while aioproducer sends.

- One program sends numbered values with idempotence, on uvloop.
- Another program, on asyncio's own loop, copies these values to a second topic in transactions, each with the offsets of what it read, and
  aborts some of the transactions.
- In the end confluent-kafka's consumer reads everything back (`read_committed`), and the checker of `tests.simulation` judges
  it. Kafka's `DumpLogSegments` reads the sequence numbers from the disk.

The tables below use these words:

- **lost**: acknowledged, and not there; or not copied. **misplaced**: not at the partition and offset that it was acknowledged with.
- **duplicated**: there twice. **reordered**: not in the order of the calls; of a copy, not in the order of its source.
- **written though certainly not** (it failed with `persisted=no`), **written though refused** (it was not queued), **foreign**: there all
  the same. **never ended**, **ended twice**, **too late**: its delivery.
- **aborted yet visible**; **torn**: a transaction is there in part; **undecided**: it never ended.
- **broken sequences**: of one producer id and epoch in one partition, sequence numbers that do not follow upon each other.

Records of the copy that failed with `persisted=no` were not sent yet when their transaction was aborted on purpose. The topics of the last
column are deleted while a program sends to them, and made again. Of the end of a transaction whose program was killed or replaced nobody told: it is `unknown`.

Two runs show that the test finds errors: with `--no-copy --options '{{"enable_idempotence": false}}'` records are duplicated and reordered, and
with `--options '{{"delivery_timeout_ms": 3000, "request_timeout_ms": 1500}}'` thousands of records fail. `--kafka 3.9.2` and
`--transactions 1` choose the older protocol of transactions.

Written by

    {command} --page
"""


@dataclass
class Judged:
    """Holds the figures of one program by the table's words, the complaints, and its acknowledgements in each second."""

    name: str
    figures: dict[str, int]
    complaints: list[str]
    failures: list[str] = field(default_factory=list)
    acks: list[int] = field(default_factory=list)


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


def page(report: Report) -> str:
    """Return the text of docs/topics/chaos.md."""
    return "\n".join(
        [
            _HEAD.format(version=report.version, command=report.command),
            f"{len(report.marks)} faults in {report.seconds / 60:.0f} minutes.",
            "",
            *_markdown(["", *(one.name for one in report.judged)], _figure_rows(report)),
            "",
            "The longest gap in acknowledgements by a fault, in seconds: of the partition that waited longest, and of all together; and of",
            "the copy, whose program also waits for its consumer. Numbers are those of the project's list of faults; `failed` are records",
            "of the program that sends.",
            "",
            *_markdown(_FAULT_HEAD, _fault_rows(report)),
            "",
            "![Acknowledgements a second, and when each fault began](chaos.svg)",
            "",
        ]
    )


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


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def draw(path: pathlib.Path, report: Report) -> None:
    """Draw acknowledgements a second, as SVG: a panel for each program, and a vertical mark at the beginning of each fault."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    programs = [one for one in report.judged if one.acks]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "chaos", "font.family": "sans-serif", "font.size": 8}):
        figure = Figure(figsize=(16, 1.2 + 2.4 * len(programs)), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        panels = figure.subplots(len(programs), sharex=True, squeeze=False)[:, 0]
        for axes, one, colour in zip(panels, programs, _COLOURS, strict=False):
            axes.fill_between(range(len(one.acks)), one.acks, color=colour, linewidth=0, alpha=0.8)
            axes.set_ylabel(f"{one.name}: acknowledged a second")
            axes.set_ylim(0)
            axes.spines[["top", "right"]].set_visible(False)
            for mark in report.marks:
                axes.axvline((mark.start - report.start) / 1000, color="#666666", linewidth=0.6, linestyle=":")
        for mark in report.marks:
            at = (mark.start - report.start) / 1000
            panels[0].text(at, 1.01, mark.fault, rotation=75, transform=panels[0].get_xaxis_transform(), fontsize=6)
        panels[-1].set_xlabel("seconds")
        panels[-1].set_xlim(0, report.seconds)
        figure.savefig(path, metadata={"Date": None})
