"""A fault strikes once, at its step and place; and what a run of cases is judged by."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import pytest

from tests.tools.spark_faults import faults as faults_module
from tests.tools.spark_faults.case import THEIRS, Case, Result
from tests.tools.spark_faults.cases import CASES, MERGED
from tests.tools.spark_faults.count import Counted
from tests.tools.spark_faults.faults import Fault, Injected, strike, struck
from tests.tools.spark_faults.run import _gist

if TYPE_CHECKING:
    from pathlib import Path

RAISE = Fault("rows", 3, "raise", {"partition": 1, "attempt": 0})
HERE = {"batch": 3, "partition": 1, "attempt": 0}


@pytest.mark.parametrize(
    ("step", "where"),
    [("written", HERE), ("rows", {**HERE, "batch": 2}), ("rows", {**HERE, "attempt": 1}), ("rows", {"batch": 3, "partition": 1})],
)
def test_a_fault_elsewhere_does_not_strike(tmp_path: Path, step: str, where: dict[str, int]) -> None:
    """Another step, batch, attempt, or a step that does not say its attempt."""
    strike([RAISE], tmp_path, 0, step, where)
    assert struck(tmp_path) == []


def test_a_fault_strikes_once(tmp_path: Path) -> None:
    """The second attempt passes, also in another process: the folder says that the fault struck."""
    with pytest.raises(Injected, match="rows-3-attempt0-partition1-raise"):
        strike([RAISE], tmp_path, 0, "rows", {**HERE, "rows": 100})
    strike([RAISE], tmp_path, 0, "rows", HERE)
    assert [one.do for one in struck(tmp_path)] == ["raise"]


def test_what_a_fault_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own process, or the driver's JVM; then nothing more happens in the process for long."""
    done: list[object] = []
    monkeypatch.setattr(faults_module.os, "kill", lambda pid, number: done.append((pid, number)))
    monkeypatch.setattr(time, "sleep", done.append)
    own, driver = Fault("start", 0, "kill"), Fault("start", 0, "driver")
    strike([own, driver, dataclasses.replace(own, do="sleep", seconds=4.0)], tmp_path, 77, "start", {"batch": 0})
    assert done == [(faults_module.os.getpid(), 9), (77, 9), 60.0, 4.0]


@pytest.mark.parametrize("case", [*CASES.values(), MERGED], ids=lambda case: case.name)
def test_no_two_faults_of_a_case_have_one_name(case: Case) -> None:
    """The second of them would never strike."""
    for run in case.runs:
        assert len({str(fault) for fault in run.faults}) == len(run.faults)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_seed_makes_other_choices_of_the_same_number(case: Case) -> None:
    """A case in which nothing is chosen at random stays as it is, and the seed 0 is each case itself."""
    assert case.seeded(0) == case
    other = case.seeded(1)
    assert (other == case) is not bool(case.kills or case.poison)
    assert len({*other.poison, *case.poison}) == 2 * len(case.poison)
    if case.kills and other.kills:
        assert other.kills.seed not in {one.kills.seed for one in CASES.values() if one.kills}


def result(case: Case, **found: int) -> Result:
    counted = dataclasses.replace(Counted(records=100, lost=0, doubled=0, strange=0, aborted=0, is_stuck=False), **found)
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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "StreamingQueryException: Job aborted\n  Traceback\naioproducer.spark.decisions.Lost: batch 2 of 'x'\n\tat org",
            "aioproducer.spark.decisions.Lost: batch 2 of 'x'",
        ),
        ("StreamingQueryException: Query [id = a, runId = b] terminated with exception: it crashed\n\tat org", "it crashed"),
        ("the driver died", "the driver died"),
    ],
)
def test_what_a_failure_says(error: str, said: str) -> None:
    """The line of Python's error, where there is one."""
    assert _gist(error) == said
