"""The leak hunt: sends that end in every way, a million of them, and afterwards nothing more is alive than before.

    python -m tests.tools.leaks [--sends 1000000]

Each round plays every end (ENDS) with a producer and a cluster of its own, in a loop with time that jumps, and closes both. After each round the
collector runs, and it is looked at: objects by type, CPython's blocks of memory, references to what all records share (the package's classes,
a topic, a value), all references where a debug build counts them (`sys.gettotalrefcount`), and the memory of the process. The first rounds fill caches; from then on all must stay flat. Exit status 1: it
does not, and what grew is named.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import sys
import threading
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil
import pyarrow as pa

from aioproducer import DeliveryError, Producer, Record
from aioproducer.errors import KafkaError, WouldBlock
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

TOPIC: Final = "orders"
VALUE: Final = b"v" * 100
SMALL: Final = {"buffer_memory": 20_000, "batch_size": 2_000}
WARM: Final = 3
"""Rounds that fill caches."""
TURN: Final = 2000
"""More sends than one event-loop iteration handles."""
OBJECTS_A_ROUND: Final = 0.5
"""The number of objects of a type that may stay from each round: less than one."""
COUNTS_A_SEND: Final = 0.001
SPARE: Final = 300
"""Blocks, and references, that may stay besides, for caches and for the samples themselves."""
BLOCKS: Final = "blocks of memory"
RSS: Final = 8 * 2**20
"""Bytes by which the process may grow, as the allocator does not return all freed memory."""


# The ends of a send. Each function gets a producer of its own, the producer's cluster, and the number of sends


async def acknowledged(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    for delivery in [
        await producer.send(TOPIC, VALUE, b"key-%d" % (number % 100)) for number in range(sends)
    ]:
        await delivery


async def awaited_at_once(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    await asyncio.gather(
        *[producer.send_and_wait(TOPIC, VALUE, headers=[("h", b"1")]) for _ in range(sends)]
    )


async def dropped(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    for _ in range(sends):
        await producer.send(TOPIC, VALUE)
    await producer.flush()


async def many(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    deliveries = await producer.send_many(TOPIC, [VALUE] * (sends // 2))
    await producer.send_many(TOPIC, [Record(VALUE, b"key")] * (sends // 2))
    await deliveries


async def columns(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Send sliced and chunked columns with nulls, and columns that the producer refuses at a row in the middle, or before the first."""
    rows = [None if number % 10 == 0 else VALUE for number in range(sends // 2)]
    sliced = pa.array(rows)[1:-1]
    chunked = pa.chunked_array([pa.array(rows[:7]), sliced])
    for values in (sliced, chunked):
        await (await producer.send_columns(TOPIC, values=values, keys=values, timestamps_ms=7))
    for wrong in (pa.array([VALUE] * 5 + [bytes(10_000)]), pa.array([1, 2])):
        with contextlib.suppress(KafkaError):
            await producer.send_columns(TOPIC, values=wrong)


async def from_a_thread(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Send from a thread, and cancel half of the sends before the loop sees them."""
    futures: list[Any] = []

    def work() -> None:
        futures.extend(producer.from_thread.send(TOPIC, VALUE) for _ in range(sends // 2))
        assert all(future.cancel() for future in futures[::2])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    await asyncio.gather(*map(asyncio.wrap_future, futures[1::2]))


async def in_transactions(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Commit and abort transactions alternately."""
    for number in range(sends // 50):
        with contextlib.suppress(KeyError):
            async with producer.transaction():
                for _ in range(50):
                    await producer.send(TOPIC, VALUE)
                if number % 2:
                    raise KeyError


async def at_once(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Call `send_nowait`, also where `send` would have to wait."""
    await producer.partitions_for(TOPIC)
    refused = 0
    for number in range(sends):
        try:
            producer.send_nowait(TOPIC, VALUE, b"key-%d" % (number % 10))
        except WouldBlock:
            refused += 1
    assert refused < sends


async def refused(producer: Producer[Any, Any], cluster: FakeCluster, sends: int) -> None:
    """Let the broker refuse all records. The task awaits half of the deliveries and drops the others."""
    cluster.fail("Produce", "POLICY_VIOLATION", times=None)
    failed = 0
    for delivery in [await producer.send(TOPIC, VALUE) for _ in range(sends)][::2]:
        try:
            await delivery
        except DeliveryError:
            failed += 1
    assert failed == (sends + 1) // 2


async def retried(producer: Producer[Any, Any], cluster: FakeCluster, sends: int) -> None:
    cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=3)
    cluster.fail("Produce", disconnect="after", times=2)
    assert all(
        [
            (await delivery).offset >= 0
            for delivery in [await producer.send(TOPIC, VALUE) for _ in range(sends)]
        ]
    )


async def expired(producer: Producer[Any, Any], cluster: FakeCluster, sends: int) -> None:
    cluster.hang("Produce")
    deliveries = [await producer.send(TOPIC, VALUE) for _ in range(sends)]
    summary = await producer.flush()
    assert summary.failed == sends
    assert [delivery.exception() for delivery in deliveries[::2]]


async def misused(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Send records that the producer refuses: no bytes, an unknown partition, too large, a wrong header, a wrong timestamp."""
    wrong: Sequence[Mapping[str, Any]] = (
        {"value": "text"},
        {"value": VALUE, "partition": 99},
        {"value": bytes(10_000)},
        {"value": VALUE, "headers": [(b"h", b"1")]},
        {"value": VALUE, "timestamp_ms": -2},
    )
    failed = 0
    for number in range(sends):
        try:
            await producer.send(TOPIC, **wrong[number % len(wrong)])
        except KafkaError:
            failed += 1
    assert failed == sends


async def never_awaited(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Call `send` without `await`: no record is sent, and Python warns of each call."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(sends):
            producer.send(TOPIC, VALUE)  # type: ignore[unused-coroutine]
    assert [type(one.message) for one in said] == [RuntimeWarning] * sends


async def without_memory(producer: Producer[Any, Any], cluster: FakeCluster, sends: int) -> None:
    """Cancel sends while they wait for memory."""
    hang = cluster.hang("Produce")
    assert await _cancelled([producer.send(TOPIC, VALUE) for _ in range(sends)]) >= sends // 2
    hang.release()


async def without_topic(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Cancel sends while they wait for an unknown topic; a few wait until `max_block_ms` is over."""
    assert await _cancelled([producer.send("nowhere", VALUE) for _ in range(sends)]) == sends
    failed = await asyncio.gather(
        *[producer.send("nowhere", VALUE) for _ in range(5)], return_exceptions=True
    )
    assert all(isinstance(error, KafkaError) for error in failed)


async def at_the_end_of_a_turn(
    producer: Producer[Any, Any], _cluster: FakeCluster, sends: int
) -> None:
    """Cancel sends that still wait after one event-loop iteration."""
    large = bytes(4_000)
    await producer.partitions_for(TOPIC)
    for number in range(0, sends, TURN):
        await _cancelled(
            [producer.send(TOPIC, large) for _ in range(min(TURN, sends - number))], turns=1
        )


async def with_callbacks(producer: Producer[Any, Any], _cluster: FakeCluster, sends: int) -> None:
    """Add callbacks to deliveries before and after they end, and remove some before they are called."""
    called: list[Any] = []

    def other(_: Any) -> None:
        raise AssertionError("it was taken back")

    for delivery in (deliveries := [await producer.send(TOPIC, VALUE) for _ in range(sends)]):
        delivery.add_done_callback(called.append)
        delivery.add_done_callback(other)
        assert delivery.remove_done_callback(other) == 1
    await producer.flush()
    for delivery in deliveries:
        delivery.add_done_callback(called.append)
    for _ in range(TURN):
        # completions call at most a slice of all callbacks in one iteration of the loop
        if len(called) == 2 * sends:
            break
        await asyncio.sleep(0)
    assert len(called) == 2 * sends


async def gathered_and_cancelled(
    producer: Producer[Any, Any], _cluster: FakeCluster, sends: int
) -> None:
    """Cancel a gather of deliveries. The deliveries end as cancelled for the caller, and the producer still sends the records."""
    for _ in range(sends // 100):
        gathered = asyncio.gather(*[await producer.send(TOPIC, VALUE) for _ in range(100)])
        gathered.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gathered


async def waited_for_in_vain(
    producer: Producer[Any, Any], cluster: FakeCluster, sends: int
) -> None:
    """Cancel `wait_for`, `shield` and tasks while they await a delivery."""
    hang = cluster.hang("Produce")
    for delivery in [await producer.send(TOPIC, VALUE) for _ in range(sends)]:
        await _cancelled(
            [
                _wait(delivery),
                asyncio.wait_for(delivery, 60),
                asyncio.wait_for(asyncio.shield(delivery), 60),
            ],
            turns=2,
        )
    hang.release()


async def closed_upon(producer: Producer[Any, Any], cluster: FakeCluster, sends: int) -> None:
    """Stop the producer while deliveries are pending, of which a task awaits half."""
    cluster.hang("Produce")
    deliveries = [await producer.send(TOPIC, VALUE) for _ in range(sends)]
    waiting = asyncio.gather(*deliveries[: sends // 2], return_exceptions=True)
    await producer.stop()
    assert all(isinstance(error, DeliveryError) for error in await waiting)


async def _wait(delivery: Any) -> None:
    await delivery


async def _cancelled(calls: Iterable[Coroutine[Any, Any, Any]], turns: int = 3) -> int:
    """Cancel the calls that did not end within `turns` event-loop iterations. Returns the number of cancelled calls."""
    tasks = [asyncio.create_task(call) for call in calls]
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting = [task for task in tasks if not task.done()]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(waiting)


ENDS: Final[Mapping[Any, Mapping[str, Any]]] = {
    acknowledged: {},
    awaited_at_once: {},
    dropped: {},
    many: {},
    columns: {"max_request_size": 5_000},
    from_a_thread: {},
    in_transactions: {"transactional_id": "hunter"},
    at_once: {},
    refused: {},
    retried: {},
    expired: {"delivery_timeout_ms": 40_000, "request_timeout_ms": 10_000},
    misused: {"max_request_size": 5_000},
    never_awaited: {},
    without_memory: SMALL,
    without_topic: {"max_block_ms": 1_000},
    at_the_end_of_a_turn: {},
    with_callbacks: {},
    gathered_and_cancelled: {},
    waited_for_in_vain: {},
    closed_upon: {"close_timeout_ms": 100},
}
"""The ends, with the options of their producers."""


async def play(end: Any, options: Mapping[str, Any], sends: int) -> None:
    """Play one end: open its producer and cluster, and call the function `end` with them."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        async with Producer(
            **cluster.client_options, on_delivery_error=_unseen, **options
        ) as producer:
            await end(producer, cluster, sends)


def _unseen(_error: DeliveryError, _records: int) -> None:
    """Ignore unhandled failures: this program drops deliveries on purpose."""


# The figures that the program samples

clear_caches: Callable[[], None] = (
    getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
)
"""CPython's cache of attributes, which keeps up to 4,096 names alive: asyncio and signal look up new names each time."""


class Sample(NamedTuple):
    """Holds what is alive: objects by type, counts that records may not raise, and the memory of the process.

    The counts are CPython's blocks of memory, all references where this Python counts them, and those to each object that outlives all
    records: compiled code that counts one wrongly makes no object and no block.
    """

    types: Counter[str]
    counts: Mapping[str, int]
    rss: int


def sample() -> Sample:
    """Return a sample of now. It interns the names of types, so that samples share them: the names are blocks of memory too."""
    clear_caches()
    gc.collect()
    types = Counter[str]()
    for kind, count in Counter(map(type, gc.get_objects())).items():
        types[sys.intern(f"{kind.__module__}.{kind.__qualname__}")] += count
    counts = {sys.intern(name): sys.getrefcount(one) for name, one in _shared()}
    rss = psutil.Process().memory_info().rss
    if hasattr(sys, "gettotalrefcount"):
        counts["everything"] = sys.gettotalrefcount()
    counts[BLOCKS] = sys.getallocatedblocks()
    return Sample(types, counts, rss)


def _shared() -> Iterator[tuple[str, Any]]:
    """Yield the objects that all records share: every class of the package in any build that is loaded, and the values that `ENDS` send."""
    yield from {"a topic": TOPIC, "a value": VALUE, "an empty tuple": ()}.items()
    for name in sorted(name for name in sys.modules if name.startswith("aioproducer.")):
        for one in list(vars(sys.modules[name]).values()):
            if isinstance(one, type) and one.__module__ == name:
                yield f"{name}.{one.__qualname__}", one


def grown(first: Sample, last: Sample, rounds: int, sends: int) -> list[str]:
    """Return, in words, the figures that grew beyond their limit for the number of rounds and sends."""
    more = {name: count - first.types[name] for name, count in last.types.items()}
    found = [
        f"{name}: {count:+,}"
        for name, count in sorted(more.items(), key=lambda item: -item[1])
        if count > rounds * OBJECTS_A_ROUND
    ]
    most = SPARE + sends * COUNTS_A_SEND
    more = {name: count - first.counts.get(name, count) for name, count in last.counts.items()}
    found += [
        f"{name if name == BLOCKS else f'references to {name}'}: {count:+,}, at most {most:+,.0f}"
        for name, count in more.items()
        if count > most
    ]
    if last.rss - first.rss > RSS:
        found.append(f"memory of the process: {last.rss - first.rss:+,} bytes, at most {RSS:+,}")
    return found


def told(when: str, now: Sample) -> None:
    print(
        f"{when}: {sum(now.types.values()):,} objects, {now.counts[BLOCKS]:,} blocks, {now.rss / 2**20:,.1f} MiB"
    )


def hunt(ends: Mapping[Any, Mapping[str, Any]], rounds: int, sends: int) -> list[str]:
    """Play rounds of every end with `sends` sends each. Returns the figures that grew after the first rounds."""
    first: Sample | None = None
    for number in range(WARM + rounds):
        for end, options in ends.items():
            with asyncio.Runner(loop_factory=JumpingLoop) as runner:
                runner.run(play(end, options, sends))
        if number == WARM - 1:
            first = sample()
        elif number == WARM + rounds - 1 or number % 10 == 0:
            told(f"round {number + 1:4}", sample())
    assert first is not None
    last = sample()
    told("from", first)
    return grown(first, last, rounds, rounds * len(ends) * sends)


def rounds_for(sends: int, ends: int) -> tuple[int, int]:
    """Return the number of rounds (10 or more), and of sends for each end in each round, for at least so many sends in all."""
    each = min(max(sends // (10 * ends) // 100 * 100, 100), 1000)
    return -(-sends // (each * ends)), each


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.leaks", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--sends", type=int, default=1_000_000, help="in all (default: %(default)s)"
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="END",
        help=f"only these of {', '.join(end.__name__ for end in ENDS)}",
    )
    chosen = parser.parse_args(words)
    ends = {
        end: options
        for end, options in ENDS.items()
        if not chosen.names or end.__name__ in chosen.names
    }
    logging.getLogger("aioproducer").setLevel(
        logging.CRITICAL
    )  # the producer logs outages; these are intended
    rounds, sends = rounds_for(chosen.sends, len(ends))
    print(
        f"{rounds:,} rounds, {WARM} before them, of {len(ends)} ends with {sends:,} sends each: {rounds * len(ends) * sends:,}"
    )
    if not hasattr(sys, "gettotalrefcount"):
        print("NOT CHECKED: references; only a debug build of Python (--with-pydebug) counts them")
    found = hunt(ends, rounds, sends)
    for one in found:
        print(f"GREW {one}")
    print(f"leaks: {len(found)} things grew" if found else "leaks: none")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
