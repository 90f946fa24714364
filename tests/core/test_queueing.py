"""How many requests stand in line at a broker, as its answers tell."""

from __future__ import annotations

import pytest

from aioproducer.core.queueing import Queueing


def told(*answers: tuple[float, float]) -> Queueing:
    """After answers: when, and how long they took, in seconds."""
    queueing = Queueing()
    for now, seconds in answers:
        queueing.answered(now, seconds)
    return queueing


def test_nothing_is_known_before_the_first_answer() -> None:
    assert Queueing().waiting(5) == 0.0


@pytest.mark.parametrize("served", [0.001, 0.020])
@pytest.mark.parametrize("in_flight", [1, 3, 5])
def test_a_broker_that_serves_one_at_a_time_has_all_but_one_in_line(served: float, in_flight: int) -> None:
    """An answer takes as long as those before it, and its own."""
    assert told((1.0, served), (2.0, served * in_flight)).waiting(in_flight) == pytest.approx(in_flight - 1, rel=0.05)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_who_is_far_has_none_in_line(in_flight: int) -> None:
    """Each answer takes the round trip, however many are on the way."""
    assert told((1.0, 0.1), (2.0, 0.1), (3.0, 0.103)).waiting(in_flight) < 0.2


def test_answers_of_a_fraction_of_a_millisecond_are_no_line() -> None:
    """Ten times as long as the quickest, and still nothing that anybody waits for."""
    assert told((1.0, 0.00002), (2.0, 0.0), (3.0, 0.0004)).waiting(5) == 0.0


def test_a_way_that_became_longer_is_no_line_for_ever() -> None:
    """From 1 to 50 ms, as by another route: that is taken for a line for some minutes at most."""
    queueing = told((0.0, 0.001), (0.1, 0.05))
    assert queueing.waiting(5) > 4.5
    for number in range(1, 600):
        queueing.answered(number, 0.05)
    assert queueing.waiting(5) == 0.0


def test_the_quickest_is_forgotten_slowly() -> None:
    """A minute beside a line does not hide it."""
    queueing = told((0.0, 0.001))
    for number in range(1, 6_000):
        queueing.answered(number / 100, 0.02)
    assert queueing.waiting(5) > 4
