"""How the bench of Spark's sinks judges."""

from __future__ import annotations

import dataclasses

import pytest

from tests.tools.benchmarks.spark_report import Measure, small_is_met, verdicts
from tests.tools.benchmarks.spark_rows import DROPPING, JVM, ONCE, OURS, ROWS


def measure(row: str, way: str, seconds: float, cpu: float = 1.0) -> Measure:
    return Measure(row=row, way=way, rows=1_000_000, seconds=seconds, jvm=cpu, python=0.0, kafka=0.0)


def measures(row: str, ours: float, cpu: float = 1.0) -> list[Measure]:
    """Two rounds, the second of them at half the speed for both."""
    others = [measure(row, way, ours * slow) for way in (ONCE, DROPPING) for slow in (1, 2)]
    return [measure(row, JVM, 1.0), measure(row, OURS, ours, cpu), measure(row, JVM, 2.0), measure(row, OURS, ours * 2, cpu), *others]


@pytest.mark.parametrize(
    ("row", "ours", "cpu", "is_met"),
    [
        ("kv", 0.5, 1.0, True),
        ("kv", 0.51, 1.0, False),
        ("kv5", 0.83, 1.0, True),
        ("kv5", 0.9, 1.0, False),
        ("kv5", 0.9, 0.7, True),
        ("headers", 0.7, 1.0, False),
        ("headers", 0.7, 0.1, False),
        ("tuned", 2.0, 1.0, True),
    ],
)
def test_a_bar_of_the_median(row: str, ours: float, cpu: float, is_met: bool) -> None:
    """A row without a bar is met; less CPU is an excuse for `kv5` alone."""
    assert all(verdict.is_met for verdict in verdicts([ROWS[row]], measures(row, ours, cpu))) is is_met


def test_the_worst_round_has_a_bar() -> None:
    """One round that is slower than the JVM sink's is enough."""
    some = [one for number in range(3) for one in measures("zstd", 0.5)]
    assert all(verdict.is_met for verdict in verdicts([ROWS["zstd"]], some))
    some[1] = dataclasses.replace(some[1], seconds=1.1)
    assert not all(verdict.is_met for verdict in verdicts([ROWS["zstd"]], some))


def test_warm_rounds() -> None:
    """They are those from the third on: a new JVM compiles its sink in the first two."""
    some = [measure("tuned", way, seconds) for seconds in (3.0, 3.0, 1.5, 1.4, 1.6) for way in (JVM, OURS)]
    ours = [dataclasses.replace(one, seconds=1.0) if one.way == OURS else one for one in some]
    [verdict] = verdicts([ROWS["tuned"]], ours)
    assert (verdict.median, verdict.warm) == (pytest.approx(1.6), pytest.approx(1.5))
    [short] = verdicts([ROWS["tuned"]], ours[:4])
    assert short.warm == short.median == pytest.approx(3.0)


@pytest.mark.parametrize(("ours", "once", "is_met"), [(250.0, 380.0, True), (251.0, 380.0, False), (250.0, 381.0, False)])
def test_bars_of_small_batches(ours: float, once: float, is_met: bool) -> None:
    """They are over the Python sink that drops its rows."""
    assert small_is_met({DROPPING: [200.0, 100.0, 300.0], OURS: [ours], ONCE: [once]}) is is_met
