"""Calls that may block, in worker threads of anyio: files, key derivation, an HTTP request, a function of the user's.

1. The loop's default executor belongs to the application, and so do the forty threads of anyio's default limiter: these calls have places of
   their own.
2. A cancelled caller abandons its call, which keeps its place until it returns. So a function that hangs takes `_MOST` threads, not one more
   for each attempt; later calls wait for a place until their callers give up.
3. The interpreter waits for its threads at its end, as it does for those of `asyncio.to_thread`.
4. A loop with virtual time has the attribute `runs_threads_inline`: time would pass there while a thread runs, so the call runs at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio import CapacityLimiter, to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_MOST: Final = 4


class SlowCalls:
    """Runs calls of one kind, at most four at a time. It must be made in a task."""

    def __init__(self) -> None:
        self._places = CapacityLimiter(_MOST)

    async def run(self, function: Callable[[], T]) -> T:
        """Return what `function` returns; it must not use the loop. After a cancellation the call goes on, and its outcome is dropped."""
        if getattr(asyncio.get_running_loop(), "runs_threads_inline", False):
            return function()
        call = object()
        await self._places.acquire_on_behalf_of(call)

        def on_end(running: asyncio.Future[Any]) -> None:
            self._places.release_on_behalf_of(call)
            # marks an error as retrieved that no caller waits for
            if not running.cancelled():
                running.exception()

        running = asyncio.ensure_future(to_thread.run_sync(function, limiter=CapacityLimiter(1)))
        running.add_done_callback(on_end)
        # unlike `await running`, this does not pass a cancellation on
        await asyncio.wait({running})
        return running.result()
