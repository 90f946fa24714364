"""Tests exactly-once and order in every state that a few batches and a few faults can reach (`delivery_space`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delivery_space import World, explore

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("sizes", "trouble", "epoch", "states"),
    [
        ((2, 1, 1), 3, 0, 25_000),
        ((2, 2, 2), 2, 0, 4_000),  # each may be cut
        ((2, 1, 1), 2, 32_766, 3_000),  # the second bump needs another id
        ((4, 1), 2, 0, 1_000),
    ],
    ids=["three batches", "all of several records", "the end of the epochs", "a batch cut twice"],
)
def test_every_way(
    sizes: tuple[int, ...],
    trouble: int,
    epoch: int,
    states: int,
    record_property: Callable[[str, object], None],
) -> None:
    """No state breaks a promise, and from each state the client can end all its batches."""
    seen = explore(World(sizes, trouble, epoch))
    record_property("states", seen.states)
    assert seen.states >= states
    assert seen.rests > 0


def test_without_trouble() -> None:
    """Without faults the brokers write all batches, and the outcome of none is uncertain."""
    world = World((2, 1, 1), 0)
    while not world.is_at_rest:
        move = next(move for move, cost in reversed(list(world.moves())) if not cost)
        world.happen(move)
        world.check()
    assert world.fates == {0: True, 1: True, 100: True, 200: True}
    assert [sent.sequence for sent in world.log.batches] == [0, 2, 3]
