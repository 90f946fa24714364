"""A process that may die, stand still or lose an answer at any of its steps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["Death", "Process"]


class Death(BaseException):
    """The process is no more: nothing that runs in it does anything from here on, clean-up included."""


@dataclass
class Process:
    """One Python process.

    Attributes:
        rng: chooses how long steps take, and which answers are lost.
        dies_at: the number of the step at which it dies.
        stands_at: the number of the step at which it stands still, for `stands` seconds.
        loss: the chance that an answer is lost.
        log: takes what happened; None: nothing does.
    """

    rng: random.Random
    dies_at: int = -1
    stands_at: int = -1
    stands: float = 0.0
    loss: float = 0.0
    name: str = ""
    log: list[str] | None = None
    steps: int = field(default=0, init=False)
    is_dead: bool = field(default=False, init=False)

    def here(self) -> None:
        """One step more, unless it is dead or dies."""
        if not self.is_dead:
            self.steps += 1
            self.is_dead = self.steps == self.dies_at
            if self.is_dead:
                self.note("dies")
        if self.is_dead:
            raise Death(self.name)

    async def step(self) -> None:
        """One step more, which takes some time."""
        self.here()
        if self.steps == self.stands_at:
            self.note(f"stands still for {self.stands:.0f} s")
            await asyncio.sleep(self.stands)
        else:
            await asyncio.sleep(self.rng.random() * 0.01)
        if self.is_dead:
            raise Death(self.name)

    async def passed(self) -> None:
        """One step more, which takes no time unless the process stands still at it."""
        self.here()
        if self.steps == self.stands_at:
            self.note(f"stands still for {self.stands:.0f} s")
            await asyncio.sleep(self.stands)
            if self.is_dead:
                raise Death(self.name)

    def loses(self) -> bool:
        """Whether the answer that has just come is lost."""
        return self.loss > 0 and self.rng.random() < self.loss

    def note(self, text: str) -> None:
        """Keep a line for a history that is told."""
        if self.log is not None:
            self.log.append(f"{asyncio.get_running_loop().time():10.3f} {self.name}: {text}")
