"""Tests of `aioproducer.engine.append.batch_sizing`: how many bytes a batch opens with, grows to, and gives back."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.core.record_validation import BATCH_OVERHEAD
from aioproducer.engine.append.batch_sizing import shrink
from aioproducer.engine.chosen_build import RECORD_OVERHEAD
from aioproducer.records.record_batch import OVERHEAD
from tests.engine.append.parts import NOW_MS, Parts

FIRST, LEAST = 4096, 512
MIB = 1 << 20


def opened(parts: Parts, size: int = 100) -> Any:
    assert parts.sizing.open(parts.routing.queues[0], NOW_MS, size, nothing) is not None
    return parts.routing.queues[0].current


def nothing(records: Any) -> Any:
    """Append no record to a batch that is opened, to see its bytes alone."""
    return records


def fill(parts: Parts, batch: Any) -> int:
    """Append records until the batch takes no more. Returns their number."""
    while batch.open.append(NOW_MS, None, b"v" * 100) is not None:
        pass
    return int(batch.open.count)


@pytest.mark.parametrize(
    ("options", "size", "granted"),
    [
        ({}, 100, FIRST),
        ({}, 9000, 9000),
        ({"batch_size": 2000}, 100, 2000 - OVERHEAD),
        ({"batch_size": 0}, 100, 100),
        ({"max_request_size": 1500}, 100, 1500 - OVERHEAD),
        ({"buffer_memory": 3000, "batch_size": 2900}, 100, 3000 - BATCH_OVERHEAD),
    ],
)
def test_a_batch_opens_with_few_bytes(options: dict[str, Any], size: int, granted: int) -> None:
    """With 4 KiB, or less where a batch cannot have more, or as many as its record takes. The memory and the loop budget count them."""
    parts = Parts(**options)
    batch = opened(parts, size)
    assert batch.open.granted == granted
    assert (
        batch.credit
        == parts.config.buffer_memory - parts.pool.available
        == parts.budget.spent
        == granted + BATCH_OVERHEAD
    )


def test_a_batch_grows_once_to_its_full_size() -> None:
    """The growth counts the overhead of the records that are there. A batch of full size grows no more."""
    parts = Parts(batch_size=16_384)
    batch = opened(parts)
    records = fill(parts, batch)
    assert parts.sizing.grow(batch, 110)
    assert batch.open.granted == parts.sizing.limit == 16_384 - OVERHEAD
    assert batch.credit == parts.config.buffer_memory - parts.pool.available == parts.budget.spent
    assert batch.credit == parts.sizing.limit + BATCH_OVERHEAD + records * RECORD_OVERHEAD
    assert not parts.sizing.grow(batch, 110)
    assert not parts.sizing.may_grow(batch, 110)


def test_a_batch_grows_by_what_is_left_while_memory_is_short() -> None:
    """Where the full size is not free, a batch doubles. Where not even that is free, it lacks memory alone: it is not closed for that."""
    parts = Parts(batch_size=16_384)
    batch = opened(parts)
    parts.use_up(FIRST + 100)
    assert parts.sizing.grow(batch, 110)
    assert batch.open.granted == 2 * FIRST
    assert not parts.sizing.grow(batch, 110)
    assert parts.sizing.may_grow(batch, 110)


def test_batches_open_with_least_bytes_after_memory_was_short() -> None:
    """As many of them as `buffer_memory` holds; then with 4 KiB again. None is opened while not even the least bytes are free."""
    parts = Parts(buffer_memory=20_000)
    taken = parts.use_up()
    assert parts.sizing.open(parts.routing.queues[0], NOW_MS, 100, nothing) is None
    parts.pool.release(taken)
    sizes = []
    for _ in range(20_000 // (LEAST + BATCH_OVERHEAD) + 1):
        batch = opened(parts)
        sizes.append(batch.open.granted)
        batch.open.append(NOW_MS, None, b"")
        parts.queues.close(parts.routing.queues[0])
        parts.pool.hold(batch, 0)
    assert sizes == [LEAST] * (len(sizes) - 1) + [FIRST]


@pytest.mark.parametrize(
    ("prepare", "grows_by"),
    [
        (lambda _: None, 3 * (1024 - OVERHEAD)),
        (lambda parts: setattr(parts.routing, "is_narrow", True), 0),
        (lambda parts: parts.pool.take(parts.pool.available // 2), 1024 - OVERHEAD),
        (lambda parts: parts.pool.take(parts.pool.available - 500), 500),
    ],
    ids=[
        "usual",
        "a broker found one too large",
        "less than half of memory is free",
        "less than batch_size is free",
    ],
)
def test_a_full_batch_that_waits_grows_beyond_batch_size(prepare: Any, grows_by: int) -> None:
    """By three times its size, if its broker takes that much; while less than half of the memory is free, by as much as another batch."""
    parts = Parts(batch_size=1024)
    batch = opened(parts)
    prepare(parts)
    before, spent = parts.pool.available, parts.budget.spent
    assert parts.sizing.beyond(batch) == grows_by
    assert parts.sizing.widen(batch, 100) is bool(grows_by)
    assert batch.open.granted == 1024 - OVERHEAD + grows_by
    assert before - parts.pool.available == grows_by
    assert parts.budget.spent - spent == min(grows_by, parts.sizing.limit), (
        "other iterations fill the rest"
    )
    assert parts.routing.queues[0].is_sendable is bool(grows_by)


def test_a_batch_grows_to_batch_max_size_at_most() -> None:
    """In steps; a record that does not fit into the rest makes it close. What this iteration fills counts in the loop budget."""
    parts = Parts(batch_size=1024, batch_max_size=2048)
    batch = opened(parts)
    before = parts.budget.spent
    assert not parts.sizing.widen(batch, 1025)
    assert parts.sizing.widen(batch, 1024, at_once=1024)
    assert batch.open.granted == 2048 - OVERHEAD
    assert parts.budget.spent - before == 1024
    assert parts.sizing.beyond(batch) == 0


def test_a_closed_batch_gives_back_what_it_did_not_use() -> None:
    """And the sticky partition's share counts its bytes."""
    parts = Parts()
    queue = parts.routing.queues[0]
    parts.routing.switch(0.0, is_adaptive=False)
    batch = opened(parts)
    batch.open.append(NOW_MS, None, b"v" * 100)
    parts.queues.close(queue)
    size = len(batch.payload)
    assert (
        parts.config.buffer_memory - parts.pool.available == batch.credit == size + BATCH_OVERHEAD
    )
    assert queue.filled == parts.routing.share == size
    shrink(parts.pool, batch, batch.credit + 50)
    assert batch.credit == size + BATCH_OVERHEAD, "only an older format makes a batch larger"
    batch.magic = 1
    shrink(parts.pool, batch, batch.credit + 50)
    assert (
        parts.config.buffer_memory - parts.pool.available
        == batch.credit
        == size + BATCH_OVERHEAD + 50
    )


def test_a_batch_that_opens_at_full_size_counts_as_a_small_one() -> None:
    """In the loop budget: this iteration perhaps does not fill it. In plain Python it opens small, unless it is behind a full one."""
    parts = Parts(batch_size=16_384)
    assert (
        parts.sizing.open_wide(parts.routing.queues[0], NOW_MS, 100, nothing, behind=False)
        is not None
    )
    batch = parts.routing.queues[0].current
    assert batch is not None
    assert batch.credit == (FIRST if RECORD_OVERHEAD else parts.sizing.limit) + BATCH_OVERHEAD
    assert parts.budget.spent == FIRST + BATCH_OVERHEAD


@pytest.mark.parametrize(
    ("behind", "short", "granted"),
    [(True, False, 16_384 - OVERHEAD), (True, True, LEAST), (False, True, FIRST)],
)
def test_a_batch_behind_a_full_one_opens_at_full_size(
    behind: bool, short: bool, granted: int
) -> None:
    """If there is memory for that."""
    parts = Parts(batch_size=16_384)
    if short:
        parts.use_up(FIRST + BATCH_OVERHEAD)
    assert (
        parts.sizing.open_wide(parts.routing.queues[0], NOW_MS, 100, nothing, behind=behind)
        is not None
    )
    batch = parts.routing.queues[0].current
    assert batch is not None
    assert batch.open is not None
    assert batch.open.granted == granted


def test_memory_for_many_records_is_there_or_not() -> None:
    """The number counts an open batch for each partition, and the overhead of each record."""
    parts = Parts(batch_size=1024)
    need = (
        5000
        + 10 * (24 + RECORD_OVERHEAD)
        + (3 + 5000 // (1024 - OVERHEAD) + 1) * (1024 - OVERHEAD + BATCH_OVERHEAD)
    )
    parts.use_up(need)
    assert parts.sizing.is_there(5000, 10, 3)
    parts.pool.take(1)
    assert not parts.sizing.is_there(5000, 10, 3)
    parts.pool.release(1)
    parts.sizing.open_for_many(parts.routing.queues[0], NOW_MS, 5000, nothing)
    batch = parts.routing.queues[0].current
    assert batch is not None
    assert batch.credit == 1024 - OVERHEAD + BATCH_OVERHEAD


@pytest.mark.parametrize(("narrow", "room"), [(False, MIB - OVERHEAD), (True, 1024 - OVERHEAD)])
def test_rows_that_are_there_at_once_go_in_batches_of_batch_max_size(
    narrow: bool, room: int
) -> None:
    """Also while memory is short: the batch takes none before its rows are there."""
    parts = Parts(batch_size=1024, batch_max_size=MIB, max_request_size=2 * MIB)
    parts.routing.is_narrow = narrow
    parts.use_up(1024)
    assert parts.sizing.of_rows(parts.routing) == room


def test_a_full_batch_that_finds_no_memory_may_grow_later() -> None:
    """It stays open until `batch_max_size`, as the record behind it waits for memory in any case."""
    parts = Parts(batch_size=1024, batch_max_size=2048)
    batch = opened(parts)
    parts.use_up(99)
    assert not parts.sizing.may_grow(batch, 99), "it grows now"
    assert parts.sizing.may_grow(batch, 100)
    assert not parts.sizing.may_grow(batch, 1025), "it never takes that"
    parts.routing.is_narrow = True
    assert not parts.sizing.may_grow(batch, 100)


def test_while_memory_is_short_a_batch_grows_by_no_more_than_follows_at_once() -> None:
    """`is_there` has counted the records that follow, not a whole `batch_size` for each partition."""
    parts = Parts(batch_size=1024)
    batch = opened(parts)
    parts.pool.take(parts.pool.available // 2)
    assert parts.sizing.widen(batch, 100, at_once=300)
    assert batch.open.granted == 1024 - OVERHEAD + 300


def test_a_batch_after_a_shortage_opens_with_what_the_last_one_took() -> None:
    """Growth in steps would copy the records of a busy partition again and again."""
    parts = Parts(batch_size=16_384)
    queue = parts.routing.queues[0]
    queue.filled = 3000
    taken = parts.use_up()
    assert parts.sizing.open(queue, NOW_MS, 100, nothing) is None
    parts.pool.release(taken)
    assert opened(parts).open.granted == 3000


def test_a_full_partition_gets_no_batch_and_none_of_its_batches_grows() -> None:
    """With a circuit breaker, a partition is full that holds as much as is free."""
    parts = Parts(batch_size=16_384, circuit_breaker_class="failure_rate")
    batch = opened(parts)
    parts.use_up(batch.credit)
    queue = parts.routing.queues[0]
    assert not parts.sizing.grow(batch, 100)
    assert parts.sizing.beyond(batch) == 0
    assert parts.sizing.open(queue, NOW_MS, 100, nothing) is None
    assert queue.is_full
