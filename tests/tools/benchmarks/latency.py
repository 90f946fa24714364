"""Holds workloads that measure a record's latency, from before `send`, or in bursts from the burst's beginning, to its delivery's callback.

`load` is the amount of work:

1. `busy`: one task counts to `load` before each send, and waits for nothing else; `busy_mixed`: the same, to many topics alternately.
2. `paced`: one task wakes every millisecond and sends what `load` records a second make due.
3. `tasks`: `job.tasks` tasks share `load` records a second, evenly apart.
4. `bursts`: one task sends `load` records one after the other every 50 ms, as a consumer does with the records that it has polled: all of
   them are due at once, so a client whose `send` takes long is late with the last ones.

The client needs an `async` `send` that returns an object with `add_done_callback`; confluent's AIOProducer has an adapter.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.tools.benchmarks.workloads import Job, Tally

TICK: Final = 0.001
"""Seconds between two wake-ups of `paced`."""
PAUSE: Final = 0.05
"""Seconds from one burst of `bursts` to the next."""


async def busy(client: Any, job: Job) -> Tally:
    """Send from one task that computes between its sends."""
    send, topic, clock, load = client.send, job.topic, time.perf_counter, job.load
    notes = Notes(job)
    for key, value in zip(job.keys, notes.values, strict=False):
        for _ in range(load):
            pass
        began = clock()
        (await send(topic, value, key)).add_done_callback(partial(notes.done, began))
    return await notes.all(client)


async def busy_mixed(client: Any, job: Job) -> Tally:
    """Send as `busy` does, to many topics alternately."""
    send, value, clock, load = client.send, job.value, time.perf_counter, job.load
    notes = Notes(job)
    for topic, cell, key in zip(itertools.cycle(job.topics), job.cells(), job.keys, strict=False):
        for _ in range(load):
            pass
        began = clock()
        (await send(topic, value, key)).add_done_callback(partial(notes.done, began, cell=cell))
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


async def bursts(client: Any, job: Job) -> Tally:
    """Send from one task in bursts. A burst that is late begins at once."""
    clock, notes = time.perf_counter, Notes(job)
    begin = clock()
    for burst, first in enumerate(range(0, len(job.keys), job.load), 1):
        await _send(client, job, job.keys[first : first + job.load], notes, due=clock())
        await asyncio.sleep(max(begin + burst * PAUSE - clock(), 0))
    return await notes.all(client)


async def _send(client: Any, job: Job, keys: Sequence[bytes], notes: Notes, *, due: float | None = None) -> None:
    """Send records one after the other. Their latency counts from `due`, or from before each `send`."""
    send, topic, clock = client.send, job.topic, time.perf_counter
    for key, value in zip(keys, notes.values, strict=False):
        began = clock() if due is None else due
        (await send(topic, value, key)).add_done_callback(partial(notes.done, began))


class Notes:
    """Collects the facts that the callbacks note of each record.

    Attributes:
        values: the job's values, alternately.
    """

    def __init__(self, job: Job) -> None:
        self.values = itertools.cycle(job.values)
        self._tally = job.tally()
        self._left = len(job.keys)
        self._is_done = asyncio.Event()

    def done(self, began: float, delivery: Any, *, cell: int = 0) -> None:
        """Note an acknowledged record; `cell` is the index of its topic's first partition in the tally."""
        tally = self._tally
        tally.latencies.append(time.perf_counter() - began)
        metadata = delivery.result()
        tally.offsets += metadata.offset
        tally.counts[cell + metadata.partition] += 1
        self._left -= 1
        if not self._left:
            self._is_done.set()

    async def all(self, client: Any) -> Tally:
        """Wait until every callback has run. Returns the tally."""
        await client.flush()
        if self._left:
            await self._is_done.wait()
        return self._tally
