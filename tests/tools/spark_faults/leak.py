"""Whether the workers of a long query grow: memory, threads and sockets by fifths of its micro-batches.

    python -m tests.tools.spark_faults leak [--batches 500] [--delivery exactly_once] [--json PATH]

A fifth's memory is the median of all samples of the workers that live through the run. Exit status 1 when the last fifth's memory is above
1.02 of the second's, or threads or sockets differ.
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
    from collections.abc import Sequence

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


def fifths(samples: Sequence[Sample], batches: int) -> list[Fifth]:
    """Return the medians of each fifth of the batches, of the workers that live through the run."""
    looks = Counter(sample.pid for sample in samples)
    steady = {pid for pid, times in looks.items() if times >= _LIVES_THROUGH * max(looks.values())}
    found = []
    for number in range(_FIFTHS):
        low, high = (batches * at // _FIFTHS for at in (number, number + 1))
        some = [sample for sample in samples if sample.pid in steady and low <= sample.batch < high]
        figures = [statistics.median(getattr(sample, name) for sample in some) for name in ("rss", "threads", "sockets")]
        found.append(Fifth(figures[0] / 2**20, figures[1], figures[2]))
    return found


def is_flat(found: Sequence[Fifth]) -> bool:
    second, last = found[1], found[-1]
    return last.rss_mib <= _BAR * second.rss_mib and (last.threads, last.sockets) == (second.threads, second.sockets)


def table(found: Sequence[Fifth]) -> Table:
    shown = Table(title="the workers of the sink, medians by fifths of the batches")
    for heading in ("fifth", "RSS, MiB", "threads", "sockets"):
        shown.add_column(heading, justify="right")
    for number, fifth in enumerate(found, 1):
        shown.add_row(str(number), f"{fifth.rss_mib:.1f}", f"{fifth.threads:g}", f"{fifth.sockets:g}")
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
    flat = is_flat(found)
    console.print(
        f"the last fifth beside the second: {found[-1].rss_mib / found[1].rss_mib:.3f} of its memory, {'flat' if flat else 'NOT FLAT'}"
    )
    return 0 if flat else 1
