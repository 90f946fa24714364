"""Runs one call that may block in a daemon thread of its own: files, key derivation, a user's function.

The loop's default executor belongs to the application, and `asyncio.run` waits at its end for a call there that hangs. A daemon thread
delays neither. A loop with virtual time has the attribute `runs_threads_inline`: time would pass there while a thread runs, so the call
runs at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_daemon_thread"]

T = TypeVar("T")


def in_daemon_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Call `function` in a new daemon thread. Returns the future of its result, or of its error.

    After a cancellation of the future the call continues, and its result is dropped. An error that no task awaits is not logged.

    Args:
        function: may block; it must not use the loop.
        name: the thread's name, after "aioproducer-".
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(_mark_retrieved)
    if getattr(loop, "runs_threads_inline", False):
        _settle(future, *_outcome(function))
        return future

    def work() -> None:
        outcome = _outcome(function)
        # a closed loop: no task waits in it
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, *outcome)

    try:
        threading.Thread(target=work, name=f"aioproducer-{name}", daemon=True).start()
    # the system has no more threads
    except RuntimeError as error:
        future.set_exception(OSError(f"no thread could be started: {error}"))
    return future


def _outcome(function: Callable[[], T]) -> tuple[list[T], BaseException | None]:
    """Return the result in a list, and the error: asyncio's debug mode logs arguments, and a list of a Secret shows none."""
    try:
        return [function()], None
    except BaseException as error:
        return [], error


def _settle(future: asyncio.Future[T], results: list[T], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(results[0])
    # a future refuses StopIteration
    else:
        future.set_exception(RuntimeError("it raised StopIteration") if isinstance(error, StopIteration) else error)


def _mark_retrieved(future: asyncio.Future[T]) -> None:
    if not future.cancelled():
        future.exception()
