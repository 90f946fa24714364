"""KIP-526: measures metadata of 10,000 topics: at the start, with 50 hot ones, and after the others expired.

1. Start: the program sends each topic's first record at its time, without waiting for the records before (1,000 new topics a second). 10
   fake brokers in a process of their own answer after 50 ms. Ours, Java's rule (below), aiokafka, each in a fresh process.
2. Steady state, in a loop with jumping time: after one send to each of the 10,000 topics, the program sends to 50 topics for half an hour.
   Ours, and Java's rule, which has topic expiry too.
3. Memory: what Python allocates (tracemalloc), sockets and all, before the 10,000, with them, and after 9,950 of them are forgotten.

Java's rule is a policy in the place of ours: a request has new topics alone, or all topics when the oldest is `max_age` old or one has
changed. It is Kafka's rule since KIP-526 was built there. aiokafka requests every topic whenever one is new.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gc
import json
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import uvloop

from aioproducer.core.metadata.metadata_schedule import MetadataSchedule, Question
from aioproducer.engine import wiring
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import run_jumping

from . import Result
from .served import ROOT, Figures, metered, served, topic_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

BROKERS: Final = 10
RTT_MS: Final = 50.0
RATE: Final = 1000  # new topics a second
PATIENCE: Final = 90.0  # seconds that a client may take for the start
HOT: Final = 50
IDLE: Final = 5.0  # seconds, in the memory run
OURS, JAVAS, PEER = "aioproducer", "Java's rule", "aiokafka"


class JavasRule(MetadataSchedule):
    """Requests new topics alone, and all topics when one is old or has changed."""

    @property
    def target(self) -> int:
        return 0  # the rule fills no request with other topics

    def next_other(self, now: float, is_needed: Callable[[str], bool]) -> Question | None:
        oldest = next(iter(self._told.values()), self._answered_at)
        if not self._changed and now < oldest + self._max_age:
            return None
        names = [name for name in {**self._changed, **self._told} if name not in self._asked]
        self._changed.clear()
        self._asked.update(names)
        return Question(names, frozenset(names))

    def due_at(self) -> float:
        return (
            0.0
            if self._changed
            else next(iter(self._told.values()), self._answered_at) + self._max_age
        )


def javas() -> Any:
    """Let producers that are created within the block follow Java's rule."""
    return mock.patch.object(wiring, "MetadataSchedule", JavasRule)


# Start, in a fresh process


async def start(client: str, bootstrap_servers: str, topics: int) -> dict[str, Any]:
    """Return the seconds of each first `send` until its record was queued, without those that took longer than PATIENCE."""
    names = topic_names(topics)
    random.Random(1).shuffle(names)
    waits: list[float] = []
    clock = time.perf_counter

    waiting: set[asyncio.Task[None]] = set()

    async def first(producer: Any, name: str) -> None:
        began = clock()
        await producer.send(name, b"v" * 100)
        waits.append(clock() - began)

    async with made(client, bootstrap_servers) as producer:
        with paused() as pauses:
            began, begun = clock(), 0
            while begun < topics:
                due = min(int((clock() - began) * RATE) + 1, topics)
                for name in names[begun:due]:
                    task = asyncio.create_task(first(producer, name))
                    waiting.add(task)
                    task.add_done_callback(waiting.discard)
                begun = due
                await asyncio.sleep(0.001)
            if waiting:
                await asyncio.wait(waiting, timeout=max(began + PATIENCE - clock(), 0.0))
            seconds = clock() - began
        late = tuple(waiting)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    return {"waits": waits, "seconds": seconds, "pause": max(pauses, default=0.0)}


@contextlib.contextmanager
def paused() -> Iterator[list[float]]:
    """Collect the seconds of each of the collector's pauses. Earlier objects are frozen: they belong to imports, not to a client."""
    pauses: list[float] = []
    began = 0.0

    def note(phase: str, _info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.perf_counter()
        else:
            pauses.append(time.perf_counter() - began)

    gc.collect()
    gc.freeze()
    gc.callbacks.append(note)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(note)


@contextlib.asynccontextmanager
async def made(client: str, bootstrap_servers: str) -> Any:
    if client == PEER:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
            yield producer
        return
    from aioproducer import Producer

    with javas() if client == JAVAS else contextlib.nullcontext():
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            yield producer


# Memory, in a fresh process


async def remember(options: Mapping[str, Any], topics: int) -> dict[str, float]:
    """Return the bytes allocated with the hot topics alone, with all topics, and after the others expired, by the loop's clock."""
    from aioproducer import Producer

    clock = asyncio.get_running_loop().time

    names = topic_names(topics)
    hot = names[:HOT]

    async def beat(producer: Any, seconds: float) -> None:
        until = clock() + seconds
        while clock() < until:
            for name in hot:
                await producer.send(name, b"v" * 100)
            await asyncio.sleep(0.1)
        await producer.flush()

    def level() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    async with Producer(**options, metadata_max_idle_ms=IDLE * 1000) as producer:
        await beat(producer, IDLE)
        parts: Any = producer._engine.parts  # type: ignore[union-attr]
        before = level()
        for at in range(0, topics, 100):
            await asyncio.gather(
                *(producer.send(name, b"v" * 100) for name in names[at : at + 100])
            )
        await producer.flush()
        full, held = (
            level(),
            len(parts.partition_queues.routings),
        )  # on a busy machine some topics have expired by now
        await beat(producer, 3 * IDLE)
        after = level()
        return {
            "before": before,
            "full": full,
            "held": held,
            "after": after,
            "left": len(parts.partition_queues.routings) - HOT,
        }


# Steady state


def steady(client: str, topics: int, minutes: int) -> list[Figures]:
    """Return the metadata of each minute; the first minute has the start."""
    from aioproducer import Producer

    names = topic_names(topics)
    told: list[Figures] = []

    async def main() -> None:
        async with FakeCluster(brokers=BROKERS, memory=True) as cluster:
            for name in names:
                cluster.create_topic(name)
            with metered() as figures:
                async with Producer(**cluster.client_options) as producer:
                    for at in range(0, topics, 500):
                        await asyncio.gather(
                            *(producer.send(name, b"v") for name in names[at : at + 500])
                        )
                    for _ in range(minutes):
                        for _ in range(12):
                            for name in names[:HOT]:
                                await producer.send(name, b"v")
                            await asyncio.sleep(5)
                        told.append(dataclasses.replace(figures))
                        figures.clear()

    with javas() if client == JAVAS else contextlib.nullcontext():
        run_jumping(main())
    return told


# All together


async def in_process(*words: str) -> Any:
    """Run this module's own program in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        program = (sys.executable, "-m", "tests.tools.experiments.metadata", str(told), *words)
        process = await asyncio.create_subprocess_exec(*program, cwd=ROOT)
        if await process.wait():
            raise SystemExit(f"{words[0]} failed: its last words stand above")
        return json.loads(told.read_text())


async def run(*, quick: bool) -> Result:
    """Run the three parts, one after another."""
    topics, minutes = (500, 12) if quick else (10_000, 30)
    starts = {client: await started(client, topics) for client in (OURS, JAVAS, PEER)}
    minutes_of = {
        client: await asyncio.to_thread(steady, client, topics, minutes) for client in (OURS, JAVAS)
    }
    async with served(BROKERS, topics, 0.0) as cluster:
        memory = await in_process("memory", cluster.bootstrap_servers, str(topics))
    alone = await description(topics)
    rows = [
        start_row(client, told, figures, topics, alone)
        for client, (told, figures) in starts.items()
    ]
    none = dict.fromkeys(steady_cells(minutes_of[OURS]), "-")
    for row in rows:
        row |= steady_cells(minutes_of[row["client"]]) if row["client"] in minutes_of else none
    growth = memory["after"] / memory["before"] - 1
    told, figures = starts[OURS]
    p99 = statistics.quantiles(told["waits"], n=100, method="inclusive")[98] * 1000
    limit = 3 * RTT_MS + figures.longest * 1000
    each = rows[0]["of one each"]
    return Result(
        rows=rows,
        bars={
            f"bytes of the start at most 1.2 x one description of each topic ({each:.2f} x)": each
            <= 1.2,
            f"p99 of the first send at most 3 x RTT + the longest building of an answer ({p99:.0f} <= {limit:.0f} ms)": p99
            <= limit,
            f"memory after forgetting within 5 % of what it was before ({growth:+.1%}), no topic left ({memory['left']})": (
                growth <= 0.05 and not memory["left"]
            ),
        },
    )


async def started(client: str, topics: int) -> tuple[dict[str, Any], Figures]:
    """Run a client's start, with brokers of its own."""
    async with served(BROKERS, topics, RTT_MS) as cluster:
        told = await in_process("start", client, cluster.bootstrap_servers, str(topics))
        return told, await cluster.figures()


async def description(topics: int) -> float:
    """Return the bytes of one topic in an answer."""
    async with FakeCluster(brokers=BROKERS, memory=True) as cluster:
        for name in topic_names(topics):
            cluster.create_topic(name)
        from aioproducer import Producer

        with metered() as figures:
            async with Producer(**cluster.client_options) as producer:
                empty = figures.size
                await producer.partitions_for(topic_names(1)[0])
                return (
                    figures.size - 2 * empty if figures.size > 2 * empty else figures.size - empty
                )


def start_row(
    client: str, told: dict[str, Any], figures: Figures, topics: int, alone: float
) -> dict[str, Any]:
    cuts = statistics.quantiles(told["waits"], n=100, method="inclusive")
    return {
        "client": client,
        "first sends": len(told["waits"]),
        "within s": round(told["seconds"], 1),
        "p50 ms": cuts[49] * 1000,
        "p99 ms": cuts[98] * 1000,
        "pause ms": told["pause"] * 1000,
        "requests": figures.requests,
        "MB": figures.size / 1e6,
        "of one each": figures.size / (topics * alone),
        "building s": figures.building,
    }


def steady_cells(minutes: Sequence[Figures]) -> dict[str, Any]:
    """Return bytes a second before the first topic expires, without the start, and in the last half."""
    early, late = minutes[1:5], minutes[len(minutes) // 2 :]
    rates = {
        name: sum(one.size for one in some) / (60 * len(some))
        for name, some in (("B/s at first", early), ("B/s later", late))
    }
    return {**rates, "largest KB": max(one.largest for one in minutes[1:]) / 1000}


def main() -> None:
    """Run one part, as a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("told", type=Path)
    parser.add_argument("part", choices=("start", "memory"))
    parser.add_argument("words", nargs="+")
    chosen = parser.parse_args()
    if chosen.part == "start":
        client, bootstrap_servers, topics = chosen.words
        told = uvloop.run(start(client, bootstrap_servers, int(topics)))
    else:
        tracemalloc.start()
        bootstrap_servers, topics = chosen.words
        told = asyncio.run(remember({"bootstrap_servers": bootstrap_servers}, int(topics)))
    chosen.told.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
