"""Where the records of a topic go: a route has a cell for each partition, and knows which of them a key belongs to.

What is remembered of keys is bounded, and is forgotten with its route. Knows nothing of when a batch may go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.batch import NO_EPOCH
from aioproducer.core.partitioner import murmur2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.core.batch import Batch
    from aioproducer.core.sequence import Numbering

__all__ = ["NOBODY", "Cell", "Placement", "Route"]

_KEYS: Final = 32_768  # keys whose partition a topic remembers
_STRANGERS: Final = 16 * _KEYS  # sends of other keys after which it learns anew
NOBODY: Final = -1  # the leader of a partition that has none


class Cell:
    """One partition's batches, and what keeps them from being drained.

    Attributes:
        open: takes records; the `full` sentinel when there is no open batch, so that the fast way asks nothing.
        lane: the connection that its batches in flight are on; opaque here.
        epoch: of the leader's election, -1 where brokers do not tell.
        numbers: of an idempotent producer's batches; None until the first is drained.
        is_held: nothing is drained until it is released (its transaction does not have it yet).
        one_at_a_time: after a failure or a change of leader, until a batch that went alone succeeds.
        remembered_until: a batch that lives no longer than that was made soon after the one that was drained before it.
    """

    __slots__ = (
        "closed",
        "current",
        "epoch",
        "in_flight",
        "is_held",
        "lane",
        "leader",
        "numbers",
        "one_at_a_time",
        "open",
        "partition",
        "remembered_until",
        "retry_at",
        "route",
        "topic",
    )

    def __init__(self, route: Route, partition: int, leader: int, full: Any) -> None:
        self.route = route
        self.topic = route.topic
        self.partition = partition
        self.leader = leader
        self.epoch = NO_EPOCH
        self.open = full
        self.current: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.in_flight = 0
        self.lane: object = None
        self.numbers: Numbering | None = None
        self.is_held = False
        self.one_at_a_time = False
        self.remembered_until = self.retry_at = 0.0

    def __repr__(self) -> str:
        return f"<Cell {self.topic}-{self.partition} leader {self.leader}: {len(self.closed)} closed, {self.in_flight} in flight>"


class Placement(dict[bytes, "Cell"]):
    """`placement[key]`: the cell of a key. Those of keys seen lately are remembered, which spares their hash.

    TypeError: a key is not bytes.
    """

    __slots__ = ("_cells", "_strangers")

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = cells
        self._strangers = 0

    def __missing__(self, key: bytes) -> Cell:
        cells = self._cells
        cell = cells[(murmur2(key) & 0x7FFFFFFF) % len(cells)]
        if len(self) < _KEYS:
            if type(key) is not bytes:  # a view of the same bytes would be found by them, and keep what it views
                raise TypeError("a key is bytes")
            self[key] = cell
        else:
            self._strangers += 1
            if self._strangers > _STRANGERS:  # other keys are in use by now, or keys hardly repeat
                self.forget()
        return cell

    def forget(self) -> None:
        """Keys belong elsewhere by now, or others are in use."""
        self.clear()
        self._strangers = 0


class Route:
    """Where the records of one topic go, while it has that id and so many partitions: other ones make another route.

    Attributes:
        cells: its partitions.
        gone: partitions that the topic had before it was made anew, with batches that still wait for them.
        by_key: the cell of a key.
        sticky: the cell that records without a key go to until its batch closes.
    """

    __slots__ = ("_available", "by_key", "cells", "gone", "sticky", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.cells: list[Cell] = []
        self.gone: list[Cell] = []
        self.by_key = Placement(self.cells)
        self.sticky: Cell | None = None
        self._available: tuple[int, ...] | None = None

    @property
    def available(self) -> tuple[int, ...]:
        """The partitions that have a leader."""
        if self._available is None:
            self._available = tuple(cell.partition for cell in self.cells if cell.leader >= 0)
        return self._available

    def elected(self, available: Sequence[int] | None = None) -> None:
        """Other partitions than before have a leader; which, if that is known."""
        self._available = None if available is None else tuple(available)

    def another(self, chance: float) -> Cell:
        """A partition for records without a key: one with a leader if there is any, another than the sticky one if there is any.

        Args:
            chance: a random number in [0, 1).
        """
        sticky, led = self.sticky, self.available or range(len(self.cells))
        at = bisect_left(led, sticky.partition) if sticky is not None and len(led) > 1 else len(led)
        is_among = sticky is not None and at < len(led) and led[at] == sticky.partition
        nth = int(chance * (len(led) - is_among))
        return self.cells[led[nth + (is_among and nth >= at)]]
