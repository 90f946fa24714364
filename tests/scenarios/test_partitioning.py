"""Records without a key: shares, queues, late brokers, racks, breakers (KIP-794, KIP-1123; PAR-02 to PAR-11)."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running, turns

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer import Producer

UNIFORM: dict[str, Any] = {"partitioner_adaptive_partitioning_enable": False}
AT_ODDS_1000 = {1: 10.83, 5: 20.52, 7: 24.32, 11: 31.26}
"""By degrees of freedom: above it, chi-square is once in 1,000 samples of what is uniform."""


def chi_square(counts: Sequence[float]) -> float:
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def sizes(cluster: FakeCluster, topic: str = "orders") -> list[int]:
    """Return the bytes of the values of each partition."""
    return [
        sum(len(value or b"") for value in cluster.values(topic, at))
        for at in cluster.end_offsets(topic)
    ]


def availability(producer: Producer[Any, Any]) -> Any:
    assert producer._engine is not None
    return producer._engine.parts.partition_queues.availability


def queue(producer: Producer[Any, Any], partition: int) -> Any:
    assert producer._engine is not None
    return producer._engine.parts.partition_queues.routings["orders"].queues[partition]


def led_by(cluster: FakeCluster, node_id: int) -> set[int]:
    return {at for at in range(6) if cluster.leader("orders", at) == node_id}


# Shares


@pytest.mark.parametrize("linger_ms", [0, 5, "auto"])
@jumping
async def test_uniform_is_uniform_in_bytes_however_slow_a_broker_is(linger_ms: Any) -> None:
    """One broker responds after 50 ms and the others at once. Each partition gets the same number of shares."""
    chances = random.Random(794)
    async with FakeCluster(3, memory=True) as cluster:
        cluster.create_topic("orders", partitions=8)
        cluster.brokers[3].latency = 0.05
        options: dict[str, Any] = {
            "batch_size": 1024,
            "linger_ms": linger_ms,
            "chance": chances.random,
            **UNIFORM,
        }
        async with running(cluster, **options) as (_, producer):
            for _ in range(2000):
                for _ in range(3):
                    await producer.send("orders", bytes(chances.randint(20, 200)))
                await asyncio.sleep(0.001)
            await producer.flush()
        shares = [size / 1024 for size in sizes(cluster)]
        assert sum(shares) > 600
        assert chi_square(shares) < AT_ODDS_1000[7]


@pytest.mark.parametrize("together", [1, 3], ids=["send", "send_many"])
@pytest.mark.parametrize("linger_ms", [0, 5, "auto"])
@jumping
async def test_uniform_is_uniform_in_bytes_while_a_partition_fails(
    linger_ms: Any, together: int
) -> None:
    """A full batch that is retried again and again also takes its partition's next share. The producer chooses it
    as often as the others.
    """
    chances = random.Random(782)
    async with FakeCluster(3, memory=True) as cluster:
        cluster.create_topic("orders", partitions=8)
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", topic="orders", partition=7, times=None)
        of_batches = {"batch_size": 1024, "batch_max_size": 262_144}
        options: dict[str, Any] = {
            **of_batches,
            "linger_ms": linger_ms,
            "chance": chances.random,
            **UNIFORM,
        }
        async with running(cluster, **options) as (_, producer):
            for _ in range(3000 // together):
                values = [bytes(chances.randint(100, 300)) for _ in range(together)]
                if together == 1:
                    await producer.send("orders", values[0])
                else:
                    await producer.send_many("orders", values)
                await asyncio.sleep(0.01 * together)
            cluster.faults.clear()
            await producer.flush()
        shares = [size / 1024 for size in sizes(cluster)]
        assert sum(shares) > 500
        assert chi_square(shares) < AT_ODDS_1000[7]


@jumping
async def test_single_records_fill_a_share_before_the_next_partition() -> None:
    """Without linger each record is its own batch. Still 16 records of 1,000 bytes in a row go to one partition (PAR-02)."""
    async with running(batch_size=16_384) as (_, producer):
        partitions = [
            (await producer.send_and_wait("orders", bytes(1000))).partition for _ in range(64)
        ]
        runs = [len(list(run)) for _, run in itertools.groupby(partitions)]
        assert runs == [16, 16, 16, 16]


@jumping
async def test_no_batch_is_cut_short_by_the_end_of_a_share() -> None:
    """KIP-794's own example: 12 KB in each linger of 500 ms, and batches of 16 KB. All are of 12 KB, two to a
    partition (PAR-03, PAR-04).
    """
    async with running(partitions=4, batch_size=16_384, linger_ms=500) as (cluster, producer):
        sent = []
        for _ in range(240):
            sent.append(await producer.send("orders", bytes(500)))
            await asyncio.sleep(0.5 / 24)
        partitions = [(await delivery).partition for delivery in sent]
    counts = [batch.count for at in range(4) for batch in cluster.log("orders", at).batches()]
    assert min(counts) >= 23
    runs = [len(list(run)) for _, run in itertools.groupby(partitions)]
    assert {count // 23 for count in runs} == {2}


@jumping
async def test_send_many_and_parked_records_go_by_shares_too() -> None:
    """Records go in bulk, or wait because the memory holds only two batches. Each partition gets the same number of bytes."""
    options: dict[str, Any] = {"batch_size": 2048, "chance": random.Random(6).random, **UNIFORM}
    async with running(partitions=6, brokers=2, **options) as (cluster, producer):
        await producer.send_many("orders", [bytes(100) for _ in range(12_000)])
    assert chi_square([size / 2048 for size in sizes(cluster)]) < AT_ODDS_1000[5]
    async with running(brokers=2, partitions=6, **options, buffer_memory=8000) as (
        cluster,
        producer,
    ):
        await asyncio.gather(*[producer.send("orders", bytes(100)) for _ in range(6000)])
    assert chi_square([size / 2048 for size in sizes(cluster)]) < AT_ODDS_1000[5]


@jumping
async def test_large_records_are_shares_by_themselves() -> None:
    """A record above `batch_size` goes to another partition than the last one, also when it waits for memory."""
    async with running(batch_size=1000, buffer_memory=10_000, **UNIFORM) as (_, producer):
        deliveries = await asyncio.gather(
            *[producer.send("orders", bytes(5000)) for _ in range(20)]
        )
        partitions = [(await delivery).partition for delivery in deliveries]
        assert all(one != other for one, other in itertools.pairwise(partitions))


@jumping
async def test_a_partition_that_loses_its_leader_is_left() -> None:
    """The partition loses its leader in the middle of its share. The producer avoids it until it has a leader again."""
    async with running() as (cluster, producer):
        first = (await producer.send_and_wait("orders", b"v")).partition
        cluster.move_leader("orders", first, None)
        stuck = await producer.send("orders", b"finds out")
        await cluster.seen("Metadata", 3)
        await turns(20)
        assert (await producer.send_and_wait("orders", b"v")).partition == 1 - first
        cluster.move_leader("orders", first, 1)
        assert (await stuck).partition == first


# Queues


@jumping
async def test_a_slow_broker_gets_less_and_holds_nobody_up() -> None:
    """One broker has a tenth of the others' speed. With adaptive partitioning the two others run at full speed, without it all
    wait for the slow one.
    """
    rates = {}
    for is_adaptive in (False, True):
        async with FakeCluster(3, memory=True) as cluster:
            cluster.create_topic("orders", partitions=6)
            for node_id, speed in ((1, 1e6), (2, 1e6), (3, 1e5)):
                cluster.brokers[node_id].bandwidth = speed
            options: dict[str, Any] = {
                "batch_size": 4096,
                "buffer_memory": 1_000_000,
                "chance": random.Random(1).random,
            }
            async with running(
                cluster, **options, partitioner_adaptive_partitioning_enable=is_adaptive
            ) as (_, producer):
                loop = asyncio.get_running_loop()
                began = loop.time()
                while loop.time() < began + 10:
                    await producer.send_many("orders", [bytes(1000)] * 100)
                acknowledged = sum(sizes(cluster))
                slow = sum(
                    size
                    for at, size in enumerate(sizes(cluster))
                    if cluster.leader("orders", at) == 3
                )
            rates[is_adaptive] = acknowledged / 10, slow / acknowledged
    assert rates[True][0] > 0.9 * 2e6
    assert rates[True][1] < 0.1
    assert rates[False][0] < 0.5e6
    assert rates[False][1] > 0.2


# Late brokers


@jumping
async def test_a_broker_that_takes_nothing_is_avoided_until_it_does() -> None:
    """After `partitioner_availability_timeout_ms` records without a key avoid the broker. Its waiting records and its keyed ones stay."""
    options: dict[str, Any] = {
        "batch_size": 300,
        "partitioner_availability_timeout_ms": 200,
        "chance": random.Random(2).random,
    }
    async with running(partitions=6, brokers=3, **options) as (cluster, producer):
        await asyncio.gather(*[producer.send_and_wait("orders", bytes(100)) for _ in range(60)])
        cluster.brokers[2].pause()
        waiting = [await producer.send("orders", bytes(100)) for _ in range(200)]
        await asyncio.sleep(0.25)
        waiting += [
            await producer.send("orders", bytes(100))
        ]  # the first event-loop iteration after it sees that a broker is late
        await asyncio.sleep(0.01)
        after = [
            await asyncio.wait_for(await producer.send("orders", bytes(100)), 1) for _ in range(60)
        ]
        assert {cluster.leader("orders", metadata.partition) for metadata in after} == {1, 3}
        keyed = await producer.send("orders", b"v", partition=min(led_by(cluster, 2)))
        await asyncio.sleep(0.01)
        assert not keyed.done()
        cluster.brokers[2].resume()
        await asyncio.gather(*waiting, keyed)
        told = [
            producer.metrics().number("events-total", event=event)
            for event in ("broker-late", "broker-in-time")
        ]
        assert told == [1, 1]
        again = await asyncio.gather(
            *[producer.send_and_wait("orders", bytes(100)) for _ in range(120)]
        )
        assert {cluster.leader("orders", metadata.partition) for metadata in again} == {1, 2, 3}


@pytest.mark.parametrize("linger_ms", [0, 5, 100, "auto"])
@pytest.mark.parametrize("trouble", ["silent", "gone"])
@jumping
async def test_a_trickle_leaves_a_late_broker_too(trouble: str, linger_ms: Any) -> None:
    """A record each 10 ms would fill the open batch for minutes. The records avoid the broker, which does not
    respond or is gone unnoticed.
    """
    async with running(brokers=2, partitioner_availability_timeout_ms=200, linger_ms=linger_ms) as (
        cluster,
        producer,
    ):
        stuck = (await producer.send_and_wait("orders", b"v")).partition
        broker = cluster.brokers[1 + stuck]
        broker.pause() if trouble == "silent" else await broker.stop(silently=True)
        sent = []
        for _ in range(400):
            sent.append(await producer.send("orders", b"v"))
            await asyncio.sleep(0.01)
        broker.resume() if trouble == "silent" else await broker.start()
        partitions = [(await delivery).partition for delivery in sent]
        assert set(partitions[:15]) == {stuck}
        assert stuck not in partitions[60 + (linger_ms if linger_ms != "auto" else 0) :]


@jumping
async def test_a_broker_whose_records_expired_is_tried_again() -> None:
    """No record waits for the broker any more. The producer tries it again, because it could not notice its return otherwise."""
    options: dict[str, Any] = {
        "partitioner_availability_timeout_ms": 100,
        "delivery_timeout_ms": 2000,
        "request_timeout_ms": 1000,
    }
    async with running(brokers=2, **options, batch_size=300, linger_ms=0, close_timeout_ms=100) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"v", partition=0)
        cluster.brokers[1].pause()
        lost = [await producer.send("orders", bytes(200), partition=0) for _ in range(30)]
        await asyncio.sleep(0.2)
        await producer.send("orders", b"looks", partition=1)
        await turns(5)
        assert producer.metrics().number("brokers-late") == 1
        await asyncio.wait(lost)
        await producer.send("orders", b"looks", partition=1)
        await turns(5)
        assert producer.metrics().number("brokers-late") == 0
        cluster.brokers[1].resume()


# Racks


@jumping
async def test_records_without_a_key_stay_in_the_rack() -> None:
    """Only records without key and partition stay in the rack. They use all partitions while the rack has no leader."""
    async with FakeCluster(3, memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        for node_id, rack in ((1, "a"), (2, "b"), (3, None)):
            cluster.brokers[node_id].rack = rack
        options: dict[str, Any] = {
            "client_rack": "b",
            "partitioner_rack_aware": True,
            "batch_size": 300,
            "metadata_max_age_ms": 500,
        }
        async with running(cluster, **options, chance=random.Random(3).random) as (_, producer):

            async def leaders(count: int, *, key: bool = False) -> set[int | None]:
                sent = [
                    producer.send_and_wait("orders", bytes(100), b"%d" % at if key else None)
                    for at in range(count)
                ]
                return {
                    cluster.leader("orders", metadata.partition)
                    for metadata in await asyncio.gather(*sent)
                }

            assert await leaders(100) == {2}
            assert await leaders(100, key=True) == {1, 2, 3}
            mine = led_by(cluster, 2)
            for partition in mine:
                cluster.move_leader("orders", partition, 1)
            await asyncio.sleep(1)
            assert await leaders(200) == {1, 3}
            cluster.move_leader("orders", min(mine), 2)
            await asyncio.sleep(1)
            await leaders(10)
            assert await leaders(100) == {2}


@pytest.mark.parametrize("options", [{"client_rack": "b"}, {"partitioner_rack_aware": True}])
@jumping
async def test_racks_matter_only_where_both_options_say_so(options: dict[str, Any]) -> None:
    """Only one of the two options is set, which changes nothing (as in Java)."""
    async with FakeCluster(2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.brokers[1].rack, cluster.brokers[2].rack = "a", "b"
        async with running(cluster, **options, batch_size=300) as (_, producer):
            metadata = await asyncio.gather(
                *[producer.send_and_wait("orders", bytes(100)) for _ in range(40)]
            )
            assert {one.partition for one in metadata} == {0, 1}


# Avoided partitions


@jumping
async def test_what_is_avoided_gets_no_record_without_a_key() -> None:
    """Records without a key avoid the partition until it is usable again. Records with that partition still go there (PAR-11)."""
    async with running(brokers=2, batch_size=300) as (cluster, producer):
        await producer.send_and_wait("orders", b"v")
        availability(producer).avoid(queue(producer, 0))
        sent = await asyncio.gather(
            *[producer.send_and_wait("orders", bytes(100)) for _ in range(50)]
        )
        assert {metadata.partition for metadata in sent} == {1}
        assert {
            (await producer.send_and_wait("orders", bytes(100))).partition for _ in range(20)
        } == {1}
        assert (await producer.send_and_wait("orders", b"v", partition=0)).partition == 0
        availability(producer).welcome(queue(producer, 0))
        assert {
            (await producer.send_and_wait("orders", bytes(100))).partition for _ in range(20)
        } == {0, 1}


@jumping
async def test_a_partitioner_of_the_users_is_told_what_is_usable() -> None:
    """The user's partitioner does not get an avoided partition among the available ones."""
    seen: list[tuple[int, ...]] = []

    def choose(
        _topic: str, _key: Any, _value: Any, _partitions: int, available: Sequence[int]
    ) -> int:
        seen.append(tuple(available))
        return available[-1]

    async with running(partitioner=choose) as (_, producer):
        assert (await producer.send_and_wait("orders", b"v")).partition == 1
        availability(producer).avoid(queue(producer, 1))
        assert (await producer.send_and_wait("orders", b"v")).partition == 0
        assert seen == [(0, 1), (0,)]
