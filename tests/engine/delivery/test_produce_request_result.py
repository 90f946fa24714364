"""Tests of `aioproducer.engine.delivery.produce_request_result` in both builds: metadata, failures and splits, without a loop's help.

Callbacks and tasks that wait: test_delivery.py and test_completion_queue.py.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from builds import on_both

from aioproducer.errors import DeliveryError, Persisted
from aioproducer.model import TimestampType
from tests.engine.append.parts import Clock

ERROR = DeliveryError("it broke", topic="orders", partition=3, persisted=Persisted.NO, attempts=1)
RECORDS = [(1000, b"k", b"v"), (1007, None, b"vv"), (1000, b"kk", None)]


def made(build: Any, unseen: Any = lambda _error, _count: None) -> Any:
    """Return the result of a closed batch with three records."""
    context = build.DeliveryContext(Clock(), unseen, lambda: 5.5)
    result = build.ProduceRequestResult(context, "orders", 3, 1000)
    records = build.MemoryRecordsBuilder(result, 1000, 1000)
    for record in RECORDS:
        assert records.append_record(*record, b"\0") is not None
    records.close()
    return result


@on_both
@pytest.mark.parametrize(
    ("log_append_time", "offset", "timestamps", "kind"),
    [
        (-1, 40, [1000, 1007, 1000], TimestampType.CREATE_TIME),
        (77, 40, [77, 77, 77], TimestampType.LOG_APPEND_TIME),
        (-1, -1, [1000, 1007, 1000], TimestampType.CREATE_TIME),
    ],
    ids=["its own times", "the broker's time", "acks=0"],
)
def test_metadata_of_each_record(build: Any, log_append_time: int, offset: int, timestamps: list[int], kind: TimestampType) -> None:
    """One by one and many at once; without an answer no record has an offset."""
    result = made(build)
    result.complete(offset, log_append_time)
    expected = [
        (
            "orders",
            3,
            offset + index if offset >= 0 else -1,
            timestamp,
            kind,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
        for index, (timestamp, (_, key, value)) in enumerate(zip(timestamps, RECORDS, strict=True))
    ]
    assert [tuple(result.get(index)) for index in range(3)] == expected
    assert list(map(tuple, result.get_many(1, 2))) == expected[1:]
    assert result.failure() is None


@on_both
def test_each_look_at_a_failure_has_an_error_of_its_own(build: Any) -> None:
    result = made(build)
    with pytest.raises(asyncio.InvalidStateError):
        result.failure()
    result.fail(ERROR)
    assert result.failure() is not result.failure()
    for read in (lambda: result.get(0), lambda: list(result.get_many(0, 3))):
        with pytest.raises(DeliveryError, match="it broke"):
            read()


@on_both
@pytest.mark.parametrize("looks", ["before", "after", "never"])
def test_a_failure_that_nobody_looks_at_is_told_when_the_result_goes(build: Any, looks: str) -> None:
    unseen: list[Any] = []
    result = made(build, lambda error, count: unseen.append((error, count)))
    if looks == "before":
        result.look()
    result.fail(ERROR)
    if looks == "after":
        result.look()
    assert unseen == []
    del result
    gc.collect()
    assert unseen == ([(ERROR, 3)] if looks == "never" else [])


@on_both
def test_a_split_moves_each_record_to_its_part(build: Any) -> None:
    """With its sizes and its timestamp; the first record of a part is the base of the part's timestamps."""
    result = made(build)
    result.look()
    first, second = result.split([[1], [0, 2]])
    assert [result.place_of(index) for index in range(3)] == [(second, 0), (first, 0), (second, 1)]
    assert (first.base_timestamp, second.base_timestamp, first.looked_at) == (1007, 1000, True)
    (inner, other) = second.split([[0], [1]])
    assert result.place_of(2) == (other, 0)
    for part, offset in ((first, 10), (inner, 20), (other, 30)):
        part.complete(offset, -1)
    assert [(*each[2:4], *each[5:]) for each in map(result.get, range(3))] == [
        (20, 1000, 1, 1),
        (10, 1007, -1, 2),
        (30, 1000, 2, -1),
    ]
    assert [each.offset for each in result.get_many(0, 3)] == [20, 10, 30]


@on_both
def test_a_cancelled_delivery_has_a_result_of_its_own(build: Any) -> None:
    context = made(build).delivery_context
    with pytest.raises(asyncio.CancelledError, match="by the scope"):
        context.cancelled("by the scope").failure()
    assert context.now_ms() == 5500
