"""Tests of `aioproducer.engine.append.loop_budget`: when a task that sends without a pause must wait for the event loop."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.engine.append.loop_budget import MAX_SLICE_RECORDS, LoopBudget
from aioproducer.engine.chosen_build import SLICE_BYTES, SLICE_RECORDS, FastPath
from tests.engine.append.parts import Clock


class Sends:
    """A task that appends records by the fast path, each of which takes `seconds`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.path = FastPath(lambda: 1, None)  # type: ignore[arg-type]
        self.budget = LoopBudget(self.clock, self.path)  # type: ignore[arg-type]
        self.budget.new(0.0)

    def until_it_must_pause(self, seconds: float, most: int = 10_000) -> int:
        """Append records as `FastPath.append` does. Returns their number."""
        for number in range(most):
            self.path.taken += 1
            if self.path.taken > SLICE_RECORDS and not self.budget.goes_on():
                return number
            self.clock.now += seconds
        return most


@pytest.mark.parametrize(
    ("seconds", "tasks", "records"),
    [
        (0.0, 1, MAX_SLICE_RECORDS),
        (1e-6, 1, MAX_SLICE_RECORDS),
        (10e-6, 1, 100),
        (1e-3, 1, 16),
        (0.0, 4, MAX_SLICE_RECORDS // 4),
        (10e-6, 4, 25),
        (0.0, 100, 128),
    ],
)
def test_a_slice_has_so_many_records(seconds: float, tasks: int, records: int) -> None:
    """512 records, or 1 ms, computing included: the clock is read after 16. Tasks that waited together share them, down to 128 records."""
    sends = Sends()
    sends.budget.share(tasks)
    assert sends.until_it_must_pause(seconds) == pytest.approx(records, abs=2)
    assert sends.until_it_must_pause(seconds) == 0, "it must pause still"


def test_a_slow_task_looks_at_the_clock_sooner_in_its_next_slice() -> None:
    """After as many records as its last slice should have had; a quick slice undoes that."""
    sends = Sends()
    counts = []
    for seconds in (0.5e-3, 0.5e-3, 0.0, 0.0):
        counts.append(sends.until_it_must_pause(seconds))
        sends.budget.new(sends.clock.now)
    assert counts == [16, 2, MAX_SLICE_RECORDS, MAX_SLICE_RECORDS]


def test_a_slice_ends_by_its_bytes_too() -> None:
    sends = Sends()
    sends.budget.spent = SLICE_BYTES
    assert not sends.budget.is_spent
    sends.budget.spent += 1
    assert sends.budget.is_spent
    sends.budget.share(2)
    assert not sends.budget.is_spent, "the bytes of a slice are those since it began"
    sends.budget.end()
    assert sends.budget.is_spent


def test_a_drain_interval_is_full_by_bytes_or_slices() -> None:
    sends = Sends()
    for goes, spent, is_full in ((3, SLICE_BYTES, False), (4, 0, True), (0, SLICE_BYTES + 1, True)):
        sends.budget.slices, sends.budget.spent = goes, spent
        assert sends.budget.is_full is is_full
    sends.budget.new(0.0)
    assert (sends.budget.slices, sends.budget.spent, sends.budget.is_full) == (0, 0, False)


def test_a_caller_that_cannot_wait_has_four_slices() -> None:
    """Then none, until the next drain interval; and none once the interval's bytes are used up."""
    sends = Sends()
    taken = 0
    for may in (True, True, True, False):
        taken += sends.until_it_must_pause(0.0)
        assert sends.budget.may_go_on() is may
    assert taken == 4 * MAX_SLICE_RECORDS
    sends.budget.new(0.0)
    sends.budget.spent = SLICE_BYTES + 1
    assert not sends.budget.may_go_on()


@pytest.mark.asyncio
async def test_another_task_has_a_slice_of_its_own() -> None:
    """A task that has sent a whole slice must pause; the next task does not have to. A cancelled one is known as such."""
    loop = asyncio.get_running_loop()
    path = FastPath(lambda: 1, None)  # type: ignore[arg-type]
    budget = LoopBudget(loop, path)
    answers = []

    async def send(*, is_cancelled: bool = False) -> None:
        budget.must_pause()
        budget.spent += SLICE_BYTES + 1
        path.taken += 1
        task = asyncio.current_task()
        assert task is not None
        if is_cancelled:
            task.cancel()
        answers.append((budget.must_pause(), budget.taker_is_cancelled))

    for is_cancelled in (False, False, True):
        await asyncio.wait([asyncio.create_task(send(is_cancelled=is_cancelled))])
    assert answers == [(True, False), (True, False), (True, True)]
    budget.must_pause()
    assert not budget.taker_is_cancelled
