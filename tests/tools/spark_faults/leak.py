"""Measures whether the workers of a long query grow: memory, threads and sockets by fifths of its micro-batches.

    python -m tests.tools.spark_faults leak [--batches 500] [--delivery exactly_once] [--json PATH]

Each worker that lives through the run is judged by itself, by the medians of its samples: a median of all would not show one that grows.
Exit status 1 when the last fifth's memory of a worker is above 1.02 of its second's, or its threads or sockets differ.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
from rich.console import Console
from rich.table import Table

from tests.tools.spark_faults import processes
from tests.tools.spark_faults.case import Case
from tests.tools.spark_faults.job import Driver
from tests.tools.spark_faults.run import CaseRun
from tests.tools.spark_faults.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_A_BATCH: Final = 60
_FIFTHS: Final = 5
_SAMPLE_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 10.0  # of a batch, on a busy machine
_BAR: Final = 1.02
_LIVES_THROUGH: Final = 0.8
"""The share of the samples in which a worker must be to count; others run one step of one batch."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """Holds one look at one worker."""

    pid: int
    batch: int
    rss: int
    threads: int
    sockets: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fifth:
    """Holds the medians of a fifth of the batches."""

    rss_mib: float
    threads: float
    sockets: float


async def sampled(folder: Path, samples: list[Sample]) -> None:
    """Look at the query's workers until cancelled."""
    while True:
        await asyncio.sleep(_SAMPLE_SECONDS)
        driver = Driver.read(folder)
        batch = last_batch(folder)
        if driver is not None and batch is not None:
            for one in processes.workers([driver.python]):
                with contextlib.suppress(psutil.Error):
                    sockets = len(one.net_connections("tcp"))
                    samples.append(Sample(one.pid, batch, one.memory_info().rss, one.num_threads(), sockets))


def last_batch(folder: Path) -> int | None:
    """Return the number of the last batch that was committed; None: there is none yet."""
    numbers = [int(path.name) for path in (folder / "checkpoint" / "commits").glob("[0-9]*")]
    return max(numbers, default=None)


def fifths(samples: Sequence[Sample], batches: int) -> dict[int, list[Fifth]]:
    """Return the medians of each fifth of the batches, for each worker that lives through the run, by its process id."""
    looks = Counter(sample.pid for sample in samples)
    steady = [pid for pid, times in looks.items() if times >= _LIVES_THROUGH * max(looks.values())]
    return {pid: [_fifth([one for one in samples if one.pid == pid], batches, number) for number in range(_FIFTHS)] for pid in steady}


def _fifth(samples: Sequence[Sample], batches: int, number: int) -> Fifth:
    low, high = (batches * at // _FIFTHS for at in (number, number + 1))
    some = [sample for sample in samples if low <= sample.batch < high]
    rss, threads, sockets = (statistics.median(getattr(sample, name) for sample in some) for name in ("rss", "threads", "sockets"))
    return Fifth(rss / 2**20, threads, sockets)


def is_flat(found: Sequence[Fifth]) -> bool:
    """Return whether one worker did not grow."""
    second, last = found[1], found[-1]
    return growth(found) <= _BAR and (last.threads, last.sockets) == (second.threads, second.sockets)


def growth(found: Sequence[Fifth]) -> float:
    """Return the memory of one worker in the last fifth, over that in the second."""
    return found[-1].rss_mib / found[1].rss_mib


def table(found: Mapping[int, Sequence[Fifth]]) -> Table:
    shown = Table(title="the workers of the sink, medians by fifths of the batches")
    for heading in ("worker", *(f"RSS {number}, MiB" for number in range(1, _FIFTHS + 1)), "threads", "sockets", "last / second"):
        shown.add_column(heading, justify="right")
    for pid, some in found.items():
        threads, sockets = (" ".join(f"{getattr(fifth, name):g}" for fifth in some) for name in ("threads", "sockets"))
        shown.add_row(str(pid), *(f"{fifth.rss_mib:.1f}" for fifth in some), threads, sockets, f"{growth(some):.3f}")
    return shown


async def run(case: Case, folder: Path, console: Console) -> list[Sample]:
    samples: list[Sample] = []
    async with Stage(folder) as stage:
        await stage.set_for(case)
        sampling = asyncio.create_task(sampled(folder, samples))
        try:
            result = await CaseRun(case, stage, folder, console.print).run()
        finally:
            sampling.cancel()
            await asyncio.wait([sampling])
    assert result.is_right, result
    return samples


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.spark_faults leak")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--delivery", choices=("at_least_once", "exactly_once"), default="exactly_once")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write every sample there")
    chosen, console = parser.parse_args(words), Console(highlight=False)
    case = Case(
        name="leak",
        rows=chosen.batches * _A_BATCH,
        per_batch=_A_BATCH,
        options={"delivery": chosen.delivery},
        master="local[2]",
        seconds=chosen.batches * _MOST_SECONDS,
    )
    with tempfile.TemporaryDirectory(prefix="spark-leak-", ignore_cleanup_errors=True) as made:
        samples = asyncio.run(run(case, Path(made), console))
    if chosen.json:
        chosen.json.write_text(json.dumps([dataclasses.asdict(sample) for sample in samples]) + "\n", encoding="utf-8")
    found = fifths(samples, chosen.batches)
    console.print(table(found))
    flat = all(map(is_flat, found.values()))
    console.print(
        f"the last fifth beside the second: at most {max(map(growth, found.values())):.3f} of its memory, {'flat' if flat else 'NOT FLAT'}"
    )
    return 0 if flat else 1
