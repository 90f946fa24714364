"""`send_columns` beside `send_many` and the loop of `await send()`, against a stub broker in another process: rate and CPU of the client.

    python -m tests.tools.benchmarks columns [--records 2000000] [--rounds 7] [--batch-size 262144] [--base TREE] [--json PATH]

Values of 100 bytes with a timestamp each, idempotence, no compression, 6 partitions; from the call until all is acknowledged. The stub answers
at once and reads no record, so what is measured is the client. Each run is a fresh process, rounds are interleaved, and `send` and
`send_many` have a tenth of the records. Headers are one a row, partitions six in turn. `rows_checksum` hashes values of 90 bytes and keys of
10, without a producer. With `--base`, each run is followed by the same one of that tree, built in place. Exit status 1 when the median rate of `send_columns` without keys is below the bar, or `rows_checksum` takes more
than its bar (median of the CPU time).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import os
import pathlib
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from tests.tools.benchmarks.client import cpu_seconds
from tests.tools.benchmarks.clients import BASE_TREE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioproducer import Producer

ROOT: Final = pathlib.Path(__file__).parents[3]
TOPIC: Final = "columns"
SIZE: Final = 100
PARTITIONS: Final = 6
BAR: Final = 4e6
CHECKSUM_BAR_NS: Final = 20
DEFAULT: Final = 16_384
START: Final = 1_700_000_000_000
"""The first timestamp; each record's is one millisecond later."""
_SLOW: Final = 10
# Rows of the checksum's columns: about a MiB, which is a window of `send_columns`.
_HASHED: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Holds the figures of one run of one function that sends."""

    way: str
    batch_size: int
    records: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_ns(self) -> float:
        return self.cpu_seconds * 1e9 / self.records


# The client


def columns(count: int) -> tuple[Any, Any, Any]:
    """Return values, keys and times as arrays."""
    import pyarrow as pa

    offsets = pa.array(range(0, (count + 1) * SIZE, SIZE), pa.int64()).buffers()[1]
    values = pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, pa.py_buffer(b"v" * SIZE * count)])
    keys = pa.array([b"key-%d" % (at % 1000) for at in range(count)])
    return values, keys, pa.array(range(START, START + count), pa.int64())


async def by_columns(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    values, _, times = columns(count)
    return lambda: producer.send_columns(TOPIC, values=values, timestamps_ms=times)


async def by_keyed_columns(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    values, keys, times = columns(count)
    return lambda: producer.send_columns(TOPIC, values=values, keys=keys, timestamps_ms=times)


async def by_headers(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    import pyarrow as pa

    values, _, times = columns(count)
    pairs = pa.StructArray.from_arrays([pa.array(["name"] * count), pa.array([b"header"] * count)], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), pairs)
    return lambda: producer.send_columns(TOPIC, values=values, timestamps_ms=times, headers=headers)


async def by_partitions(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    import pyarrow as pa

    values, _, times = columns(count)
    partitions = pa.array([at % PARTITIONS for at in range(count)], pa.int32())
    return lambda: producer.send_columns(TOPIC, values=values, timestamps_ms=times, partitions=partitions)


async def by_many(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    """Send with `send_many`; its fast path has no timestamps."""
    values = columns(count)[0].to_pylist()
    return lambda: producer.send_many(TOPIC, values)


async def by_loop(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    values, _, times = columns(count)
    rows = list(zip(values.to_pylist(), times.to_pylist(), strict=True))

    async def loop() -> list[Any]:
        return [await producer.send(TOPIC, value, timestamp_ms=moment) for value, moment in rows]

    return loop


CHECKSUM: Final = "rows_checksum"
WAYS: Final = {
    "columns": by_columns,
    "columns, keys": by_keyed_columns,
    "columns, headers": by_headers,
    "columns, partitions": by_partitions,
    "send_many": by_many,
    "send loop": by_loop,
}


def checksum(count: int) -> Measure:
    """Hash `count` rows, a part of them many times, because a writer hashes the rows that it has just read or sent."""
    import pyarrow as pa

    from aioproducer import rows_checksum

    some = min(count, _HASHED)
    values = pa.array([b"%090d" % at for at in range(some)])
    keys = pa.array([b"key-%06d" % at for at in range(some)])
    rows_checksum(values=values, keys=keys)
    times = max(count // some, 1)
    began, before = time.perf_counter(), cpu_seconds()
    for _ in range(times):
        rows_checksum(values=values, keys=keys)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
    return Measure(way=CHECKSUM, batch_size=0, records=some * times, seconds=seconds, cpu_seconds=cpu)


async def run(way: str, count: int, batch_size: int, address: str) -> Measure:
    from aioproducer import Producer

    if way == CHECKSUM:
        return checksum(count)
    producer: Producer[bytes, bytes] = Producer(bootstrap_servers=address, batch_size=batch_size, max_request_size=4 * 2**20)
    async with producer:
        for begin in (min(count, 20_000), count):  # the first one warms up
            send = await WAYS[way](producer, begin)
            gc.collect()
            began, before = time.perf_counter(), cpu_seconds()
            deliveries = await send()
            summary = await producer.flush()
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - before
            assert not summary.failed
            last = await deliveries[-1]
            assert last.offset > 0
    return Measure(way=way, batch_size=batch_size, records=count, seconds=seconds, cpu_seconds=cpu)


# The rounds


async def measured(*words: str, base: str = "") -> Measure:
    """Return the figures of one run in a fresh process, against a fresh stub; of another tree's producer if `base` says where that is."""
    pipe = asyncio.subprocess.PIPE
    stub = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.tools.benchmarks.stub", str(PARTITIONS), cwd=ROOT, stdin=pipe, stdout=pipe
    )
    assert stub.stdout is not None
    assert stub.stdin is not None
    try:
        address = (await stub.stdout.readline()).decode().strip()
        command = (sys.executable, "-m", "tests.tools.benchmarks.columns", "run", *words, address)
        env = os.environ | ({BASE_TREE: base} if base else {})
        client = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdout=pipe)
        said, _ = await client.communicate()
    finally:
        stub.stdin.close()
        await stub.wait()
    if client.returncode:
        raise SystemExit("a run failed: its last words stand above")
    one = Measure(**json.loads(said.splitlines()[-1]))
    return dataclasses.replace(one, way=f"base: {one.way}") if base else one


def table(measures: Sequence[Measure]) -> Table:
    shown = Table(title="medians (worst); 100 B values, idempotence, no compression, against a stub broker")
    for heading in ("way", "batch_size", "records", "M records/s", "client CPU, ns a record"):
        shown.add_column(heading, justify="right")
    for way, batch_size in dict.fromkeys((one.way, one.batch_size) for one in measures):
        some = [one for one in measures if (one.way, one.batch_size) == (way, batch_size)]
        rates, costs = [one.rate / 1e6 for one in some], [one.cpu_ns for one in some]
        shown.add_row(
            way,
            f"{batch_size:,}",
            f"{some[0].records:,}",
            f"{statistics.median(rates):.2f} ({min(rates):.2f})",
            f"{statistics.median(costs):.0f} ({max(costs):.0f})",
        )
    return shown


async def compare(chosen: argparse.Namespace, console: Console) -> bool:
    few = chosen.records // _SLOW
    plan = [("columns", chosen.records, chosen.batch_size), ("columns", chosen.records, DEFAULT)]
    plan += [(way, chosen.records, chosen.batch_size) for way in ("columns, keys", "columns, headers", "columns, partitions")]
    plan += [(CHECKSUM, chosen.records, 0), ("send_many", few, DEFAULT), ("send loop", few, DEFAULT)]
    measures = []
    for number in range(chosen.rounds):
        for way, count, batch_size in plan[:: 1 if number % 2 else -1]:
            for base in filter(None, ("here", chosen.base)):
                one = await measured(way, str(count), str(batch_size), base="" if base == "here" else str(base.resolve()))
                measures.append(one)
                console.print(f"round {number + 1}: {one.way:25} batch_size {batch_size:9,} {one.rate / 1e6:6.2f} M/s {one.cpu_ns:6.0f} ns")
    for way, count, batch_size in plan if chosen.base else ():
        ours, theirs = (
            [one.cpu_ns for one in measures if (one.way, one.records, one.batch_size) == (name, count, batch_size)]
            for name in (way, f"base: {way}")
        )
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        console.print(
            f"{way}, batch_size {batch_size:,}: CPU {statistics.median(ratios):.3f} x the base's, paired by round ({max(ratios):.3f})"
        )
    console.print(table(measures))
    rate = statistics.median(one.rate for one in measures if (one.way, one.batch_size) == ("columns", chosen.batch_size))
    console.print(
        f"bar {BAR / 1e6:g} M records/s with batch_size {chosen.batch_size:,}: {'met' if rate >= BAR else 'not met'}, {rate / 1e6:.2f}"
    )
    if chosen.json:
        chosen.json.write_text(json.dumps([dataclasses.asdict(one) for one in measures], indent=1) + "\n")
    hashing = statistics.median(one.cpu_ns for one in measures if one.way == CHECKSUM)
    console.print(f"bar {CHECKSUM_BAR_NS} ns a row for {CHECKSUM}: {'met' if hashing <= CHECKSUM_BAR_NS else 'not met'}, {hashing:.1f}")
    return rate >= BAR and hashing <= CHECKSUM_BAR_NS


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        if BASE_TREE in os.environ:
            sys.path.insert(0, os.environ[BASE_TREE])
        print(json.dumps(dataclasses.asdict(uvloop.run(run(words[1], int(words[2]), int(words[3]), words[4])))))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks columns")
    parser.add_argument("--records", type=int, default=2_000_000, help="of each run of columns (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=262_144, help="beside the default of 16 KiB (default: %(default)s)")
    parser.add_argument("--base", type=pathlib.Path, metavar="TREE")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write everything measured there")
    console = Console(highlight=False)
    console.width = max(console.width, 120)
    return 0 if asyncio.run(compare(parser.parse_args(), console)) else 1


if __name__ == "__main__":
    sys.exit(main())
