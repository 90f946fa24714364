"""Tests of the input and output of a client's process, and of the check against the log."""

from __future__ import annotations

import sys

import pytest

from tests.tools.benchmarks.processes import RunFailed, output, reason
from tests.tools.benchmarks.task import Settings, Task, Told, measure

TASK = Task(
    client="aioproducer",
    way="stream",
    bootstrap_servers="localhost:1",
    topics=["t"],
    partitions=2,
    records=4,
    warm_up=1,
    settings=Settings(linger_ms=5, own={"a.b": 1}),
)
STARTS = [10, 20]


def told(counts: list[int], offsets: int | None) -> Told:
    return Told(records=4, seconds=2.0, cpu_seconds=1.0, peak_mib=1.0, growth_mib=0.0, counts=counts, offsets=offsets)


def test_both_travel_as_json() -> None:
    assert Task.from_json(TASK.to_json()) == TASK
    one = told([3, 2], 74)
    assert Told.from_json(one.to_json()) == one


def test_figures_are_those_of_the_measured_records() -> None:
    one = measure("name", TASK, told([3, 2], 10 + 11 + 12 + 20 + 21), STARTS, [13, 22])
    assert (one.rate, one.cpu_us, one.acknowledged, one.workload) == (2.0, 250_000.0, 4, "name")


@pytest.mark.parametrize(
    ("counts", "offsets", "ends", "is_sound"),
    [
        pytest.param([3, 2], 74, [13, 22], True, id="just these"),
        pytest.param([], None, [13, 22], True, id="the client was told nothing, and the log has them"),
        pytest.param([3, 2], 75, [13, 22], False, id="an offset that is not there"),
        pytest.param([2, 3], 74, [13, 22], False, id="another partition"),
        pytest.param([3, 2], 74, [13, 23], False, id="one more in the log"),
        pytest.param([], None, [13, 21], False, id="one lost, of which nobody was told"),
        pytest.param([], None, [14, 22], False, id="one doubled, of which nobody was told"),
        pytest.param([3, 1], 53, [13, 21], False, id="one was not sent"),
        pytest.param([3, 1], 53, [13, 22], False, id="one was not acknowledged"),
    ],
)
def test_a_run_is_proved_by_the_log(counts: list[int], offsets: int | None, ends: list[int], is_sound: bool) -> None:
    """A run is right if each partition's offsets begin at the log's old end, have no gap or duplicate, and match the sent number."""
    assert measure("name", TASK, told(counts, offsets), STARTS, ends).is_sound == is_sound


GROUP = b"""  + Exception Group Traceback (most recent call last):
    | aiokafka.errors.KafkaTimeoutError: too late
    +---------------- ... ----------------
    | and 5273 more exceptions
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("complaints", "expected"),
    [
        (b'Traceback\n  File "x.py", line 1\nValueError: no\n', "ValueError: no"),
        (GROUP, "aiokafka.errors.KafkaTimeoutError: too late"),
        (b"warning\ndial tcp: refused\n\n", "dial tcp: refused"),
        (b"", ""),
        (b"x" * 1_000, "x" * 200),
    ],
    ids=["an exception", "a group of them", "no Python", "nothing", "too much"],
)
def test_what_a_process_died_of(complaints: bytes, expected: str) -> None:
    assert reason(complaints) == expected


@pytest.mark.asyncio
async def test_a_process_that_fails_says_why() -> None:
    """The error of a failed process has its reason. The output of a process that succeeds is read to the end."""
    assert await output("told", sys.executable, "-c", "print(input())") == b"told\n"
    with pytest.raises(RunFailed, match=r"^status 1: ValueError: no$"):
        await output("", sys.executable, "-c", "raise ValueError('no')")
