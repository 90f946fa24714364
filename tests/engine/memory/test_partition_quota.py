"""Tests of `aioproducer.engine.memory.partition_quota`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.partition_queues import PartitionQueues
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import TopicRouting
from aioproducer.engine.memory.buffer_pool import BufferPool
from aioproducer.engine.memory.partition_quota import PartitionQuota


class Memory:
    """1000 bytes and six partitions."""

    def __init__(self) -> None:
        self.pool = BufferPool(1000, lambda: None)
        partition_queues = PartitionQueues(
            None, linger=0.0, lifetime=1.0, on_close=lambda _batch: None
        )
        self.routing = TopicRouting("orders", b"", partition_queues.availability)
        self.queues = [PartitionQueue(self.routing, number, 1, None) for number in range(6)]
        self.routing.queues += self.queues
        self.shares = PartitionQuota(self.pool, partition_queues)

    def take(self, number: int, size: int) -> None:
        self.pool.take(size)
        self.queues[number].bytes += size

    def give(self, number: int, size: int) -> list[int]:
        """Give bytes of a partition back, and return the partitions that may hold more then."""
        self.pool.release(size)
        self.queues[number].bytes -= size
        return [queue.partition for queue in self.shares.eased(self.queues[number])]

    def full(self) -> list[int]:
        return [queue.partition for queue in self.queues if queue.is_full]


def test_a_partition_that_shrank_unseen_may_hold_more_once_more_is_free() -> None:
    """Its batch has closed, and nothing was asked for this partition then. A later question for any partition finds it."""
    memory = Memory()
    memory.take(0, 500)
    assert memory.shares.is_over(memory.queues[0])
    memory.pool.release(200)
    memory.queues[0].bytes -= 200
    assert [queue.partition for queue in memory.shares.eased()] == [0]
    assert memory.full() == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 300), st.booleans()), max_size=200))
def test_who_is_full_holds_more_than_half_of_what_is_free(
    steps: list[tuple[int, int, bool]],
) -> None:
    """After each release the full partitions hold more than half of the free bytes, in any order of steps.

    The state that the quota keeps is bounded.
    """
    memory = Memory()
    for number, size, takes in steps:
        if takes:
            if not memory.shares.is_over(memory.queues[number]) and memory.pool.available >= size:
                memory.take(number, size)
        elif memory.queues[number].bytes:
            before = memory.full()
            eased = memory.give(number, min(size, memory.queues[number].bytes))
            assert memory.full() == [one for one in before if one not in eased]
            assert all(
                2 * memory.queues[one].bytes > memory.pool.available for one in memory.full()
            )
            assert all(
                not memory.queues[one].bytes
                or 2 * memory.queues[one].bytes <= memory.pool.available
                for one in eased
            )
        assert len(memory.shares._full) <= 2 * 6 + 17
