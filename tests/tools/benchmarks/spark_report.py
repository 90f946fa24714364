"""Medians and paired ratios of the bench of Spark's sinks."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Final

from rich.table import Table

from tests.tools.benchmarks.spark_rows import DROPPING, JVM, NOOP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.tools.benchmarks.spark_rows import Row

__all__ = ["Measure", "line", "measures_table", "ratios_table", "small_table"]

_COLD: Final = 2
"""Rounds in which a new JVM still compiles its sink."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Holds the figures of one write; CPU in seconds."""

    row: str
    way: str
    rows: int
    seconds: float
    jvm: float
    python: float
    kafka: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def client(self) -> float:
        return self.jvm + self.python


def line(one: Measure) -> str:
    return (
        f"{one.row:9} {one.way:20} {one.rate / 1e3:7.0f} k rows/s {one.seconds:7.2f} s; CPU {one.jvm:6.2f} JVM {one.python:6.2f} Python "
        f"{one.kafka:6.2f} broker"
    )


def measures_table(measures: Sequence[Measure]) -> Table:
    table = Table(title="medians of the rounds; CPU seconds for a million rows")
    for heading in ("row", "sink"):
        table.add_column(heading)
    for heading in ("rows", "k rows/s", "s", "JVM", "Python", "broker", "client"):
        table.add_column(heading, justify="right")
    for row, way in dict.fromkeys((one.row, one.way) for one in measures):
        some = [one for one in measures if (one.row, one.way) == (row, way)]
        middle = {
            name: statistics.median(getattr(one, name) for one in some)
            for name in ("rate", "seconds", "jvm", "python", "kafka", "client")
        }
        millions = some[0].rows / 1e6
        costs = (f"{middle[name] / millions:.2f}" for name in ("jvm", "python", "kafka", "client"))
        table.add_row(
            row,
            way,
            f"{some[0].rows:,}",
            f"{middle['rate'] / 1e3:.0f}",
            f"{middle['seconds']:.2f}",
            *costs,
        )
    return table


def ratios_table(rows: Sequence[Row], measures: Sequence[Measure]) -> Table:
    """Return each sink's rate and its client's CPU over the JVM sink's, paired by round."""
    table = Table(title="over the JVM sink, paired by round: median (worst)")
    for heading in ("row", "sink", "rate", "rate, warm", "client CPU"):
        table.add_column(heading)
    for row in rows:
        others = [one for one in measures if (one.row, one.way) == (row.name, JVM)]
        for way in row.ways:
            some = [one for one in measures if (one.row, one.way) == (row.name, way.name)]
            if way.name in {JVM, NOOP} or not some:
                continue
            rates = [mine.rate / theirs.rate for mine, theirs in zip(some, others, strict=True)]
            cpus = [mine.client / theirs.client for mine, theirs in zip(some, others, strict=True)]
            shown = (
                f"{statistics.median(rates):.2f} ({min(rates):.2f})",
                f"{statistics.median(rates[_COLD:] or rates):.2f}",
            )
            table.add_row(
                row.name, way.name, *shown, f"{statistics.median(cpus):.2f} ({max(cpus):.2f})"
            )
    return table


def small_table(batches: Mapping[str, Sequence[float]]) -> Table:
    table = Table(title="60,000 rows in 40 micro-batches: milliseconds of the median one")
    for heading in ("sink", "median of the rounds", "rounds", "over Python, drops"):
        table.add_column(heading, justify="right")
    base = statistics.median(batches[DROPPING])
    for name, rounds in batches.items():
        median = statistics.median(rounds)
        table.add_row(
            name, f"{median:.0f}", " ".join(f"{one:.0f}" for one in rounds), f"{median - base:+.0f}"
        )
    return table
