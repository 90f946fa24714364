"""Tests of `tests.tools.chaos.report`, and of the names of faults."""

from __future__ import annotations

import pytest

from .faults import FAULTS, java_hash
from .gaps import Mark
from .judge import kinds
from .report import Judged, Report, page
from .run import Chosen
from .stage import Settings


def report(*complaints: str, failed: int = 0) -> Report:
    figures = {"records sent": 1_200_000, "read": 1_200_000, **kinds(complaints)}
    marks = [
        Mark("leader-killed", 61_000, 70_000, failed, {"sent": 3.25, "copied": 1.0}, {"sent": 2.0, "copied": 0.5}),
        Mark("leader-killed", 90_000, 99_000, 0, {"sent": 4.5, "copied": 0.75}, {"sent": 1.0, "copied": 0.7}),
        Mark("topic-grown", 75_000, 76_000, 0, {"sent": 0.1}, {"sent": 0.1}),
    ]
    return Report("python -m tests.tools.chaos", "4.3.1", 60_000, 60.0, [Judged("sent", figures, list(complaints), [], [5, 0, 7])], marks)


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


def test_the_page() -> None:
    """The page has the command, every figure and every fault."""
    text = page(report())
    assert "    python -m tests.tools.chaos --page" in text
    assert "| records sent | 1,200,000 |" in text
    assert "| leader-killed | 26 | kill -9 of a partition's leader" in text
    assert "| 2 | 4.5 | 2.0 | 0.7 | 0 |" in text


def test_faults_have_names_of_their_own() -> None:
    """Each fault has a name of its own, and the table has the numbers of all faults that only real nodes can show."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {26, 29, 30, 37} <= {row for fault in FAULTS for row in fault.rows}


@pytest.mark.parametrize(("text", "value"), [("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31))])
def test_javas_hash(text: str, value: int) -> None:
    """The function returns the same values as Java's `String.hashCode`."""
    assert java_hash(text) == value


def test_the_command_of_a_run() -> None:
    """The command has each option that differs from its default, so that it repeats the run."""
    assert Chosen().command == "python -m tests.tools.chaos --minutes 20 --seed 1"
    some = Chosen(2.5, FAULTS[:1], 7, settings=Settings(throughput=500, is_copying=False))
    assert some.command == "python -m tests.tools.chaos --minutes 2.5 --seed 7 --only leader-killed --throughput 500 --no-copy"
