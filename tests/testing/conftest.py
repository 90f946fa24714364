"""What the fake's tests share: a loop whose time jumps, a cluster on either network."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for the next timer, lets the loop's clock jump to it."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "every task waits and no timer runs: a deadlock"
            self.jumped += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.jumped


@pytest.fixture
def run_jumping() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine in a loop whose time jumps; nothing in it may need a socket."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
            return runner.run(main)

    return run


@pytest_asyncio.fixture(params=[False, True], ids=["sockets", "memory"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
    """Two brokers and the topic orders with two partitions: broker 1 leads 0, broker 2 leads 1."""
    async with FakeCluster(brokers=2, memory=request.param) as cluster:
        cluster.create_topic("orders", partitions=2)
        yield cluster
