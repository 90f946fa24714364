"""Tests of `buffer_memory`: its bytes, and the sends that wait for them."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.core.producer_batch import PartitionQueue, ProducerBatch
from aioproducer.core.topic_routing import TopicRouting
from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.wait_queue import FOR_MEMORY, PendingSend, WaitQueue


def test_the_pool_gives_what_it_has_and_no_more() -> None:
    """Overhead found later may go below zero; giving back too much is a bug."""
    pool = BufferPool(100, lambda: None)
    pool.take(110)
    assert pool.available == -10
    pool.release(110)
    assert repr(pool) == "<BufferPool 100 of 100 bytes free>"
    with pytest.raises(AssertionError, match="more was given back"):
        pool.release(1)


def test_memory_that_is_released_schedules_the_turn_of_the_sends_that_wait() -> None:
    """Also for those that wait for their full partition. Without them, nothing is scheduled."""
    turns: list[int] = []
    pool = BufferPool(100, lambda: turns.append(pool.available))
    pool.take(100)
    pool.release(10)
    assert turns == []
    waiting_in(pool.waiting, 0)
    pool.release(10)
    assert turns == [20]
    pool.waiting.pop()
    pool.release(10)
    assert turns == [20]
    waiting_in(pool.full_partitions.of(PartitionQueue(TopicRouting("orders", b""), 0, 1, None)), 1)
    pool.release(10)
    assert turns == [20, 40]


def test_the_bytes_of_a_batch_and_the_free_ones_change_together() -> None:
    """Those of its partition, too. Bytes that are given back schedule the turn of the sends that wait."""
    turns: list[int] = []
    pool = BufferPool(100, lambda: turns.append(pool.available))
    queue = PartitionQueue(TopicRouting("orders", b""), 0, 1, None)
    batch = ProducerBatch(queue, 1, None, None, expires_at=1.0)
    waiting_in(pool.waiting, 0)
    for credit in (60, 80, 10, 0):
        pool.hold(batch, credit)
        assert (batch.credit, queue.bytes, pool.available) == (credit, credit, 100 - credit)
    assert turns == [90, 100]


def waiting_in(queue: WaitQueue, number: int, size: int = 1) -> PendingSend:
    pending = PendingSend("orders", size=size)
    pending.join(number, FOR_MEMORY, 0.0)
    queue.push(pending)
    return pending


@pytest.mark.asyncio
async def test_deallocate_grants_in_call_order_and_notifies_after_that() -> None:
    """All records that fit are appended before any task is notified. One that does not fit holds up the smaller ones behind it."""
    pool, log = BufferPool(100, lambda: None), list[str]()
    sends = [waiting_in(pool.waiting, number, size) for number, size in enumerate((40, 40, 40, 1))]

    async def wait(pending: PendingSend) -> None:
        await pending.wait()
        log.append(f"ran {pending.number}")

    tasks = [asyncio.create_task(wait(pending)) for pending in sends]
    await asyncio.sleep(0)

    def grant(queue: WaitQueue, pending: PendingSend) -> bool:
        if pending.size > pool.available:
            return False
        pool.take(pending.size)
        log.append(f"appended {pending.number}")
        queue.pop().complete()
        return True

    def notify() -> None:
        log.append("notify")
        for pending in sends:
            pending.notify()

    assert pool.has_waiting
    pool.deallocate(grant, notify)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert log == ["appended 0", "appended 1", "notify", "ran 0", "ran 1"]
    pool.release(80)
    pool.deallocate(grant, notify)
    await asyncio.gather(*tasks)
    assert log[5:] == ["appended 2", "appended 3", "notify", "ran 2", "ran 3"]
    assert not pool.has_waiting
    assert pool.first() is None


def test_who_waits_for_a_full_partition_comes_into_its_place_once_that_is_notified() -> None:
    """Until then it holds up no other send."""
    pool, partition = BufferPool(100, lambda: None), PartitionQueue(TopicRouting("orders", b""), 0, 1, None)
    aside = waiting_in(pool.full_partitions.of(partition), 0)
    assert not pool.has_waiting
    assert pool.first() is None
    later = waiting_in(pool.waiting, 1)
    assert pool.first() == (pool.waiting, later)
    pool.full_partitions.notify(partition)
    assert pool.first() == (pool.full_partitions.of(partition), aside)
    pool.waiting.pop()
    assert pool.has_waiting
