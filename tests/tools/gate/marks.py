"""Marks where counting begins and ends, for programs under callgrind.py: operators that no other code uses.

    calibrate()                                 # before all other marks
    counted("name", records, call)              # a part of its own: the work of `call()` is counted
    uncounted(call)                             # within it: this call is not counted

Each operator is a function of CPython.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LAYOUT", "calibrate", "counted", "uncounted"]

STEPS: Final = 1000
LAYOUT: Final = "GATE_LAYOUT"
"""The environment variable with the number of classes that the program makes first: see callgrind.py."""
_CLASSES: Final[list[type]] = []


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
    """Make the classes of the layout, and run two parts of the same steps, counted and not counted.

    The reader of the counts checks with the parts that the marks work.
    """
    for _ in range(int(os.environ.get(LAYOUT, "0"))):
        _CLASSES.append(type("Unused", (), {}))
        # CPython numbers a class when an attribute of it is first looked up.
        _CLASSES[-1].mro()
    counted("counted", STEPS, _steps)
    counted("uncounted", STEPS, lambda: uncounted(_steps))


def _steps() -> None:
    for _ in range(STEPS):
        pass
