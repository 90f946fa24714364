"""Tests of `tests.tools.chaos.gaps`."""

from __future__ import annotations

from .gaps import Mark, gaps


def test_the_longest_gap_of_each_fault() -> None:
    """A mark has the longest gap of one partition, and that of all together, from the last time before the fault to the first after it."""
    silent, other = (1_000, 1_900, 7_000, 7_100, 8_000, 20_000), (1_500, 4_000, 7_050, 8_100, 20_000)
    acks = [*((0, at) for at in silent), *((1, at) for at in other)]
    first, second = Mark("a", 2_000, 7_060), Mark("b", 8_200, 19_000)
    gaps([first, second], "t", acks)
    assert (first.longest, first.silent) == ({"t": 5.1}, {"t": 3.0})
    assert (second.longest, second.silent) == ({"t": 12.0}, {"t": 11.9})


def test_gaps_of_nothing() -> None:
    """A mark has no gap without acknowledgements, or without any after the fault."""
    mark = Mark("a", 2_000, 3_000)
    gaps([mark], "t", [])
    assert (mark.longest, mark.silent) == ({"t": 0.0}, {"t": 0.0})
    gaps([mark], "t", [(0, 1_000)])
    assert (mark.longest, mark.silent) == ({"t": 0.0}, {"t": 0.0})
