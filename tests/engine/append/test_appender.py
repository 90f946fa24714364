"""Tests of `aioproducer.engine.append.appender`: which partition and batch a record goes to, and when it has to wait."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aioproducer.core.topic_routing import murmur2
from aioproducer.engine.chosen_build import SLICE_RECORDS, here
from aioproducer.engine.observability.diagnostics import SlowCallbacks
from aioproducer.errors import PartitionUnavailable, UsageError
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import Encodings
from tests.engine.append.parts import NOW_MS, Parts

BREAKER: dict[str, Any] = {"circuit_breaker_class": "failure_rate"}
SMALL: dict[str, Any] = {"batch_size": 1024, "batch_max_size": 1}


def avoid(parts: Parts, *partitions: int) -> None:
    for partition in partitions:
        parts.queues.availability.avoid(parts.routing.queues[partition])


@pytest.mark.parametrize(("key", "partition"), [(b"k", None), (b"k", 2), (None, 1), (b"", None)])
def test_a_record_goes_to_its_partition(key: bytes | None, partition: int | None) -> None:
    """To the named one, else to that of its key's murmur2; the next one goes into the same batch, behind it."""
    parts = Parts(1, 1, 1)
    expected = (murmur2(key or b"") & 0x7FFFFFFF) % 3 if partition is None else partition
    assert [parts.place(b"v", key, partition).index for _ in range(3)] == [0, 1, 2]
    assert parts.counts()[expected] == [3]


def test_a_partition_that_is_not_there_is_waited_for() -> None:
    parts = Parts(1, 1)
    assert parts.place(partition=2) is None
    assert parts.record(partition=2).is_missing(parts.routing)
    assert not parts.record(partition=1).is_missing(parts.routing)
    assert not parts.record().is_missing(parts.routing)


@pytest.mark.parametrize(("widest", "counts"), [(1, [[9, 9], [9, 3]]), (100_000, [[18], [12]])])
def test_records_without_a_key_stay_for_a_batch(widest: int, counts: list[list[int]]) -> None:
    """Then they go to another partition: the full batch closes, unless it may grow when its partition's time comes again."""
    parts = Parts(1, 1, batch_size=1024, batch_max_size=widest, partitioner_adaptive_partitioning_enable=False)
    for _ in range(30):
        assert parts.place(b"v" * 95) is not None
    assert parts.counts() == counts


def test_keys_may_be_ignored() -> None:
    parts = Parts(1, 1, partitioner_ignore_keys=True)
    for number in range(20):
        parts.place(key=b"%d" % number)
    assert sorted(map(sum, parts.counts())) == [0, 20]


def test_a_batch_closes_before_its_sender_waits_for_memory() -> None:
    """Otherwise a later, smaller record could be appended ahead of the one that waits."""
    parts = Parts(**SMALL)
    parts.place(b"v" * 700, b"k")
    parts.use_up()
    assert parts.place(b"v" * 700, b"k") is None
    assert parts.routing.queues[0].current is None
    assert parts.counts() == [[1]]


def test_a_batch_that_lacks_memory_alone_stays_open() -> None:
    parts = Parts(batch_size=16_384)
    parts.place(b"v" * 4000, b"k")
    parts.use_up()
    assert parts.place(b"v" * 4000, b"k") is None
    assert parts.routing.queues[0].current is not None


def test_a_full_partition_holds_up_its_own_records_alone() -> None:
    """A record with a key waits behind its partition, and stays with it; one without a key goes elsewhere."""
    parts = Parts(1, 1, **BREAKER, **SMALL, buffer_memory=16_384)
    queue = parts.routing.by_key[b"k"]
    other = parts.routing.queues[1 - queue.partition]
    while not queue.is_full:
        record = parts.record(b"v" * 900, b"k")
        parts.appender.place(record, parts.routing)
    assert record.behind is queue
    assert parts.place(b"w") is not None
    assert other.current is not None
    for batch in queue.closed:
        parts.pool.hold(batch, 0)
    assert parts.quota is not None
    assert list(parts.quota.eased(queue)) == [queue]
    assert parts.appender.place(record, parts.routing) is not None, "it was eased: the record's turn has come"
    assert record.behind is None


def test_without_a_breaker_one_partition_takes_all_memory() -> None:
    """As in Java: it is never full, and its records wait for memory with all others."""
    parts = Parts(1, 1, **SMALL, buffer_memory=16_384)
    queue = parts.routing.by_key[b"k"]
    record = parts.record(b"v" * 900, b"k")
    while parts.appender.place(record, parts.routing) is not None:
        record = parts.record(b"v" * 900, b"k")
    assert queue.bytes > parts.pool.size // 2
    assert not queue.is_full
    assert record.behind is None


def test_with_every_partition_full_a_record_waits_for_the_one_with_the_fewest_bytes() -> None:
    """It stays with that one, also where another one is the sticky one by then."""
    parts = Parts(1, 1, **BREAKER)
    for _ in range(40):
        parts.place(b"v" * 100, partition=0)
    parts.place(partition=1)
    for queue in parts.routing.queues:
        parts.queues.close(queue)
        parts.queues.fill(queue)
    record = parts.record()
    assert parts.appender.place(record, parts.routing) is None
    assert record.behind is parts.routing.queues[1]
    for queue in parts.routing.queues:
        parts.queues.availability.ease(queue)
    parts.place()
    assert parts.appender.place(record, parts.routing) is not None
    assert parts.counts() == [[40, 1], [1, 1]]


def test_a_full_partition_takes_nothing_by_any_way() -> None:
    """A record waits for it, and the fast path leaves its records to the slow one."""
    parts = Parts(1, **BREAKER)
    parts.queues.fill(parts.routing.queues[0])
    record = parts.record(partition=0)
    assert parts.appender.place(record, parts.routing) is None
    assert record.behind is parts.routing.queues[0]
    assert append(parts, b"k", b"v") is None


@pytest.mark.parametrize(
    ("policy", "given", "partition"),
    [
        ("strict", {"partition": 0}, 0),
        ("available", {"partition": 0, "key": b"k"}, (murmur2(b"k") & 0x7FFFFFFF) % 2 + 1),
        ("available", {"partition": 0}, 1),
        ("available", {"partition": 2}, 2),
        ("fail_fast", {"partition": 2}, 2),
    ],
)
def test_records_of_a_muted_partition_go_where_the_policy_says(policy: str, given: dict[str, Any], partition: int) -> None:
    """Where the policy is "available", a key always has the same other partition, of those that are usable."""
    parts = Parts(1, 1, 1, **BREAKER, circuit_breaker_keyed_policy=policy)
    avoid(parts, 0)
    for _ in range(3):
        parts.place(**given)
    assert parts.counts()[partition] == [3]


def test_a_muted_partition_fails_its_records_at_once_where_the_policy_says_so() -> None:
    parts = Parts(1, 1, **BREAKER, circuit_breaker_keyed_policy="fail_fast")
    avoid(parts, 0)
    with pytest.raises(PartitionUnavailable, match="The record was not queued"):
        parts.place(partition=0)
    assert parts.counts() == [[], []]


def test_with_every_partition_muted_a_record_stays_with_its_own() -> None:
    parts = Parts(1, 1, **BREAKER, circuit_breaker_keyed_policy="available")
    avoid(parts, 0, 1)
    assert parts.place(partition=0) is not None
    assert parts.place(partition=1, key=b"k") is not None
    assert parts.counts() == [[1], [1]]


def test_the_users_partitioner_is_asked_once_for_a_record() -> None:
    """However often memory is short."""
    asked: list[Any] = []

    def choose(*given: Any) -> int:
        asked.append(given)
        return 1

    parts = Parts(1, 1, partitioner=choose)
    taken = parts.use_up()
    record = parts.record()
    for _ in range(3):
        assert parts.appender.place(record, parts.routing) is None
    parts.pool.release(taken)
    parts.appender.place(record, parts.routing)
    assert (len(asked), parts.counts()) == (1, [[], [1]])


def test_a_partitioner_that_fails_is_the_callers_error() -> None:
    parts = Parts(1, 1, partitioner=lambda *_: 7)
    with pytest.raises(UsageError, match="partitioner"):
        parts.place()


@pytest.mark.parametrize(
    ("given", "turn_ms", "serving_ms", "expected"),
    [(7, 8, 9, 7), (None, 8, 9, 8), (None, 0, 9, 9), (None, 0, 0, NOW_MS)],
    ids=["its own", "that of the iteration", "that of those who are served", "now"],
)
def test_a_record_has_a_timestamp(given: int | None, turn_ms: int, serving_ms: int, expected: int) -> None:
    parts = Parts()
    parts.path.turn_ms = turn_ms
    parts.appender.serve_at(serving_ms)
    parts.appender.place(parts.record(timestamp_ms=given), parts.routing)
    parts.queues.close(parts.routing.queues[0])
    assert parts.routing.queues[0].closed[0].base_timestamp == expected


# The fast path


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, "v"), (None, None), ("k", b"v"), (None, b"v" * 5000), (bytearray(b"k"), b"v")],
    ids=["str", "null", "key", "large", "mutable"],
)
def test_only_small_plain_records_take_the_fast_path(key: Any, value: Any) -> None:
    parts = Parts()
    assert parts.appender.make_room(parts.routing, parts.routing.queues[0], key, value) is None
    assert parts.appender.make_room(parts.routing, parts.routing.queues[0], None, b"v") is not None
    assert sum(map(sum, parts.counts())) == 1


def test_the_fast_path_fills_batch_after_batch() -> None:
    """One opens behind the other, in the order of the records. Once the memory is used up, records take the slow path."""
    parts = Parts(**SMALL, buffer_memory=16_384)
    queue, count = parts.routing.by_key[b"k"], 0
    while (delivery := append(parts, b"k", b"v" * 100)) is not None:
        assert delivery.index == count % 8
        count += 1
    assert count > 40
    assert {batch.count for batch in queue.closed[:-1]} == {8}
    assert sum(parts.counts()[0]) == count


def append(parts: Parts, key: bytes | None, value: bytes) -> Any:
    """Append as `FastPath` does."""
    queue: Any = parts.routing.sticky if key is None else parts.routing.by_key[key]
    if queue is None:
        return parts.place(value)
    delivery = queue.open.append(NOW_MS, key, value)
    return delivery if delivery is not None else parts.appender.make_room(parts.routing, queue, key, value)


@pytest.mark.asyncio
@pytest.mark.parametrize("key", [None, b"k"])
async def test_each_encoded_record_counts_once_in_its_slice(key: bytes | None) -> None:
    """Also one that opens a batch, that finds no sticky partition, or that no batch takes. Both builds count alike."""
    parts = Parts(**SMALL, buffer_memory=4096)
    path = parts.path
    path.fast, path.here, path.make_room = parts.queues.routings, here(), parts.appender.make_room
    path.watch = SlowCallbacks(time.perf_counter)
    encoding = Encodings(None, bytes).of("orders")

    def counted() -> bool:
        before = path.taken
        is_appended = path.append_encoded("orders", b"v" * 100, key, None, None, None, encoding) is not None
        assert path.taken == before + 1
        return is_appended

    path.taken = 0
    if key is None:
        assert not counted()
        parts.place()
    while counted():
        pass
    assert len(parts.counts()[0]) > 1


@pytest.mark.parametrize("key", [None, b"k"])
def test_a_task_that_must_pause_gets_no_room(key: bytes | None) -> None:
    parts = Parts(1, 1)
    assert append(parts, key, b"v") is not None
    parts.budget.end()
    parts.path.taken = SLICE_RECORDS + 1
    assert parts.appender.make_room(parts.routing, parts.routing.queues[0], key, b"v") is None


@pytest.mark.parametrize(("policy", "is_fast"), [("strict", True), ("available", False), ("fail_fast", False)])
def test_a_muted_partition_is_left_to_the_slow_path(policy: str, is_fast: bool) -> None:
    parts = Parts(1, **BREAKER, circuit_breaker_keyed_policy=policy)
    avoid(parts, 0)
    assert (append(parts, b"k", b"v") is not None) is is_fast


# Many records at once


def test_many_records_without_a_key_fill_one_partition_after_the_other() -> None:
    """Each run names its batch, its first record there, and their number."""
    parts = Parts(1, 1, **SMALL, partitioner_adaptive_partitioning_enable=False)
    parts.place()
    runs = parts.appender.append_run(parts.routing, None, None, [b"v" * 95] * 30)
    assert [(run[0].partition, run[1], run[2]) for run in runs] == [(0, 1, 9), (1, 0, 9), (0, 0, 9), (1, 0, 3)]


def test_many_records_of_one_partition() -> None:
    parts = Parts(1, 1, **SMALL)
    runs = parts.appender.append_run(parts.routing, parts.routing.queues[1], [b"k"] * 20, [b"v" * 95] * 20)
    assert [(run[0].partition, run[1]) for run in runs] == [(1, 0)] * len(runs)
    assert sum(run[2] for run in runs) == 20
    assert parts.counts() == [[], [run[2] for run in runs]]


def test_many_records_without_a_key_end_where_all_partitions_are_full() -> None:
    """Others wait for these partitions already, and must not be overtaken."""
    parts = Parts(1, **BREAKER, **SMALL)
    queue = parts.routing.queues[0]
    parts.queues.fill(queue)
    assert parts.appender.append_run(parts.routing, None, None, [b"v"]) == []


@pytest.mark.parametrize(
    ("options", "avoided", "takes"),
    [
        ({}, (0,), [True, True, True]),
        ({**BREAKER}, (0,), [True, True, True]),
        ({**BREAKER, "circuit_breaker_keyed_policy": "available"}, (0,), [False, True, True]),
        ({**BREAKER, "circuit_breaker_keyed_policy": "available"}, (0, 1), [False, False, False]),
    ],
)
def test_bulk_records_are_appended_only_where_none_has_to_wait_or_go_elsewhere(
    options: dict[str, Any], avoided: tuple[int, ...], takes: list[bool]
) -> None:
    """For the first partition, the second one, and the sticky one."""
    parts = Parts(1, 1, **options)
    avoid(parts, *avoided)
    first, second = parts.routing.queues
    assert [parts.appender.takes_freely(parts.routing, queues) for queues in ([first], [second], [])] == takes


@pytest.mark.parametrize(
    ("options", "partitions", "named", "keyed", "no_key"),
    [
        ({}, 2, True, True, True),
        ({}, 256, True, True, True),
        ({}, 257, True, False, True),
        ({"partitioner": RoundRobinPartitioner()}, 2, True, False, False),
        ({**BREAKER}, 2, True, True, True),
        ({**BREAKER, "circuit_breaker_keyed_policy": "available"}, 2, False, False, True),
    ],
)
def test_rows_are_taken_whole_where_kafkas_partitioner_puts_them(
    options: dict[str, Any], partitions: int, named: bool, keyed: bool, no_key: bool
) -> None:
    """Keys of hundreds of partitions are not: each partition would have a batch of few rows. One partition is muted."""
    parts = Parts(*[1] * partitions, **options)
    avoid(parts, 0)
    takes = parts.appender.takes_rows
    assert (takes("orders", is_named=True, keyed=False), takes("orders", is_named=False, keyed=True)) == (named, keyed)
    assert takes("orders", is_named=False, keyed=False) is no_key
    assert takes("unknown", is_named=True, keyed=True)
