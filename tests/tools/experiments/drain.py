"""Leaves out each rule of `aioproducer.core.drain_policy`, one at a time, and measures what changes, on one real Kafka.

Three loads, for each kind of `linger_ms` and for few and many partitions. In `loop`, one task sends without a pause: a burst. In `busy`,
it computes before each send. In `crowd`, many tasks each wait for the acknowledgement of their record before they send the next one.
`memory` is `loop` with a small `buffer_memory`, for the rule of that name alone.

All runs of a round are beside each other, and each figure is compared with the whole table's in that round.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import statistics
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer import Producer
from aioproducer.core.drain_policy import RULES, DrainPolicy, Linger
from aioproducer.engine import wiring
from tests.tools.benchmarks.broker import real_broker
from tests.tools.experiments.result import Result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["run", "run_for"]

_WHOLE: Final = ""
_PARTITIONS: Final = (6, 500)
_LINGERS: Final[Mapping[Linger, Any]] = {Linger.NONE: 0, Linger.TIME: 5, Linger.LOAD: "auto"}
_VALUE: Final = bytes(100)
_TASKS: Final = 500
# Turns of an empty loop before each send: some 5 us.
_COMPUTES: Final = 200
# A run of them takes a second, too, with this part of the records.
_SLOWER: Final = 4
_SHORT_MEMORY: Final = 2**20
_MEMORY: Final = "memory"
_ENOUGH: Final = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Holds the size of an experiment: rounds, and the records of one run of a loop. Other loads have fewer."""

    rounds: int
    records: int


class Cell(NamedTuple):
    """Names one run of a round."""

    rule: str
    linger: Linger
    partitions: int
    load: str


class Figures(NamedTuple):
    """Holds the figures of one run: records a second, CPU seconds of this process a record, latencies in seconds."""

    rate: float
    cpu: float
    p50: float
    p99: float


@contextmanager
def without(rule: str) -> Iterator[None]:
    """Make producers with a table that lacks `rule`."""
    before = wiring.DrainPolicy
    wiring.DrainPolicy = partial(DrainPolicy, rules=[row for row in RULES if row.name != rule])  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        wiring.DrainPolicy = before  # type: ignore[misc]


def cells() -> list[Cell]:
    """Return the runs of a round: the whole table first, then without each rule that applies."""
    made = []
    for linger, partitions, load in itertools.product(Linger, _PARTITIONS, ("loop", "busy", "crowd", _MEMORY)):
        names = [row.name for row in RULES if linger in row.lingers and (load != _MEMORY or row.name == _MEMORY)]
        made += [Cell(name, linger, partitions, load) for name in (_WHOLE, *names) if names]
    return made


async def run(quick: bool) -> Result:
    """Run all rounds."""
    return await run_for(Size(1, 2_000) if quick else Size(5, 200_000))


async def run_for(size: Size) -> Result:
    """Run all rounds of a size."""
    rounds: list[dict[Cell, Figures]] = []
    async with real_broker() as broker:
        for partitions in _PARTITIONS:
            await broker.create_topic(f"drain-{partitions}", partitions)
        for number in range(size.rounds):
            order = cells() if number % 2 else cells()[::-1]
            rounds.append({cell: await _measure(broker.bootstrap_servers, cell, size.records) for cell in order})
    return result_of(size, rounds)


def result_of(size: Size, rounds: Sequence[Mapping[Cell, Figures]]) -> Result:
    """Return the table, the picture and the claims of the rounds' figures."""
    rows = _rows(rounds)
    return Result(
        rows=rows,
        text=(
            f"What changes without a rule: medians of {size.rounds} rounds, each figure divided by that of the whole table in its round; "
            f"{size.records:,} records of {len(_VALUE)} bytes a run of `loop`, and a quarter of the others; keys that reach all partitions, "
            "uvloop where it is installed, one broker beside the client. `loop`: one task sends without a pause; `busy`: it computes some 5 us "
            f"before each send; `crowd`: {_TASKS} tasks that wait for each record; "
            f"`memory`: `loop` with `buffer_memory` of {_SHORT_MEMORY // 2**20} MiB. A rate below 1.00, or a CPU, p50 or p99 above it, "
            "is what the rule is for; the opposite is what it costs."
        ),
        draw=partial(_draw, rows),
        bars={f"{name}: wins 5 % somewhere ({won:.0%})": won >= _ENOUGH for name, won in _best(rows).items()},
    )


async def _measure(servers: str, cell: Cell, records: int) -> Figures:
    keys = [b"%d" % number for number in range(max(1_000, 4 * cell.partitions))]
    options: dict[str, Any] = {"linger_ms": _LINGERS[cell.linger]}
    if cell.load == _MEMORY:
        options["buffer_memory"] = _SHORT_MEMORY
    with without(cell.rule):
        async with Producer(bootstrap_servers=servers, **options) as producer:
            send = partial(_LOADS[cell.load], producer, f"drain-{cell.partitions}", keys)
            records //= 1 if cell.load == "loop" else _SLOWER
            await send(min(records // 5, 10_000))
            began, cpu = time.perf_counter(), time.process_time()
            latencies = await send(records)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    hundredths = statistics.quantiles(latencies, n=100)
    return Figures(records / seconds, cpu / records, hundredths[49], hundredths[98])


async def _loop(producer: Producer[bytes, bytes], topic: str, keys: Sequence[bytes], records: int, *, turns: int = 0) -> list[float]:
    clock, latencies = time.perf_counter, []
    is_done = asyncio.Event()

    def done(began: float, delivery: Any) -> None:
        delivery.result()
        latencies.append(clock() - began)
        if len(latencies) == records:
            is_done.set()

    for _, key in zip(range(records), itertools.cycle(keys), strict=False):
        for _turn in range(turns):
            pass
        began = clock()
        (await producer.send(topic, _VALUE, key)).add_done_callback(partial(done, began))
    await producer.flush()
    await is_done.wait()
    return latencies


async def _crowd(producer: Producer[bytes, bytes], topic: str, keys: Sequence[bytes], records: int) -> list[float]:
    clock, latencies = time.perf_counter, []
    left = iter(range(records))

    async def send(first: int) -> None:
        for key in itertools.cycle(keys[first:] + keys[:first]):
            if next(left, None) is None:
                return
            began = clock()
            await producer.send_and_wait(topic, _VALUE, key)
            latencies.append(clock() - began)

    async with asyncio.TaskGroup() as group:
        for number in range(_TASKS):
            group.create_task(send(number % len(keys)))
    return latencies


_LOADS: Final[Mapping[str, Callable[..., Awaitable[list[float]]]]] = {
    "loop": _loop,
    "busy": partial(_loop, turns=_COMPUTES),
    "crowd": _crowd,
    _MEMORY: _loop,
}


def _rows(rounds: Sequence[Mapping[Cell, Figures]]) -> list[dict[str, Any]]:
    rows = []
    for cell in rounds[0]:
        if cell.rule == _WHOLE:
            continue
        whole = cell._replace(rule=_WHOLE)
        ratios = [[without / with_it for without, with_it in zip(figures[cell], figures[whole], strict=True)] for figures in rounds]
        rate, cpu, p50, p99 = (statistics.median(column) for column in zip(*ratios, strict=True))
        rows.append(
            {
                "without": cell.rule,
                "linger_ms": str(_LINGERS[cell.linger]),
                "partitions": cell.partitions,
                "load": cell.load,
                "rate": rate,
                "CPU": cpu,
                "p50": p50,
                "p99": p99,
            }
        )
    names = [row.name for row in RULES]
    loads = list(_LOADS)
    return sorted(rows, key=lambda row: (names.index(row["without"]), row["linger_ms"], row["partitions"], loads.index(row["load"])))


def _gain(row: Mapping[str, Any]) -> float:
    """Return what the rule wins in its best figure of a row: 0.05 is 5 %."""
    return max(1 / row["rate"], row["CPU"], row["p50"], row["p99"]) - 1


def _best(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    best: dict[str, float] = {}
    for row in rows:
        best[row["without"]] = max(best.get(row["without"], 0.0), _gain(row))
    return best


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figures = ("rate", "CPU", "p50", "p99")
    shown = Figure(figsize=(9, 0.27 * len(rows) + 1.6), layout="constrained", facecolor="white")
    axes = shown.subplots()
    values = [[row[name] for name in figures] for row in rows]
    image = axes.imshow(
        [[min(max(value if name != "rate" else 1 / value, 0.5), 2.0) for name, value in zip(figures, row, strict=True)] for row in values],
        cmap="RdYlGn_r",
        norm=LogNorm(0.5, 2.0),
        aspect="auto",
    )
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(figures)), figures)
    axes.xaxis.tick_top()
    labels = [f"{row['without']} · linger {row['linger_ms']} · {row['partitions']} partitions · {row['load']}" for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.set_title("Without a rule: figures relative to the whole table (red: worse without it)", fontsize=9)
    shown.colorbar(image, ax=axes, shrink=0.3, ticks=[0.5, 1, 2], format="%g")
    shown.savefig(path, dpi=110)
