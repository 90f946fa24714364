"""Measures how late a heartbeat is beside 1,000,000 tight keyed sends with kept deliveries, on one real Kafka that is warm.

    python -m tests.tools.benchmarks heartbeat [--records 1000000] [--runs 5] [--compression zstd] [--json PATH]

A task sleeps 1 ms, over and over; a beat's lateness is how long after its time it woke. First the loop is idle: the baseline.
Then another task sends without a pause and flushes. `Collector` notes the cyclic collector's pauses, so that its part in each beat's lateness is known;
and each beat knows what the loop's thread has worked since the one before it: a late one that did not work waited for a processor.
A stall of 50 ms is one late beat; so that it does not hide behind the many good ones, the second p99 weighs the beats by the time they cover.
Exit status 1 when a bar is not met: the median run's p99 over its baseline's, and the median of the runs' maxima. Knows nothing of the peer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import json
import pathlib
import statistics
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import uvloop
from rich.console import Console

from aioproducer import build_info
from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.clients import aioproducer
from tests.tools.benchmarks.task import Settings
from tests.tools.benchmarks.workloads import PARTITIONS, VALUE, few_keys

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence
    from typing import Self

    from tests.tools.benchmarks.workloads import Client

TOPIC = "heartbeat"
PERIOD = 0.001
IDLE = 2.0
BARS_MS = {"compiled": 1.0, "plain": 5.0}
"""The p99 over the baseline's, by build."""
MAX_BAR_MS = 5.0


class Collector:
    """Records the pauses of the cyclic collector while it is entered, as (begin, end)."""

    def __init__(self) -> None:
        self.pauses: list[tuple[float, float]] = []
        self._begin = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: Literal["start", "stop"], _: dict[str, int]) -> None:
        if phase == "start":
            self._begin = time.perf_counter()
        else:
            self.pauses.append((self._begin, time.perf_counter()))


@dataclasses.dataclass(frozen=True, slots=True)
class Beat:
    """Holds when a beat was due, when it came, and the loop thread's seconds of processor time since the beat before it."""

    due: float
    came: float
    worked: float = 0.0

    @property
    def lateness(self) -> float:
        return self.came - self.due


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Holds the figures of some seconds of beats. `own` is a beat's lateness without the collector's pauses; `worked`: see `Beat`."""

    beats: int
    p50_ms: float
    p99_ms: float
    weighted_p99_ms: float
    max_ms: float
    max_collector_share: float
    max_worked_ms: float
    most_worked_ms: float
    p99_worked_ms: float
    own_p99_ms: float
    own_max_ms: float
    collector_share: float


async def beat(beats: list[Beat]) -> None:
    """Beat until cancelled."""
    clock, sleep, cpu = time.perf_counter, asyncio.sleep, time.thread_time
    while True:
        due, before = clock() + PERIOD, cpu()
        await sleep(PERIOD)
        beats.append(Beat(due, clock(), cpu() - before))


def collected(beats: Sequence[Beat], pauses: Sequence[tuple[float, float]]) -> list[float]:
    """Return the seconds of each beat's lateness that the collector took. Both sequences are in order of time; beats do not overlap."""
    shares, first = [], 0
    for one in beats:
        while first < len(pauses) and pauses[first][1] <= one.due:
            first += 1
        share, at = 0.0, first
        while at < len(pauses) and pauses[at][0] < one.came:
            share += min(one.came, pauses[at][1]) - max(one.due, pauses[at][0])
            at += 1
        shares.append(share)
    return shares


def judge(beats: Sequence[Beat], pauses: Sequence[tuple[float, float]]) -> Lateness:
    late = [max(0.0, one.lateness) for one in beats]
    shares = collected(beats, pauses)
    own = [max(0.0, lateness - share) for lateness, share in zip(late, shares, strict=True)]
    worst = max(range(len(late)), key=late.__getitem__)
    return Lateness(
        beats=len(beats),
        p50_ms=statistics.median(late) * 1e3,
        p99_ms=p99(late) * 1e3,
        weighted_p99_ms=weighted_p99(late) * 1e3,
        max_ms=late[worst] * 1e3,
        max_collector_share=shares[worst] / late[worst],
        max_worked_ms=beats[worst].worked * 1e3,
        most_worked_ms=max(one.worked for one in beats) * 1e3,
        p99_worked_ms=p99([one.worked for one in beats]) * 1e3,
        own_p99_ms=p99(own) * 1e3,
        own_max_ms=max(own) * 1e3,
        collector_share=sum(shares) / sum(late),
    )


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def weighted_p99(late: Sequence[float]) -> float:
    """Return the lateness that the loop stays under for 99 % of the time: each beat weighs as much as the time it covers."""
    left = 0.01 * sum(PERIOD + one for one in late)
    for one in sorted(late, reverse=True):
        left -= PERIOD + one
        if left <= 0:
            return one
    return 0.0


async def runs(records: int, compression: str, count: int) -> AsyncGenerator[tuple[Lateness, Lateness, float]]:
    """Yield for each run the idle loop's lateness, the lateness beside the sends, and the seconds of the sends.

    All runs share one warm broker: a new JVM compiles on the cores that the loop needs, and that slowness is not the producer's.
    """
    async with real_broker() as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        keys = few_keys(0, records)
        async with aioproducer(broker.bootstrap_servers, Settings(compression=compression)) as client:
            await send_all(client, keys)
        for _ in range(count):
            async with aioproducer(broker.bootstrap_servers, Settings(compression=compression)) as client:
                await send_all(client, keys[:20_000])
                idle, _ = await watched(asyncio.sleep(IDLE))
                busy, seconds = await watched(send_all(client, keys))
            yield idle, busy, seconds


async def send_all(client: Client, keys: Sequence[bytes]) -> deque[object]:
    """Send all records. Returns the deliveries, as a user keeps them to read them later.

    To free a million of them takes 10 ms at once, which are not the producer's. Nor is the growth of a list: its last growth copies
    megabytes into 1,600 fresh pages, 5 ms of the loop. A deque copies nothing.
    """
    send, kept = client.send, deque[object]()
    keep = kept.append
    for key in keys:
        keep(await send(TOPIC, VALUE, key))
    await client.flush()
    return kept


async def watched(work: Awaitable[object]) -> tuple[Lateness, float]:
    """Return the lateness of a heartbeat beside the work, and the seconds of the work."""
    beats: list[Beat] = []
    gc.collect()
    with Collector() as collector:
        heart = asyncio.create_task(beat(beats))
        await asyncio.sleep(PERIOD)
        start = time.perf_counter()
        kept = await work
        seconds = time.perf_counter() - start
        await asyncio.sleep(2 * PERIOD)  # the last stall is a beat too
        heart.cancel()
        await asyncio.wait([heart])
    del kept
    return judge(beats, collector.pauses), seconds


def tell(console: Console, idle: Lateness, busy: Lateness, records: int, seconds: float) -> None:
    """Return one run, in words."""
    own = f"without it p99 {busy.own_p99_ms:.2f} ms, max {busy.own_max_ms:.2f} ms"
    console.print(f"{records:,} keyed sends, deliveries kept, flushed in {seconds:.2f} s ({records / seconds / 1e3:.0f} k/s)")
    console.print(f"idle:  {idle.beats:,} beats, p99 {idle.p99_ms:.2f} ms, max {idle.max_ms:.2f} ms")
    console.print(
        f"busy:  {busy.beats:,} beats, p50 {busy.p50_ms:.2f} ms, p99 {busy.p99_ms:.2f} ms (weighed by time {busy.weighted_p99_ms:.2f})"
    )
    console.print(
        f"max:   {busy.max_ms:.2f} ms, {busy.max_collector_share:.0%} of it the collector's; its thread worked {busy.max_worked_ms:.2f} ms "
        f"since the beat before, between any two p99 {busy.p99_worked_ms:.2f} ms, at most {busy.most_worked_ms:.2f} ms"
    )
    console.print(f"collector: {busy.collector_share:.0%} of all lateness; {own}")


async def measure(console: Console, records: int, compression: str, count: int) -> list[dict[str, Any]]:
    """Return the figures of that many runs, and print each run as it ends."""
    figures: list[dict[str, Any]] = []
    async with contextlib.aclosing(runs(records, compression, count)) as measured:
        async for idle, busy, seconds in measured:
            tell(console, idle, busy, records, seconds)
            figures.append(
                {"idle": dataclasses.asdict(idle), "busy": dataclasses.asdict(busy), "seconds": seconds, "over": busy.p99_ms - idle.p99_ms}
            )
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks heartbeat")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--compression", default="zstd", help="(default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH")
    chosen, console = parser.parse_args(), Console(highlight=False)
    figures = uvloop.run(measure(console, chosen.records, chosen.compression, chosen.runs))
    over, most = (statistics.median(values) for values in zip(*((one["over"], one["busy"]["max_ms"]) for one in figures), strict=True))
    bar = BARS_MS[build_info().build]
    verdicts = [("p99 over the idle baseline", over, bar), ("max", most, MAX_BAR_MS)]
    for what, found, limit in verdicts:
        console.print(f"{what}, median of {chosen.runs} runs: {found:.2f} ms, bar {limit:.0f} ms: {'met' if found <= limit else 'not met'}")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if all(found <= limit for _, found, limit in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
