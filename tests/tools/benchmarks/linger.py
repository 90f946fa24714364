"""`linger_ms="auto"` beside 0 and 5 ms over load and round trip, on one real Kafka, rounds interleaved; or reckoned.

    python -m tests.tools.benchmarks.linger [--rounds 7] [--seconds 1] [--rtts 0 2 20] [--loads single loop ...] [--svg PATH] [--json PATH]
    python -m tests.tools.benchmarks.linger --model [--rtts 0.7 2.3 20.3] ...

Loads: one record at a time; steady ones, a few records every millisecond, acknowledged or not; a loop of `await send()`; crowds of
tasks that each wait for their record, all at once or begun apart. A round trip is the proxy's, in a process of its own. Each run has a
producer of its own, and each figure is compared within its round; by a tenth of the median is worse.

`--model` is a fake cluster and a loop with time that jumps: nothing takes time but the round trip, so it says exactly what the rule does, on
any machine, and nothing of CPU. Knows nothing of the peer.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import gc
import json
import pathlib
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Literal

import uvloop
from rich.console import Console
from rich.table import Table

from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import JumpingLoop
from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.workloads import FEW_KEYS, PARTITIONS, VALUE, few_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from aioproducer import Delivery, Producer

    Clock = Callable[[], float]
    Load = Callable[[Producer[bytes, bytes], float, Clock], Awaitable[list[float]]]

Linger = Literal["auto"] | float

AUTO: Final = "auto"
LINGERS: Final[Sequence[Linger]] = (0, AUTO, 5)
RTTS: Final = (0.0, 2.0, 20.0)
"""Milliseconds that the proxy adds; 0: there is none."""
MODELLED: Final = (0.7, 2.3, 20.3)
"""Fractions of milliseconds: the loads send each millisecond, and would otherwise be synchronous with the answers."""
COLOURS: Final[Mapping[Linger, str]] = {0: "#12a594", AUTO: "#2f6fde", 5: "#e5793a"}
TOPIC: Final = "linger"
WORSE: Final = 1.1
WIDTH: Final = 130
_KEYS: Final = few_keys(0, FEW_KEYS)
_SAMPLED: Final = 16  # the loop times one record of so many: a callback for each would cost as much as its send

# Loads: each for so many seconds; milliseconds from the calls to their acknowledgements


async def crowd(tasks: int, producer: Producer[bytes, bytes], seconds: float, clock: Clock, *, apart: float = 0.0) -> list[float]:
    """Send from many tasks, each one record at a time. The last task begins when the share `apart` of the time is over."""
    latencies: list[float] = []
    until = clock() + seconds

    async def one_by_one(key: bytes, begin: float) -> None:
        await asyncio.sleep(begin)
        before = clock()
        while before < until:
            await producer.send_and_wait(TOPIC, VALUE, key)
            after = clock()
            latencies.append((after - before) * 1e3)
            before = after

    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(one_by_one(_KEYS[number % FEW_KEYS], number / tasks * seconds * apart))
    return latencies


async def steady(rate: int, producer: Producer[bytes, bytes], seconds: float, clock: Clock) -> list[float]:
    """Send so many records a second, those of each millisecond at its beginning. No task waits for them."""
    latencies: list[float] = []

    def note(_delivery: Delivery, sent_at: float) -> None:
        latencies.append((clock() - sent_at) * 1e3)

    start, sent, records = clock(), 0, int(rate * seconds)
    while sent < records:
        due = min(int((clock() - start) * rate) + 1, records)
        for number in range(sent, due):
            sent_at = clock()
            delivery = await producer.send(TOPIC, VALUE, _KEYS[number % FEW_KEYS])
            delivery.add_done_callback(functools.partial(note, sent_at=sent_at))
        sent = due
        await asyncio.sleep(0.001)
    await producer.flush()
    return latencies


async def loop(producer: Producer[bytes, bytes], seconds: float, clock: Clock) -> list[float]:
    """Call `await send()` without a pause. Only the memory limit makes it wait."""
    latencies: list[float] = []
    until = clock() + seconds

    def note(_delivery: Delivery, sent_at: float) -> None:
        latencies.append((clock() - sent_at) * 1e3)

    while (sent_at := clock()) < until:
        delivery = await producer.send(TOPIC, VALUE, _KEYS[0])
        delivery.add_done_callback(functools.partial(note, sent_at=sent_at))
        for key in _KEYS[1:_SAMPLED]:
            await producer.send(TOPIC, VALUE, key)
    await producer.flush()
    return latencies


LOADS: Final[Mapping[str, Load]] = {
    "single": functools.partial(crowd, 1),
    "1 k/s": functools.partial(steady, 1_000),
    "10 k/s": functools.partial(steady, 10_000),
    "50 k/s": functools.partial(steady, 50_000),
    "loop": loop,
    "crowd 100": functools.partial(crowd, 100),
    "100 apart": functools.partial(crowd, 100, apart=0.1),
    "crowd 2000": functools.partial(crowd, 2_000),
}

FULL: Final = frozenset({"50 k/s", "loop", "crowd 2000"})
"""Loads of full batches, which are the same with each linger. The model leaves them out, as they have millions of records."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Holds the figures of one run. CPU is this process's, and 0 in the model."""

    rtt: float
    load: str
    linger: Linger
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    batch_records: float
    requests: float
    """A second."""


FIGURES: Final = ("rate", "p50_ms", "p99_ms", "cpu_us")
"""The figures that are judged. Less is better, except for the rate."""


async def measure(options: Mapping[str, Any], rtt: float, load: str, linger: Linger, seconds: float, clock: Clock | None = None) -> Run:
    """Return the figures of one run; the model passes its own `clock`."""
    from aioproducer import Producer

    now = clock or time.perf_counter
    producer: Producer[bytes, bytes] = Producer(linger_ms=linger, **options)
    async with producer:
        for partition in range(PARTITIONS):
            await producer.send_and_wait(TOPIC, b"known", partition=partition)
        gc.collect()
        before = counts(producer)
        began, cpu = now(), time.process_time()
        latencies = await LOADS[load](producer, seconds, now)
        took, spent = now() - began, time.process_time() - cpu
        records, batches, requests = (after - earlier for after, earlier in zip(counts(producer), before, strict=True))
    latencies.sort()
    return Run(
        rtt=rtt,
        load=load,
        linger=linger,
        rate=records / took,
        p50_ms=latencies[len(latencies) // 2],
        p99_ms=latencies[len(latencies) * 99 // 100],
        cpu_us=spent / records * 1e6 if clock is None else 0.0,
        batch_records=records / batches,
        requests=requests / took,
    )


def counts(producer: Producer[bytes, bytes]) -> tuple[float, int, float]:
    """Return the numbers of sent records, batches and requests."""
    metrics = producer.metrics()
    return metrics.number("record-send-total"), metrics.distribution("batch-fill-ratio").count, metrics.number("request-total")


async def run(chosen: argparse.Namespace, console: Console) -> list[Run]:
    """Run all rounds of each round trip. The linger that is first in one round is last in the next."""
    found: list[Run] = []
    for rtt in chosen.rtts:
        async with real_broker(rtts_ms=[rtt] if rtt else ()) as broker:
            options = {"bootstrap_servers": broker.bootstrap_servers_at(rtt)}
            await broker.create_topic(TOPIC, PARTITIONS)
            await measure(options, rtt, "loop", 0, chosen.seconds)  # warms the broker up; not kept
            for number in range(chosen.rounds):
                for load in chosen.loads:
                    order = LINGERS if number % 2 else LINGERS[::-1]
                    found += [await measure(options, rtt, load, linger, chosen.seconds) for linger in order]
                console.print(f"rtt {rtt:g} ms: round {number + 1} of {chosen.rounds}")
    return found


async def reckon(rtt: float, load: str, linger: Linger, seconds: float) -> Run:
    """Return the figures of one run of the model."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        cluster.brokers[1].latency = rtt / 1e3
        return await measure(cluster.client_options, rtt, load, linger, seconds, asyncio.get_running_loop().time)


def model(chosen: argparse.Namespace, console: Console) -> list[Run]:
    """Run one round of the model, each run in a loop of its own."""
    found = []
    for rtt in chosen.rtts:
        for load in chosen.loads:
            for linger in LINGERS:
                with asyncio.Runner(loop_factory=JumpingLoop) as runner:
                    found.append(runner.run(reckon(rtt, load, linger, chosen.seconds)))
        console.print(f"rtt {rtt:g} ms")
    return found


def settings(found: Sequence[Run]) -> Iterator[tuple[float, str, dict[Linger, list[Run]]]]:
    """Yield round trip, load, and each linger's runs in the order of the rounds."""
    for rtt, load in dict.fromkeys((one.rtt, one.load) for one in found):
        yield rtt, load, {linger: [one for one in found if (one.rtt, one.load, one.linger) == (rtt, load, linger)] for linger in LINGERS}


def median(runs: Sequence[Run], figure: str) -> float:
    return statistics.median(getattr(one, figure) for one in runs)


def table(found: Sequence[Run]) -> Table:
    shown = Table("rtt", "load", "linger", "k rec/s", "p50 ms", "p99 ms", "CPU us", "records a batch", "requests/s", title="medians")
    for rtt, load, by_linger in settings(found):
        for linger, runs in by_linger.items():
            rate, p50, p99, cpu = (median(runs, figure) for figure in FIGURES)
            cells = (f"{rtt:g}", load, str(linger), f"{rate / 1e3:.1f}", f"{p50:.2f}", f"{p99:.2f}", f"{cpu:.1f}" if cpu else "")
            shown.add_row(*cells, f"{median(runs, 'batch_records'):.1f}", f"{median(runs, 'requests'):,.0f}")
        shown.add_section()
    return shown


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Holds the ratio of auto to another linger, paired by round. Above 1 is worse, also for rates."""

    rtt: float
    load: str
    other: Linger
    figure: str
    rounds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def ratios(found: Sequence[Run]) -> list[Ratio]:
    made = []
    for rtt, load, by_linger in settings(found):
        for other in (linger for linger in LINGERS if linger != AUTO):
            for figure in FIGURES if any(one.cpu_us for one in found) else FIGURES[:-1]:
                pairs = [
                    (getattr(ours, figure), getattr(theirs, figure)) for ours, theirs in zip(by_linger[AUTO], by_linger[other], strict=True)
                ]
                rounds = [theirs / ours if figure == "rate" else ours / theirs for ours, theirs in pairs]
                made.append(Ratio(rtt=rtt, load=load, other=other, figure=figure, rounds=rounds))
    return made


def comparison(made: Sequence[Ratio], other: Linger) -> Table:
    title = f"auto over {other} ms: median (best to worst round); above 1 auto is worse, also of rates"
    shown = Table("rtt", "load", *dict.fromkeys(one.figure for one in made), title=title)
    for rtt, load in dict.fromkeys((one.rtt, one.load) for one in made):
        cells = []
        for one in made:
            if (one.rtt, one.load, one.other) == (rtt, load, other):
                colour = "red" if one.median > WORSE else "green" if one.median < 1 / WORSE else "default"
                cells.append(f"[{colour}]{one.median:.2f}[/] ({min(one.rounds):.2f} to {max(one.rounds):.2f})")
        shown.add_row(f"{rtt:g}", load, *cells)
    return shown


# The picture

PANELS: Final = (
    ("p50 to the acknowledgement, ms", "p50_ms"),
    ("p99, ms", "p99_ms"),
    ("records a batch", "batch_records"),
    ("CPU, us a record", "cpu_us"),
)


def draw(path: pathlib.Path, found: Sequence[Run]) -> None:
    """Draw a row for each figure and a column for each round trip, with the loads side by side and a bar for each linger, as SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rtts = list(dict.fromkeys(one.rtt for one in found))
    panels = [panel for panel in PANELS if all(getattr(one, panel[1]) for one in found)]
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "linger", "font.family": "sans-serif", "font.size": 8}):
        figure = Figure(figsize=(13, 2.2 * len(panels)), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        grid = figure.subplots(len(panels), len(rtts), squeeze=False, sharey="row")
        for axes_of, (title, name) in zip(grid, panels, strict=True):
            for axes, rtt in zip(axes_of, rtts, strict=True):
                _bars(axes, [(load, runs) for some, load, runs in settings(found) if some == rtt], name)
                axes.set_title(f"{title}, round trip {rtt:g} ms" if rtt else f"{title}, same machine", loc="left", fontsize=9)
        grid[0][0].legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _bars(axes: Any, loads: Sequence[tuple[str, dict[Linger, list[Run]]]], name: str) -> None:
    width = 0.8 / len(LINGERS)
    for at, linger in enumerate(LINGERS):
        places = [place + (at - (len(LINGERS) - 1) / 2) * width for place in range(len(loads))]
        heights = [median(runs[linger], name) for _, runs in loads]
        axes.bar(places, heights, width, color=COLOURS[linger], label=f'linger_ms="{linger}"' if linger == AUTO else f"linger_ms={linger}")
    axes.set_xticks(range(len(loads)), [load for load, _ in loads], rotation=20)
    axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks.linger")
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run (default: %(default)s)")
    parser.add_argument("--model", action="store_true", help="reckon instead: a fake cluster, and time that jumps")
    parser.add_argument("--rtts", type=float, nargs="+", metavar="MS", help=f"round trips (default: {RTTS}; of the model: {MODELLED})")
    parser.add_argument("--loads", nargs="+", choices=LOADS, metavar="LOAD", help=", ".join(LOADS))
    parser.add_argument("--svg", type=pathlib.Path, metavar="PATH", help="draw the picture there")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write everything measured there")
    chosen, console = parser.parse_args(), Console(highlight=False)
    console.width = max(console.width, WIDTH)
    chosen.rtts = chosen.rtts or (MODELLED if chosen.model else RTTS)
    chosen.loads = chosen.loads or [load for load in LOADS if not (chosen.model and load in FULL)]
    if chosen.model and min(chosen.rtts) <= 0:
        parser.error("without a round trip nothing takes time in the model")
    found = model(chosen, console) if chosen.model else uvloop.run(run(chosen, console))
    made = ratios(found)
    console.print(table(found))
    for other in (linger for linger in LINGERS if linger != AUTO):
        console.print(comparison(made, other))
    if chosen.svg:
        draw(chosen.svg, found)
    if chosen.json:
        chosen.json.write_text(json.dumps([dataclasses.asdict(one) for one in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
