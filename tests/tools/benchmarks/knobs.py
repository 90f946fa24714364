"""The two throughput knobs (seeds/000): what `linger_ms` and `batch_size` do to rate, batches and waiting, on one real Kafka.

    python -m tests.tools.benchmarks.knobs [--records 100000] [--paced 5000] [--svg PATH] [--json PATH]

Each setting carries two loads: as fast as `await send()` goes, which tells the rate; and a steady one, a few records every millisecond
as a service has them, which tells how full batches get and how long a record waits for its acknowledgement. Batches are counted in the
broker's log. Knows nothing of the peer.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import json
import pathlib
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import uvloop
from rich.console import Console
from rich.progress import track
from rich.table import Table

from aioproducer.records.record_batch import OVERHEAD
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message
from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.workloads import PARTITIONS, VALUE, few_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer import Delivery, Producer
    from tests.tools.benchmarks.broker import Broker

LINGERS: Final = (0, 1, 5, 20)
BATCHES: Final = (4, 8, 16, 32, 64, 128, 256)
"""KiB."""
PACED_SECONDS: Final = 1.5
FETCH_VERSION: Final = 11
"""The last version in which a Fetch request names the topic and needs no epoch."""
COLOURS: Final = ("#12a594", "#2f6fde", "#e5793a", "#b03a6f")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Holds the figures of one setting: rate at full speed; batch bytes, fill (of `batch_size`) and latencies at the steady load."""

    linger_ms: int
    batch_kib: int
    rate: float
    full_batch_bytes: float
    batch_bytes: float
    fill: float
    p50_ms: float
    p99_ms: float


async def full_speed(producer: Producer[bytes, bytes], topic: str, keys: Sequence[bytes]) -> float:
    """Return records a second."""
    before = time.perf_counter()
    send = producer.send
    deliveries = [await send(topic, VALUE, key) for key in keys]
    await producer.flush()
    rate = len(keys) / (time.perf_counter() - before)
    for delivery in deliveries:
        await delivery
    return rate


async def paced(producer: Producer[bytes, bytes], topic: str, keys: Sequence[bytes], rate: int) -> list[float]:
    """Return milliseconds from each call to its acknowledgement. The load does not wait for acknowledgements."""
    latencies: list[float] = []
    clock = time.perf_counter

    def note(_delivery: Delivery, sent_at: float) -> None:
        latencies.append((clock() - sent_at) * 1e3)

    start, sent = clock(), 0
    while sent < len(keys):
        due = min(int((clock() - start) * rate) + 1, len(keys))
        for key in keys[sent:due]:
            delivery = await producer.send(topic, VALUE, key)
            delivery.add_done_callback(functools.partial(note, sent_at=clock()))
        sent = due
        await asyncio.sleep(0.001)
    await producer.flush()
    return latencies


async def batch_sizes(broker: Broker, topic: str) -> list[int]:
    """Return the bytes of the records of each batch in the log."""
    sizes: list[int] = []
    async with WireClient(broker.bootstrap_servers) as client:
        for partition, end in enumerate(await client.end_offsets(topic)):
            offset = 0
            while offset < end:
                asked = message("Fetch.request.topics.partitions", partition=partition, fetch_offset=offset, partition_max_bytes=2**24)
                wanted = message("Fetch.request.topics", topic=topic, partitions=[asked])
                answer = await client.ask(ApiKey.FETCH, version=FETCH_VERSION, max_wait_ms=1000, min_bytes=1, topics=[wanted])
                records = bytes(answer.responses[0].partitions[0].records)
                at = 0
                while at + OVERHEAD <= len(records):
                    size = int.from_bytes(records[at + 8 : at + 12], "big") + 12
                    if at + size > len(records):  # the broker cuts the last batch at the limit
                        break
                    sizes.append(size - OVERHEAD)
                    offset = int.from_bytes(records[at : at + 8], "big") + int.from_bytes(records[at + 23 : at + 27], "big") + 1
                    at += size
    return sizes


async def measure(broker: Broker, linger_ms: int, batch_kib: int, records: int, rate: int) -> Knobs:
    from aioproducer import Producer

    topics = [f"knobs-{load}-{linger_ms}-{batch_kib}" for load in ("full", "paced")]
    for topic in topics:
        await broker.create_topic(topic, PARTITIONS)
    producer: Producer[bytes, bytes] = Producer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=linger_ms, batch_size=batch_kib * 1024
    )
    async with producer:
        for topic in topics:
            await producer.send_and_wait(topic, b"known", partition=0)
        speed = await full_speed(producer, topics[0], few_keys(0, records))
        latencies = await paced(producer, topics[1], few_keys(0, int(rate * PACED_SECONDS)), rate)
    full, steady = [await batch_sizes(broker, topic) for topic in topics]
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return Knobs(
        linger_ms=linger_ms,
        batch_kib=batch_kib,
        rate=speed,
        full_batch_bytes=statistics.mean(full),
        batch_bytes=statistics.mean(steady),
        fill=statistics.mean(full) / (batch_kib * 1024),
        p50_ms=cuts[49],
        p99_ms=cuts[98],
    )


async def run(records: int, rate: int, console: Console) -> list[Knobs]:
    settings = [(linger_ms, batch_kib) for linger_ms in LINGERS for batch_kib in BATCHES]
    async with real_broker() as broker:
        await measure(broker, 0, 2, records, rate)  # warms the broker up; not kept
        return [await measure(broker, *setting, records, rate) for setting in track(settings, "settings", console=console)]


def table(found: Sequence[Knobs], rate: int) -> Table:
    columns = ("linger ms", "batch KiB", "k rec/s", "batch B at full speed", "fill %", f"batch B at {rate:,}/s", "p50 ms", "p99 ms")
    shown = Table(*columns, title="linger_ms x batch_size")
    for one in found:
        cells = (one.linger_ms, one.batch_kib, f"{one.rate / 1e3:.0f}", f"{one.full_batch_bytes:,.0f}", f"{one.fill:.0%}")
        shown.add_row(*map(str, cells), f"{one.batch_bytes:,.0f}", f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}")
    return shown


def draw(path: pathlib.Path, found: Sequence[Knobs], rate: int) -> None:
    """Draw three panels over `batch_size`, with a curve for each `linger_ms`, as SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    panels: tuple[tuple[str, Callable[[Knobs], float]], ...] = (
        ("thousand records a second, full speed", lambda one: one.rate / 1e3),
        ("fill of batches at full speed, %", lambda one: one.fill * 100),
        (f"p99 to the acknowledgement at {rate:,} records/s, ms", lambda one: one.p99_ms),
    )
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "knobs", "font.family": "sans-serif"}):
        figure = Figure(figsize=(13, 4), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        for axes, (title, of) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            _panel(axes, title, found, of)
        figure.savefig(path, metadata={"Date": None})


def _panel(axes: Any, title: str, found: Sequence[Knobs], of: Callable[[Knobs], float]) -> None:
    for linger_ms, colour in zip(LINGERS, COLOURS, strict=True):
        line = [one for one in found if one.linger_ms == linger_ms]
        axes.plot(
            [one.batch_kib for one in line], [of(one) for one in line], "o-", color=colour, label=f"linger {linger_ms} ms", markersize=4
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(BATCHES, [str(size) for size in BATCHES])
    axes.set_xlabel("batch_size, KiB")
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_ylim(0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=8)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks.knobs")
    parser.add_argument("--records", type=int, default=100_000, help="of the load at full speed (default: %(default)s)")
    parser.add_argument(
        "--paced", type=int, default=5_000, metavar="RATE", help="records a second of the steady load (default: %(default)s)"
    )
    parser.add_argument("--svg", type=pathlib.Path, metavar="PATH", help="draw the picture there")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write everything measured there")
    chosen, console = parser.parse_args(), Console(highlight=False)
    found = uvloop.run(run(chosen.records, chosen.paced, console))
    console.print(table(found, chosen.paced))
    if chosen.svg:
        draw(chosen.svg, found, chosen.paced)
    if chosen.json:
        chosen.json.write_text(json.dumps([dataclasses.asdict(one) for one in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
