"""Draws from a seed the batches, the way in which each run spreads their rows over tasks, and its faults."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Fault", "Layout", "Life", "Plan", "Row", "rows_of"]

MAX_TASKS = 4
_LONG = (5.0, 90.0, 200.0)
"""Seconds of standing still: shorter than a transaction's time-out, and longer than the driver's and the tasks'."""


class Row(NamedTuple):
    """One row of the source."""

    batch: int
    number: int

    def checksum(self) -> int:
        return (self.batch * 1_000_003 + self.number + 1) * 0x9E3779B97F4A7C15 % 2**64


class Layout(NamedTuple):
    """How rows are spread over tasks: equal counts do not mean equal rows."""

    tasks: int
    factor: int
    shift: int

    def rows(self, task: int, rows: list[Row]) -> list[Row]:
        return [row for row in rows if (row.number * self.factor + self.shift) % self.tasks == task]


class Fault(NamedTuple):
    """What one process meets. Steps are counted from its start."""

    dies_at: int = -1
    stands_at: int = -1
    stands: float = 0.0
    loss: float = 0.0

    @classmethod
    def chosen(cls, rng: random.Random, chance: float, steps: int) -> Fault:
        if rng.random() >= chance:
            return cls()
        kind = rng.random()
        if kind < 0.45:
            return cls(dies_at=rng.randint(1, steps))
        if kind < 0.8:
            return cls(stands_at=rng.randint(1, steps), stands=rng.choice(_LONG))
        return cls(loss=0.3)


NONE = Fault()


@dataclass(frozen=True)
class Life:
    """One run of the query: from its start until it dies, fails or is done.

    Attributes:
        layout: of its tasks.
        driver: what the driver's commit meets.
        aborts: what its abort meets.
        attempts: what each attempt of each task meets, by (task, attempt).
        twins: the tasks of which a second attempt begins beside the first.
        dies_after: seconds until the driver dies while its tasks run; 0: it does not.
        patience: seconds until another one is started beside it.
        pause: seconds before the next one starts.
    """

    layout: Layout
    driver: Fault = NONE
    aborts: Fault = NONE
    attempts: dict[tuple[int, int], Fault] | None = None
    twins: frozenset[int] = frozenset()
    dies_after: float = 0.0
    patience: float = 400.0
    pause: float = 1.0


@dataclass(frozen=True)
class Plan:
    """One history. All of it follows from the seed."""

    seed: int
    version: int
    batches: int
    rows: int
    marker_delay: float
    rotates: float
    chunk: int
    max_ends: int
    lives: tuple[Life, ...]

    @classmethod
    def of(cls, seed: int) -> Plan:
        rng = random.Random(seed)
        usual = layout_of(rng)
        lives = tuple(
            _life(rng, usual if rng.random() < 0.6 else layout_of(rng))
            for _ in range(rng.randint(1, 4))
        )
        return cls(
            seed=seed,
            version=rng.choice((1, 2, 2)),
            batches=rng.choice((1, 1, 2)),
            rows=rng.randint(1, 6),
            marker_delay=rng.choice((0.0, 0.0, 0.05, 2.0)),
            rotates=rng.choice((0.0, 0.0, 0.2)),
            chunk=rng.choice((24, 40, 3000)),
            max_ends=rng.choice((1, 2, 64)),
            lives=lives,
        )


def rows_of(batch: int, count: int) -> list[Row]:
    return [Row(batch, number) for number in range(count)]


def layout_of(rng: random.Random) -> Layout:
    return Layout(rng.randint(1, MAX_TASKS), rng.choice((1, 1, 3)), rng.randint(0, 3))


def _life(rng: random.Random, layout: Layout) -> Life:
    attempts = {
        (task, attempt): Fault.chosen(rng, 0.25, 14)
        for task in range(layout.tasks)
        for attempt in range(3)
    }
    return Life(
        layout,
        driver=Fault.chosen(rng, 0.8, 24),
        aborts=Fault.chosen(rng, 0.3, 6),
        attempts={key: fault for key, fault in attempts.items() if fault != NONE},
        twins=frozenset(task for task in range(layout.tasks) if rng.random() < 0.1),
        dies_after=rng.random() * 0.3 if rng.random() < 0.1 else 0.0,
        patience=rng.choice((0.1, 3.0, 30.0, 400.0)),
        pause=rng.choice((0.01, 1.0, 100.0)),
    )
