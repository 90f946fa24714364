"""What only speed shows, or one moment: which rows are queued whole, partitions that are not there, a first record without a key."""

from __future__ import annotations

from typing import Any

import pytest
from whole import jumping, running

from aioproducer.partitioners import RoundRobinPartitioner
from tests.engine.append.parts import Parts

BREAKER = {"circuit_breaker_class": "failure_rate"}


@pytest.mark.parametrize(
    ("options", "partitions", "named", "keyed", "no_key"),
    [
        ({}, 2, True, True, True),
        ({}, 256, True, True, True),
        ({}, 257, True, False, True),
        ({"partitioner": RoundRobinPartitioner()}, 2, True, False, False),
        (BREAKER, 2, True, True, True),
        ({**BREAKER, "circuit_breaker_keyed_policy": "available"}, 2, False, False, True),
    ],
)
def test_rows_are_taken_whole_where_kafkas_partitioner_puts_them(
    options: dict[str, Any], partitions: int, named: bool, keyed: bool, no_key: bool
) -> None:
    """Keys of hundreds of partitions are not: each partition would have a batch of few rows. One partition is muted."""
    parts = Parts(*[1] * partitions, **options)
    parts.queues.availability.avoid(parts.routing.queues[0])
    takes = parts.appender.takes_rows
    assert (
        takes("orders", is_named=True, keyed=False),
        takes("orders", is_named=False, keyed=True),
    ) == (named, keyed)
    assert takes("orders", is_named=False, keyed=False) is no_key
    assert takes("unknown", is_named=True, keyed=True)


def test_a_partition_that_is_not_there_is_waited_for() -> None:
    parts = Parts(1, 1)
    assert parts.place(partition=2) is None
    assert parts.place(partition=1) is not None


@jumping
async def test_the_first_record_without_a_key_is_encoded_once() -> None:
    """No partition is the sticky one yet: the slow path goes on with the bytes."""
    called: list[bytes] = []
    async with running(value_serializer=lambda value: called.append(value) or value) as (
        cluster,
        producer,
    ):
        topic = producer.topic("orders")
        await topic.ready()
        await producer.send("orders", b"k", b"k")
        await producer.send("orders", b"v")
        await producer.flush()
        assert called == [b"k", b"v"]
        assert sorted(filter(None, cluster.values("orders"))) == called
