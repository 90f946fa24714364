"""Makes the report at the end: the two tables, and whether all figures are right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from .source import MEASURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.spark import IngestReport


class Expected(NamedTuple):
    """Holds the figures that a round must have by the plan."""

    sent: int
    bad: int
    duplicates: int
    rows: int


@dataclass(frozen=True)
class Round:
    """Holds one sending and the ingest after it. Each figure is counted by the part that did the work."""

    sent: int
    acknowledged: int
    in_topic: int  # by the broker's end offsets
    report: IngestReport
    expected: Expected

    def lines(self) -> list[tuple[str, int, int]]:
        """Return each figure with its expected value."""
        report, expected = self.report, self.expected
        return [
            ("sent", self.sent, expected.sent),
            ("acknowledged", self.acknowledged, expected.sent),
            ("in topic", self.in_topic, expected.sent),
            ("read by Spark", report.read, expected.sent),
            ("parsed", report.parsed, expected.sent - expected.bad),
            ("bad", report.bad, expected.bad),
            ("duplicates dropped", report.duplicates, expected.duplicates),
            ("dropped by watermark", report.late, 0),
            ("rows added to Parquet", report.written, expected.rows),
        ]


@dataclass(frozen=True)
class WrittenBack:
    """Holds the aggregates that a reader of committed records finds in their topic, after the first and after the second write."""

    once: int
    again: int
    expected: int

    def lines(self) -> list[tuple[str, int, int]]:
        """Return each figure with its expected value."""
        return [
            ("aggregates in topic", self.once, self.expected),
            ("after the second write", self.again, self.expected),
        ]


@dataclass
class Findings:
    """Holds all counts and comparisons."""

    rounds: list[Round] = field(default_factory=list)
    written_back: WrittenBack | None = None
    stages: list[tuple[str, float, int]] = field(default_factory=list)  # name, seconds, records
    faults: list[str] = field(default_factory=list)

    def stage(self, name: str, seconds: float, records: int = 0) -> None:
        """Note a stage's seconds and records."""
        self.stages.append((name, seconds, records))

    def add(self, one: Round) -> None:
        """Note a round, and its figures that differ from the expected ones."""
        self.rounds.append(one)
        self._check(one.lines())

    def add_written_back(self, aggregates: WrittenBack) -> None:
        """Note the aggregates in their topic, and the figures that differ from the expected ones."""
        self.written_back = aggregates
        self._check(aggregates.lines())

    def _check(self, lines: list[tuple[str, int, int]]) -> None:
        self.faults += [
            f"{name}: {found:,}, expected {expected:,}"
            for name, found, expected in lines
            if found != expected
        ]

    def compare(
        self,
        what: str,
        found: Mapping[str, Any],
        expected: Mapping[str, Any],
        place: str = "Parquet",
    ) -> None:
        """Note each key on which `place` and the source differ."""
        for key in sorted(found.keys() | expected.keys()):
            if found.get(key) != expected.get(key):
                self.faults.append(
                    f"{what} {key}: {place} has {found.get(key)}, the source {expected.get(key)}"
                )

    def balance(self) -> Table:
        """Return the table of the records' results."""
        table = Table(title="Where the records went", title_justify="left")
        table.add_column("")
        for number in range(len(self.rounds)):
            table.add_column(("first", "second")[number] + " ingest", justify="right")
            table.add_column("expected", justify="right", style="dim")
            table.add_column("")
        for lines in zip(*(one.lines() for one in self.rounds), strict=True):
            cells = [
                cell
                for _, found, expected in lines
                for cell in (f"{found:,}", f"{expected:,}", _mark(found == expected))
            ]
            table.add_row(lines[0][0], *cells)
        for name, found, expected in (
            self.written_back.lines() if self.written_back is not None else ()
        ):
            elsewhere = ("",) * 3 * (len(self.rounds) - 1)
            table.add_row(name, *elsewhere, f"{found:,}", f"{expected:,}", _mark(found == expected))
        return table

    def speed(self) -> Table:
        """Return the table of the stages' times."""
        table = Table(title="How long it took", title_justify="left")
        for name in ("stage", "seconds", "records", "records/s"):
            table.add_column(name, justify="left" if name == "stage" else "right")
        for name, seconds, records in self.stages:
            table.add_row(
                name,
                f"{seconds:.1f}",
                f"{records:,}" if records else "",
                f"{records / seconds:,.0f}" if records else "",
            )
        return table

    def verdict(self) -> str:
        """Return one line if all figures are equal, otherwise every difference."""
        if self.faults:
            return "[bold red]It does not balance:[/]\n" + "\n".join(
                f"  {fault}" for fault in self.faults
            )
        rows = sum(one.report.written for one in self.rounds)
        return f"[bold green]It balances:[/] {rows:,} flights, and the sums of {', '.join(MEASURES)} of each carrier, equal the source, in Parquet and in the topic of aggregates."

    def as_json(self) -> dict[str, Any]:
        """Return the same data for programs."""
        return {
            "rounds": [{name: found for name, found, _ in one.lines()} for one in self.rounds],
            "written back": {}
            if self.written_back is None
            else {name: found for name, found, _ in self.written_back.lines()},
            "stages": [
                {"stage": name, "seconds": round(seconds, 3), "records": records}
                for name, seconds, records in self.stages
            ],
            "faults": self.faults,
        }


def _mark(equal: bool) -> str:
    return "[green]✓" if equal else "[bold red]✗"
