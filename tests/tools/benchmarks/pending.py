"""A million deliveries that no broker has acknowledged yet, in 10,000 topics and in one: CPU for each record, memory beside credits, collector.

    python -m tests.tools.benchmarks pending [--records 1000000] [--topics 10000] [--size 100] [--rounds 3] [--json PATH]

The cluster is a fake in a process of its own, which takes every Produce request and answers none until all records are queued: so the
memory that is measured is the client's alone, and no broker's speed is in the figures. Each run is a fresh process; its last phase lets the
cluster answer, and reads every result. Values are different objects. Exit status 1 when a bar is not met.
Knows nothing of real brokers or of the peer.
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
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from tests.tools.benchmarks.client import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from aioproducer import Producer

ROOT: Final = pathlib.Path(__file__).parents[3]
MIB: Final = 2**20
BROKERS: Final = 3
BUFFER_MEMORY: Final = 512 * MIB
LONG_MS: Final = 900_000  # longer than any run
PARTITIONS: Final = 6
"""The number of partitions of a single topic. Each of many topics has one partition."""
AT_ONCE: Final = 500
"""Topics that become known at the same time."""
TIME_BAR: Final = 1.5
CREDITS_BAR: Final = 1.3
DELIVERY_BAR: Final = 120


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Holds the figures of one run.

    Attributes:
        known_us, send_us, end_us: CPU for each record, while the topics become known, of the sends, and from the first answer to
            the last result.
        rss: bytes over the base, with all deliveries pending; the base is that of a started producer that knows no topic.
        credits: bytes of `buffer_memory` that were in use then.
        pauses: the collector's while sending, by generation: their number, seconds of CPU in all, seconds of the longest.
    """

    topics: int
    records: int
    known_us: float
    send_us: float
    end_us: float
    base: int
    rss: int
    credits: int
    pauses: Mapping[str, Sequence[float]]

    @property
    def bar(self) -> float:
        """Return the highest allowed bytes of memory."""
        return CREDITS_BAR * self.credits + DELIVERY_BAR * self.records

    @property
    def longest_ms(self) -> float:
        return max(longest for _, _, longest in self.pauses.values()) * 1e3

    @property
    def collector_us(self) -> float:
        """Return the collector's CPU for each record, which is part of `send_us`."""
        return sum(total for _, total, _ in self.pauses.values()) * 1e6 / self.records


def names(topics: int) -> list[str]:
    return [f"pending-{number:05}" for number in range(topics)]


def values(records: int, size: int) -> Iterator[bytes]:
    return (b"%0*d" % (size, number) for number in range(records))


# The client


@contextlib.contextmanager
def pauses() -> Iterator[dict[str, list[float]]]:
    """Collect the collector's pauses within the block, by generation: their number, seconds of CPU in all, seconds of the longest."""
    found = {str(generation): [0.0, 0.0, 0.0] for generation in range(3)}
    began = cpu = 0.0

    def note(phase: str, info: Mapping[str, int]) -> None:
        nonlocal began, cpu
        if phase == "start":
            began, cpu = time.perf_counter(), time.process_time()
            return
        one = found[str(info["generation"])]
        one[:] = one[0] + 1, one[1] + time.process_time() - cpu, max(one[2], time.perf_counter() - began)

    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)


async def run(topics: int, records: int, size: int, address: str) -> Measure:
    """Do one run. It prints a line for the parent process when all deliveries are pending."""
    from aioproducer import Producer

    chosen = names(topics)
    producer: Producer[bytes, bytes] = Producer(
        bootstrap_servers=address,
        buffer_memory=BUFFER_MEMORY,
        delivery_timeout_ms=LONG_MS,
        request_timeout_ms=LONG_MS - 1,
        max_block_ms=LONG_MS,
        metadata_max_age_ms=LONG_MS,
    )
    process = psutil.Process()
    async with producer:
        gc.collect()
        base, begin = process.memory_info().rss, cpu_seconds()
        for first in range(0, topics, AT_ONCE):
            await asyncio.gather(*map(producer.partitions_for, chosen[first : first + AT_ONCE]))
        known = cpu_seconds()
        with pauses() as found:
            deliveries = await _send(producer, chosen, values(records, size))
        sent, rss = cpu_seconds(), process.memory_info().rss
        taken = BUFFER_MEMORY - producer.buffer_available
        assert not any(delivery.done() for delivery in deliveries), "they are to be pending"
        print("pending", flush=True)
        await producer.flush()
        acknowledged = sum([(await delivery).offset >= 0 for delivery in deliveries])
        ended = cpu_seconds()
    assert acknowledged == records
    each = 1e6 / records
    return Measure(
        topics=topics,
        records=records,
        known_us=(known - begin) * each,
        send_us=(sent - known) * each,
        end_us=(ended - sent) * each,
        base=base,
        rss=rss - base,
        credits=taken,
        pauses=found,
    )


async def _send(producer: Producer[bytes, bytes], topics: Sequence[str], values: Iterator[bytes]) -> list[Any]:
    """Send one record to each topic, and repeat that until all records are sent."""
    send = producer.send
    return [await send(topic, value) for topic, value in zip(cycle(topics), values, strict=False)]


# The cluster


async def serve(topics: int) -> None:
    """Serve a cluster that answers no Produce request until it reads a line."""
    from aioproducer.testing import FakeCluster

    async with FakeCluster(BROKERS) as cluster:
        for name in names(topics):
            cluster.create_topic(name, PARTITIONS if topics == 1 else 1)
        held = cluster.hang("Produce", times=None)
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        held.release()
        await asyncio.to_thread(sys.stdin.read)


@contextlib.asynccontextmanager
async def process(*words: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run this module in another process, which ends with the block."""
    pipe = asyncio.subprocess.PIPE
    one = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"tests.tools.benchmarks.{pathlib.Path(__file__).stem}", *words, cwd=ROOT, stdin=pipe, stdout=pipe
    )
    try:
        yield one
    finally:
        if one.returncode is None:
            one.kill()
        await one.wait()


async def measured(topics: int, records: int, size: int) -> Measure:
    """Return the figures of one run in a fresh process, against a fresh cluster."""
    async with process("serve", str(topics)) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = (await cluster.stdout.readline()).decode().strip()
        async with process("run", str(topics), str(records), str(size), address) as client:
            assert client.stdout is not None
            if await client.stdout.readline() == b"pending\n":
                cluster.stdin.write(b"\n")
            lines = (await client.stdout.read()).splitlines()
            if await client.wait() or not lines:
                raise SystemExit("a run failed: its last words stand above")
    return Measure(**json.loads(lines[-1]))


# The results


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Holds a bar, the measured figure, and whether the figure meets the bar."""

    what: str
    found: str
    is_met: bool


def verdicts(many: Sequence[Measure], one: Sequence[Measure]) -> list[Verdict]:
    """Return the verdicts of the rounds: medians of ratios paired by round, and the worst round's memory."""

    def ratio(what: str) -> float:
        return statistics.median(getattr(ours, what) / getattr(theirs, what) for ours, theirs in zip(many, one, strict=True))

    sends = ratio("send_us")
    worst = max((*many, *one), key=lambda measure: measure.rss / measure.bar)
    return [
        Verdict(f"CPU of a send at most {TIME_BAR:g} x that with one topic", f"{sends:.2f} x", sends <= TIME_BAR),
        Verdict(
            f"memory at most {CREDITS_BAR:g} x credits + {DELIVERY_BAR} B a delivery, worst run",
            f"{worst.rss / MIB:,.0f} of {worst.bar / MIB:,.0f} MiB",
            worst.rss <= worst.bar,
        ),
    ]


def table(measures: Sequence[Measure]) -> Table:
    shown = Table(title="medians; CPU of the client for each record, memory over the base when all are pending")
    headings = ("topics", "records", "topics known [us]", "send [us]", "until the end [us]", "memory [MiB]", "credits [MiB]")
    for heading in (*headings, "beside credits [B/record]", "of sends: collector [us]", "longest pause [ms]"):
        shown.add_column(heading, justify="right")
    for topics in sorted({measure.topics for measure in measures}):
        some = [measure for measure in measures if measure.topics == topics]
        middle = {
            name: statistics.median(getattr(measure, name) for measure in some)
            for name in ("known_us", "send_us", "end_us", "rss", "credits", "collector_us", "longest_ms")
        }
        shown.add_row(
            f"{topics:,}",
            f"{some[0].records:,}",
            *(f"{middle[name]:.2f}" for name in ("known_us", "send_us", "end_us")),
            *(f"{middle[name] / MIB:,.0f}" for name in ("rss", "credits")),
            f"{(middle['rss'] - middle['credits']) / some[0].records:,.0f}",
            f"{middle['collector_us']:.2f}",
            f"{middle['longest_ms']:,.0f}",
        )
    return shown


async def compare(chosen: argparse.Namespace, console: Console) -> bool:
    measures: list[Measure] = []
    for number in range(chosen.rounds):
        for topics in (1, chosen.topics)[:: 1 if number % 2 else -1]:
            measures.append(await measured(topics, chosen.records, chosen.size))
            last = measures[-1]
            console.print(f"round {number + 1}: {topics:6,} topics {last.send_us:6.2f} us/send {last.rss / MIB:6,.0f} MiB", soft_wrap=True)
    found = verdicts([one for one in measures if one.topics > 1], [one for one in measures if one.topics == 1])
    console.print(table(measures))
    for verdict in found:
        console.print(f"{'PASS   ' if verdict.is_met else 'NOT MET'}  {verdict.what}: {verdict.found}", soft_wrap=True)
    if chosen.json:
        everything = {"measures": [*map(dataclasses.asdict, measures)], "bars": [*map(dataclasses.asdict, found)]}
        chosen.json.write_text(json.dumps(everything, indent=1) + "\n")
    return all(verdict.is_met for verdict in found)


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["serve"]:
        uvloop.run(serve(int(words[1])))
        return 0
    if words[:1] == ["run"]:
        print(json.dumps(dataclasses.asdict(uvloop.run(run(*map(int, words[1:4]), words[4])))))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks pending")
    parser.add_argument("--records", type=int, default=1_000_000, help="of each run (default: %(default)s)")
    parser.add_argument("--topics", type=int, default=10_000, help="that are held against one (default: %(default)s)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value; 512 MiB must hold all (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="each runs both (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write everything measured there")
    console = Console(highlight=False)
    console.width = max(console.width, 140)  # a log has no width of its own
    return 0 if asyncio.run(compare(parser.parse_args(), console)) else 1


if __name__ == "__main__":
    sys.exit(main())
