"""One client runs one workload once, in a fresh process on uvloop, and prints one line of JSON.

    python -m tests.tools.benchmarks.client < TASK

The task is JSON (see `task`), from standard input. The measure covers the workload alone: imports, start and a warm-up are before
it, the stop is after it. CPU is that of the whole process with all its threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import resource
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import uvloop

from tests.tools.benchmarks.clients import BASE_TREE, CLIENTS, OF_BASE
from tests.tools.benchmarks.task import Task, Told
from tests.tools.benchmarks.workloads import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tests.tools.benchmarks.workloads import Job, Tally

STATUS = pathlib.Path("/proc/self/status")


def cpu_seconds() -> float:
    """Return the user and system time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_bytes() -> int:
    """Return the peak memory of this program. It is Linux's own figure, as `ru_maxrss` begins with the memory of the parent."""
    with contextlib.suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def percentiles_ms(latencies: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile, in milliseconds."""
    if len(latencies) < 2:
        return 0.0, 0.0
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3


async def run(task: Task) -> Told:
    """Warm up, then measure one run of the workload."""
    kind = CLIENTS[task.client]
    way = kind.ways[task.way]
    warm_up, measured = jobs(task)
    async with kind.open(task.bootstrap_servers, task.settings) as client:
        before = await way(client, warm_up)
        await before.read_rest()
        tally, (seconds, cpu, growth) = await _measured(way, client, measured)
        peak = peak_bytes()
        await tally.read_rest()
    p50_ms, p99_ms = percentiles_ms(tally.latencies)
    return Told(
        records=task.records,
        seconds=seconds,
        cpu_seconds=cpu,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        peak_mib=peak / 2**20,
        growth_mib=growth / 2**20,
        counts=[sum(pair) for pair in zip(before.counts, tally.counts, strict=True)]
        if tally.is_told
        else [],
        offsets=before.offsets + tally.offsets if tally.is_told else None,
        build=kind.build(),
    )


async def _measured(
    way: Callable[[Any, Job], Coroutine[Any, Any, Tally]], client: Any, job: Job
) -> tuple[Tally, tuple[float, float, int]]:
    gc.collect()  # the warm-up's garbage is not the workload's
    memory = psutil.Process().memory_info().rss
    cpu, start = cpu_seconds(), time.perf_counter()
    tally = await way(client, job)
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    return tally, (seconds, cpu, max(0, peak_bytes() - memory))


def main() -> None:
    task = Task.from_json(sys.stdin.read())
    if task.client in OF_BASE:
        sys.path.insert(0, os.environ[BASE_TREE])
    told = uvloop.run(run(task))
    print(told.to_json())


if __name__ == "__main__":
    main()
