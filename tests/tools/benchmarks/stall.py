"""A broker stands still for 5 s below 1,000 tasks that send: what memory grows by, and whether all arrives, once and in order.

    python -m tests.tools.benchmarks stall [--tasks 1000] [--sends 1000] [--seconds 5]

`buffer_memory` is 8 MiB. The tasks start and wait at a gate: that is the level. The broker is stopped (SIGSTOP), the gate opens, each task sends with a key of
its own; after 5 s the broker goes on. Then confluent-kafka, which shares no code with us, reads the topic: a value says whose and the how many-th it is.
Exit status 1 when memory grew by more than 40 MiB in the stall, or a record is missing, twice, or out of order. Knows nothing of the peer.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import struct
import sys
import time
from typing import TYPE_CHECKING

import psutil
import uvloop
from rich.console import Console

from tests.tools.benchmarks.broker import real_broker
from tests.tools.benchmarks.workloads import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer import Producer
    from tests.tools.benchmarks.broker import Broker

TOPIC = "stall"
BUFFER_MEMORY = 8 * 2**20
BAR_MIB = 40.0
VALUE = struct.Struct(">II92x")
"""Task and number, filled up to the 100 bytes of the other workloads."""
NOBODY = 2**32 - 1
"""The task number of the record that made the topic known before the stall; it belongs to no task."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Holds the figures of the run. Growth is relative to the level after the tasks had started."""

    level_mib: float
    stall_growth_mib: float
    whole_growth_mib: float
    accepted_in_stall: int
    seconds_to_end: float
    failed: int
    missing: int
    doubled: int
    disordered: int

    @property
    def is_met(self) -> bool:
        return self.stall_growth_mib <= BAR_MIB and not (
            self.failed or self.missing or self.doubled or self.disordered
        )


@dataclasses.dataclass(slots=True)
class Herd:
    """Holds the tasks' shared state: the gate, and the number of sends that returned."""

    producer: Producer[bytes, bytes]
    sends: int
    started: int = 0
    accepted: int = 0
    failed: int = 0
    gate: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def send(self, task: int) -> None:
        """Send one task's records in order. It keeps only the last delivery, as all deliveries would count as memory."""
        key = b"task-%d" % task
        self.started += 1
        await self.gate.wait()
        delivery = None
        for number in range(self.sends):
            delivery = await self.producer.send(TOPIC, VALUE.pack(task, number), key)
            self.accepted += 1
        if delivery is not None:
            await delivery


class Memory:
    """Samples the resident memory of this process every 20 ms: its level when entered, and its peak since."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.level: int = self._process.memory_info().rss
        self.peak = self.level

    async def watch(self) -> None:
        while True:
            self.peak = max(self.peak, self._process.memory_info().rss)
            await asyncio.sleep(0.02)

    @property
    def growth_mib(self) -> float:
        return float(self.peak - self.level) / 2**20


async def run(tasks: int, sends: int, seconds: float) -> Stall:
    from aioproducer import Producer

    async with real_broker() as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        producer: Producer[bytes, bytes] = Producer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=BUFFER_MEMORY
        )
        async with producer:
            for partition in range(PARTITIONS):
                await producer.send_and_wait(TOPIC, VALUE.pack(NOBODY, 0), partition=partition)
            stall = await stalled(Herd(producer, sends), broker, tasks, seconds)
        faults = await asyncio.to_thread(
            lambda: audit(values(broker.bootstrap_servers), tasks, sends)
        )
    return dataclasses.replace(stall, **faults)


async def stalled(herd: Herd, broker: Broker, tasks: int, seconds: float) -> Stall:
    running = [asyncio.create_task(herd.send(number)) for number in range(tasks)]
    await asyncio.sleep(0)  # one event-loop iteration, in which every task reaches the gate
    assert herd.started == tasks
    gc.collect()
    memory = Memory()
    watch = asyncio.create_task(memory.watch())
    broker.pause()
    try:
        herd.gate.set()
        await asyncio.sleep(seconds)
        in_stall, accepted = memory.growth_mib, herd.accepted
    finally:
        broker.resume()
    resumed_at = time.perf_counter()
    results = await asyncio.gather(*running, return_exceptions=True)
    await herd.producer.flush()
    seconds_to_end = time.perf_counter() - resumed_at
    watch.cancel()
    await asyncio.wait([watch])
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures[:3]:
        print(f"a task failed: {failure!r}", file=sys.stderr)
    return Stall(
        level_mib=memory.level / 2**20,
        stall_growth_mib=in_stall,
        whole_growth_mib=memory.growth_mib,
        accepted_in_stall=accepted,
        seconds_to_end=seconds_to_end,
        failed=len(failures),
        missing=0,
        doubled=0,
        disordered=0,
    )


def values(bootstrap_servers: str) -> Iterable[bytes]:
    """Return every value of the topic, partition by partition in the order of the log."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "stall", "enable.auto.commit": False}
    )
    try:
        for number in range(PARTITIONS):
            partition = TopicPartition(TOPIC, number, 0)
            _, end = consumer.get_watermark_offsets(partition, timeout=10)
            consumer.assign([partition])
            left = end  # a fresh log without transactions: so many records, from offset 0
            while left:
                messages = consumer.consume(min(left, 10_000), timeout=10)
                left -= len(messages)
                if not messages or messages[-1].error():
                    raise RuntimeError(f"partition {number} ends {left} records early")
                yield from (message.value() or b"" for message in messages)
    finally:
        consumer.close()


def audit(log: Iterable[bytes], tasks: int, sends: int) -> dict[str, int]:
    """Return the records that the log lacks, has twice, or has in the wrong order."""
    seen = [bytearray(sends) for _ in range(tasks)]
    highest = [-1] * tasks
    doubled = disordered = 0
    for value in log:
        task, number = VALUE.unpack(value)
        if task == NOBODY:
            continue
        doubled += seen[task][number]
        seen[task][number] = 1
        disordered += number < highest[task]
        highest[task] = max(highest[task], number)
    missing = sum(one.count(0) for one in seen)
    return {"missing": missing, "doubled": doubled, "disordered": disordered}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks stall")
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--sends", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    chosen, console = parser.parse_args(), Console(highlight=False)
    stall = uvloop.run(run(chosen.tasks, chosen.sends, chosen.seconds))
    console.print(
        f"{chosen.tasks:,} tasks x {chosen.sends:,} sends, buffer_memory {BUFFER_MEMORY // 2**20} MiB, stalled for {chosen.seconds:g} s"
    )
    grown = f"+{stall.stall_growth_mib:.1f} in the stall, +{stall.whole_growth_mib:.1f} to the end"
    console.print(f"memory: {stall.level_mib:.1f} MiB when all had started, {grown}")
    console.print(
        f"sends accepted in the stall: {stall.accepted_in_stall:,}; all done {stall.seconds_to_end:.2f} s after it"
    )
    console.print(
        f"tasks failed {stall.failed}, records missing {stall.missing}, twice {stall.doubled}, out of order {stall.disordered}"
    )
    console.print(
        f"bar +{BAR_MIB:.0f} MiB, all arrived once and in order: {'met' if stall.is_met else 'not met'}"
    )
    return 0 if stall.is_met else 1


if __name__ == "__main__":
    sys.exit(main())
