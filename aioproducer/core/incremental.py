"""Work that is too long for one turn of a loop, as a generator: each `yield` is a place where others may run, and `return` gives its value.

Who drives it decides how long to go on; nothing else interrupts it. Knows nothing of what the work is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["STRIDE", "Steps", "whole"]

T = TypeVar("T")
Steps: TypeAlias = "Generator[None, None, T]"
STRIDE: Final = 128  # elements of a microsecond or two between one `yield` and the next; what has fewer is done in one step


def whole(steps: Steps[T]) -> T:
    """All of it at once; what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
