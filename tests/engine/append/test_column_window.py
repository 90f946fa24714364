"""Tests of `aioproducer.engine.append.column_batches`: a window of rows is queued as whole batches, all of it or not at all."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from builds import compiled_columns

from aioproducer.core.topic_routing import murmur2
from aioproducer.engine.append import column_batches
from aioproducer.engine.append.column_batches import ColumnWindow
from aioproducer.engine.delivery.deliveries import Deliveries
from aioproducer.errors import PartitionUnavailable, UsageError
from aioproducer.records.arrow import Table
from tests.engine.append.parts import NOW_MS, Parts

pytestmark = pytest.mark.skipif(column_batches._columns is None, reason="plain Python has no windows")
KEYS = [b"k%d" % number for number in range(40)]
VALUES = [b"%03d" % number for number in range(40)]


class Window:
    """A pending send of rows, as `send_columns` makes it."""

    def __init__(self, parts: Parts, values: list[bytes] = VALUES, keys: list[bytes] | None = None, partition: int | None = None) -> None:
        self._arrays = pa.array(values), None if keys is None else pa.array(keys)
        (piece,) = Table(*self._arrays, None).pieces()
        rows, size = compiled_columns.measure(piece.values, piece.keys, piece.moments, 0, piece.rows, 1_000_000, 1_000_000)
        assert rows == len(values)
        self.window = ColumnWindow(piece, 0, rows, size, partition=partition, keyed=keys is not None, moment=None)
        self.record = parts.record(partition=partition)
        self.record.window, self.record.size = self.window, size
        self._parts = parts

    def place(self) -> Any:
        return self._parts.appender.place(self.record, self._parts.routing)


def test_rows_go_to_the_partitions_of_their_keys() -> None:
    """Behind the open batches there, which are closed. The deliveries have the order of the rows."""
    parts = Parts(1, 1, 1)
    parts.place(key=KEYS[0])
    window = Window(parts, keys=KEYS)
    assert window.place() is not None
    expected = [(murmur2(key) & 0x7FFFFFFF) % 3 for key in KEYS]
    first = expected[0]
    assert parts.counts() == [[1] * (partition == first) + [expected.count(partition)] for partition in range(3)]
    deliveries = Deliveries()
    window.window.tell(deliveries)
    assert [delivery._result.partition for delivery in deliveries] == expected
    assert parts.budget.spent >= sum(queue.bytes for queue in parts.routing.queues)


@pytest.mark.parametrize("partition", [None, 1])
def test_rows_without_a_key_go_to_one_partition_batch_by_batch(partition: int | None) -> None:
    """To the named one, or to the sticky ones in turn; batches of `batch_size` each, if they may not be wider."""
    parts = Parts(1, 1, batch_size=251, batch_max_size=1, partitioner_adaptive_partitioning_enable=False)
    assert Window(parts, partition=partition).place() is not None
    assert parts.counts() == ([[19, 2], [19]] if partition is None else [[], [19, 19, 2]])
    assert {batch.base_timestamp for queue in parts.routing.queues for batch in queue.closed} == {NOW_MS}


def test_a_row_larger_than_a_batch_goes_alone() -> None:
    parts = Parts(batch_size=200, batch_max_size=1)
    assert Window(parts, [b"v", b"w" * 1000, b"v"]).place() is not None
    assert parts.counts() == [[1, 1, 1]]


def test_a_window_waits_for_memory_for_all_of_it() -> None:
    """Nothing of it is queued before."""
    parts = Parts(1, 1, 1)
    window = Window(parts, keys=KEYS)
    taken = parts.use_up(left=window.window.size)
    assert window.place() is None
    assert parts.counts() == [[], [], []]
    assert not window.window.is_queued
    parts.pool.release(taken)
    assert window.place() is not None
    assert window.window.is_queued


def test_a_window_waits_for_a_full_partition() -> None:
    parts = Parts(1, 1, circuit_breaker_class="failure_rate")
    parts.queues.fill(parts.routing.queues[1])
    window = Window(parts, keys=KEYS)
    assert window.place() is None
    assert window.record.behind is parts.routing.queues[1]
    assert parts.counts() == [[], []]


def test_a_window_for_a_muted_partition_fails_where_the_policy_says_so() -> None:
    parts = Parts(1, 1, circuit_breaker_class="failure_rate", circuit_breaker_keyed_policy="fail_fast")
    parts.queues.availability.avoid(parts.routing.queues[1])
    with pytest.raises(PartitionUnavailable, match="Its rows were not queued"):
        Window(parts, keys=KEYS).place()
    assert parts.counts() == [[], []]


def test_columns_that_change_before_they_are_queued_end_in_an_error() -> None:
    """A row that grew since it was measured would never fit."""
    parts = Parts(batch_size=300, batch_max_size=1)
    window = Window(parts, [b"v" * 100])
    window.window.size = 50
    parts.sizing.limit = 60
    with pytest.raises(UsageError, match="row 0: the columns were changed"):
        window.place()
    assert parts.counts() == [[]]
