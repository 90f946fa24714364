"""Holds an asynchronous server open in a thread with a loop of its own, for tests in any event loop or in none.

`FakeClusterThread` is what the fixture `fake_cluster` gives to a plain test: also to one that has an application in Starlette's
`TestClient`, which runs in a thread, too.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar, overload

from aioproducer.testing.cluster import FakeCluster

__all__ = ["FakeClusterThread", "LoopThread"]

T = TypeVar("T", bound="AbstractAsyncContextManager[Any]")
R = TypeVar("R")


class LoopThread(Generic[T]):
    """A thread with an event loop that holds `make()` open."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._started: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    def open(self) -> None:
        """Start the thread, and wait until its server is ready. Raises the server's errors."""
        self._thread.start()
        self._started.result()

    def close(self) -> None:
        """Stop the server and end the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    @overload
    def call(self, do: Callable[[T], Coroutine[Any, Any, R]]) -> R: ...

    @overload
    def call(self, do: Callable[[T], R]) -> R: ...

    def call(self, do: Callable[[T], Any]) -> Any:
        """Call `do` with the server, in the server's thread. Waits for what it returns, also where that is a coroutine."""

        async def called() -> Any:
            done = do(self._started.result())
            return await done if inspect.iscoroutine(done) else done

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        # `open` raises the error in the thread that waits
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with self._make() as held:
            self._started.set_result(held)
            await self._stopping.wait()


class FakeClusterThread(LoopThread[FakeCluster]):
    """A `FakeCluster` for plain functions: it has the cluster's attributes and methods, and each method returns when its work is done.

    Other work for the cluster's thread goes by `call`: `fake_cluster.call(lambda cluster: cluster.brokers[1].stop())`.
    """

    def __init__(self) -> None:
        super().__init__(FakeCluster)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self.call(lambda cluster: getattr(cluster, name))
        if not inspect.ismethod(found):
            return found

        def called(*arguments: Any, **options: Any) -> Any:
            return self.call(lambda _: found(*arguments, **options))

        return called

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self.call(lambda cluster: setattr(cluster, name, value))
