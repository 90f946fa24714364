"""Tests of `aioproducer.engine.memory.partition_wait_queues`."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import TopicRouting
from aioproducer.engine.memory.buffer_pool import PendingSend, WaitQueue
from aioproducer.engine.memory.partition_wait_queues import PartitionWaitQueues

if TYPE_CHECKING:
    from collections.abc import Iterator


class Yard:
    """Holds the wait queues of four partitions, and makes pending sends with numbers."""

    def __init__(self) -> None:
        self.routing = TopicRouting("orders", b"")
        self.queues = [PartitionQueue(self.routing, number, 1, None) for number in range(4)]
        self.lots = PartitionWaitQueues()
        self.loop = asyncio.new_event_loop()
        self.numbers = count()

    def park(self, partition: int) -> PendingSend:
        record = PendingSend("orders", partition=partition)
        record.park(self.loop, next(self.numbers), "", 0.0)
        self.lots.line(self.queues[partition]).push(record)
        return record

    def served(self) -> Iterator[int]:
        """The numbers in the order in which they would be served."""
        while (line := self.lots.next()) is not None:
            record = line.pop()
            record.leave()
            yield record.number


def test_a_lot_is_still_until_it_is_roused() -> None:
    """A notified wait queue offers its head next. An empty wait queue offers none."""
    yard = Yard()
    first = yard.park(0)
    assert not yard.lots.is_roused
    assert yard.lots.rouse(yard.queues[0])
    line = yard.lots.next()
    assert line is not None
    assert line.head() is first
    assert list(yard.served()) == [0]
    assert not yard.lots.is_roused
    assert not yard.lots.rouse(yard.queues[0]), "nobody waits"
    assert yard.lots.lines() == []
    yard.loop.close()


def test_a_lot_that_is_calmed_waits_on() -> None:
    """Its partition is full again; the others go on."""
    yard = Yard()
    for partition in (0, 1, 0, 1):
        yard.park(partition)
    for queue in yard.queues[:2]:
        yard.lots.rouse(queue)
    yard.lots.calm(yard.queues[0])
    assert list(yard.served()) == [1, 3]
    yard.lots.rouse(yard.queues[0])
    assert list(yard.served()) == [0, 2]
    yard.loop.close()


def test_a_lot_that_all_have_left_is_gone() -> None:
    """A send is cancelled while its wait queue is notified, and the partition is notified again. The empty wait queue is then removed."""
    yard = Yard()
    record = yard.park(0)
    yard.lots.rouse(yard.queues[0])
    assert record.waiter is not None
    record.waiter.cancel()
    assert not yard.lots.rouse(yard.queues[0])
    assert not yard.lots.is_roused
    assert yard.lots.lines() == []
    yard.loop.close()


def test_who_is_cancelled_is_passed_over() -> None:
    """The wait queues skip cancelled sends: the head of a notified wait queue, and all sends of another."""
    yard = Yard()
    records = [yard.park(partition) for partition in (0, 1, 0, 2)]
    for queue in yard.queues[:3]:
        yard.lots.rouse(queue)
    for cancelled in (records[0], records[3]):
        assert cancelled.waiter is not None
        cancelled.waiter.cancel()
    assert list(yard.served()) == [1, 2]
    yard.loop.close()


@given(st.lists(st.one_of(st.integers(0, 3), st.tuples(st.sampled_from(["rouse", "calm", "cancel"]), st.integers(0, 3))), max_size=60))
def test_roused_lots_are_served_by_the_number_of_the_call(steps: list[int | tuple[str, int]]) -> None:
    """The notified wait queues serve their sends once each, earliest call first.

    Earlier sends, notifications, withdrawals and cancellations may be in any order.
    """
    yard = Yard()
    roused: set[int] = set()
    waiting: dict[int, list[PendingSend]] = {number: [] for number in range(4)}
    for step in steps:
        if isinstance(step, int):
            waiting[step].append(yard.park(step))
            continue
        what, number = step
        if what == "rouse":
            if yard.lots.rouse(yard.queues[number]):
                roused.add(number)
            else:
                roused.discard(number)
        elif what == "calm":
            yard.lots.calm(yard.queues[number])
            roused.discard(number)
        elif waiting[number]:
            waiter = waiting[number].pop(0).waiter
            assert waiter is not None
            waiter.cancel()
    expected = sorted(record.number for number in roused for record in waiting[number])
    assert yard.lots.is_roused == bool(expected)
    assert list(yard.served()) == expected
    left = [record.number for line in yard.lots.lines() for record in line]
    assert sorted(left) == sorted(record.number for number in range(4) if number not in roused for record in waiting[number])
    yard.loop.close()


def test_a_line_takes_one_back_in_its_place() -> None:
    """The wait queue takes a pending send back at the position of its number, before the sends that came later."""
    yard = Yard()
    first, second, third = (yard.park(0) for _ in range(3))
    line = WaitQueue()
    line.push(second)
    line.push(third)
    line.merge([first])
    assert [record.number for record in line] == [0, 1, 2]
    yard.loop.close()
