"""Holds rows that data cannot express, as functions. Asynchronous ones run in time that jumps."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioproducer.testing.jumping import run_jumping

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Coded", "coded_rows", "row"]

_FOUND: list[Coded] = []


@dataclass(frozen=True)
class Coded:
    """Holds one such row, or one case of it."""

    number: int
    name: str
    expected: str
    case: str
    function: Callable[..., Any]

    def run(self) -> list[str]:
        """Play the row. Returns the tasks that it left and what the event loop reported. A rule that does not hold raises AssertionError."""
        if inspect.iscoroutinefunction(self.function):
            return run_jumping(_played(self.function))
        self.function()
        return []


async def _played(function: Callable[[], Any]) -> list[str]:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(str(context["message"])))
    before = asyncio.all_tasks()
    await function()
    for _ in range(5):
        await asyncio.sleep(0)
    return [*told, *map(repr, asyncio.all_tasks() - before)]


def row(number: int, name: str, expected: str, case: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the catalogue."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        _FOUND.append(Coded(number, name, expected, case, function))
        return function

    return enter


def coded_rows() -> list[Coded]:
    """Return all such rows, by number."""
    for path in pathlib.Path(__file__).parent.glob("coded_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    return sorted(_FOUND, key=lambda coded: coded.number)
