"""Partitioners of the user's in the whole producer (row 86; PAR-09, PAR-10, SND-13)."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from whole import jumping, running

from aioproducer import RoundRobinPartitioner
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence


@jumping
async def test_round_robin_goes_round_though_records_wait_for_memory() -> None:
    """The partitioner chooses once for each record, even if its append is tried several times. It skips partitions without a leader."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=4)
        cluster.move_leader("orders", 2, None)
        async with running(
            cluster, partitioner=RoundRobinPartitioner, buffer_memory=4000, batch_size=1000
        ) as (_, producer):
            deliveries = await asyncio.gather(
                *[producer.send("orders", b"." * 300, b"same key") for _ in range(60)]
            )
            partitions = [(await delivery).partition for delivery in deliveries]
            assert partitions == [0, 1, 3] * 20
            cluster.move_leader("orders", 2, 1)


@jumping
async def test_a_partitioner_sees_what_is_sent_and_who_is_there() -> None:
    """The partitioner gets serialized bytes and the available partitions. The producer does not call it for a record with a partition."""
    seen: list[tuple[Any, ...]] = []

    def choose(
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: int,
        available: Sequence[int],
    ) -> int:
        seen.append((topic, key, value, partitions, tuple(available)))
        return 1

    async with running(partitioner=choose, value_serializer=str.encode) as (cluster, producer):
        await producer.send_and_wait("orders", "v", b"k")
        await producer.send_and_wait("orders", "elsewhere", b"k", partition=0)
        assert seen == [("orders", b"k", b"v", 2, (0, 1))]
        assert [cluster.values("orders", partition) for partition in (0, 1)] == [
            [b"elsewhere"],
            [b"v"],
        ]


@jumping
async def test_ignored_keys_stick() -> None:
    """Records with a key go to the same partition as those without: they fill one partition's batch before the next one's."""
    async with running(partitioner_ignore_keys=True, batch_size=1000) as (_, producer):
        deliveries = [
            await producer.send("orders", b"." * 50, b"%d" % number) for number in range(200)
        ]
        partitions = [(await delivery).partition for delivery in deliveries]
        changes = sum(one != other for one, other in itertools.pairwise(partitions))
        assert set(partitions) == {0, 1}
        assert changes < 20
