"""The workloads: what a client does between two looks at the clock. Both clients run these very functions.

`send`, `send_and_wait` and `flush` have one signature in aiokafka and in aioproducer, so nothing stands between a workload and the client.
Of every result the same two facts are read, its offset and its partition; `Tally` proves from them that nothing was lost or doubled.
Knows nothing of which client it drives, nor of processes, brokers and reports.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

PARTITIONS = 6
VALUE = b"v" * 100
FEW_KEYS = 1_000
GATHERED = 10_000
HERD = 2_000


class Metadata(Protocol):
    """What both clients say about a record that arrived."""

    @property
    def offset(self) -> int: ...

    @property
    def partition(self) -> int: ...


class Client(Protocol):
    """The face that both producers have."""

    async def send(self, topic: str, value: bytes, key: bytes | None = None, /, *, partition: int | None = None) -> Awaitable[Metadata]: ...

    async def send_and_wait(self, topic: str, value: bytes, key: bytes | None = None, /, *, partition: int | None = None) -> Metadata: ...

    async def flush(self) -> object: ...


class Tally:
    """How many results each partition had, the sum of their offsets, and how long single ones took."""

    def __init__(self) -> None:
        self.counts = [0] * PARTITIONS
        self.offsets = 0
        self.latencies: list[float] = []

    @property
    def acknowledged(self) -> int:
        return sum(self.counts)

    def is_gapless_from(self, starts: Sequence[int]) -> bool:
        """Whether the offsets are those of a log that nobody else wrote to: each partition's run begins at its start, without hole or double."""
        runs = zip(starts, self.counts, strict=True)
        return self.offsets == sum(start * count + count * (count - 1) // 2 for start, count in runs)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """So many records to a topic; `keys` holds the key of each, made before the clock starts."""

    topic: str
    keys: list[bytes]


def few_keys(first: int, records: int) -> list[bytes]:
    """1,000 different keys of 10 bytes, in turn."""
    different = [b"key-%06d" % number for number in range(FEW_KEYS)]
    return [different[number % FEW_KEYS] for number in range(first, first + records)]


def unique_keys(first: int, records: int) -> list[bytes]:
    """Keys of 16 bytes, none of them twice."""
    return [b"%016x" % number for number in range(first, first + records)]


async def stream(client: Client, job: Job) -> Tally:
    """`await send()` for each record, flush, then read every result."""
    send, topic = client.send, job.topic
    deliveries = [await send(topic, VALUE, key) for key in job.keys]
    await client.flush()
    tally = Tally()
    counts, offsets = tally.counts, 0
    for delivery in deliveries:
        metadata = await delivery
        offsets += metadata.offset
        counts[metadata.partition] += 1
    tally.offsets = offsets
    return tally


async def gather(client: Client, job: Job) -> Tally:
    """`await send()` 10,000 times, `asyncio.gather` these deliveries, and so on."""
    send, topic = client.send, job.topic
    tally = Tally()
    counts, offsets = tally.counts, 0
    for first in range(0, len(job.keys), GATHERED):
        deliveries = [await send(topic, VALUE, key) for key in job.keys[first : first + GATHERED]]
        for metadata in await asyncio.gather(*deliveries):
            offsets += metadata.offset
            counts[metadata.partition] += 1
    tally.offsets = offsets
    return tally


async def single(client: Client, job: Job) -> Tally:
    """One record at a time, each waited for."""
    tally = Tally()
    await _one_by_one(client, job.topic, job.keys, tally)
    return tally


async def herd(client: Client, job: Job) -> Tally:
    """2,000 tasks, each sending its share one at a time, each record waited for."""
    tally = Tally()
    tasks = min(HERD, len(job.keys))
    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(_one_by_one(client, job.topic, job.keys[number::tasks], tally))
    return tally


async def _one_by_one(client: Client, topic: str, keys: list[bytes], tally: Tally) -> None:
    send_and_wait, clock, latencies = client.send_and_wait, time.perf_counter, tally.latencies
    for key in keys:
        before = clock()
        metadata = await send_and_wait(topic, VALUE, key)
        latencies.append(clock() - before)
        tally.offsets += metadata.offset
        tally.counts[metadata.partition] += 1


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What is run, on how many records, with which keys; `is_far`: through the proxy that delays each way by 10 ms."""

    run: Callable[[Client, Job], Coroutine[Any, Any, Tally]]
    records: int
    keys: Callable[[int, int], list[bytes]] = few_keys
    is_far: bool = False

    @property
    def keys_are(self) -> str:
        return "unique, 16 B" if self.keys is unique_keys else f"{FEW_KEYS:,} of 10 B"


WORKLOADS: Mapping[str, Workload] = {
    "stream_keys": Workload(stream, 300_000),
    "stream_unique": Workload(stream, 300_000, keys=unique_keys),
    "gather": Workload(gather, 300_000),
    "single": Workload(single, 5_000),
    "herd": Workload(herd, 100_000),
    "rtt20": Workload(stream, 150_000, is_far=True),
}
