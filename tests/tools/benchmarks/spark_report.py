"""Medians, paired ratios and bars of the bench of Spark's sinks."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, Final

from rich.table import Table

from tests.tools.benchmarks.spark_rows import DROPPING, JVM, NOOP, ONCE, OURS, Bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.tools.benchmarks.spark_rows import Row

__all__ = ["Measure", "Verdict", "line", "measures_table", "small_is_met", "small_table", "verdicts", "verdicts_table"]

OVER_DROPPING: Final = {OURS: 50.0, ONCE: 180.0}
"""The most milliseconds that a micro-batch may take beyond the Python sink that drops its rows."""
_COLD: Final = 2
"""Rounds in which a new JVM still compiles its sink."""
_CPU_SHARE: Final = {"kv5": 0.7}
"""Rows where the broker's disk may be the limit: then the median CPU of the client, ours over the JVM sink's, may meet the bar instead."""


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Holds a pair of sinks: the ratios of their rates and of their clients' CPU, by rounds, and the bar if there is one."""

    row: str
    ours: str
    other: str
    ratios: Sequence[float]
    cpus: Sequence[float]
    bar: Bar | None

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def warm(self) -> float:
        """Return the median of the rounds in which the JVM has compiled its sink; of all, if there are too few."""
        return statistics.median(self.ratios[_COLD:] or self.ratios)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpus)

    @property
    def is_met(self) -> bool:
        if self.bar is None:
            return True
        is_fast = self.median >= self.bar.ratio and min(self.ratios) >= self.bar.worst
        return is_fast or self.cpu <= _CPU_SHARE.get(self.row, 0.0)


def line(one: Measure) -> str:
    return (
        f"{one.row:9} {one.way:20} {one.rate / 1e3:7.0f} k rows/s {one.seconds:7.2f} s; CPU {one.jvm:6.2f} JVM {one.python:6.2f} Python "
        f"{one.kafka:6.2f} broker"
    )


def verdicts(rows: Sequence[Row], measures: Sequence[Measure]) -> list[Verdict]:
    """Return a verdict for each bar, and for each pair of ours and the JVM sink without one."""
    found = []
    for row in rows:
        names = [way.name for way in row.ways]
        barred = {(bar.ours, bar.other): bar for bar in row.bars}
        pairs = [*barred, *((name, JVM) for name in names if name not in {JVM, NOOP} and (name, JVM) not in barred)]
        for ours, other in pairs:
            some, others = ([one for one in measures if (one.row, one.way) == (row.name, name)] for name in (ours, other))
            together = list(zip(some, others, strict=True))
            ratios = [mine.rate / theirs.rate for mine, theirs in together]
            cpus = [mine.client / theirs.client for mine, theirs in together]
            found.append(Verdict(row=row.name, ours=ours, other=other, ratios=ratios, cpus=cpus, bar=barred.get((ours, other))))
    return found


def measures_table(measures: Sequence[Measure]) -> Table:
    table = Table(title="medians of the rounds; CPU seconds for a million rows")
    for heading in ("row", "sink"):
        table.add_column(heading)
    for heading in ("rows", "k rows/s", "s", "JVM", "Python", "broker", "client"):
        table.add_column(heading, justify="right")
    for row, way in dict.fromkeys((one.row, one.way) for one in measures):
        some = [one for one in measures if (one.row, one.way) == (row, way)]
        middle = {
            name: statistics.median(getattr(one, name) for one in some) for name in ("rate", "seconds", "jvm", "python", "kafka", "client")
        }
        millions = some[0].rows / 1e6
        costs = (f"{middle[name] / millions:.2f}" for name in ("jvm", "python", "kafka", "client"))
        table.add_row(row, way, f"{some[0].rows:,}", f"{middle['rate'] / 1e3:.0f}", f"{middle['seconds']:.2f}", *costs)
    return table


def verdicts_table(found: Sequence[Verdict]) -> Table:
    table = Table(title="ratios of rates, paired by round")
    for heading in ("row", "pair", "median", "warm", "worst", "best", "client CPU", "bar", ""):
        table.add_column(heading)
    for one in found:
        bar = "" if one.bar is None else f">= {one.bar.ratio:g}" + (f", worst >= {one.bar.worst:g}" if one.bar.worst else "")
        judged = "" if one.bar is None else "[green]met[/]" if one.is_met else "[red]not met[/]"
        figures = (one.median, one.warm, min(one.ratios), max(one.ratios), one.cpu)
        table.add_row(one.row, f"{one.ours} / {one.other}", *(f"{figure:.2f}" for figure in figures), bar, judged)
    return table


def small_table(batches: Mapping[str, Sequence[float]]) -> Table:
    table = Table(title="60,000 rows in 40 micro-batches: milliseconds of the median one")
    for heading in ("sink", "median of the rounds", "rounds", "over Python, drops", "bar"):
        table.add_column(heading, justify="right")
    base = statistics.median(batches[DROPPING])
    for name, rounds in batches.items():
        median = statistics.median(rounds)
        bar = f"<= {OVER_DROPPING[name]:g}" if name in OVER_DROPPING else ""
        table.add_row(name, f"{median:.0f}", " ".join(f"{one:.0f}" for one in rounds), f"{median - base:+.0f}", bar)
    return table


def small_is_met(batches: Mapping[str, Sequence[float]]) -> bool:
    base = statistics.median(batches[DROPPING])
    return all(statistics.median(batches[name]) - base <= most for name, most in OVER_DROPPING.items())
