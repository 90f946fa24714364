"""`RecordMetadata` as a normal tuple on both builds: the compiled build allocates and frees it by its own code."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import pickle
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both

from aioproducer import RecordMetadata, TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_000_000
RECORDS = 2_000
"""More than are kept to be made again."""
SPARES = 300
"""As many as that may be kept, each of which counts its kind."""
STACK = 2**20
"""Bytes, of a thread: Python 3.13 goes some thousand calls deep itself before it puts things off."""


class Kept:
    """An object that a weak reference can observe."""


class Mine(RecordMetadata):
    """A user's own subclass."""


@pytest.fixture
def deliveries(build: Any) -> Iterator[list[Any]]:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        result = build.ProduceRequestResult(
            build.DeliveryContext(loop, lambda _error, _count: None), "orders", 3, NOW
        )
        opened = build.MemoryRecordsBuilder(result, NOW, 1_000_000)
        found = [
            opened.append(NOW + at % 7, b"k" * (at % 5), b"v" * (at % 11)) for at in range(RECORDS)
        ]
        opened.close()
        result.complete(100, -1)
        yield found


def expected(at: int) -> RecordMetadata:
    return RecordMetadata(
        "orders", 3, 100 + at, NOW + at % 7, TimestampType.CREATE_TIME, at % 5, at % 11
    )


@on_both
@pytest.mark.parametrize("kept", [1, 2, 3, 300])
def test_what_is_kept_is_not_written_to(deliveries: list[Any], kept: int) -> None:
    """The test keeps some metadata and releases others. The released memory is used again, and the kept metadata does not change."""
    found = {}
    for at, delivery in enumerate(deliveries):
        metadata = delivery.result()
        if at % kept == 0:
            found[at] = metadata
    for at in list(found)[::2]:
        del found[at]
    again = [delivery.result() for delivery in deliveries]
    assert found == {at: expected(at) for at in found}
    assert again == [expected(at) for at in range(RECORDS)]
    assert len({id(metadata) for metadata in again}) == RECORDS


@on_both
def test_it_is_a_named_tuple(deliveries: list[Any]) -> None:
    """The metadata compares, hashes, unpacks, copies and pickles as a named tuple."""
    metadata = deliveries[5].result()
    assert type(metadata) is RecordMetadata
    assert hash(metadata) == hash(expected(5)) == hash(tuple(expected(5)))
    topic, partition, offset, *_ = metadata
    assert (topic, partition, offset) == ("orders", 3, 105)
    for again in (
        pickle.loads(pickle.dumps(metadata)),
        copy.copy(metadata),
        copy.deepcopy(metadata),
        metadata._replace(offset=105),
    ):
        assert (type(again), again) == (RecordMetadata, expected(5))


@on_both
@pytest.mark.parametrize("kind", [RecordMetadata, Mine])
def test_what_users_make_goes_with_what_it_holds(deliveries: list[Any], kind: type) -> None:
    """Tuples of any size, of a user's class, and in cycles release the objects that they hold. The class's reference count grows
    only by the kept spares.
    """
    gc.collect()
    before = sys.getrefcount(kind)
    gone = []
    for size in (0, 1, 7, 7, 9):
        holder = Kept()
        made = tuple.__new__(kind, [holder, *range(8)][:size])
        assert len(made) == size
        if size:
            gone.append(weakref.ref(holder))
        del made, holder
        for _ in range(RECORDS):
            tuple.__new__(kind, range(size))
    for _ in range(2):
        circle: list[Any] = [Kept()]
        gone.append(weakref.ref(circle[0]))
        circle.append(kind(circle, *range(6)))
        del circle
    gc.collect()
    assert [one() for one in gone] == [None] * len(gone)
    assert abs(sys.getrefcount(kind) - before) <= (SPARES if kind is RecordMetadata else 0)
    assert deliveries[7].result() == expected(7)


def nest() -> None:
    nested: Any = None
    for _ in range(200_000):
        nested = RecordMetadata(nested, *range(6))
    del nested


@on_both
def test_one_within_another_many_times_over(deliveries: list[Any]) -> None:
    """Tuples are nested deeper than a stack holds. A recursive release would end the process."""
    before = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=nest)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert deliveries[1].result() == expected(1)
