"""Tests of `aioproducer.engine.memory.partition_wait_queues`."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from hypothesis import example, given
from hypothesis import strategies as st

from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import TopicRouting
from aioproducer.engine.memory.partition_wait_queues import PartitionWaitQueues
from aioproducer.engine.memory.wait_queue import FOR_FULL_PARTITION, PendingSend, WaitQueue

if TYPE_CHECKING:
    from collections.abc import Iterator


class Partitions:
    """Holds the wait queues of four partitions, and makes pending sends with numbers."""

    def __init__(self) -> None:
        self.routing = TopicRouting("orders", b"")
        self.queues = [PartitionQueue(self.routing, number, 1, None) for number in range(4)]
        self.wait_queues = PartitionWaitQueues()
        self.numbers = count()

    def add(self, partition: int) -> PendingSend:
        record = PendingSend("orders", partition=partition)
        record.join(next(self.numbers), FOR_FULL_PARTITION, 0.0)
        self.wait_queues.of(self.queues[partition]).push(record)
        return record

    def served(self) -> Iterator[int]:
        """The numbers in the order in which they would be served."""
        while (queue := self.wait_queues.next()) is not None:
            record = queue.pop()
            record.complete()
            yield record.number


def test_a_send_that_moves_to_a_notified_wait_queue_is_not_overtaken() -> None:
    """Its partition is full again. Once that may take more, its call still counts: it is earlier than those that waited there."""
    partitions = Partitions()
    memory = WaitQueue()
    early, _ = partitions.add(0), partitions.add(1)
    memory.push(partitions.wait_queues.of(partitions.queues[0]).pop())
    partitions.add(0)
    partitions.wait_queues.notify(partitions.queues[0])
    early.behind = partitions.queues[0]
    partitions.wait_queues.move(memory, early)
    assert not memory
    assert partitions.wait_queues.next() is None, "the partition is full"
    for queue in partitions.queues[1::-1]:
        partitions.wait_queues.notify(queue)
    assert list(partitions.served()) == [0, 1, 2]


@given(
    st.lists(
        st.one_of(
            st.integers(0, 3),
            st.tuples(st.sampled_from(["notify", "withdraw", "cancel"]), st.integers(0, 3)),
        ),
        max_size=60,
    )
)
@example([0, ("notify", 0), ("notify", 0)])
def test_notified_wait_queues_are_served_by_the_number_of_the_call(
    steps: list[int | tuple[str, int]],
) -> None:
    """The notified wait queues serve their sends once each, earliest call first.

    Earlier sends, notifications, withdrawals and cancellations may be in any order.
    """
    partitions = Partitions()
    notified: set[int] = set()
    waiting: dict[int, list[PendingSend]] = {number: [] for number in range(4)}
    for step in steps:
        if isinstance(step, int):
            waiting[step].append(partitions.add(step))
            continue
        what, number = step
        if what == "notify":
            if partitions.wait_queues.notify(partitions.queues[number]):
                notified.add(number)
            else:
                notified.discard(number)
        elif what == "withdraw":
            partitions.wait_queues.withdraw(partitions.queues[number])
            notified.discard(number)
        elif waiting[number]:
            waiting[number].pop(0).is_waiting = False
    expected = sorted(record.number for number in notified for record in waiting[number])
    assert (partitions.wait_queues.next() is not None) == bool(expected)
    assert list(partitions.served()) == expected
    left = [record.number for queue in partitions.wait_queues.all() for record in queue]
    assert sorted(left) == sorted(
        record.number for number in range(4) if number not in notified for record in waiting[number]
    )
