"""Marks where counting begins and ends, for programs under callgrind.py: operators that no other code uses.

    calibrate()                                 # before all other marks
    counted("name", records, call)              # a part of its own: the work of `call()` is counted
    uncounted(call)                             # within it: this call is not counted

Each operator is a function of CPython.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["calibrate", "counted", "uncounted"]

STEPS: Final = 1000


class _Mark:
    """Provides the operators: `+mark` begins a part, `mark @ call` counts a call, and within it `mark @= call` does not count one."""

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
    """Count a call, and print its name and records on standard output."""
    _ = +_MARK
    _ = _MARK @ call
    print(json.dumps([name, records]), flush=True)


def uncounted(call: Callable[[], object]) -> None:
    """Do not count this call. Outside a counted call it is an ordinary call."""
    mark = _MARK
    if mark.is_on:
        mark @= call
    else:
        call()


def calibrate() -> None:
    """Run two parts of the same steps, counted and not counted: the reader of the counts checks with them that the marks work."""
    counted("counted", STEPS, _steps)
    counted("uncounted", STEPS, lambda: uncounted(_steps))


def _steps() -> None:
    for _ in range(STEPS):
        pass
