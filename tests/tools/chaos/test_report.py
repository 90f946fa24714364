"""Tests of `tests.tools.chaos.report`."""

from __future__ import annotations

from .gaps import Mark
from .judge import kinds
from .report import Judged, Report


def report(*complaints: str, failed: int = 0) -> Report:
    figures = {"records sent": 1_200_000, "read": 1_200_000, **kinds(complaints)}
    marks = [
        Mark("leader-killed", 61_000, 70_000, failed, {"sent": 3.25, "copied": 1.0}, {"sent": 2.0, "copied": 0.5}),
        Mark("leader-killed", 90_000, 99_000, 0, {"sent": 4.5, "copied": 0.75}, {"sent": 1.0, "copied": 0.7}),
        Mark("topic-grown", 75_000, 76_000, 0, {"sent": 0.1}, {"sent": 0.1}),
    ]
    return Report("python -m tests.tools.chaos", "4.3.1", 60_000, 60.0, [Judged("sent", figures, list(complaints))], marks)


def test_a_clean_report() -> None:
    """A clean report has no complaint, and shows the longest gap of each fault in the fault's table line."""
    one = report()
    assert one.is_clean
    killed = ("leader-killed", 2, {"sent": 4.5, "copied": 1.0}, {"sent": 2.0, "copied": 0.7}, 0)
    assert one.by_fault() == [killed, ("topic-grown", 1, {"sent": 0.1}, {"sent": 0.1}, 0)]


def test_what_is_not_clean() -> None:
    """A report with a complaint is not clean, nor is one with a failed record, unless records may fail."""
    one = report("lost: record 7", "lost: record 8", "duplicated: record 9")
    assert not one.is_clean
    assert next(one.complaints()) == "sent: lost: record 7"
    assert (one.judged[0].figures["lost"], one.judged[0].figures["duplicated"], one.judged[0].figures["torn"]) == (2, 1, 0)
    assert not report(failed=1).is_clean
    failing = report(failed=1)
    failing.may_fail = True
    assert failing.is_clean
