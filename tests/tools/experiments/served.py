"""Runs a fake cluster in a process of its own, apart from the client's, and reports its Metadata figures.

    python -m tests.tools.experiments.served BROKERS TOPICS RTT_MS

It prints its addresses. For each line that it reads it prints the figures since the line before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from aioproducer.testing import FakeCluster, call
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["Figures", "Served", "metered", "served", "topic_names"]

ROOT = Path(__file__).parents[3]


def topic_names(count: int) -> list[str]:
    return [f"topic-{number:05}" for number in range(count)]


@dataclass(slots=True)
class Figures:
    """Holds figures of Metadata: requests, topics, bytes of all answers and of the largest, seconds of all builds and of the longest."""

    requests: int = 0
    topics: int = 0
    size: int = 0
    largest: int = 0
    building: float = 0.0
    longest: float = 0.0

    def clear(self) -> None:
        self.requests = self.topics = self.size = self.largest = 0
        self.building = self.longest = 0.0


@contextlib.contextmanager
def metered() -> Iterator[Figures]:
    """Count the answers of every fake cluster of this process; `clear` resets the counts."""
    figures = Figures()
    answer, encode = call.Call._answer, call.encode_response

    def counted_answer(one: Any) -> None:
        if one.api != "Metadata":
            answer(one)
            return
        began = time.perf_counter()
        answer(one)  # to its last byte: the latency is added after it
        took = time.perf_counter() - began
        figures.requests += 1
        figures.topics += len(one.request.topics or ())
        figures.building += took
        figures.longest = max(figures.longest, took)

    def counted_encode(key: int, version: int, correlation_id: int, body: Any) -> Any:
        frame = encode(key, version, correlation_id, body)
        if key == ApiKey.METADATA:
            size = sum(map(len, frame))
            figures.size += size
            figures.largest = max(figures.largest, size)
        return frame

    call.Call._answer, call.encode_response = counted_answer, counted_encode  # type: ignore[method-assign]
    try:
        yield figures
    finally:
        call.Call._answer, call.encode_response = answer, encode  # type: ignore[method-assign]


class Served:
    """Controls a cluster in its own process."""

    def __init__(self, process: asyncio.subprocess.Process, bootstrap_servers: str) -> None:
        self._process = process
        self.bootstrap_servers = bootstrap_servers

    async def figures(self) -> Figures:
        """Return the figures since the last call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return Figures(**json.loads(await self._process.stdout.readline()))


@contextlib.asynccontextmanager
async def served(brokers: int, topics: int, rtt_ms: float) -> AsyncIterator[Served]:
    """Start a cluster; it ends with the block."""
    words = ("-m", "tests.tools.experiments.served", *map(str, (brokers, topics, rtt_ms)))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, stdin=pipe, stdout=pipe
    )
    try:
        assert process.stdout is not None
        yield Served(process, (await process.stdout.readline()).decode().strip())
    finally:
        process.kill()
        await process.wait()


async def serve(brokers: int, topics: int, rtt_ms: float) -> None:
    with metered() as figures:
        async with FakeCluster(brokers=brokers) as cluster:
            for name in topic_names(topics):
                cluster.create_topic(name)
            for broker in cluster.brokers.values():
                broker.latency = rtt_ms / 1000
            print(cluster.bootstrap_servers, flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                print(
                    json.dumps({name: getattr(figures, name) for name in Figures.__slots__}),
                    flush=True,
                )
                figures.clear()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
