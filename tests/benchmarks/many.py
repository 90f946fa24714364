"""`send_many` beside the loop of `await send()`, on one real Kafka: rate and CPU until all is acknowledged, rounds interleaved.

    python -m tests.benchmarks.many [--records 200000] [--rounds 7]

With values alone, which is the bar (twice the loop's rate), and with `Record`s of 1,000 keys. Exit status 1 when the bar is not met.
Knows nothing of the peer.
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

from tests.benchmarks.broker import real_broker
from tests.benchmarks.workloads import PARTITIONS, VALUE, few_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer import Producer

TOPIC: Final = "many"
BAR: Final = 2.0


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
    table = Table("records", "send loop, k/s", "send_many, k/s", "ratio: median (worst)", title=f"medians of {rounds} rounds of {count:,}")
    for name, found_rates in rates.items():
        loop, bulk = (statistics.median(column) / 1e3 for column in zip(*found_rates, strict=True))
        table.add_row(name, f"{loop:.0f}", f"{bulk:.0f}", f"{statistics.median(ratios[name]):.2f} ({min(ratios[name]):.2f})")
    console.print(table)
    is_met = statistics.median(ratios["values"]) >= BAR
    console.print(f"bar {BAR:g} x with values alone: {'met' if is_met else 'not met'}")
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.many")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    return 0 if uvloop.run(run(chosen.records, chosen.rounds, Console(highlight=False))) else 1


if __name__ == "__main__":
    sys.exit(main())
