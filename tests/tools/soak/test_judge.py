"""Tests of `tests.tools.soak.judge`: a flat run is clean, and each thing that grows, fails or is lost is named."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.tools.soak.judge import Sample, complaints

if TYPE_CHECKING:
    from collections.abc import Callable

RATE = 50_000
MIB = 2**20


def run(
    change: Callable[[Sample], Sample] = lambda sample: sample, seconds: int = 1800
) -> list[Sample]:
    """Return a sample every 5 s. The process grows by 40 MiB within its first 60 s, and then varies by 2 MiB."""
    samples = []
    for at in range(5, seconds + 1, 5):
        rss = 60 * MIB + min(at, 60) * 40 * MIB // 60 + (at // 5 % 3) * MIB
        records = RATE * at
        samples.append(Sample(at, rss, 11, 2, records, records - 300, 0))
    samples[-1] = dataclasses.replace(samples[-1], tasks=6, acked=samples[-1].sent)
    return [change(sample) for sample in samples]


def written(samples: list[Sample]) -> int:
    return samples[-1].acked


def test_a_flat_run_is_clean() -> None:
    """The judge does not count the memory of the first minutes as growth."""
    samples = run()
    assert complaints(samples, RATE, written(samples)) == []


@pytest.mark.parametrize(
    ("bytes_an_hour", "found"),
    [
        (10 * MIB, []),
        (40 * MIB, ["memory: +16.7 MiB in 1500 s, at most +8.0 MiB"]),
        (-40 * MIB, []),
    ],
)
def test_memory_is_judged_by_its_slope(bytes_an_hour: int, found: list[str]) -> None:
    """The judge finds a leak of 57 KiB between two samples in half an hour, although the process varies by more."""
    samples = run(
        lambda sample: dataclasses.replace(
            sample, rss=sample.rss + int(sample.at * bytes_an_hour / 3600)
        )
    )
    assert complaints(samples, RATE, written(samples)) == found


def test_one_peak_is_no_slope() -> None:
    """The judge accepts one peak: a backlog after a cut holds memory for a while."""
    samples = run(
        lambda sample: dataclasses.replace(
            sample, rss=sample.rss + 60 * MIB * (900 <= sample.at < 920)
        )
    )
    assert complaints(samples, RATE, written(samples)) == []


@pytest.mark.parametrize("name", ["tasks", "sockets"])
def test_one_task_or_socket_more_is_noticed(name: str) -> None:
    """The judge reports one more task or socket in most samples of the last third. In a few samples it is a new connection's."""
    for begin, found in ((1700, []), (1400, [name])):
        samples = run(
            lambda sample, begin=begin: dataclasses.replace(
                sample, **{name: getattr(sample, name) + (begin <= sample.at < 1800)}
            )
        )
        assert [
            one.partition(":")[0] for one in complaints(samples, RATE, written(samples))
        ] == found


@pytest.mark.parametrize(
    ("changes", "more", "found"),
    [
        ({}, -1, ["lost: 90,000,000 records were acknowledged, 89,999,999 are in the topic"]),
        ({}, 1, ["doubled: 90,000,000 records were acknowledged, 90,000,001 are in the topic"]),
        ({"acked": 89_999_998, "failed": 2}, 0, ["failed: 2 records"]),
        ({"acked": 89_999_995}, 0, ["never ended: 5 of 90,000,000 records"]),
        (
            {"sent": 80_000_000, "acked": 80_000_000},
            0,
            ["rate: 44,444 records a second were acknowledged, 50,000 were wanted"],
        ),
    ],
)
def test_what_becomes_of_records(changes: dict[str, int], more: int, found: list[str]) -> None:
    """The judge checks the records by the last sample, which is from after the flush, and by the topic's end offsets."""
    samples = run()
    samples[-1] = dataclasses.replace(samples[-1], **changes)
    assert complaints(samples, RATE, written(samples) + more) == found


def test_a_run_that_is_too_short_is_no_verdict() -> None:
    """The judge gives no verdict on a run that is too short, as the slope of a few samples proves nothing."""
    assert complaints([], RATE, 0) == [
        "too short: 0 samples behind the warm-up, at least 12 are needed"
    ]
    samples = run(seconds=65)
    assert complaints(samples, RATE, written(samples)) == [
        "too short: 11 samples behind the warm-up, at least 12 are needed"
    ]
