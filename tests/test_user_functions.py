"""Tests of `aioproducer.interfaces`."""

from __future__ import annotations

import asyncio
import concurrent.futures
from functools import partial
from typing import Any

import pytest

from aioproducer.interfaces import USER_FAILURES, is_coroutine_function


async def awaited(*_: Any) -> None:
    """A coroutine function."""


class Awaited:
    """Objects whose calls are awaited."""

    async def __call__(self) -> None:
        """Is called."""


@pytest.mark.parametrize(
    "function",
    [awaited, partial(partial(awaited, 1), 2), Awaited(), partial(Awaited()), Awaited().__call__],
)
def test_a_call_that_must_be_awaited(function: Any) -> None:
    assert is_coroutine_function(function)


@pytest.mark.parametrize("function", [str, partial(str), Awaited, lambda: awaited, None])
def test_a_call_that_returns_its_result(function: Any) -> None:
    assert not is_coroutine_function(function)


@pytest.mark.parametrize(
    "error", [ValueError, StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError]
)
def test_failures_of_a_function(error: type[BaseException]) -> None:
    assert issubclass(error, USER_FAILURES)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_that_end_the_program_are_no_failures(error: type[BaseException]) -> None:
    assert not issubclass(error, USER_FAILURES)
