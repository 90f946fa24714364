"""Holds the workloads that the bench measures. aioproducer and aiokafka run the same functions.

`send`, `send_and_wait` and `flush` have one signature in aiokafka and in aioproducer, so a workload calls the client without an adapter.
A workload reads the same two facts of every result, its offset and its partition. A `Tally` of them proves that no record was lost or
duplicated.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tests.tools.benchmarks.task import FEW_KEYS, HERD, VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Mapping, Sequence

    from tests.tools.benchmarks.task import Task

PARTITIONS = 6
VALUE = b"v" * VALUE_BYTES
GATHERED = 10_000
SAMPLED = 256
"""A burst notes the latency of one record of so many, as a note for each record would cost as much as its send."""
TICK = 0.001
"""Seconds between two wake-ups of `paced`."""


class Metadata(Protocol):
    """Holds the facts that both clients report about an acknowledged record."""

    @property
    def offset(self) -> int: ...

    @property
    def partition(self) -> int: ...


class Client(Protocol):
    """Declares the interface that both producers have."""

    async def send(
        self, topic: str, value: bytes, key: bytes | None = None, /, *, partition: int | None = None
    ) -> Awaitable[Metadata]: ...

    async def send_and_wait(
        self, topic: str, value: bytes, key: bytes | None = None, /, *, partition: int | None = None
    ) -> Metadata: ...

    async def flush(self) -> object: ...


class Tally:
    """Holds the number of results of each partition, the sum of their offsets, and the seconds of single results.

    Attributes:
        unread: results that the workload does not read; the process reads them when the clock has stopped.
        is_told: whether this client reports the offsets of its records.
    """

    def __init__(self, cells: int = PARTITIONS, *, is_told: bool = True) -> None:
        self.counts = [0] * cells
        self.offsets = 0
        self.latencies: list[float] = []
        self.unread: AsyncIterable[Metadata] | None = None
        self.is_told = is_told

    def note(self, began: float, _delivery: object) -> None:
        """Note that a sampled record was acknowledged now."""
        self.latencies.append(time.perf_counter() - began)

    async def read_rest(self) -> None:
        if self.unread is not None:
            async for metadata in self.unread:
                self.offsets += metadata.offset
                self.counts[metadata.partition] += 1


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """Holds the records of a run; `keys` has the key of each, made before the clock starts."""

    topic: str
    keys: Sequence[bytes]
    value: bytes = VALUE
    partitions: int = PARTITIONS
    tasks: int = HERD
    load: int = 0

    def tally(self, *, is_told: bool = True) -> Tally:
        return Tally(self.partitions, is_told=is_told)


def jobs(task: Task) -> tuple[Job, Job]:
    """Return the job of the warm-up, and that of the measured part."""
    keys, value = few_keys(0, task.warm_up + task.records, task.keys), b"v" * task.value_bytes
    warm_up, measured = (
        Job(task.topic, part, value, task.partitions, task.tasks, task.load)
        for part in (keys[: task.warm_up], keys[task.warm_up :])
    )
    return warm_up, measured


def few_keys(first: int, records: int, different: int = FEW_KEYS) -> list[bytes]:
    """Return keys of 10 bytes, of which so many are different, alternately."""
    keys = [b"key-%06d" % number for number in range(different)]
    return [keys[number % different] for number in range(first, first + records)]


async def stream(client: Client, job: Job) -> Tally:
    """Call `await send()` for each record, flush, then read every result."""
    send, topic, value = client.send, job.topic, job.value
    tally, deliveries = job.tally(), []
    for first in range(0, len(job.keys), SAMPLED):
        began = time.perf_counter()
        deliveries += [await send(topic, value, key) for key in job.keys[first : first + SAMPLED]]
        deliveries[first].add_done_callback(partial(tally.note, began))
    await client.flush()
    counts, offsets = tally.counts, 0
    for delivery in deliveries:
        metadata = await delivery
        offsets += metadata.offset
        counts[metadata.partition] += 1
    tally.offsets = offsets
    return tally


async def gather(client: Client, job: Job) -> Tally:
    """Call `await send()` 10,000 times, `asyncio.gather` these deliveries, and repeat."""
    send, topic, value = client.send, job.topic, job.value
    tally = job.tally()
    counts, offsets = tally.counts, 0
    for first in range(0, len(job.keys), GATHERED):
        deliveries = []
        for at in range(first, min(first + GATHERED, len(job.keys)), SAMPLED):
            began = time.perf_counter()
            deliveries += [
                await send(topic, value, key)
                for key in job.keys[at : min(at + SAMPLED, first + GATHERED)]
            ]
            deliveries[at - first].add_done_callback(partial(tally.note, began))
        for metadata in await asyncio.gather(*deliveries):
            offsets += metadata.offset
            counts[metadata.partition] += 1
    tally.offsets = offsets
    return tally


async def many(client: Any, job: Job) -> Tally:
    """Call `send_many` once with values without keys, and flush; only ours has it. Results are read when the clock has stopped."""
    deliveries = await client.send_many(job.topic, [job.value] * len(job.keys))
    await client.flush()
    tally = job.tally()
    tally.unread = read(deliveries)
    return tally


async def columns(client: Any, job: Job) -> Tally:
    """Call `send_columns` once with an array of values and one of times, and flush; only ours has it."""
    import pyarrow as pa

    count = len(job.keys)
    values, times = pa.repeat(pa.scalar(job.value), count), pa.repeat(1_700_000_000_000, count)
    deliveries = await client.send_columns(job.topic, values=values, timestamps_ms=times)
    await client.flush()
    tally = job.tally()
    tally.unread = read(deliveries)
    return tally


async def read(deliveries: Any) -> AsyncIterable[Metadata]:
    """Read the results, one by one."""
    for delivery in deliveries:
        yield await delivery


async def single(client: Client, job: Job) -> Tally:
    """Send one record at a time, and wait for each."""
    tally = job.tally()
    await _one_by_one(client, job, job.keys, tally)
    return tally


async def herd(client: Client, job: Job) -> Tally:
    """Send from some thousand tasks. Each sends its share one record at a time, and waits for each record."""
    tally = job.tally()
    tasks = min(job.tasks, len(job.keys))
    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(_one_by_one(client, job, job.keys[number::tasks], tally))
    return tally


async def _one_by_one(client: Client, job: Job, keys: Sequence[bytes], tally: Tally) -> None:
    send_and_wait, topic, value, clock, latencies = (
        client.send_and_wait,
        job.topic,
        job.value,
        time.perf_counter,
        tally.latencies,
    )
    for key in keys:
        before = clock()
        metadata = await send_and_wait(topic, value, key)
        latencies.append(clock() - before)
        tally.offsets += metadata.offset
        tally.counts[metadata.partition] += 1


async def busy(client: Any, job: Job) -> Tally:
    """Send from one task that computes between its sends."""
    send, topic, value, clock, load = client.send, job.topic, job.value, time.perf_counter, job.load
    notes = Notes(job)
    for key in job.keys:
        for _ in range(load):
            pass
        began = clock()
        (await send(topic, value, key)).add_done_callback(partial(notes.done, began))
    return await notes.all(client)


async def paced(client: Any, job: Job) -> Tally:
    """Send from one task in ticks of a millisecond. After a late tick it sends all due records at once."""
    clock, notes = time.perf_counter, Notes(job)
    begin, sent, ticks = clock(), 0, 0
    while sent < len(job.keys):
        due = min(int((clock() - begin) * job.load) + 1, len(job.keys))
        await _send(client, job, job.keys[sent:due], notes)
        sent, ticks = due, ticks + 1
        await asyncio.sleep(max(begin + ticks * TICK - clock(), 0))
    return await notes.all(client)


async def tasks(client: Any, job: Job) -> Tally:
    """Send from many tasks, each at its own even rate."""
    clock, notes, many = time.perf_counter, Notes(job), job.tasks
    begin = clock()

    async def pace(first: int) -> None:
        for number in range(first, len(job.keys), many):
            await asyncio.sleep(max(begin + number / job.load - clock(), 0))
            await _send(client, job, job.keys[number : number + 1], notes)

    async with asyncio.TaskGroup() as group:
        for first in range(many):
            group.create_task(pace(first))
    return await notes.all(client)


async def _send(client: Any, job: Job, keys: Sequence[bytes], notes: Notes) -> None:
    """Send records one after the other."""
    send, topic, value, clock = client.send, job.topic, job.value, time.perf_counter
    for key in keys:
        began = clock()
        (await send(topic, value, key)).add_done_callback(partial(notes.done, began))


class Notes:
    """Collects the facts that the callbacks note of each record."""

    def __init__(self, job: Job) -> None:
        self._tally = job.tally()
        self._left = len(job.keys)
        self._is_done = asyncio.Event()

    def done(self, began: float, delivery: Any) -> None:
        """Note an acknowledged record."""
        tally = self._tally
        tally.latencies.append(time.perf_counter() - began)
        metadata = delivery.result()
        tally.offsets += metadata.offset
        tally.counts[metadata.partition] += 1
        self._left -= 1
        if not self._left:
            self._is_done.set()

    async def all(self, client: Any) -> Tally:
        """Wait until every callback has run. Returns the tally."""
        await client.flush()
        if self._left:
            await self._is_done.wait()
        return self._tally


WAYS: Mapping[str, Callable[[Any, Job], Coroutine[Any, Any, Tally]]] = {
    one.__name__: one for one in (stream, gather, many, columns, single, herd, busy, paced, tasks)
}


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Describes a workload.

    Attributes:
        rtt_ms: the round trip of the proxy that it goes through.
        keys, load, tasks: as a task has them.
        linger_ms: of every client: a burst has 5, which is Java's and librdkafka's default, and a record that is waited for none.
    """

    way: str
    records: int
    linger_ms: int = 5
    keys: int = FEW_KEYS
    rtt_ms: int = 0
    value_bytes: int = VALUE_BYTES
    load: int = 0
    tasks: int = HERD
    partitions: int = PARTITIONS


def _latency(way: str, load: int, records: int, **more: int) -> Workload:
    """Return a workload of a loop that does other work, from before `send` to the delivery's callback."""
    return Workload(way, records, linger_ms=0, keys=16, value_bytes=300, load=load, **more)


WORKLOADS: Mapping[str, Workload] = {
    "stream": Workload("stream", 500_000),
    "gather": Workload("gather", 500_000),
    "single": Workload("single", 5_000, linger_ms=0),
    "herd": Workload("herd", 200_000, linger_ms=0),
    "herd8000": Workload("herd", 40_000, linger_ms=0, tasks=8_000, value_bytes=1_000, partitions=1),
    "many": Workload("many", 1_000_000),
    "columns": Workload("columns", 600_000),
    "rtt20": Workload("stream", 300_000, rtt_ms=20),
    "busy_0": _latency("busy", 0, 200_000),
    "busy_200": _latency("busy", 200, 150_000),
    "busy_1000": _latency("busy", 1_000, 60_000),
    "busy_1500": _latency("busy", 1_500, 50_000),
    "busy_10000": _latency("busy", 10_000, 8_000),
    "paced_1k": _latency("paced", 1_000, 2_000),
    "paced_10k": _latency("paced", 10_000, 20_000),
    "paced_50k": _latency("paced", 50_000, 100_000),
    "tasks_10k": _latency("tasks", 10_000, 20_000, tasks=200),
}
