"""Which rows are queued whole (`Appender.takes_rows`): the others go one by one, which only their speed shows."""

from __future__ import annotations

from typing import Any

import pytest

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
    assert (takes("orders", is_named=True, keyed=False), takes("orders", is_named=False, keyed=True)) == (named, keyed)
    assert takes("orders", is_named=False, keyed=False) is no_key
    assert takes("unknown", is_named=True, keyed=True)
