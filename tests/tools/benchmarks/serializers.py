"""Measures what a serializer, a topic handle, an interceptor or a partitioner adds to a send: CPU of the sends alone, on both builds.

    python -m tests.tools.benchmarks.serializers [--bursts 400]

Each kind of send has a producer of its own, on one fake cluster in memory. A burst is 200 sends that do not wait; the loop, the cluster and
the acknowledgements run between bursts, and are not measured. The kinds take turns, and the figure of each is that of its quickest tenth of
bursts, so that what else the machine does is in none of them. Exit status 1 when a bar is not met.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from aioproducer import FakeCluster

BURST: Final = 200
BUILDS: Final[Mapping[str, Mapping[str, str]]] = {
    "compiled": {"AIOPRODUCER_PURE": "", "AIOPRODUCER_REQUIRE_EXT": "1"},
    "pure": {"AIOPRODUCER_PURE": "1", "AIOPRODUCER_REQUIRE_EXT": ""},
}
IDENTITY_BAR, TOPIC_BAR_US, PLAIN_BAR, INTERCEPTED_BAR_US = 2.0, 0.15, 1.3, 2.5


class Order(msgspec.Struct):
    """Holds what is sent."""

    id: int
    customer: str
    total: float


ORDER: Final = Order(1, "ada", 9.5)
ENCODE: Final = msgspec.json.Encoder().encode
BYTES: Final = ENCODE(ORDER)


class Kind(NamedTuple):
    """Holds what is measured: a send by a producer with these options, of this value."""

    name: str
    options: Mapping[str, Any]
    value: object
    is_by_topic: bool = False


class Nothing:
    """Intercepts records, and does nothing."""

    def on_send(self, record: Any) -> None:
        pass

    def on_acknowledgement(self, metadata: Any, headers: Any) -> None:
        pass


def first(_key: bytes | None, _partitions: int) -> int:
    return 0


KINDS: Final = (
    Kind("bytes", {}, BYTES),
    Kind("bytes by topic", {}, BYTES, is_by_topic=True),
    Kind("identity serializer", {"value_serializer": lambda value: value}, BYTES),
    Kind("Struct by topic", {}, ORDER, is_by_topic=True),
    Kind("Struct by option", {"value_serializer": ENCODE}, ORDER),
    Kind("interceptor", {"interceptors": [Nothing()]}, BYTES),
    Kind("partitioner of one's own", {"partitioner": first}, BYTES),
)


async def burst(send: Callable[[Any], Awaitable[object]], value: object) -> float:
    """Return microseconds of CPU of a send."""
    began = time.process_time()
    for _ in range(BURST):
        await send(value)
    return (time.process_time() - began) / BURST * 1e6


def encoding() -> float:
    """Return microseconds of the encoding alone."""
    encode, order = ENCODE, ORDER
    began = time.process_time()
    for _ in range(BURST):
        encode(order)
    return (time.process_time() - began) / BURST * 1e6


async def measured(cluster: FakeCluster, bursts: int) -> dict[str, float]:
    """Return microseconds of CPU of each kind of send, and of the encoding."""
    from aioproducer import Producer

    found: dict[str, list[float]] = {kind.name: [] for kind in KINDS} | {"encode": []}
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for number, kind in enumerate(KINDS):
            name = f"orders-{number}"
            cluster.create_topic(name, partitions=6)
            producer: Any = await stack.enter_async_context(Producer(**cluster.client_options, linger_ms=1000, **kind.options))
            topic = producer.topic(name, value=Order if kind.value is ORDER else bytes) if kind.is_by_topic else None

            calls.append((kind, producer, topic.send if kind.is_by_topic else functools.partial(producer.send, name)))
            await producer.partitions_for(name)
        for _ in range(bursts):
            for kind, producer, call in calls:
                await asyncio.sleep(0)
                found[kind.name].append(await burst(call, kind.value))
                await producer.flush()
            found["encode"].append(encoding())
    return {name: statistics.mean(sorted(some)[: len(some) // 10 + 1]) for name, some in found.items()}


def verdicts(build: str, us: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Return each bar: what it is of, the figure, and the most that it may be."""
    sent, encoded = us["bytes"], us["encode"]
    if build == "pure":
        return [("Struct by topic, over bytes + encode", us["Struct by topic"] / (sent + encoded), PLAIN_BAR)]
    return [
        ("identity serializer, over bytes", us["identity serializer"] / sent, IDENTITY_BAR),
        ("Struct by topic, us above bytes + encode", us["Struct by topic"] - sent - encoded, TOPIC_BAR_US),
        ("a record with an interceptor, us", us["interceptor"], INTERCEPTED_BAR_US),
    ]


async def run(build: str, bursts: int) -> bool:
    """Measure one build, and print its figures. Returns whether it meets its bars."""
    from aioproducer.testing import FakeCluster

    async with FakeCluster(memory=True) as cluster:
        us = await measured(cluster, bursts)
    for name, each in us.items():
        print(f"{build:10}{name:28}{each:8.2f} us{each / us['bytes']:8.2f} x bytes", flush=True)
    found = verdicts(build, us)
    for what, figure, bar in found:
        print(f"{'PASS   ' if figure <= bar else 'NOT MET'} {build}: {what}: {figure:.2f} of {bar:g}", flush=True)
    return all(figure <= bar for _, figure, bar in found)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.benchmarks.serializers")
    parser.add_argument("--bursts", type=int, default=400, help="of each kind of send (default: %(default)s)")
    parser.add_argument("--build", choices=list(BUILDS), help=argparse.SUPPRESS)
    chosen = parser.parse_args(words)
    if chosen.build:
        return 0 if asyncio.run(run(chosen.build, chosen.bursts)) else 1
    program = (sys.executable, "-m", "tests.tools.benchmarks.serializers", "--bursts", str(chosen.bursts), "--build")
    return max(subprocess.run((*program, build), env=os.environ | dict(of), check=False).returncode for build, of in BUILDS.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
