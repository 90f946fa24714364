"""Tests of `aioproducer.testing.faults`."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.testing.faults import Faults, Hang, Rule, Target, Verdict

A0, A1, B0 = Target("a", 0), Target("a", 1), Target("b", 0)


def judge(faults: Faults, *targets: Target, api: str = "Produce", broker: int = 1) -> Verdict:
    return faults.judge(api, broker, targets)


def codes(verdict: Verdict) -> dict[Target, int]:
    return {target: rule.code for target, rule in verdict.errors.items()}


def test_an_error_falls_on_every_part_so_many_times() -> None:
    """`times` counts requests."""
    faults = Faults()
    faults.add_error(Rule("Produce", "error", times=2), "REQUEST_TIMED_OUT")
    assert codes(judge(faults, A0, B0)) == {A0: 7, B0: 7}
    assert codes(judge(faults, A0)) == {A0: 7}
    assert codes(judge(faults, A0)) == {}


def test_rules_are_used_in_their_order() -> None:
    """First made, first used up; a disconnect waits for the errors before it, an error for the disconnect."""
    faults = Faults()
    faults.add_error(Rule("Produce", "error"), 6)
    faults.add(Rule("Produce", "disconnect", when="after"))
    faults.add_error(Rule("Produce", "error"), 7)
    verdicts = [judge(faults, A0) for _ in range(4)]
    assert [(codes(v), v.disconnect) for v in verdicts] == [
        ({A0: 6}, None),
        ({}, "after"),
        ({A0: 7}, None),
        ({}, None),
    ]


def test_scopes_leave_the_rest_alone() -> None:
    """Api, broker, topic and partition must all fit; what does not fit is not counted."""
    faults = Faults()
    faults.add_error(
        Rule("Produce", "error", broker=2, topic="a", partition=1), "NOT_LEADER_OR_FOLLOWER"
    )
    assert codes(judge(faults, A1, broker=1)) == {}
    assert codes(judge(faults, A1, broker=2, api="Fetch")) == {}
    assert codes(judge(faults, A0, B0, broker=2)) == {}
    assert codes(judge(faults, A0, A1, broker=2)) == {A1: 6}
    faults.add(Rule("Produce", "disconnect", topic="b"))
    assert judge(faults, A0).disconnect is None
    assert judge(faults, A0, B0).disconnect == "before"


def test_two_rules_answer_for_two_partitions_of_one_request() -> None:
    """The first rule answers for the partition that it covers, the second rule for the other one."""
    faults = Faults()
    faults.add_error(Rule("Produce", "error", partition=1), 6)
    faults.add_error(Rule("Produce", "error"), 7)
    assert codes(judge(faults, A0, A1)) == {A0: 7, A1: 6}
    assert faults.unfired() == []


def test_a_request_without_parts_meets_no_error() -> None:
    """An error that could not be answered is kept for a request in which it can; a disconnect needs no part."""
    faults = Faults()
    faults.add_error(Rule("Metadata", "error"), 5)
    assert codes(judge(faults, api="Metadata")) == {}
    assert len(faults.unfired()) == 1
    faults = Faults()
    faults.add(Rule("Metadata", "disconnect"))
    assert judge(faults, api="Metadata").disconnect == "before"


def test_waits_come_on_top_of_errors() -> None:
    """One delay, one hang and one throttling may meet a request that also fails."""
    faults = Faults()
    slow = faults.add(Rule("Produce", "delay", times=None, seconds=0.5))
    stuck = faults.add(Rule("Produce", "hang", times=None, hang=Hang()))
    throttled = faults.add(Rule("Produce", "throttle", seconds=0.2))
    faults.add_error(Rule("Produce", "error"), 6)
    verdict = judge(faults, A0)
    assert (verdict.others, codes(verdict)) == (
        {"delay": slow, "hang": stuck, "throttle": throttled},
        {A0: 6},
    )


def test_a_second_delay_waits_for_the_next_request() -> None:
    """One of a kind falls on a request; the other keeps its count."""
    faults = Faults()
    slow, slower = (faults.add(Rule("Produce", "delay", seconds=seconds)) for seconds in (1, 2))
    assert [judge(faults, A0).others.get("delay") for _ in range(3)] == [slow, slower, None]


@pytest.mark.parametrize(
    ("error", "appends"),
    [
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", True),
        (7, True),
        ("NOT_ENOUGH_REPLICAS", False),
        (999, False),
    ],
)
def test_errors_after_the_append_say_so(*, error: str | int, appends: bool) -> None:
    """Kafka appends before it answers these; a number that Kafka lacks is kept."""
    rule = Faults().add_error(Rule("Produce", "error"), error)
    assert rule.appends is appends
    assert rule.code == (error if isinstance(error, int) else rule.code) != 0


def test_unfired_names_what_did_not_happen() -> None:
    """Counted rules until they are used up, uncounted ones until they fell on something."""
    faults = Faults()
    faults.add(Rule("Produce", "disconnect", times=2, topic="a"))
    faults.add(Rule("Produce", "delay", times=None, seconds=1))
    assert [str(rule) for rule in faults.unfired()] == [
        "disconnect on Produce (topic a, times left 2)",
        "delay on Produce ()",
    ]
    judge(faults, A0)
    assert [str(rule) for rule in faults.unfired()] == [
        "disconnect on Produce (topic a, times left 1)"
    ]
    judge(faults, A0)
    assert faults.unfired() == []


def test_clearing_ends_all_trouble() -> None:
    """A hanging request goes on. No rule is left to fire or to be reported as unfired."""
    faults, hang = Faults(), Hang()
    faults.add(Rule("Produce", "hang", times=None, hang=hang))
    faults.add(Rule("Produce", "disconnect", times=9))
    went: list[int] = []
    hang.hold(lambda: went.append(1))
    faults.clear()
    assert went == [1]
    assert faults.unfired() == []
    assert judge(faults, A0) == Verdict()


@pytest.mark.asyncio
async def test_a_hang_lets_go_in_order_and_holds_no_more() -> None:
    """After the release its rule is spent."""
    faults, hang = Faults(), Hang()
    faults.add(Rule("Produce", "hang", times=None, hang=hang))
    went: list[int] = []
    reached = asyncio.ensure_future(hang.reached())
    for number in range(3):
        assert "hang" in judge(faults, A0).others
        hang.hold(lambda number=number: went.append(number))
    await reached
    assert went == []
    hang.release()
    assert went == [0, 1, 2]
    assert "hang" not in judge(faults, A0).others
