"""Where counting begins and ends, for the programs that callgrind.py runs: operators that nobody else uses, each a function of CPython.

    calibrate()                                 # first of all
    counted("name", records, call)              # a part of its own: what `call()` does is counted
    uncounted(call)                             # within it: this is not

Knows nothing of what is counted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["calibrate", "counted", "uncounted"]

STEPS: Final = 1000


class _Mark:
    """`+mark` begins a part, `mark @ call` turns counting over for a call, and within it `mark @= call` turns it back."""

    is_on = False

    def __pos__(self) -> Self:
        return self

    def __matmul__(self, call: Callable[[], object]) -> Self:
        self.is_on = True
        call()
        self.is_on = False
        return self

    def __imatmul__(self, call: Callable[[], object]) -> Self:
        call()
        return self


_MARK: Final = _Mark()


def counted(name: str, records: int, call: Callable[[], object]) -> None:
    """Count a call, and tell so on standard output."""
    _ = +_MARK
    _ = _MARK @ call
    print(json.dumps([name, records]), flush=True)


def uncounted(call: Callable[[], object]) -> None:
    """Do not count this call; where nothing is counted it is an ordinary one."""
    mark = _MARK
    if mark.is_on:
        mark @= call
    else:
        call()


def calibrate() -> None:
    """Two parts of the same steps, counted and not: whoever reads the counts sees whether the marks work."""
    counted("counted", STEPS, _steps)
    counted("uncounted", STEPS, lambda: uncounted(_steps))


def _steps() -> None:
    for _ in range(STEPS):
        pass
