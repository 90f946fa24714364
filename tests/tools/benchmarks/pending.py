"""A million deliveries that no broker has acknowledged yet, in 10,000 topics and in one: CPU for each record, memory beside credits.

    python -m tests.tools.benchmarks pending [--records 1000000] [--topics 10000] [--rounds 3]

The cluster is a fake in a process of its own, which takes every Produce request and answers none until all records are queued: so the
memory that is measured is the client's alone, and no broker's speed is in the figures. Each run is a fresh process; its last phase lets the
cluster answer, and reads every result. Values are different objects.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import pathlib
import statistics
import sys
from itertools import cycle
from typing import TYPE_CHECKING, Final

import psutil
import uvloop
from rich.console import Console
from rich.table import Table

from tests.tools.benchmarks.client import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

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
SIZE: Final = 100


def names(topics: int) -> list[str]:
    return [f"pending-{number:05}" for number in range(topics)]


# The client


async def run(topics: int, records: int, address: str) -> dict[str, float]:
    """Return the figures of one run. It prints a line for the parent process when all deliveries are pending.

    CPU for each record: while the topics become known, of the sends, from the first answer to the last result. Bytes with all deliveries
    pending: over those of a started producer that knows no topic, and of `buffer_memory`.
    """
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
        send = producer.send
        values = (b"%0*d" % (SIZE, number) for number in range(records))
        deliveries = [
            await send(topic, value) for topic, value in zip(cycle(chosen), values, strict=False)
        ]
        sent, rss = cpu_seconds(), process.memory_info().rss
        taken = BUFFER_MEMORY - producer.buffer_available
        assert not any(delivery.done() for delivery in deliveries), "they are to be pending"
        print("pending", flush=True)
        await producer.flush()
        acknowledged = sum([(await delivery).offset >= 0 for delivery in deliveries])
        ended = cpu_seconds()
    assert acknowledged == records
    phases = {
        "topics known [us]": known - begin,
        "send [us]": sent - known,
        "until the end [us]": ended - sent,
    }
    return {name: seconds * 1e6 / records for name, seconds in phases.items()} | {
        "memory [MiB]": (rss - base) / MIB,
        "credits [MiB]": taken / MIB,
        "beside credits [B/record]": (rss - base - taken) / records,
    }


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
        sys.executable,
        "-m",
        f"tests.tools.benchmarks.{pathlib.Path(__file__).stem}",
        *words,
        cwd=ROOT,
        stdin=pipe,
        stdout=pipe,
    )
    try:
        yield one
    finally:
        if one.returncode is None:
            one.kill()
        await one.wait()


async def measured(topics: int, records: int) -> dict[str, float]:
    """Return the figures of one run in a fresh process, against a fresh cluster."""
    async with process("serve", str(topics)) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = (await cluster.stdout.readline()).decode().strip()
        async with process("run", str(topics), str(records), address) as client:
            assert client.stdout is not None
            if await client.stdout.readline() == b"pending\n":
                cluster.stdin.write(b"\n")
            lines = (await client.stdout.read()).splitlines()
            if await client.wait() or not lines:
                raise SystemExit("a run failed: its last words stand above")
    found: dict[str, float] = json.loads(lines[-1])
    return found


async def compare(chosen: argparse.Namespace, console: Console) -> None:
    found: dict[int, list[dict[str, float]]] = {1: [], chosen.topics: []}
    for number in range(chosen.rounds):
        for topics in list(found)[:: 1 if number % 2 else -1]:
            found[topics].append(await measured(topics, chosen.records))
            console.print(
                f"round {number + 1}: {topics:,} topics: {found[topics][-1]}",
                markup=False,
                soft_wrap=True,
            )
    shown = Table(
        "topics",
        *(name.replace("[", r"\[") for name in found[1][0]),
        title=f"medians, {chosen.records:,} records",
    )
    for topics, rounds in found.items():
        shown.add_row(
            f"{topics:,}",
            *(f"{statistics.median(one[name] for one in rounds):,.2f}" for name in rounds[0]),
        )
    console.print(shown)


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["serve"]:
        uvloop.run(serve(int(words[1])))
        return 0
    if words[:1] == ["run"]:
        print(json.dumps(uvloop.run(run(int(words[1]), int(words[2]), words[3]))))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks pending")
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="of each run (default: %(default)s)"
    )
    parser.add_argument(
        "--topics",
        type=int,
        default=10_000,
        help="that are held against one (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="each runs both (default: %(default)s)"
    )
    console = Console(highlight=False)
    console.width = max(console.width, 140)  # a log has no width of its own
    asyncio.run(compare(parser.parse_args(), console))
    return 0


if __name__ == "__main__":
    sys.exit(main())
