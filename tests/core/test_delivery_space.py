"""Exactly once and in order, not by chance: every state that a few batches and a few troubles can lead to (`delivery_space`)."""

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
def test_every_way(sizes: tuple[int, ...], trouble: int, epoch: int, states: int, record_property: Callable[[str, object], None]) -> None:
    """No state breaks a promise, and from each the client comes to rest."""
    seen = explore(World(sizes, trouble, epoch))
    record_property("states", seen.states)
    assert seen.states >= states
    assert seen.rests > 0


def test_without_trouble() -> None:
    """The way of every day: all is written, nothing is in doubt."""
    world = World((2, 1, 1), 0)
    while not world.is_at_rest:
        move = next(move for move, cost in reversed(list(world.moves())) if not cost)
        world.happen(move)
        world.check()
    assert world.fates == {0: True, 1: True, 100: True, 200: True}
    assert [sent.sequence for sent in world.log.batches] == [0, 2, 3]
