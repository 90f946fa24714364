"""Tests of `aioproducer.core.metadata.metadata_schedule`."""

from __future__ import annotations

import sys
from collections import OrderedDict

import pytest
from batches import install, partition_queues, topic

from aioproducer.core.metadata.metadata_schedule import TopicExpiry, shrink

IDLE = 300.0


def test_each_topic_has_its_own_time() -> None:
    """The earliest first; one that is gone is passed over."""
    rules, _ = partition_queues(1)
    for name in "uvw":
        install(rules, topic(1, name=name))
    rule = TopicExpiry(rules.routings, IDLE)
    for at, name in ((3.0, "w"), (1.0, "u"), (2.0, "v")):
        rule.watch(name, at)
        rules.routings[name].used_at = at
    del rules.routings["v"]
    assert rule.next_look(3.0) == 1.0 + IDLE
    assert list(rule.idle(3.0 + IDLE)) == ["u", "w"]
    assert rule.next_look(500.0) == 500.0 + IDLE


def test_tables_are_made_smaller_when_as_many_are_forgotten_as_are_left() -> None:
    """Not for a few, and not for each."""
    rules, _ = partition_queues(1)
    rule = TopicExpiry(rules.routings, IDLE)
    assert [number for number in range(1, 200) if rule.forgot()] == [64, 128, 192]
    rules.routings.update(dict.fromkeys(map(str, range(99)), rules.routings["t"]))
    assert [number for number in range(1, 200) if rule.forgot()] == [100 - 7, 200 - 7]


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_table_that_is_made_smaller_has_what_it_had(kind: type[dict[str, int]]) -> None:
    """In its order, and without the room of what it had not."""
    table = kind((str(number), number) for number in range(10_000))
    for number in range(9_990):
        del table[str(number)]
    large = sys.getsizeof(table)
    shrink(table)
    assert list(table.items()) == [(str(number), number) for number in range(9_990, 10_000)]
    assert sys.getsizeof(table) < large / 50
