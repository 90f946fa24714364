"""Measures small micro-batches with each sink: 60,000 rows in 40 of them, each query in a process of its own."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.tools.benchmarks.spark_rows import SMALL
from tests.tools.spark_faults.case import Case
from tests.tools.spark_faults.job import Outcome
from tests.tools.spark_faults.run import CaseRun
from tests.tools.spark_faults.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from tests.tools.benchmarks.spark_rows import Way

__all__ = ["small"]

_ROWS: Final = 60_000
_BATCHES: Final = 40
# all compilers, as a server has them
_CONF: Final = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}


async def small(rounds: int, console: Console) -> dict[str, list[float]]:
    """Return the milliseconds of the median micro-batch, of each sink in each round."""
    found: dict[str, list[float]] = {way.name: [] for way in SMALL}
    with tempfile.TemporaryDirectory(prefix="spark-small-", ignore_cleanup_errors=True) as made:
        async with Stage() as stage:
            await stage.set_for(_case(SMALL[0]))
            for number in range(rounds):
                for way in SMALL[:: -1 if number % 2 else 1]:
                    outcome = await _once(
                        way, stage, Path(made) / f"{number}-{way.format}-{len(way.options)}"
                    )
                    found[way.name].append(outcome.trigger_ms)
                    console.print(
                        f"round {number + 1} small {way.name:20} {outcome.trigger_ms:6.0f} ms a batch, of it addBatch {outcome.add_batch_ms:.0f}"
                    )
    return found


async def _once(way: Way, stage: Stage, folder: Path) -> Outcome:
    await asyncio.to_thread(folder.mkdir)
    result = await CaseRun(_case(way), stage, folder, lambda _: None).run()
    [outcome] = Outcome.read(folder)
    assert result.runs == 1, result.errors
    # One more if the last rows of some partitions are left over.
    assert outcome.batches in {_BATCHES, _BATCHES + 1}, outcome
    assert not way.is_to_kafka or not result.counted.lost, result
    return outcome


def _case(way: Way) -> Case:
    options: Mapping[str, str] = way.options
    return Case(
        name="small",
        rows=_ROWS,
        per_batch=_ROWS // _BATCHES,
        format=way.format,
        options=options,
        conf=_CONF,
        master="local[2]",
    )
