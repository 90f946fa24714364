"""Many tasks, each of which sends one record at a time and waits for it.

A wait that has ended must not slow the tasks for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both
from whole import jumping, running, running_on

from aioproducer.errors import WouldBlock
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Delivery, Producer

EACH = 12  # records of a task


async def crowd(producer: Producer[Any, Any], tasks: int, waited: list[int]) -> None:
    """Let each task send its records, one after the other, and note at each record how many sends wait."""

    async def work(number: int) -> None:
        for count in range(EACH):
            await producer.send_and_wait("orders", b"%d:%d" % (number, count), key=b"%d" % number)
            waited.append(producer.health().waiting)

    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(work(number))


def assert_in_order(cluster: FakeCluster, tasks: int) -> None:
    """Assert that every record of every task is there once, in that task's order."""
    found: dict[bytes, list[int]] = {}
    for value in cluster.values("orders"):
        task, _, count = (value or b"").partition(b":")
        found.setdefault(task, []).append(int(count))
    assert found == {b"%d" % number: list(range(EACH)) for number in range(tasks)}


@on_both
@pytest.mark.parametrize("tasks", [300, 3000])
@jumping
async def test_a_crowd_that_waited_for_its_topic_does_not_stand_in_line_ever_after(
    build: Any, tasks: int
) -> None:
    """After the wait for the topic, no send waits any more.

    Else tasks back from a round trip would wait behind those that had not sent yet, again and again, at ten times the cost.
    """
    async with running_on(build, partitions=6) as (cluster, producer):
        waited: list[int] = []
        await crowd(producer, tasks, waited)
    assert max(waited[5 * tasks :]) == 0
    assert_in_order(cluster, tasks)


@on_both
@jumping
async def test_a_crowd_that_waited_for_memory_does_not_stand_in_line_ever_after(build: Any) -> None:
    """A broker that stalls for a while makes memory short for all tasks. When there is enough memory again, no send waits."""
    async with running_on(build, partitions=6, buffer_memory=1_000_000) as (cluster, producer):
        await producer.send_and_wait("orders", b"first")
        await asyncio.gather(
            *[await producer.send("orders", b"." * 900, partition=number) for number in range(6)]
        )
        waited: list[int] = []
        cluster.brokers[1].latency = 0.5
        filling = asyncio.gather(
            *(producer.send("orders", b"." * 900, partition=number % 6) for number in range(1200))
        )
        await asyncio.sleep(0.1)
        assert producer.health().waiting > 0
        cluster.brokers[1].latency = 0.0
        await crowd(producer, 2000, waited)
        await asyncio.gather(*await filling)
    assert max(waited[10_000:]) == 0


@jumping
async def test_a_partitioner_that_sends_is_not_asked_twice_for_one_record() -> None:
    """A send that joins the wait queue serves some of the queue. A send from within the partitioner must not do that."""
    side: list[Delivery] = []

    def choose(key: bytes | None, _partitions: int) -> int:
        if key is not None and key.startswith(b"record"):
            with contextlib.suppress(WouldBlock):
                side.append(producer.send_nowait("orders", b"aside", key=b"aside"))
        return 0

    async with running(buffer_memory=4_000, batch_size=1_000, partitioner=choose) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"first", partition=0)
        cluster.brokers[1].latency = 0.1
        await asyncio.gather(
            *(
                producer.send("orders", b"." * 700, key=b"record %d" % number)
                for number in range(12)
            )
        )
        await producer.flush()
        values = cluster.values("orders", 0)
        assert values.count(b"." * 700) == 12
        assert len(values) == 1 + 12 + len(side)
