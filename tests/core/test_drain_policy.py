"""Tests of `aioproducer.core.drain_policy`: each rule alone, and what they decide together."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.core.drain_policy import MAX_BATCHES, DrainPolicy, DrainState, Fill, Linger

NONE, TIME, LOAD = Linger.NONE, Linger.TIME, Linger.LOAD
NEVER, CLOSED, FULL, PARTIAL = Fill.NEVER, Fill.CLOSED, Fill.FULL, Fill.PARTIAL


def burst(**state: Any) -> DrainState:
    """Return the state of a burst that has appended enough for a drain; six batches are open."""
    made = DrainState()
    for name, value in {
        "is_burst": True,
        "is_budget_full": True,
        "open_batches": 6,
        **state,
    }.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("linger", "in_flight", "is_short", "waits"),
    [
        pytest.param(NONE, 5, False, False, id="0: no batch waits"),
        pytest.param(TIME, 0, False, True, id="linger: a partial batch waits for its time"),
        pytest.param(TIME, 0, True, False, id="memory: not while memory is short"),
        pytest.param(LOAD, 0, False, False, id="load: nothing in flight, nothing waits"),
        pytest.param(LOAD, 1, False, True, id="load: a batch waits for those in flight"),
        pytest.param(LOAD, 1, True, False, id="memory: nor by load"),
    ],
)
def test_whether_an_open_batch_waits(
    linger: Linger, in_flight: int, is_short: bool, waits: bool
) -> None:
    policy = DrainPolicy(linger)
    assert policy.waits(in_flight, memory_is_short=is_short) is waits
    assert policy.has_holds is (linger is not NONE)


@pytest.mark.parametrize(
    ("linger", "state", "least"),
    [
        pytest.param(
            NONE, {}, PARTIAL, id="broker queue: while no slot was free, each iteration drains"
        ),
        pytest.param(
            NONE,
            {"now": 0.0007, "batches": 6},
            NEVER,
            id="broker queue: a drain comes after the time of the last one's batches",
        ),
        pytest.param(
            NONE, {"now": 0.001, "batches": 6}, PARTIAL, id="broker queue: then every batch leaves"
        ),
        pytest.param(
            NONE,
            {"now": 0.0019, "batches": 64, "open_batches": 10_000},
            NEVER,
            id="broker queue: 0.3 s for all open batches",
        ),
        pytest.param(
            NONE,
            {"now": 0.002, "batches": 64, "open_batches": 10_000},
            PARTIAL,
            id="broker queue: at most",
        ),
        pytest.param(
            NONE,
            {"now": 0.0007, "batches": 6, "closed_batches": 1},
            CLOSED,
            id="broker queue: a closed batch does not wait",
        ),
        pytest.param(
            NONE,
            {"open_batches": 10_000, "is_budget_full": False},
            PARTIAL,
            id="0: however many batches are open",
        ),
        pytest.param(
            TIME,
            {"now": 0.0009, "is_budget_full": False},
            NEVER,
            id="burst interval: a drain takes several slices",
        ),
        pytest.param(
            LOAD,
            {"now": 9.0, "due_since": 8.9995, "is_budget_full": False},
            NEVER,
            id="burst interval: by load, too",
        ),
        pytest.param(
            LOAD,
            {"now": 0.001, "is_budget_full": False, "full_at": 0.0005},
            CLOSED,
            id="burst interval: or 1 ms",
        ),
        pytest.param(TIME, {}, CLOSED, id="burst: the first drains send closed batches"),
        pytest.param(LOAD, {"now": 0.0009}, CLOSED, id="burst: by load, too"),
        pytest.param(TIME, {"now": 0.001}, FULL, id="burst, full batches: they leave after 1 ms"),
        pytest.param(
            TIME,
            {"now": 0.0014, "full_at": 0.001},
            CLOSED,
            id="burst, full batches: and again 1 ms later",
        ),
        pytest.param(TIME, {"now": 0.0014}, FULL, id="burst, partial batches: they wait"),
        pytest.param(
            LOAD,
            {"now": 0.0015, "full_at": 0.001},
            PARTIAL,
            id="burst, partial batches: 0.25 ms for each that is open",
        ),
        pytest.param(
            TIME,
            {"now": 0.0799, "open_batches": 320},
            FULL,
            id="burst, partial batches: longer if more are",
        ),
        pytest.param(
            TIME,
            {"now": 0.08, "open_batches": 320},
            PARTIAL,
            id="burst, partial batches: in proportion",
        ),
        pytest.param(
            LOAD,
            {"partial_left": 1},
            PARTIAL,
            id="burst, partial batches: until those have left that were open",
        ),
        pytest.param(
            LOAD,
            {"partial_left": 1, "now": 0.25, "partial_at": 0.249},
            FULL,
            id="burst, partial batches: for 0.25 s",
        ),
        pytest.param(
            TIME,
            {"now": 0.49, "open_batches": 10_000},
            FULL,
            id="burst, partial batches: for half a second",
        ),
        pytest.param(
            TIME,
            {"now": 0.5, "open_batches": 10_000},
            PARTIAL,
            id="burst, partial batches: at most",
        ),
    ],
)
def test_what_a_batch_must_be_to_leave_in_a_burst(
    linger: Linger, state: dict[str, Any], least: Fill
) -> None:
    assert DrainPolicy(linger).drain(burst(**state)) is least


@pytest.mark.parametrize(
    ("linger", "is_burst", "is_scheduled", "least"),
    [
        pytest.param(NONE, False, True, PARTIAL, id="0: as soon as a slot is free"),
        pytest.param(
            NONE,
            True,
            True,
            NEVER,
            id="burst, answers: the scheduled drain takes what an answer lets go",
        ),
        pytest.param(NONE, True, False, PARTIAL, id="burst, answers: if one is scheduled"),
        pytest.param(TIME, False, True, PARTIAL, id="ms: as soon as a slot is free"),
        pytest.param(
            LOAD, False, False, FULL, id="answer: partial batches leave in the next iteration"
        ),
        pytest.param(LOAD, True, True, NEVER, id="answer: and the stricter rule counts"),
    ],
)
def test_what_leaves_at_an_answer(
    linger: Linger, is_burst: bool, is_scheduled: bool, least: Fill
) -> None:
    assert DrainPolicy(linger).answer(is_burst=is_burst, is_scheduled=is_scheduled) is least


@pytest.mark.parametrize("linger", Linger)
def test_a_request_of_a_burst_takes_fewer_batches(linger: Linger) -> None:
    assert DrainPolicy(linger).max_batches == (MAX_BATCHES, 64)


def test_a_drain_of_a_burst_makes_one_request_for_each_broker_if_the_broker_determines_the_next_one() -> (
    None
):
    assert [DrainPolicy(linger).is_by_broker for linger in Linger] == [True, False, False]


def test_a_drain_to_many_brokers_delays_a_burst_no_longer_than_all_open_batches_take() -> None:
    """One request of 64 batches to each of a hundred brokers, and a burst that then fills one partition: it waited for almost a second."""
    state = DrainState()
    state.is_burst, state.open_batches, state.batches, state.now = True, 1, 6400, 0.29
    assert DrainPolicy(Linger.NONE).drain(state) is Fill.NEVER
    state.now = 0.31
    assert DrainPolicy(Linger.NONE).drain(state) is Fill.PARTIAL
