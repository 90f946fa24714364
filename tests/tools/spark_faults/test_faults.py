"""A fault strikes once, at its step and place; and what a run of cases is judged by."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.tools.spark_faults.case import THEIRS, Case, Result
from tests.tools.spark_faults.cases import CASES, MERGED
from tests.tools.spark_faults.count import Counted
from tests.tools.spark_faults.faults import Fault, Injected, strike, struck

if TYPE_CHECKING:
    from pathlib import Path

RAISE = Fault("rows", 3, "raise", {"partition": 1, "attempt": 0})
HERE = {"batch": 3, "partition": 1, "attempt": 0}


@pytest.mark.parametrize(
    ("step", "where"),
    [
        ("written", HERE),
        ("rows", {**HERE, "batch": 2}),
        ("rows", {**HERE, "attempt": 1}),
        ("rows", {"batch": 3, "partition": 1}),
    ],
)
def test_a_fault_elsewhere_does_not_strike(
    tmp_path: Path, step: str, where: dict[str, int]
) -> None:
    """Another step, batch, attempt, or a step that does not say its attempt."""
    strike([RAISE], tmp_path, 0, step, where)
    assert struck(tmp_path) == []


def test_a_fault_strikes_once(tmp_path: Path) -> None:
    """The second attempt passes, also in another process: the folder says that the fault struck."""
    with pytest.raises(Injected, match="rows-3-attempt0-partition1-raise"):
        strike([RAISE], tmp_path, 0, "rows", {**HERE, "rows": 100})
    strike([RAISE], tmp_path, 0, "rows", HERE)
    assert [one.do for one in struck(tmp_path)] == ["raise"]


@pytest.mark.parametrize("case", [*CASES.values(), MERGED], ids=lambda case: case.name)
def test_no_two_faults_of_a_case_have_one_name(case: Case) -> None:
    """The second of them would never strike."""
    for run in case.runs:
        assert len({str(fault) for fault in run.faults}) == len(run.faults)


def result(case: Case, **found: int) -> Result:
    counted = dataclasses.replace(
        Counted(records=100, lost=0, doubled=0, strange=0, aborted=0, is_stuck=False), **found
    )
    return Result(case=case, struck={"raise": 2, "driver": 1}, runs=2, counted=counted, seconds=1.0)


ONCE = Case(name="once")
JVM = Case(name="jvm", format=THEIRS, options={})


@pytest.mark.parametrize(
    ("found", "is_right"),
    [
        (result(ONCE), True),
        (result(ONCE, aborted=5), True),
        (result(ONCE, doubled=1), False),
        (result(ONCE, lost=1), False),
        (result(ONCE, strange=1), False),
        (result(ONCE, is_stuck=True), False),
        (result(JVM, doubled=7), True),
        (result(JVM, lost=1), False),
        (dataclasses.replace(result(ONCE), complaints=("run 1 ended well",)), False),
    ],
)
def test_when_a_case_is_right(found: Result, is_right: bool) -> None:
    """A doubled row breaks exactly once alone, a lost one every promise."""
    assert found.is_right is is_right
