"""Look-ups of host names in daemon threads of this library, apart from the loop's default executor.

1. The default executor belongs to the application. While its threads are busy (`asyncio.to_thread`), a look-up there waits for them.
   `asyncio.run` also waits at its end for a look-up that hangs. The threads here are daemons, so the interpreter can end while they run.
2. A process has at most `MAX_THREADS` threads. One look-up of each kind runs for each name at a time; later callers of that name join it.
3. A look-up that has run for `HUNG_AFTER` seconds while others wait for a thread is set aside. Its thread does not count any more, and
   another may be started. Its answer is used when it comes, and then its thread ends. So a name that hangs delays another name for
   `HUNG_AFTER` at most, and there are no more hanging threads than hanging names.
4. An idle thread ends after `IDLE_SECONDS`. A forked child has none of its parent's threads, and gets a new `NameLookups`.
5. A numeric host is its own address: it needs no look-up, and no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HUNG_AFTER", "IDLE_SECONDS", "MAX_THREADS", "NameLookups", "describe_lookups", "look_up", "numeric_address"]

MAX_THREADS: Final = 4
IDLE_SECONDS: Final = 10.0
# glibc waits this many seconds for a name server before it asks the next one.
HUNG_AFTER: Final = 5.0


def numeric_address(host: str, port: int) -> tuple[int, tuple[Any, ...]] | None:
    """Return the address family and socket address of a numeric host, with its IPv6 scope id if it has one.

    Returns None if `host` is a name.

    Raises:
        OSError: the scope id names no interface of this machine.
    """
    with contextlib.suppress(OSError, ValueError):
        socket.inet_pton(socket.AF_INET, host)
        return socket.AF_INET, (host, port)
    address, _, scope = host.partition("%")
    try:
        socket.inet_pton(socket.AF_INET6, address)
    except (OSError, ValueError):
        return None
    if not scope:
        return socket.AF_INET6, (address, port, 0, 0)
    return socket.AF_INET6, (address, port, 0, int(scope) if scope.isdecimal() else socket.if_nametoindex(scope))


class _Lookup:
    """Holds one look-up that runs or waits for a thread, and the futures that wait for its answer."""

    __slots__ = ("began_at", "function", "is_set_aside", "name", "waiting")

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        self.name = name
        self.function = function
        self.waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]] = []
        self.began_at: float | None = None
        self.is_set_aside = False

    def answer(self, result: Any, error: BaseException | None) -> None:
        """Complete the futures, each in its own loop."""
        for loop, future in self.waiting:
            # no task waits in a closed loop
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class NameLookups:
    """Holds the look-ups of a process, and runs them in its threads.

    Args:
        idle_seconds: seconds after which an idle thread ends.
        hung_after: seconds after which a look-up is set aside if others wait.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS, hung_after: float = HUNG_AFTER) -> None:
        self._idle_seconds = idle_seconds
        self._hung_after = hung_after
        self._changed = threading.Condition()
        self._running: dict[tuple[str, str], _Lookup] = {}
        self._queue: deque[_Lookup] = deque()
        # the number of threads without those of look-ups that are set aside, and how many of them are idle
        self._threads = 0
        self._idle = 0

    async def ask(self, kind: str, name: str, function: Callable[[], Any]) -> Any:
        """Call `function` in a thread, or join a look-up of this kind for this name. Returns the answer.

        After a cancellation, a look-up that has begun continues. If it has not begun, it is dropped unless another task waits for it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        try:
            lookup = self._submit((kind, name), function, loop, future)
            while not future.done() and lookup.began_at is None:
                # if every thread is busy, this sets aside the look-ups that hang
                await asyncio.wait((future,), timeout=self._hung_after)
                with self._changed:
                    self._start_threads()
            return await future
        finally:
            # marks an error as retrieved that comes in the event-loop iteration of a cancellation
            if not future.cancel() and not future.cancelled():
                future.exception()

    def _submit(
        self, key: tuple[str, str], function: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]
    ) -> _Lookup:
        with self._changed:
            lookup = self._running.get(key)
            if lookup is None:
                lookup = self._running[key] = _Lookup(key[1], function)
                self._queue.append(lookup)
            lookup.waiting.append((loop, future))
            self._start_threads()
        return lookup

    def describe(self, name: str) -> str:
        """Return the reason for the delay of a look-up, for an error's text: its run time, or the look-ups that run before it."""
        now = time.monotonic()
        with self._changed:
            lookups = tuple(self._running.values())
        began = {lookup.name: now - lookup.began_at for lookup in lookups if lookup.began_at is not None}
        if name in began:
            return f"its look-up by the system has taken {began[name]:.1f} s so far"
        others = ", ".join(f"{other!r} ({seconds:.1f} s)" for other, seconds in began.items())
        return f"look-ups by the system that have not ended: {others}" if others else ""

    # Under the lock

    def _start_threads(self) -> None:
        """Start a thread for each look-up in the queue that has no idle thread, up to `MAX_THREADS` threads."""
        wanted = len(self._queue) - self._idle
        if wanted <= 0:
            self._changed.notify(len(self._queue))
            return
        if self._threads >= MAX_THREADS:
            self._set_aside()
        while wanted > 0 and self._threads < MAX_THREADS:
            try:
                threading.Thread(target=self._work, name="aioproducer-name-lookup", daemon=True).start()
            except RuntimeError as error:
                self._give_up(error)
                break
            self._threads += 1
            wanted -= 1
        self._changed.notify_all()

    def _give_up(self, cause: RuntimeError) -> None:
        """Fail the queued look-ups if no thread can be started and none runs. Threads that run take the queued look-ups."""
        while self._queue and not self._threads:
            lookup = self._queue.popleft()
            self._forget(lookup)
            error = OSError(f"no thread could be started to look {lookup.name!r} up: {cause}")
            error.__cause__ = cause
            lookup.answer(None, error)

    def _set_aside(self) -> None:
        overdue = time.monotonic() - self._hung_after
        for lookup in self._running.values():
            if lookup.began_at is not None and lookup.began_at <= overdue and not lookup.is_set_aside:
                lookup.is_set_aside = True
                self._threads -= 1

    def _next(self) -> _Lookup | None:
        """Wait for the next look-up and return it. Returns None if there was none for `idle_seconds`: the thread ends."""
        deadline = time.monotonic() + self._idle_seconds
        while True:
            while self._queue:
                lookup = self._queue.popleft()
                if all(future.cancelled() for _, future in lookup.waiting):
                    self._forget(lookup)
                    continue
                lookup.began_at = time.monotonic()
                return lookup
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._idle += 1
            self._changed.wait(left)
            self._idle -= 1

    def _forget(self, lookup: _Lookup) -> None:
        for key in [key for key, other in self._running.items() if other is lookup]:
            del self._running[key]

    # A thread

    def _work(self) -> None:
        # a function of its own, so that an idle thread holds no reference to a look-up
        while self._answer_one():
            pass

    def _answer_one(self) -> bool:
        """Run the next look-up. Returns False if the thread is to end."""
        with self._changed:
            lookup = self._next()
            if lookup is None:
                self._threads -= 1
                return False
        result, error = None, None
        try:
            result = lookup.function()
        except BaseException as raised:
            error = raised
        with self._changed:
            self._forget(lookup)
        lookup.answer(result, error)
        return not lookup.is_set_aside


_lookups = NameLookups()


def _begin_anew() -> None:
    """Replace the look-ups in a forked child, which has none of the parent's threads; one of them may have held the lock."""
    global _lookups
    _lookups = NameLookups()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


async def look_up(kind: str, name: str, function: Callable[[], Any]) -> Any:
    """Run a look-up with `NameLookups.ask` of this process."""
    return await _lookups.ask(kind, name, function)


def describe_lookups(name: str) -> str:
    """Return the text of `NameLookups.describe` of this process."""
    return _lookups.describe(name)
