"""Computes medians, paired ratios and bars of the rounds, as tables and as JSON.

A ratio is ours over the peer's of the same round, so that a slow phase of the machine affects both. A bar is judged by the median ratio;
the worst round stands beside it.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import platform
import statistics
import sys
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.tools.benchmarks.clients import BASE, BASE_PURE, OURS, PEER, PLAIN, PURE, SILENT
from tests.tools.benchmarks.workloads import LATENCY, WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.tools.benchmarks.task import Measure

WIDTH = 124
"""Columns that the tables need."""
Rounds = dict[str, dict[str, "list[Measure]"]]
"""Workload to client to its measure of each round, in the order of the rounds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """Holds the bar of a workload's ratio (ours over another client's).

    The ratio must be `at_most` or at least `ratio`. `other_workload` is the other client's workload, if it differs.
    """

    figure: str
    ratio: float
    at_most: bool = True
    other: str = PEER
    ours: str = OURS
    other_workload: str = ""

    def is_met(self, ratio: float) -> bool:
        return ratio <= self.ratio if self.at_most else ratio >= self.ratio

    def worst(self, ratios: Iterable[float]) -> float:
        return max(ratios) if self.at_most else min(ratios)

    def __str__(self) -> str:
        theirs = f"{self.other}'s {self.other_workload}" if self.other_workload else self.other
        whose = "" if self.ours == OURS else f"{self.ours}: "
        return f"{whose}{self.figure} {'<=' if self.at_most else '>='} {said(self.ratio)} of {theirs}"


BARS: Mapping[str, Sequence[Bar]] = {
    "stream_keys": (Bar("cpu_us", 1 / 4), Bar("cpu_us", 1.1, other=PLAIN), Bar("cpu_us", 1.03, other=SILENT)),
    "stream_unique": (Bar("cpu_us", 1 / 3),),
    "gather": (Bar("cpu_us", 1 / 3),),
    "single": (Bar("p50_ms", 1.0),),
    "herd": (Bar("rate", 5.0, at_most=False),),
    "rtt20": (Bar("rate", 4.0, at_most=False),),
}


def _latency_bars(ours: str) -> dict[str, Sequence[Bar]]:
    """Return the bars of the workloads of `latency`, for one of our builds."""
    bars: dict[str, Sequence[Bar]] = {}
    for name in LATENCY:
        is_tight = name in {"busy_0", "busy_200"}
        p50, p99, rate = (1.5, 2.0, 1.5) if is_tight else (1.0, 1.0, 0.95)
        bars[name] = (Bar("p50_ms", p50, ours=ours), Bar("p99_ms", p99, ours=ours), Bar("rate", rate, at_most=False, ours=ours))
    rates = {
        "busy_0": {BASE: 0.7, BASE_PURE: 0.85},
        "partitions500": {BASE: 0.9, BASE_PURE: 0.9},
        "topics2000": {BASE: 0.9, BASE_PURE: 0.9},
    }
    base = BASE if ours == OURS else BASE_PURE
    for name, least in rates.items():
        bars[name] = (*bars.get(name, ()), Bar("rate", least[base], at_most=False, other=base, ours=ours))
        if name not in LATENCY:
            bars[name] = (*bars[name], Bar("p99_ms", 1.0, other=base, ours=ours))
    return bars


LATENCY_BARS: Mapping[str, Sequence[Bar]] = {name: (*bars, *_latency_bars(PURE)[name]) for name, bars in _latency_bars(OURS).items()}
"""Bars relative to aiokafka; and to another tree, if that is measured."""
FIGURES: Mapping[str, Callable[[Measure], float]] = {
    name: operator.attrgetter(name) for name in ("cpu_us", "rate", "seconds", "p50_ms", "p99_ms", "peak_mib", "growth_mib")
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Holds a workload's bar and the ratios of its rounds."""

    workload: str
    bar: Bar
    ratios: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def worst(self) -> float:
        return self.bar.worst(self.ratios)

    @property
    def worst_round(self) -> int:
        """Return the number of the worst round, counted from 1."""
        return self.ratios.index(self.worst) + 1

    @property
    def is_met(self) -> bool:
        return self.bar.is_met(self.median)


def verdicts(rounds: Rounds, bars: Mapping[str, Sequence[Bar]] = {**BARS, **LATENCY_BARS}) -> list[Verdict]:
    """Return one verdict for each bar of a workload that both its clients ran. A client that failed in a round is in no later round."""
    found = []
    for workload, by_client in rounds.items():
        for bar in bars.get(workload, ()):
            theirs_by_client = rounds.get(bar.other_workload or workload, {})
            if by_client.get(bar.ours) and theirs_by_client.get(bar.other):
                figure = FIGURES[bar.figure]
                pairs = zip(by_client[bar.ours], theirs_by_client[bar.other], strict=False)
                found.append(Verdict(workload=workload, bar=bar, ratios=[figure(ours) / figure(theirs) for ours, theirs in pairs]))
    return found


def measures_table(rounds: Rounds) -> Table:
    """Return the table of each workload's medians, one row a client."""
    table = Table(title="medians of the rounds (CPU of the client process per record; MiB: its peak, and growth while measured)")
    for heading in ("workload", "keys", "client"):
        table.add_column(heading, no_wrap=True)
    for heading in ("records", "CPU us", "k rec/s", "p50 ms", "p99 ms", "peak MiB", "+MiB", "sound"):
        table.add_column(heading, justify="right")
    for workload, by_client in rounds.items():
        for client, measures in by_client.items():
            if measures:
                table.add_row(workload, WORKLOADS[workload].keys_are, client, f"{measures[0].records:,}", *_medians(measures))
        table.add_section()
    return table


def _medians(measures: Sequence[Measure]) -> list[str]:
    middle = {name: statistics.median(map(figure, measures)) for name, figure in FIGURES.items()}
    has_latency = middle["p50_ms"] > 0
    sound = sum(measure.is_sound for measure in measures)
    return [
        f"{middle['cpu_us']:.2f}",
        f"{middle['rate'] / 1e3:.1f}",
        f"{middle['p50_ms']:.3f}" if has_latency else "",
        f"{middle['p99_ms']:.3f}" if has_latency else "",
        f"{middle['peak_mib']:.0f}",
        f"{middle['growth_mib']:.0f}",
        f"{sound} of {len(measures)}",
    ]


def verdicts_table(found: Sequence[Verdict]) -> Table:
    """Return the table of the bars: met or not met."""
    table = Table(title=f"{OURS} / the other, paired by round")
    for heading in ("workload", "bar", "median", "worst", "rounds", ""):
        table.add_column(heading)
    for verdict in found:
        judged = "[green]met[/]" if verdict.is_met else "[red]not met[/]"
        table.add_row(verdict.workload, str(verdict.bar), said(verdict.median), said(verdict.worst), str(len(verdict.ratios)), judged)
    return table


def as_json(rounds: Rounds, found: Sequence[Verdict]) -> dict[str, Any]:
    """Return all results for a program: each round's measures, and the ratios with their bars."""
    return {
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform(), "python": sys.version.split()[0]},
        "measures": [dataclasses.asdict(one) for by_client in rounds.values() for measures in by_client.values() for one in measures],
        "bars": [
            {
                "workload": verdict.workload,
                "bar": str(verdict.bar),
                "ratios": list(verdict.ratios),
                "median": verdict.median,
                "worst": verdict.worst,
                "met": verdict.is_met,
            }
            for verdict in found
        ],
    }


def said(ratio: float) -> str:
    """Return a ratio, in words."""
    return f"1/{1 / ratio:.2f}" if ratio < 1 else f"{ratio:.2f} x"
