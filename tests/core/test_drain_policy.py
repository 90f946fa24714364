"""Tests of `aioproducer.core.drain_policy`: which batches leave in a drain, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.core.drain_policy import Fill, Linger, is_due, least_fill

NONE, TIME, LOAD = Linger.NONE, Linger.TIME, Linger.LOAD
CLOSED, FULL, PARTIAL = Fill.CLOSED, Fill.FULL, Fill.PARTIAL


@pytest.mark.parametrize(
    ("linger", "state", "least"),
    [
        pytest.param(NONE, {}, PARTIAL, id="0: what is queued leaves"),
        pytest.param(NONE, {"drains": 1}, PARTIAL, id="0: in a burst, too"),
        pytest.param(NONE, {"drains": 1, "filling": 10_000}, PARTIAL, id="0: however many partitions fill"),
        pytest.param(NONE, {"is_answer": True}, PARTIAL, id="0: as soon as a slot is free"),
        pytest.param(TIME, {}, PARTIAL, id="ms: what lingered long enough leaves"),
        pytest.param(TIME, {"is_answer": True}, PARTIAL, id="ms: as soon as a slot is free"),
        pytest.param(LOAD, {}, PARTIAL, id="auto: what waits for nothing in flight leaves"),
        pytest.param(LOAD, {"is_answer": True}, FULL, id="auto: what an answer lets go leaves a turn later"),
        pytest.param(TIME, {"drains": 1}, CLOSED, id="a burst fills batches"),
        pytest.param(LOAD, {"drains": 3}, CLOSED, id="a burst fills batches, by load, too"),
        pytest.param(TIME, {"drains": 4}, FULL, id="full ones leave every fourth turn of it"),
        pytest.param(TIME, {"drains": 8}, PARTIAL, id="and partial ones every eighth"),
        pytest.param(TIME, {"drains": 8, "filling": 143}, PARTIAL, id="if few fill"),
        pytest.param(TIME, {"drains": 8, "filling": 144}, FULL, id="later if more do"),
        pytest.param(LOAD, {"drains": 63, "filling": 1_024}, CLOSED, id="of a thousand"),
        pytest.param(LOAD, {"drains": 64, "filling": 1_024}, PARTIAL, id="every 64th"),
        pytest.param(TIME, {"drains": 3, "seconds": 0.49, "filling": 10_000}, CLOSED, id="for half a second"),
        pytest.param(TIME, {"drains": 3, "seconds": 0.5, "filling": 10_000}, PARTIAL, id="at most"),
        pytest.param(LOAD, {"drains": 3, "seconds": 0.5, "is_answer": True}, FULL, id="at an answer, still by load"),
    ],
)
def test_what_a_batch_must_be_to_leave(linger: Linger, state: dict[str, Any], least: Fill) -> None:
    assert least_fill(linger, **state) is least


@pytest.mark.parametrize(
    ("linger", "is_full", "seconds", "batches", "due"),
    [
        pytest.param(NONE, False, 0.0, 0, True, id="0: while no slot was free, each time the loop comes round"),
        pytest.param(NONE, True, 0.0008, 6, False, id="0: else after as long as the batches that left are worth"),
        pytest.param(NONE, False, 0.001, 6, True, id="0: whatever was queued"),
        pytest.param(NONE, True, 0.29, 10_000, False, id="0: 0.3 s"),
        pytest.param(NONE, False, 0.3, 10_000, True, id="0: at most"),
        pytest.param(TIME, False, 9.0, 0, False, id="ms: a turn has several goes"),
        pytest.param(TIME, True, 0.0, 9, True, id="ms: until enough was queued"),
        pytest.param(LOAD, False, 9.0, 0, False, id="auto: likewise"),
        pytest.param(LOAD, True, 0.0, 9, True, id="auto: and"),
    ],
)
def test_when_a_burst_makes_requests(linger: Linger, is_full: bool, seconds: float, batches: int, due: bool) -> None:
    assert is_due(linger, is_full=is_full, seconds=seconds, batches=batches) is due


def test_both_are_named_in_logs() -> None:
    assert [str(one) for one in (*Linger, *Fill)] == ["0", "milliseconds", "auto", "partial", "full", "closed"]
