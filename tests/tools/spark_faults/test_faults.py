"""What a run of cases is judged by."""

from __future__ import annotations

import dataclasses

import pytest

from tests.tools.spark_faults.case import THEIRS, Case, Result
from tests.tools.spark_faults.count import Counted


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
