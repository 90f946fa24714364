"""Tests of `aioproducer.core.routes`: where records without a key go next. Keys are tested with the accumulator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.metadata import NO_ID
from aioproducer.core.routes import NOBODY, Cell, Route

CHANCES = [number / 100 for number in range(100)]


def made(leaders: list[int], sticky: int | None) -> Route:
    route = Route("t", NO_ID)
    route.cells += [Cell(route, partition, leader, None) for partition, leader in enumerate(leaders)]
    route.sticky = None if sticky is None else route.cells[sticky]
    return route


@pytest.mark.parametrize(
    ("leaders", "sticky", "chosen"),
    [
        ([1, 1, 1], None, {0, 1, 2}),
        ([1, 1, 1], 0, {1, 2}),
        ([1, 1, 1], 1, {0, 2}),
        ([1, 1, 1], 2, {0, 1}),
        ([1], 0, {0}),
        ([1, NOBODY, 1], None, {0, 2}),
        ([1, NOBODY, 1], 0, {2}),
        ([1, NOBODY, 1], 1, {0, 2}),
        ([NOBODY, 1], 1, {1}),
        ([NOBODY, 1], 0, {1}),
        ([NOBODY, NOBODY], 0, {1}),
        ([NOBODY], 0, {0}),
    ],
)
def test_records_without_a_key_go_to_another_partition_that_has_a_leader(leaders: list[int], sticky: int | None, chosen: set[int]) -> None:
    """To the same one, or to one without a leader, only if there is no other."""
    route = made(leaders, sticky)
    assert {route.another(chance).partition for chance in CHANCES} == chosen


@given(leaders=st.lists(st.sampled_from([NOBODY, 1, 2]), min_size=1, max_size=8), data=st.data())
def test_all_others_are_as_likely(leaders: list[int], data: st.DataObject) -> None:
    """Each of them comes as often, whatever partition it is."""
    sticky = data.draw(st.none() | st.integers(0, len(leaders) - 1))
    route = made(leaders, sticky)
    led = [cell for cell in route.cells if cell.leader >= 0] or route.cells
    others = [cell for cell in led if cell is not route.sticky] or led
    many = len(others) * 10
    chosen = [route.another((number + 0.5) / many).partition for number in range(many)]
    assert sorted(chosen) == sorted(cell.partition for cell in others for _ in range(10))


def test_leaders_that_were_elected_are_noticed() -> None:
    """As they are told, or looked at anew."""
    route = made([1, NOBODY, 1], None)
    assert route.available == (0, 2)
    route.cells[1].leader = 5
    assert route.available == (0, 2)
    route.elected()
    assert route.available == (0, 1, 2)
    route.elected([1, 2])
    assert route.available == (1, 2)
