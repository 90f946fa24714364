"""Records reach the open batch of their partition in spite of changes between two sends.

Topics change (by the thousand), partitions, leaders and sticky partitions.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from builds import needs_compiled, on_both, producer_on
from whole import jumping, running, running_on, turns

from aioproducer.core.topic_routing import murmur2
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer

WHILE_OPEN: dict[str, Any] = {
    "linger_ms": 60_000,
    "metadata_max_age_ms": 1000,
    "delivery_timeout_ms": 300_000,
}


def route_of(producer: Producer[Any, Any]) -> Any:
    assert producer._engine is not None
    return producer._engine.parts.partition_queues.routings["orders"]


def many(count: int) -> list[str]:
    return [f"topic-{number}" for number in range(count)]


@on_both
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("fresh", [False, True])
@jumping
async def test_each_topic_has_its_own_records_in_order(
    build: Any, *, keyed: bool, fresh: bool
) -> None:
    """The test sends to 1,000 topics in rotation, more than the lookup table can hold at first.

    Their names are always the same object, or never.
    """
    topics = many(1000)
    async with FakeCluster(memory=True) as cluster:
        for number, name in enumerate(topics):
            cluster.create_topic(name, 1 + number % 2)
        async with producer_on(build)(**cluster.client_options, linger_ms=1000) as producer:
            for turn in range(8):
                for number, name in enumerate(topics):
                    await producer.send(
                        "".join(name) if fresh else name,
                        b"%d %d" % (number, turn),
                        b"key" if keyed else None,
                    )
            await producer.flush()
        assert cluster.violations == []
        for number, name in enumerate(topics):
            found = [values for at in range(1 + number % 2) if (values := cluster.values(name, at))]
            assert found == [[b"%d %d" % (number, turn) for turn in range(8)]]


@on_both
@jumping
async def test_a_partition_that_is_left_gets_no_more_while_its_batch_is_open(build: Any) -> None:
    """The open batch has bytes left, and the next record goes to another partition all the same."""
    async with running_on(build, partitions=2, **WHILE_OPEN) as (cluster, producer):
        before = [await producer.send("orders", b"before") for _ in range(3)]
        routing = route_of(producer)
        left = routing.sticky
        assert left.current is not None
        producer._engine.parts.partition_queues.availability.avoid(left)
        after = [await producer.send("orders", b"after") for _ in range(3)]
        assert left.current is not None
        await producer.flush()
        assert {(await delivery).partition for delivery in before} == {left.partition}
        assert {(await delivery).partition for delivery in after} == {1 - left.partition}


@on_both
@pytest.mark.parametrize("partitions", [1, 3])
@jumping
async def test_keys_go_by_the_new_number_of_partitions(build: Any, partitions: int) -> None:
    """The only partition of a topic takes every key until the topic gets more partitions.

    With several open batches, each then takes the keys of the new number.
    """
    keys = [b"key-%d" % number for number in range(20)]
    async with running_on(build, partitions=partitions, **WHILE_OPEN) as (cluster, producer):
        first = [await producer.send("orders", b"one", key) for key in keys]
        cluster.add_partitions("orders", 4)
        await asyncio.sleep(5)  # the producer asks for metadata again meanwhile
        assert all(
            queue.current is not None for queue in route_of(producer).queues[:partitions]
        )  # there are batches with bytes left
        second = [await producer.send("orders", b"four", key) for key in keys]
        await producer.flush()
        for deliveries, among in ((first, partitions), (second, 4)):
            assert [(await delivery).partition for delivery in deliveries] == [
                (murmur2(key) & 0x7FFFFFFF) % among for key in keys
            ]


@on_both
@pytest.mark.parametrize("partitions", [1, 2])
@jumping
async def test_a_topic_that_was_forgotten_is_known_anew(build: Any, partitions: int) -> None:
    """The producer uses no topic routing from before the forgetting, also if the topic has other partitions by then."""
    keys = [b"key-%d" % number for number in range(20)]
    async with running_on(
        build, partitions=3, metadata_max_idle_ms=5_000, metadata_max_age_ms=1_000
    ) as (cluster, producer):
        assert (
            len({(await producer.send_and_wait("orders", b"1", key)).partition for key in keys})
            == 3
        )
        await asyncio.sleep(30)
        assert producer.metrics().number("topics-known") == 0
        cluster.delete_topic("orders")
        cluster.create_topic("orders", partitions)
        told = [await producer.send_and_wait("orders", b"2", key) for key in keys]
        assert [metadata.partition for metadata in told] == [
            (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys
        ]
    assert cluster.violations == []


@on_both
@pytest.mark.parametrize("key", [None, b"k"])
@pytest.mark.parametrize("partitions", [1, 2])
@jumping
async def test_none_is_taken_while_somebody_waits(
    build: Any, partitions: int, key: bytes | None
) -> None:
    """Memory is short: a later send waits behind the pending sends, even if the batch of its topic has bytes left."""
    async with FakeCluster(memory=True) as cluster:
        for name in ("small", "large"):
            cluster.create_topic(name, partitions)
        order: list[str] = []
        producer = producer_on(build)(
            **cluster.client_options,
            linger_ms=60_000,
            buffer_memory=40_000,
            delivery_timeout_ms=300_000,
        )
        async with producer:
            await producer.send("small", b"1", key)
            await producer.send("small", b"2", key)
            hung = cluster.hang("Produce", times=None)
            await producer.send("large", bytes(25_000), key)

            async def send(name: str, size: int) -> None:
                await producer.send(name, bytes(size), key)
                order.append(name)

            tasks = [
                asyncio.create_task(send("large", 25_000)),
                asyncio.create_task(send("small", 1)),
            ]
            await turns(5)
            assert order == []
            hung.release()
            await asyncio.gather(*tasks)
            assert order == ["large", "small"]


@needs_compiled
@jumping
async def test_what_ended_is_not_kept() -> None:
    """The producer keeps neither a batch that ended nor the result that its deliveries shared."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("these")
        async with running(cluster, linger_ms=1000) as (_, producer):
            results = []
            for _ in range(3):
                deliveries = [
                    await producer.send("these", b"1"),
                    await producer.send("these", b"2"),
                ]
                results.append(deliveries[0]._result)
                await producer.flush()
            assert (await deliveries[-1]).offset == 5
            assert held(results) == [0, 0, len(deliveries)]
            deliveries.clear()
            assert held(results) == [0, 0, 0]


def held(results: list[Any]) -> list[int]:
    """Return how many other objects hold each result: the collector does not know these references."""
    return [sys.getrefcount(results[at]) - 2 for at in range(len(results))]


async def fill_memory(producer: Producer[Any, Any]) -> list[asyncio.Task[Any]]:
    """Send records of 700 bytes to partition 0 until one waits for memory. Returns their tasks."""
    tasks = []
    while not tasks or tasks[-1].done():
        tasks.append(asyncio.create_task(producer.send("orders", b"." * 700, partition=0)))
        await turns(20)
    return tasks


SHORT: dict[str, Any] = {"buffer_memory": 4000, "batch_size": 1000, "delivery_timeout_ms": 300_000}


@jumping
async def test_a_partition_that_comes_while_sends_wait_for_memory() -> None:
    """A record for a partition to come has the earlier call. A later one, which waits for memory, has a key of that partition by then."""
    key = next(
        key
        for key in (b"%d" % number for number in range(100))
        if (murmur2(key) & 0x7FFFFFFF) % 3 == 2
    )
    async with running(**SHORT, metadata_max_age_ms=500) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        hang = cluster.hang("Produce")
        early = asyncio.create_task(producer.send("orders", b"early", partition=2))
        await turns(1)
        tasks = await fill_memory(producer)
        later = asyncio.create_task(producer.send("orders", b"later", key))
        await turns(1)
        cluster.add_partitions("orders", 3)
        await asyncio.sleep(2)
        hang.release()
        await asyncio.gather(early, later, *tasks)
        await producer.flush()
        assert cluster.values("orders", 2) == [b"early", b"later"]


@jumping
async def test_a_topic_that_is_forgotten_while_its_record_waits_for_memory() -> None:
    """Memory is free before metadata has the topic again, of which a later record waits by then."""
    async with running(**SHORT, metadata_max_idle_ms=5_000) as (cluster, producer):
        cluster.create_topic("quiet")
        await producer.send_and_wait("quiet", b"first")
        produce = cluster.hang("Produce")
        tasks = await fill_memory(producer)
        early = asyncio.create_task(producer.send("quiet", b"early"))
        await asyncio.sleep(6)
        assert producer.metrics().number("topics-known") == 1
        metadata = cluster.hang("Metadata")
        later = asyncio.create_task(producer.send("quiet", b"later"))
        await metadata.reached()
        produce.release()
        await asyncio.gather(*tasks)
        assert not early.done()
        metadata.release()
        await asyncio.gather(early, later)
        await producer.flush()
        assert cluster.values("quiet") == [b"first", b"early", b"later"]


@jumping
async def test_a_topic_that_is_forgotten_while_its_records_stand_apart_in_the_wait_queue() -> None:
    """The first of them is asked for again while the record behind it still waits for memory, and the second behind that."""
    async with running(
        **SHORT, metadata_max_idle_ms=5_000, max_in_flight_requests_per_connection=1
    ) as (cluster, producer):
        cluster.create_topic("quiet")
        await producer.send_and_wait("quiet", b"first")
        first, others = cluster.hang("Produce", times=1), cluster.hang("Produce")
        tasks = await fill_memory(producer)
        early = asyncio.create_task(producer.send("quiet", b"early"))
        tasks += [asyncio.create_task(producer.send("orders", b"." * 700)) for _ in range(3)]
        later = asyncio.create_task(producer.send("quiet", b"later"))
        await asyncio.sleep(6)
        assert producer.metrics().number("topics-known") == 1
        first.release()
        await asyncio.sleep(1)
        assert producer.metrics().number("topics-known") == 2
        assert not early.done()
        others.release()
        await asyncio.gather(early, later, *tasks)
        await producer.flush()
        assert cluster.values("quiet") == [b"first", b"early", b"later"]
