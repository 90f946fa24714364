"""Tests of `aioproducer.testing.jumping`."""

from __future__ import annotations

import asyncio
import pathlib
import re
import textwrap
import time
from typing import Any

import pytest

from aioproducer.testing.jumping import JumpingLoop, run_jumping


def test_hours_take_no_time() -> None:
    """The loop's clock moves to each timer, in their order."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        rang: list[float] = []

        async def ring(after: float) -> None:
            await asyncio.sleep(after)
            rang.append(loop.time() - began)

        await asyncio.gather(ring(7200), ring(60), ring(3600))
        return rang

    began = time.monotonic()
    assert run_jumping(main()) == [60, 3600, 7200]
    assert time.monotonic() - began < 5


def test_time_stands_while_there_is_something_to_do() -> None:
    """A thousand event-loop iterations take no time."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(0.001, lambda: None)
        began = loop.time()
        for _ in range(1000):
            await asyncio.sleep(0)
        return loop.time() - began

    assert run_jumping(main()) == 0


def test_time_can_pass_while_nothing_runs() -> None:
    """Time passes as in a process that was stopped: timers that came due meanwhile run afterwards."""

    async def main() -> tuple[float, bool]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        rang = loop.create_future()
        loop.call_later(10, rang.set_result, None)
        loop.advance(40)
        await rang
        return loop.time() - 1000, rang.done()

    assert run_jumping(main()) == (40, True)


def test_the_example_runs() -> None:
    """The example of docs/topics/testing.md runs unchanged. It is indented there, as it brings a loop of its own."""
    page = (pathlib.Path(__file__).parents[2] / "docs/topics/testing.md").read_text()
    [example] = re.findall(
        r"^## Time that jumps\n.*?\n((?:    [^\n]*\n|\n)+)(?=\S)", page, re.DOTALL | re.MULTILINE
    )
    names: dict[str, Any] = {}
    exec(textwrap.dedent(example), names)  # our own page

    async def seconds() -> float:
        began = asyncio.get_running_loop().time()
        await names["an_hour_without_brokers"]()
        return asyncio.get_running_loop().time() - began

    assert run_jumping(seconds()) > 3600


def test_a_deadlock_is_told() -> None:
    """Rather than waited for."""

    async def main() -> None:
        await asyncio.Event().wait()

    with (
        asyncio.Runner(loop_factory=JumpingLoop) as runner,
        pytest.raises(RuntimeError, match="deadlock"),
    ):
        runner.run(main())
