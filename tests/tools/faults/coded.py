"""Rows that data cannot say, as functions with the number of their row. An asynchronous one runs in time that jumps."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioproducer.testing.jumping import run_jumping

from .row import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Coded", "coded_rows", "row"]

_FOUND: list[Coded] = []


@dataclass(frozen=True)
class Coded:
    """One such row, or one case of it. Where it is put to others than ours too, its function is told to whom."""

    number: int
    name: str
    expected: str
    case: str
    known: str
    function: Callable[..., Any]
    clients: tuple[str, ...] = CLIENTS[:1]

    def run(self, client: str = CLIENTS[0]) -> None:
        """Play it. What does not hold is an AssertionError."""
        if len(self.clients) > 1:
            self.function(client)
        elif inspect.iscoroutinefunction(self.function):
            run_jumping(_with_nothing_left(self.function))
        else:
            self.function()


async def _with_nothing_left(function: Callable[[], Any]) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(str(context["message"])))
    before = asyncio.all_tasks()
    await function()
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert told == []


def row(
    number: int, name: str, expected: str, case: str = "", *, known: str = "", clients: tuple[str, ...] = CLIENTS[:1]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function in the catalogue. `known`: why ours does not pass yet."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        _FOUND.append(Coded(number, name, expected, case, known, function, clients))
        return function

    return enter


def coded_rows() -> list[Coded]:
    """All of them, by number."""
    for path in pathlib.Path(__file__).parent.glob("coded_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    return sorted(_FOUND, key=lambda coded: coded.number)
