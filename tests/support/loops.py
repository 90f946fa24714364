"""The loop that the tests run on, by the variable `AIOPRODUCER_TEST_LOOP`, and the tests left out there.

    (not set)    asyncio's own
    eager        asyncio's own, and every task begins within the call that makes it (`asyncio.eager_task_factory`, Python 3.12)
    uvloop       uvloop's own; where time jumps, one of it whose timers jump (JumpingUvloop)

asyncio's debug mode is its own variable, PYTHONASYNCIODEBUG. Where a test does not set `slow_callback_duration`, no loop of asyncio's warns of
steps that took 0.1 s: a busy machine has such steps, and the tests compare all that is logged.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import os
from typing import TYPE_CHECKING, Any, Final

import uvloop

from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["jumping", "use", "why_left_out"]

KIND = os.environ.get("AIOPRODUCER_TEST_LOOP", "")
_ON_UVLOOP = {
    "it looks into asyncio's own loop": {
        "tests/engine/tasks/test_guarded_loop.py": """
            test_a_patient_one_can_be_stopped_while_it_waits_for_the_sockets
        """,
        "tests/net/test_idle.py": """
            test_a_lost_connection_leaves_no_timer
            test_never
        """,
        "tests/net/test_transport.py": """
            test_a_connection_that_was_reset_already
            test_nobody_listens
            test_the_sizes_of_the_sockets_buffers
            test_a_name_that_a_resolver_gave_is_looked_up
        """,
        "tests/net/test_addresses.py": """
            test_dns_gives_every_answer_once
            test_dns_says_why_it_failed
            test_dns_knows_the_name_of_an_address
        """,
        "tests/scenarios/test_name_lookups.py": """
            test_names_while_the_default_executor_is_busy
            test_canonical_names
            test_names_that_hang
        """,
        "tests/scenarios/test_shutdown.py": """
            test_stop_sends_what_is_queued_and_leaves_nothing
        """,
        "tests/testing/test_groups.py": """
            test_a_stopped_cluster_leaves_no_timer
        """,
    },
}
LEFT_OUT: dict[str, dict[str, str]] = {
    "": {},
    "eager": {},
    "uvloop": {
        f"{module}::{name}": reason
        for reason, modules in _ON_UVLOOP.items()
        for module, names in modules.items()
        for name in names.split()
    },
}


class JumpingUvloop(uvloop.Loop):  # type: ignore[misc]
    """uvloop with virtual time: it runs the callbacks, in its order, and its clock moves only when no callback is ready.

    This class keeps the timers, and they are exact; uvloop's own count milliseconds and run up to half of one early.
    As in JumpingLoop, no task in it may wait for a socket or a thread.
    """

    runs_threads_inline: Final = True

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._calls = 0
        self._watch = 0
        self._is_deadlock = False

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass without running callbacks."""
        self._now += seconds

    def call_soon(self, *args: Any, **options: Any) -> Any:
        """Count the call: whoever makes one has more to do."""
        self._calls += 1
        return super().call_soon(*args, **options)

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:
        """Count the call, which a finalizer may make in this thread."""
        self._calls += 1
        return super().call_soon_threadsafe(*args, **options)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Set a timer of virtual time."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Set a timer of virtual time. As in uvloop, one that is due at once is a `call_soon`.

        Raises:
            RuntimeError: the loop is closed.
        """
        if when <= self._now or self.is_closed():  # which a `call_soon` refuses
            return self.call_soon(callback, *args, context=context)  # type: ignore[no-any-return]
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is passed over when it is due. asyncio's handle calls this."""

    def stop(self) -> None:
        """Stop, and look at the clock no more."""
        self._watch += 1
        super().stop()

    def run_forever(self) -> None:
        """Watch the clock meanwhile.

        Raises:
            RuntimeError: every task waits, and for no timer.
        """
        self._watch += 1
        self._is_deadlock = False
        super().call_soon(self._look, self._watch, -1)
        super().run_forever()
        if self._is_deadlock:
            raise RuntimeError("every task waits, and for no timer: a deadlock")

    def _look(self, watch: int, calls: int) -> None:
        """Run the timers that are due. Move the clock to the next one if nothing was made ready since the last look.

        The ready callbacks run in their order: those that were ready at the last look ran between it and this one.
        """
        if watch != self._watch:
            return
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if calls == self._calls:
            if not self._timers:
                self._is_deadlock = True
                self.stop()
                return
            self._now = max(self._now, self._timers[0][0])
        super().call_soon(self._look, watch, self._calls)
        while self._timers and self._timers[0][0] <= self._now:
            _, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                handle._run()


jumping: Callable[[], asyncio.AbstractEventLoop] = (
    JumpingUvloop if KIND == "uvloop" else JumpingLoop
)


def use() -> None:
    """Use the loop of this run for all tests."""
    if KIND == "uvloop":
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.BaseEventLoop.__init__ = _eager if KIND == "eager" else _patient  # type: ignore[method-assign]


_plain = asyncio.BaseEventLoop.__init__


def _patient(self: asyncio.BaseEventLoop, *args: Any) -> None:
    _plain(self, *args)
    self.slow_callback_duration = math.inf


def _eager(self: asyncio.BaseEventLoop, *args: Any) -> None:
    _patient(self, *args)
    self.set_task_factory(_begin_at_once)


def _begin_at_once(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> asyncio.Task[Any]:
    """Every task but those of two that must have stored them before they begin.

    aiokafka's consumer waits for ever otherwise; anyio sees to it itself, but knows asyncio's own factory only.
    """
    code = getattr(coroutine, "cr_code", None)
    if code is not None and any(
        f"{os.sep}{name}{os.sep}" in code.co_filename for name in ("aiokafka", "anyio")
    ):
        return asyncio.Task(coroutine, loop=loop, **options)
    return asyncio.eager_task_factory(loop, coroutine, **options)  # type: ignore[attr-defined,no-any-return]


def why_left_out(node: str) -> str:
    """The reason why a test is not run on this loop; empty: it is."""
    left_out = LEFT_OUT[KIND]
    return left_out.get(node.replace(" ", "_")) or left_out.get(node.partition("[")[0], "")
