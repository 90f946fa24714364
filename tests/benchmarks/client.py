"""One client runs one workload once, in a fresh process on uvloop, and prints one line of JSON.

    python -m tests.benchmarks.client CLIENT WORKLOAD BOOTSTRAP TOPIC RECORDS

Measured is the workload alone: imports, start and a warm-up lie before it, the stop after it. CPU is the whole process's, every thread's.
Knows nothing of the other client, of rounds and ratios.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import resource
import statistics
import sys
import time
from typing import TYPE_CHECKING

import psutil
import uvloop

from tests.benchmarks.clients import CLIENTS
from tests.benchmarks.workloads import PARTITIONS, WORKLOADS, Client, Job, Tally, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP = 20_000
"""At most so many records before the clock starts, and at most a fifth of those that are measured."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What one run of one client cost. Latencies are 0 where the workload has none."""

    client: str
    workload: str
    records: int
    acknowledged: int
    is_gapless: bool
    seconds: float
    cpu_seconds: float
    rate: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    peak_mib: float
    growth_mib: float


def cpu_seconds() -> float:
    """User and system time of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def percentiles_ms(latencies: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, in milliseconds."""
    if len(latencies) < 2:
        return 0.0, 0.0
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[98] * 1e3


async def next_offsets(client: Client, topic: str) -> list[int]:
    """Where each partition goes on, after one marking record."""
    return [(await client.send_and_wait(topic, b"mark", partition=number)).offset + 1 for number in range(PARTITIONS)]


async def run(name: str, workload_name: str, bootstrap_servers: str, topic: str, records: int) -> Measure:
    """Warm up, then measure one run of the workload."""
    workload = WORKLOADS[workload_name]
    warm_up = min(WARM_UP, records // 5)
    first, measured = Job(topic, workload.keys(0, warm_up)), Job(topic, workload.keys(warm_up, records))
    async with CLIENTS[name](bootstrap_servers) as client:
        await workload.run(client, first)
        starts = await next_offsets(client, topic)
        tally, spent = await _measured(workload, client, measured)
    seconds, cpu, growth = spent
    p50_ms, p99_ms = percentiles_ms(tally.latencies)
    return Measure(
        client=name,
        workload=workload_name,
        records=records,
        acknowledged=tally.acknowledged,
        is_gapless=tally.is_gapless_from(starts),
        seconds=seconds,
        cpu_seconds=cpu,
        rate=records / seconds,
        cpu_us=cpu / records * 1e6,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        peak_mib=peak_bytes() / 2**20,
        growth_mib=growth / 2**20,
    )


async def _measured(workload: Workload, client: Client, job: Job) -> tuple[Tally, tuple[float, float, int]]:
    gc.collect()  # the warm-up's garbage is not the workload's
    memory = psutil.Process().memory_info().rss
    cpu, start = cpu_seconds(), time.perf_counter()
    tally = await workload.run(client, job)
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    return tally, (seconds, cpu, max(0, peak_bytes() - memory))


def main() -> None:
    name, workload_name, bootstrap_servers, topic, records = sys.argv[1:]
    measure = uvloop.run(run(name, workload_name, bootstrap_servers, topic, int(records)))
    print(json.dumps(dataclasses.asdict(measure)))


if __name__ == "__main__":
    main()
