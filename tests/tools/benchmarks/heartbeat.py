"""Measures how late a heartbeat is beside 1,000,000 tight keyed sends with kept deliveries, on one real Kafka that is warm.

    python -m tests.tools.benchmarks heartbeat [--records 1000000] [--runs 5] [--compression zstd]

A task sleeps 1 ms, over and over; a beat's lateness is how long after its time it woke. First the loop is idle: the baseline.
Then another task sends without a pause and flushes. The cyclic collector's pauses are noted, so that its part in all lateness is known.
A stall of 50 ms is one late beat; so that it does not hide behind the many good ones, the second p99 weighs the beats by the time they cover.
Exit status 1 when a bar is not met: the median run's p99 over its baseline's, and the median of the runs' maxima.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import statistics
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

import uvloop
from rich.console import Console

from aioproducer import build_info
from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.clients import aioproducer
from tests.tools.benchmarks.task import Settings
from tests.tools.benchmarks.workloads import PARTITIONS, VALUE, few_keys

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Sequence

    from tests.tools.benchmarks.workloads import Client

TOPIC = "heartbeat"
PERIOD = 0.001
IDLE = 2.0
BARS_MS = {"compiled": 1.0, "plain": 5.0}
"""The p99 over the baseline's, by build."""
MAX_BAR_MS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Lateness:
    """Holds the figures of some seconds of beats. `collector` is its seconds of pauses, which are in the others as well."""

    beats: int
    p99_ms: float
    weighted_p99_ms: float
    max_ms: float
    collector: float


async def beat(late: list[float]) -> None:
    """Note the lateness of each beat until cancelled."""
    clock, sleep = time.perf_counter, asyncio.sleep
    while True:
        due = clock() + PERIOD
        await sleep(PERIOD)
        late.append(max(0.0, clock() - due))


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


async def runs(
    records: int, compression: str, count: int
) -> AsyncGenerator[tuple[Lateness, Lateness, float]]:
    """Yield for each run the idle loop's lateness, the lateness beside the sends, and the seconds of the sends.

    All runs share one warm broker: a new JVM compiles on the cores that the loop needs, and that slowness is not the producer's.
    """
    async with real_broker() as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        keys = few_keys(0, records)
        async with aioproducer(
            broker.bootstrap_servers, Settings(compression=compression)
        ) as client:
            await send_all(client, keys)
        for _ in range(count):
            async with aioproducer(
                broker.bootstrap_servers, Settings(compression=compression)
            ) as client:
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
    late: list[float] = []
    pauses: list[float] = []

    def note(phase: str, _: dict[str, int]) -> None:
        pauses.append(time.perf_counter() * (-1 if phase == "start" else 1))

    gc.collect()
    gc.callbacks.append(note)
    heart = asyncio.create_task(beat(late))
    await asyncio.sleep(PERIOD)
    start = time.perf_counter()
    kept = await work
    seconds = time.perf_counter() - start
    await asyncio.sleep(2 * PERIOD)  # the last stall is a beat too
    heart.cancel()
    await asyncio.wait([heart])
    gc.callbacks.remove(note)
    del kept
    return Lateness(
        len(late), p99(late) * 1e3, weighted_p99(late) * 1e3, max(late) * 1e3, sum(pauses)
    ), seconds


async def measure(
    console: Console, records: int, compression: str, count: int
) -> tuple[list[float], list[float]]:
    """Return each run's p99 over that of its idle loop, and its longest lateness."""
    over, most = [], []
    async with contextlib.aclosing(runs(records, compression, count)) as measured:
        async for idle, busy, seconds in measured:
            console.print(
                f"{records:,} keyed sends, deliveries kept, flushed in {seconds:.2f} s: {busy}; idle: {idle}",
                soft_wrap=True,
            )
            over.append(busy.p99_ms - idle.p99_ms)
            most.append(busy.max_ms)
    return over, most


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks heartbeat")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--compression", default="zstd", help="(default: %(default)s)")
    chosen, console = parser.parse_args(), Console(highlight=False)
    over, most = map(
        statistics.median,
        uvloop.run(measure(console, chosen.records, chosen.compression, chosen.runs)),
    )
    verdicts = [
        ("p99 over the idle baseline", over, BARS_MS[build_info().build]),
        ("max", most, MAX_BAR_MS),
    ]
    for what, found, limit in verdicts:
        console.print(
            f"{what}, median of {chosen.runs} runs: {found:.2f} ms, bar {limit:.0f} ms: {'met' if found <= limit else 'not met'}"
        )
    return 0 if all(found <= limit for _, found, limit in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
