"""Tests of `aioproducer.testing.faults`."""

from __future__ import annotations

from aioproducer.testing.faults import Faults, Rule, Target, Verdict

A0, A1, B0 = Target("a", 0), Target("a", 1), Target("b", 0)


def judge(faults: Faults, *targets: Target, api: str = "Produce", broker: int = 1) -> Verdict:
    return faults.judge(api, broker, targets)


def codes(verdict: Verdict) -> dict[Target, int]:
    return {target: rule.code for target, rule in verdict.errors.items()}


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
