"""Runs long work in steps: a generator that yields where other tasks may run, and returns its value.

The driver of the generator decides when to continue. No other code interrupts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["STRIDE", "Steps", "whole"]

T = TypeVar("T")
Steps: TypeAlias = "Generator[None, None, T]"
# Elements of a microsecond or two each between two `yield`s. Work on fewer elements is done in one step.
STRIDE: Final = 128


def whole(steps: Steps[T]) -> T:
    """Run all steps at once and return their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
