"""Holds the counted workloads: records that pass a producer, between two marks that callgrind sees.

    python -P tests/tools/gate/workloads.py RECORDS SINGLES       # under valgrind, as callgrind.py calls it

The producer is that of the tree on PYTHONPATH, which may be older: this file uses only its public names, `FakeCluster` and `run_jumping`.
No workload depends on clocks, chance or the kernel: time jumps, the cluster is in memory, and both builds run the same event-loop
iterations each time.
`send_columns` is not here: pyarrow starts threads, and callgrind writes their counts apart.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.machinery
import itertools
import json
import pathlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from marks import calibrate, counted, uncounted

import aioproducer
from aioproducer import Producer, Record
from aioproducer.testing import FakeCluster, run_jumping

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# Found by public names: the modules that they are in differ from tree to tree.
JumpingLoop: Final[Any] = run_jumping.__globals__["JumpingLoop"]
MemoryNetwork: Final[Any] = type(FakeCluster(memory=True).network)

TOPIC: Final = "orders"
PARTITIONS: Final = 6
KEYS: Final = [b"key-%06d" % number for number in range(1000)]
VALUE: Final = b"v" * 100
TICK: Final = 10
GATHERED: Final = 500
EACH: Final = 2  # records of each task of the herd
MANY: Final = 1000
MOMENT: Final = 1_700_000_000.0


# The cluster: its work is not counted


class Far:
    """Wraps a receiver of the cluster, and does not count its work."""

    def __init__(self, receiver: Any) -> None:
        self._receiver = receiver

    def data_received(self, data: bytes) -> None:
        uncounted(partial(self._receiver.data_received, data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._receiver, name)


class Network(MemoryNetwork):  # type: ignore[misc]
    """A memory network that does not count the work of its listeners."""

    def listen(self, host: str, port: int, receiver: Callable[[], Any]) -> None:
        super().listen(host, port, lambda: Far(receiver()))


# The workloads


async def keyed(producer: Producer[bytes, bytes], records: int) -> None:
    for key in itertools.islice(itertools.cycle(KEYS), records):
        await producer.send(TOPIC, VALUE, key)
    await producer.flush()


async def keyless(producer: Producer[bytes, bytes], records: int) -> None:
    for _ in range(records):
        await producer.send(TOPIC, VALUE)
    await producer.flush()


async def headers(producer: Producer[bytes, bytes], records: int) -> None:
    for key in itertools.islice(itertools.cycle(KEYS), records):
        await producer.send(TOPIC, VALUE, key, headers=[("trace", b"0123456789abcdef")])
    await producer.flush()


async def single(producer: Producer[bytes, bytes], records: int) -> None:
    for key in itertools.islice(itertools.cycle(KEYS), records):
        await producer.send_and_wait(TOPIC, VALUE, key)


async def tick(producer: Producer[bytes, bytes], records: int) -> None:
    for first in range(0, records, TICK):
        await asyncio.gather(
            *[
                await producer.send(TOPIC, VALUE, key)
                for key in KEYS[first : min(first + TICK, records)]
            ]
        )


async def gather(producer: Producer[bytes, bytes], records: int) -> None:
    for _ in range(records // GATHERED):
        await asyncio.gather(*[await producer.send(TOPIC, VALUE, key) for key in KEYS[:GATHERED]])


async def stream(producer: Producer[bytes, bytes], records: int) -> None:
    deliveries = [
        await producer.send(TOPIC, VALUE, key)
        for key in itertools.islice(itertools.cycle(KEYS), records)
    ]
    await producer.flush()
    for delivery in deliveries:
        await delivery


async def herd(producer: Producer[bytes, bytes], records: int) -> None:
    async def task(first: int) -> None:
        for number in range(first, first + EACH):
            await producer.send_and_wait(TOPIC, VALUE, KEYS[number % len(KEYS)])

    await asyncio.gather(*(task(first) for first in range(0, records, EACH)))


async def many(producer: Producer[bytes, bytes], records: int) -> None:
    for _ in range(records // MANY):
        await (await producer.send_many(TOPIC, [VALUE] * MANY))


async def many_keyed(producer: Producer[bytes, bytes], records: int) -> None:
    some = [Record(VALUE, key) for key in itertools.islice(itertools.cycle(KEYS), MANY)]
    for _ in range(records // MANY):
        await (await producer.send_many(TOPIC, some))


WORKLOADS: Final[dict[str, Callable[[Producer[bytes, bytes], int], Coroutine[Any, Any, None]]]] = {
    "keyed": keyed,
    "keyless": keyless,
    "serializer": keyed,
    "headers": headers,
    "single": single,
    "tick": tick,
    "gather": gather,
    "stream": stream,
    "herd": herd,
    "many": many,
    "many, keyed": many_keyed,
}
OPTIONS: Final[dict[str, dict[str, Any]]] = {"serializer": {"value_serializer": bytes.upper}}
"""The options of a workload's producer, beside those of all."""
COSTLY: Final = frozenset({"single", "tick"})
"""A request for a record or for ten: fewer records do."""


async def opened(**options: Any) -> tuple[FakeCluster, Producer[bytes, bytes]]:
    cluster = FakeCluster(memory=True)
    cluster.network = Network()
    await cluster.__aenter__()
    cluster.create_topic(TOPIC, PARTITIONS)
    producer: Producer[bytes, bytes] = Producer(
        **cluster.client_options, **options, chance=lambda: 0.5, wall_clock=lambda: MOMENT
    )
    return cluster, await producer.__aenter__()


def run(name: str, records: int) -> int:
    """Run one workload twice, the second time counted. Returns the number of records in its cluster's log."""
    work = WORKLOADS[name]
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        cluster, producer = runner.run(opened(**OPTIONS.get(name, {})))
        runner.run(work(producer, records // 2))  # caches, specialized bytecode
        before = sum(cluster.end_offsets(TOPIC).values())
        gc.collect()
        gc.freeze()  # so that a collection visits the workload's objects, and not all imported ones
        loop = runner.get_loop()
        counted(name, records, lambda: loop.run_until_complete(work(producer, records)))
        gc.unfreeze()
        logged = sum(cluster.end_offsets(TOPIC).values()) - before
        runner.run(producer.__aexit__(None, None, None))
        runner.run(cluster.__aexit__(None, None, None))
    assert cluster.violations == []
    return logged


def is_compiled() -> bool:
    """Return whether the send path is the compiled extension. Both builds import the other extensions."""
    loaded = (
        module
        for name, module in sys.modules.items()
        if name.startswith("aioproducer.engine.") and name.endswith("._fast_path")
    )
    file = getattr(next(loaded, None), "__file__", None) or ""
    return file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


def main(records: int, singles: int) -> None:
    calibrate()
    for name in WORKLOADS:
        wanted = singles if name in COSTLY else records
        logged = run(name, wanted)
        assert logged == wanted, f"{name}: {logged} of {wanted} records are in the log"
    print(
        json.dumps(
            {
                "tree": str(pathlib.Path(aioproducer.__file__).parents[1]),
                "is_compiled": is_compiled(),
            }
        )
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
