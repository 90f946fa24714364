"""Topics so large that the producer takes over their metadata in steps: sends in the meantime (row 50).

Each step has an iteration of the loop of its own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from whole import assert_nothing_left, jumping, running, turns

from aioproducer import Producer
from aioproducer.engine.metadata import metadata_updater
from aioproducer.errors import DeliveryError, MetadataTimeout
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioproducer.engine.chosen_build import Delivery

MANY = 600


@pytest.fixture(autouse=True)
def _each_step_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_updater, "_SLICE", -1.0)


async def taken(producer: Producer[Any, Any]) -> AsyncIterator[int]:
    """Yield in each iteration of the loop until the producer has taken over the topic that it asks for."""
    parts = producer._engine.parts.updater  # type: ignore[union-attr]
    turn = 0
    while not parts._taking:
        turn += 1
        assert turn < 1000
        if (
            parts.schedule._changed and not parts.schedule._asked
        ):  # the topic is not new: there is a pause since the last answer
            await asyncio.sleep(parts._not_before - asyncio.get_running_loop().time())
        await asyncio.sleep(0)
    turn = 0
    while parts._taking:
        yield turn
        turn += 1
        await asyncio.sleep(0)


class Senders:
    """Tasks that each send one record, by partition in the order of their start."""

    def __init__(self, producer: Producer[Any, Any]) -> None:
        self._producer = producer
        self._tasks: list[asyncio.Task[Delivery]] = []
        self.values: defaultdict[int, list[bytes]] = defaultdict(list)

    async def begin(self, partition: int) -> None:
        """Start one send, and let the loop iterate, so that the next send waits behind it."""
        value = b"%d" % len(self._tasks)
        self.values[partition].append(value)
        self._tasks.append(
            asyncio.create_task(self._producer.send("large", value, partition=partition))
        )
        await asyncio.sleep(0)

    async def delivered(self) -> list[Any]:
        sent = await asyncio.gather(*self._tasks, return_exceptions=True)
        queued = [each for each in sent if not isinstance(each, Exception)]
        refused = [each for each in sent if isinstance(each, Exception)]
        return [*refused, *await asyncio.gather(*queued, return_exceptions=True)]

    async def assert_in_order(self, cluster: FakeCluster) -> None:
        assert not [outcome for outcome in await self.delivered() if isinstance(outcome, Exception)]
        for partition, values in self.values.items():
            assert cluster.values("large", partition) == values


@jumping
async def test_a_new_one_takes_those_who_waited_before_those_who_come() -> None:
    """Call order is log order for sends before, between and after the steps."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("large", partitions=MANY)
        async with running(cluster) as (_, producer):
            senders = Senders(producer)
            await senders.begin(MANY - 1)
            count = 0
            async for _ in taken(producer):
                count += 1
                await senders.begin(MANY - 1)
                await senders.begin(3)
            assert count > 5
            await senders.begin(MANY - 1)
            await senders.begin(3)
            await senders.assert_in_order(cluster)
            assert {len(values) for values in senders.values.values()} == {count + 2, count + 1}


@jumping
async def test_one_that_grows_takes_those_who_waited_before_those_who_come() -> None:
    """Sends for a new partition wait in order; sends for the other partitions go on meanwhile."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("large", partitions=MANY)
        async with running(cluster) as (_, producer):
            senders = Senders(producer)
            await senders.begin(3)
            await senders.delivered()
            cluster.add_partitions("large", MANY + 100)
            done: list[int] = []
            for _ in range(3):
                await senders.begin(MANY + 50)
            async for _ in taken(producer):
                await senders.begin(MANY + 50)
                await senders.begin(3)
                done.append(len(cluster.values("large", 3)))
            await senders.begin(MANY + 50)
            assert done[-1] > done[0], "what has a partition does not wait"
            await senders.assert_in_order(cluster)


@pytest.mark.parametrize("partitions", [5, MANY, MANY + 100])
@jumping
async def test_one_that_is_made_anew_while_records_flow(partitions: int) -> None:
    """Each record ends once: the new topic has it, or it fails as its partition is no more. No record goes to another partition."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("large", partitions=MANY)
        async with running(cluster, delivery_timeout_ms=5000, request_timeout_ms=3000) as (
            _,
            producer,
        ):
            senders = Senders(producer)
            for partition in (0, 3, MANY - 1):
                await senders.begin(partition)
            await senders.delivered()
            cluster.delete_topic("large")
            cluster.create_topic("large", partitions=partitions)
            later = Senders(producer)
            await later.begin(0)
            async for turn in taken(producer):
                for number in (0, 3, 3 + turn, MANY - 1):
                    await later.begin(number)
            outcomes = await later.delivered()
            failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            assert all(
                isinstance(failure, (DeliveryError, MetadataTimeout)) for failure in failures
            )
            assert bool(failures) == (partitions < MANY)
            for number, values in later.values.items():
                if number < partitions:
                    assert cluster.values("large", number) == values


@jumping
async def test_a_leader_that_moves_meanwhile_is_followed() -> None:
    """The answer at hand names a leader that is old by then: the producer follows the new one."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("large", partitions=MANY)
        async with running(cluster) as (_, producer):
            senders = Senders(producer)
            await senders.begin(3)
            await senders.delivered()
            producer._engine.parts.updater.schedule.want("large")  # type: ignore[union-attr]
            is_moved = False
            async for _ in taken(producer):
                if not is_moved:
                    cluster.move_leader("large", 3, 3 - (cluster.leader("large", 3) or 0))
                    is_moved = True
                await senders.begin(3)
            assert is_moved
            await senders.assert_in_order(cluster)


@pytest.mark.parametrize("when", [1, 4, 9])
@jumping
async def test_it_stops_meanwhile(when: int) -> None:
    """The stop leaves nothing behind, and no send waits for ever."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("large", partitions=MANY)
        before = asyncio.all_tasks()
        producer = Producer(**cluster.client_options, close_timeout_ms=0)
        await producer.start()
        sending = asyncio.create_task(producer.send("large", b"v"))
        async for turn in taken(producer):
            if turn >= when:
                break
        await producer.stop()
        [outcome] = await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(outcome, Exception)
        await turns(10)
        assert_nothing_left(producer, before)
