"""A result in one line, and the sums of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.tools.spark_faults.case import Result

__all__ = ["line", "sums"]


def sink(result: Result) -> str:
    return f"{result.case.format} {result.case.options.get('delivery', '')}".strip()


def line(result: Result) -> str:
    """Return a result in one line."""
    counted = result.counted
    return (
        f"{result.case.name}: {result.faults} faults in {result.runs} runs, {counted.records:,} records, {counted.lost} lost, "
        f"{counted.doubled} doubled, {counted.aborted:,} aborted, {result.seconds:.0f} s: {'right' if result.is_right else 'WRONG'}{', an open transaction' if counted.is_stuck else ''}"
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
