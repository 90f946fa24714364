"""Decides whether memory, tasks and sockets are flat, the rate is kept, and each record is there once. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["GROWTH", "Sample", "complaints", "judged", "slope"]

WARM_UP: Final = 0.2
"""Part of the run in which caches fill and the allocator finds its size; it is not judged."""
LONGEST_WARM_UP: Final = 300.0
"""Seconds."""
FEWEST: Final = 12
"""Samples that a judgement needs."""
GROWTH: Final = 8 * 2**20
"""Bytes by which the process may grow over the judged part: the allocator may keep memory. `tests.tools.leaks` allows as much."""
MOST: Final = 0.75
"""Part of a third's samples that count for tasks and sockets. In the others a connection is being made (one more), or was cut and is
not needed yet (one less). Tasks or sockets have grown if each of so many samples of the last third has more than so many of the first."""
RATE: Final = 0.95
"""Part of the wanted rate that has to be acknowledged."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Holds the state of the client at one moment; its counts are since the client began.

    Attributes:
        at: seconds since it began.
        rss: bytes of its process.
        tasks: of its event loop.
        sockets: the open sockets of its process.
        sent: records that were queued.
        acked: the queued records that were acknowledged.
        failed: the queued records with a failed delivery, and records that were refused.
    """

    at: float
    rss: int
    tasks: int
    sockets: int
    sent: int
    acked: int
    failed: int


def judged(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples after the warm-up."""
    begin = min(samples[-1].at * WARM_UP, LONGEST_WARM_UP) if samples else 0.0
    return [sample for sample in samples if sample.at >= begin]


def slope(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Return the growth of a value in a second: the slope of the least squares through all samples.

    Raises:
        statistics.StatisticsError: there are fewer than two.
    """
    return statistics.linear_regression(
        [sample.at for sample in samples], [value(sample) for sample in samples]
    ).slope


def complaints(samples: Sequence[Sample], rate: float, written: int) -> list[str]:
    """Return the complaints, in words.

    Args:
        samples: the whole run, in order; the last one is from after the client's `flush`.
        rate: the wanted records a second.
        written: records in the topic's partitions, by their end offsets.
    """
    kept = judged(samples)
    if len(kept) < FEWEST:
        return [f"too short: {len(kept)} samples behind the warm-up, at least {FEWEST} are needed"]
    return [*_grown(kept), *_lost(samples[-1], rate, written)]


def _grown(kept: Sequence[Sample]) -> Iterator[str]:
    seconds = kept[-1].at - kept[0].at
    growth = slope(kept, lambda sample: sample.rss) * seconds
    if growth > GROWTH:
        yield f"memory: {growth / 2**20:+.1f} MiB in {seconds:.0f} s, at most {GROWTH / 2**20:+.1f} MiB"
    third = len(kept) // 3
    for name in ("tasks", "sockets"):
        most = sorted(getattr(sample, name) for sample in kept[:third])[int(MOST * third)]
        least = sorted((getattr(sample, name) for sample in kept[-third:]), reverse=True)[
            int(MOST * third)
        ]
        if least > most:
            yield f"{name}: {least} in the last third, {most} in the first"


def _lost(last: Sample, rate: float, written: int) -> Iterator[str]:
    if last.acked < RATE * rate * last.at:
        yield f"rate: {last.acked / last.at:,.0f} records a second were acknowledged, {rate:,.0f} were wanted"
    if last.failed:
        yield f"failed: {last.failed:,} records"
    if last.sent != last.acked + last.failed:
        yield f"never ended: {last.sent - last.acked - last.failed:,} of {last.sent:,} records"
    if written != last.acked:
        yield f"{'lost' if written < last.acked else 'doubled'}: {last.acked:,} records were acknowledged, {written:,} are in the topic"
