"""Tests of `aioproducer.engine.observability.diagnostics`: the warning names a callback without arguments."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
import uvloop

from aioproducer.engine.observability.diagnostics import SlowCallbacks
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable


class Time:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.watch = SlowCallbacks(lambda: self.now)

    def takes(self, seconds: float, *, kind: str = "a thing") -> Callable[..., str]:
        def call(*words: str) -> str:
            self.now += seconds
            if words == ("secret", "bad"):
                raise LookupError("secret")
            return "-".join(words)

        return self.watch.over(kind, call)


def test_what_takes_long_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """With how long it took; what it gave is given, and what it was given is not told."""
    time = Time()
    assert time.takes(0.5)("secret", "word") == "secret-word"
    assert caplog.records == []
    assert time.takes(1.25)("secret", "word") == "secret-word"
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("a thing held the event loop for 1.2 s: ")
    assert "secret" not in record.getMessage()


def test_also_when_it_raises(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the error, and the slow callback is logged."""
    with pytest.raises(LookupError):
        Time().takes(1)("secret", "bad")
    assert len(caplog.records) == 1


def test_not_every_time(caplog: pytest.LogCaptureFixture) -> None:
    """Once in ten seconds for each kind."""
    time = Time()
    for _ in range(25):
        time.takes(1)()
    time.takes(1, kind="another")()
    assert [re.split(" held", record.getMessage())[0] for record in caplog.records] == [
        "a thing"
    ] * 3 + ["another"]


@pytest.mark.parametrize("new_event_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_loops_in_real_time_are_known(
    new_event_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """The cheapest clock serves for them."""
    with contextlib.closing(new_event_loop()) as loop:
        real = SlowCallbacks(loop.time)
    assert real.is_real
    assert real.clock is time.monotonic


def test_a_virtual_clock_is_read_as_it_is() -> None:
    """A simulation's, for example."""
    with contextlib.closing(JumpingLoop()) as loop:
        virtual = SlowCallbacks(loop.time)
        assert not virtual.is_real
        assert virtual.clock() == loop.time()


def test_functions_that_were_slow_together_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """By their names alone, without arguments. Three of them; each once, and a partial by its function."""

    class Called:
        def __call__(self, _delivery: object) -> None:
            pass

        def __repr__(self) -> str:
            return "secret"

    time = Time()
    own = partial(partial(print, "secret"), "bad")
    for number, functions in enumerate(((own, own, Called()), (own, Called(), len, max))):
        time.watch.note(f"kind {number}", 0.75, functions)
    texts = [record.getMessage().split(" held ")[0] for record in caplog.records]
    called = Called.__qualname__
    assert texts == [f"kind 0 (print, {called})", f"kind 1 (print, {called}, len, ...)"]
