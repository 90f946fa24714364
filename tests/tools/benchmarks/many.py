"""`send_many` beside the loop of `await send()`, on one real Kafka: rate and CPU until all is acknowledged, rounds interleaved.

    python -m tests.tools.benchmarks.many [--records 200000] [--rounds 7]

With values alone, which is the bar (twice the loop's rate), and with `Record`s of 1,000 keys. Then `await deliveries` beside
`[delivery.result() for delivery in deliveries]`, both for 1,000,000 acknowledged records: the bar is 1.15 times its time. Exit status 1
when a bar is not met.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.workloads import PARTITIONS, VALUE, few_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer import Producer

TOPIC: Final = "many"
BAR: Final = 2.0
ACKNOWLEDGED: Final = 1_000_000
AWAIT_BAR: Final = 1.15


async def one_by_one(producer: Producer[bytes, bytes], records: Sequence[Any]) -> None:
    send = producer.send
    deliveries = [await send(TOPIC, record) for record in records]
    await producer.flush()
    assert len(deliveries) == len(records)


async def one_by_one_keyed(producer: Producer[bytes, bytes], records: Sequence[Any]) -> None:
    send = producer.send
    deliveries = [await send(TOPIC, record.value, record.key) for record in records]
    await producer.flush()
    assert len(deliveries) == len(records)


async def many(producer: Producer[bytes, bytes], records: Sequence[Any]) -> None:
    deliveries = await producer.send_many(TOPIC, records)
    await producer.flush()
    assert len(deliveries) == len(records)


async def awaited(producer: Producer[bytes, bytes], records: Sequence[Any], rounds: int) -> tuple[float, float, float]:
    """Return the seconds of `await deliveries` and of single results, and the median of their ratios, for acknowledged records."""
    deliveries = await producer.send_many(TOPIC, records)
    assert (await deliveries.wait()).acknowledged == len(records)
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        gc.collect()
        before = time.perf_counter()
        metadata = await deliveries
        seconds = time.perf_counter() - before
        del metadata
        gc.collect()
        before = time.perf_counter()
        metadata = [delivery.result() for delivery in deliveries]
        found.append((seconds, time.perf_counter() - before))
        del metadata
    whole, one_by_one = (statistics.median(column) for column in zip(*found, strict=True))
    return whole, one_by_one, statistics.median(whole / each for whole, each in found)


async def run(count: int, rounds: int, console: Console) -> bool:
    from aioproducer import Producer, Record

    records = {"values": [VALUE] * count, "1,000 keys": [Record(VALUE, key) for key in few_keys(0, count)]}
    ways = {"values": (one_by_one, many), "1,000 keys": (one_by_one_keyed, many)}
    ratios: dict[str, list[float]] = {name: [] for name in records}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in records}
    async with real_broker() as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        for number in range(rounds + 1):
            for name, some in records.items():
                found = []
                for way in ways[name] if number % 2 else reversed(ways[name]):
                    producer: Producer[bytes, bytes] = Producer(bootstrap_servers=broker.bootstrap_servers)
                    async with producer:
                        await producer.send_and_wait(TOPIC, b"known")
                        gc.collect()
                        before = time.perf_counter()
                        await way(producer, some)
                        found.append(count / (time.perf_counter() - before))
                loop, bulk = found if number % 2 else found[::-1]
                if number:  # the first round warms the broker up
                    rates[name].append((loop, bulk))
                    ratios[name].append(bulk / loop)
        awaiting = {}
        for name in records:
            some = [VALUE] * ACKNOWLEDGED if name == "values" else [Record(VALUE, key) for key in few_keys(0, ACKNOWLEDGED)]
            async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                awaiting[name] = await awaited(producer, some, rounds)
    table = Table("records", "send loop, k/s", "send_many, k/s", "ratio: median (worst)", title=f"medians of {rounds} rounds of {count:,}")
    for name, found_rates in rates.items():
        loop, bulk = (statistics.median(column) / 1e3 for column in zip(*found_rates, strict=True))
        table.add_row(name, f"{loop:.0f}", f"{bulk:.0f}", f"{statistics.median(ratios[name]):.2f} ({min(ratios[name]):.2f})")
    console.print(table)
    told = Table("records", "await deliveries, ms", "results one by one, ms", "ratio", title=f"{ACKNOWLEDGED:,} acknowledged records")
    for name, (whole, one, ratio) in awaiting.items():
        told.add_row(name, f"{whole * 1e3:.0f}", f"{one * 1e3:.0f}", f"{ratio:.2f}")
    console.print(told)
    is_met = statistics.median(ratios["values"]) >= BAR
    console.print(f"bar {BAR:g} x with values alone: {'met' if is_met else 'not met'}")
    awaits = max(ratio for _, _, ratio in awaiting.values()) <= AWAIT_BAR
    console.print(f"bar {AWAIT_BAR:g} x of the results one by one for `await deliveries`: {'met' if awaits else 'not met'}")
    return is_met and awaits


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks.many")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    return 0 if uvloop.run(run(chosen.records, chosen.rounds, Console(highlight=False))) else 1


if __name__ == "__main__":
    sys.exit(main())
