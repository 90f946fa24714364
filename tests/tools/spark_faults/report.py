"""The table of results, and their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.tools.spark_faults.case import Result

__all__ = ["line", "sums", "table"]


def table(results: Sequence[Result]) -> Table:
    shown = Table(title="what a reader with read_committed gets")
    for heading in ("case", "sink", "faults"):
        shown.add_column(heading)
    for heading in ("runs", "records", "lost", "doubled", "aborted", "s"):
        shown.add_column(heading, justify="right")
    shown.add_column("")
    for result in results:
        counted = result.counted
        numbers = (
            result.runs,
            counted.records,
            counted.lost,
            counted.doubled,
            counted.aborted,
            round(result.seconds),
        )
        struck = " ".join(f"{do} {times}" for do, times in sorted(result.struck.items()))
        shown.add_row(
            result.case.name,
            sink(result),
            struck,
            *(f"{number:,}" for number in numbers),
            verdict(result),
        )
    return shown


def sink(result: Result) -> str:
    return f"{result.case.format} {result.case.options.get('delivery', '')}".strip()


def verdict(result: Result) -> str:
    if result.counted.is_stuck:
        return "[red]an open transaction[/]"
    return "right" if result.is_right else "[red]wrong[/]"


def line(result: Result) -> str:
    """Return a result in one line."""
    counted = result.counted
    return (
        f"{result.case.name}: {result.faults} faults in {result.runs} runs, {counted.records:,} records, {counted.lost} lost, "
        f"{counted.doubled} doubled, {counted.aborted:,} aborted, {result.seconds:.0f} s{' (STUCK)' if counted.is_stuck else ''}"
    )


def sums(results: Sequence[Result]) -> list[str]:
    """Return what all results of a promise add up to, a line each."""
    lines = []
    for name in dict.fromkeys(map(sink, results)):
        some = [result for result in results if sink(result) == name]
        met = sum(result.faults for result in some if result.counted.aborted)
        lost, doubled, records = (
            sum(getattr(result.counted, what) for result in some)
            for what in ("lost", "doubled", "records")
        )
        share = 100 * doubled / max(1, records - doubled)
        lines.append(
            f"{name}: {sum(result.faults for result in some)} faults, {met} of them in cases whose log has aborted records; "
            f"{records:,} records, {lost} lost, {doubled:,} doubled ({share:.1f} % of the rows)"
        )
    return lines
