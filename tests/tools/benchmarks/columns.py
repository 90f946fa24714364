"""`send_columns` beside `send_many` and the loop of `await send()`, against a stub broker in another process: rate and CPU of the client.

    python -m tests.tools.benchmarks columns [--records 2000000] [--rounds 7] [--base TREE]

Values of 100 bytes with a timestamp each, idempotence, no compression, 6 partitions; from the call until all is acknowledged. The stub answers
at once and reads no record, so what is measured is the client. Each run is a fresh process, rounds are interleaved, and `send` and
`send_many` have a tenth of the records. With `--base`, each run is followed by the same one of that tree, built in place.
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

from tests.tools.benchmarks.client import cpu_seconds
from tests.tools.benchmarks.clients import BASE_TREE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioproducer import Producer

ROOT: Final = pathlib.Path(__file__).parents[3]
TOPIC: Final = "columns"
SIZE: Final = 100
PARTITIONS: Final = 6
DEFAULT: Final = 16_384
WIDE: Final = 262_144
START: Final = 1_700_000_000_000
"""The first timestamp; each record's is one millisecond later."""
_SLOW: Final = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Holds the figures of one run of one function that sends."""

    rate: float
    cpu_ns: float


# The client


def columns(count: int) -> tuple[Any, Any, Any]:
    """Return values, keys and times as arrays."""
    import pyarrow as pa

    offsets = pa.array(range(0, (count + 1) * SIZE, SIZE), pa.int64()).buffers()[1]
    values = pa.Array.from_buffers(
        pa.large_binary(), count, [None, offsets, pa.py_buffer(b"v" * SIZE * count)]
    )
    keys = pa.array([b"key-%d" % (at % 1000) for at in range(count)])
    return values, keys, pa.array(range(START, START + count), pa.int64())


async def by_columns(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    values, _, times = columns(count)
    return lambda: producer.send_columns(TOPIC, values=values, timestamps_ms=times)


async def by_keyed_columns(
    producer: Producer[bytes, bytes], count: int
) -> Callable[[], Awaitable[Any]]:
    values, keys, times = columns(count)
    return lambda: producer.send_columns(TOPIC, values=values, keys=keys, timestamps_ms=times)


async def by_headers(producer: Producer[bytes, bytes], count: int) -> Callable[[], Awaitable[Any]]:
    import pyarrow as pa

    values, _, times = columns(count)
    pairs = pa.StructArray.from_arrays(
        [pa.array(["name"] * count), pa.array([b"header"] * count)], ["key", "value"]
    )
    headers = pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), pairs)
    return lambda: producer.send_columns(TOPIC, values=values, timestamps_ms=times, headers=headers)


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


WAYS: Final = {
    "columns": by_columns,
    "columns, keys": by_keyed_columns,
    "columns, headers": by_headers,
    "send_many": by_many,
    "send loop": by_loop,
}


async def run(way: str, count: int, batch_size: int, address: str) -> Measure:
    from aioproducer import Producer

    producer: Producer[bytes, bytes] = Producer(
        bootstrap_servers=address, batch_size=batch_size, max_request_size=4 * 2**20
    )
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
    return Measure(rate=count / seconds, cpu_ns=cpu * 1e9 / count)


# The rounds


async def measured(*words: str, base: str = "") -> Measure:
    """Return the figures of one run in a fresh process, against a fresh stub; of another tree's producer if `base` says where that is."""
    pipe = asyncio.subprocess.PIPE
    stub = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.tools.benchmarks.stub",
        str(PARTITIONS),
        cwd=ROOT,
        stdin=pipe,
        stdout=pipe,
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
    return Measure(**json.loads(said.splitlines()[-1]))


async def compare(chosen: argparse.Namespace, console: Console) -> None:
    few = chosen.records // _SLOW
    plan = [(way, chosen.records, WIDE) for way in ("columns", "columns, keys", "columns, headers")]
    plan += [
        ("columns", chosen.records, DEFAULT),
        ("send_many", few, DEFAULT),
        ("send loop", few, DEFAULT),
    ]
    bases = ["", *([str(chosen.base.resolve())] if chosen.base else [])]
    found: dict[tuple[str, int], list[list[Measure]]] = {}
    for number in range(chosen.rounds):
        for way, count, batch_size in plan[:: 1 if number % 2 else -1]:
            found.setdefault((way, batch_size), []).append(
                [await measured(way, str(count), str(batch_size), base=base) for base in bases]
            )
            console.print(
                f"round {number + 1}: {way}, batch_size {batch_size:,}: {found[way, batch_size][-1]}",
                markup=False,
            )
    for (way, batch_size), rounds in found.items():
        rate, cpu = (
            statistics.median(getattr(one[0], name) for one in rounds)
            for name in ("rate", "cpu_ns")
        )
        ratios = [one[0].cpu_ns / one[-1].cpu_ns for one in rounds]
        beside = (
            f"; CPU {statistics.median(ratios):.3f} x the base's, paired by round ({max(ratios):.3f})"
            if chosen.base
            else ""
        )
        console.print(
            f"{way}, batch_size {batch_size:,}: {rate / 1e6:.2f} M records/s, {cpu:.0f} ns of CPU a record{beside}"
        )


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["run"]:
        if BASE_TREE in os.environ:
            sys.path.insert(0, os.environ[BASE_TREE])
        print(
            json.dumps(
                dataclasses.asdict(
                    uvloop.run(run(words[1], int(words[2]), int(words[3]), words[4]))
                )
            )
        )
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks columns")
    parser.add_argument(
        "--records",
        type=int,
        default=2_000_000,
        help="of each run of columns (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--base", type=pathlib.Path, metavar="TREE")
    asyncio.run(compare(parser.parse_args(), Console(highlight=False)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
