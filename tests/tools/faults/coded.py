"""Holds rows that data cannot express, as functions. Asynchronous ones run in time that jumps."""

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
    """Holds one such row, or one case of it. If other clients play it too, its function gets the client's name."""

    number: int
    name: str
    expected: str
    case: str
    known: str
    function: Callable[..., Any]
    clients: tuple[str, ...] = CLIENTS[:1]

    def run(self, client: str = CLIENTS[0]) -> None:
        """Play the row. A rule that does not hold raises AssertionError."""
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
    """Add a function to the catalogue. `known`: why ours does not pass yet."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        _FOUND.append(Coded(number, name, expected, case, known, function, clients))
        return function

    return enter


def coded_rows() -> list[Coded]:
    """Return all such rows, by number."""
    for path in pathlib.Path(__file__).parent.glob("coded_*.py"):
        importlib.import_module(f"{__package__}.{path.stem}")
    return sorted(_FOUND, key=lambda coded: coded.number)
