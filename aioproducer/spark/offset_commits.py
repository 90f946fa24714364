"""Commits the offsets of streaming queries to Kafka, in a thread of its own.

Spark waits for a listener's callback, and Kafka may not answer. So `OffsetCommits.put` only stores the newest offsets of a query and wakes
the thread. The thread starts with the first offsets. It ends after the last running query has ended and its offsets are committed, or at
`close`. It is a daemon thread: a program can end while Kafka does not answer.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from aioproducer.model import TopicPartition

    from .query_progress import QueryProgress

__all__ = ["OffsetCommits"]

_log = logging.getLogger(__name__)
# Seconds from a failure to the next attempt.
_RETRY_AFTER: Final = 10.0
# Seconds in which there is at most one warning.
_WARNING_EVERY: Final = 300.0
# Seconds in which a commit that was cancelled must end.
_CANCEL_SECONDS: Final = 1.0
# Seconds for the last commits when the interpreter exits.
_EXIT_SECONDS: Final = 2.0


class _Pending(NamedTuple):
    """Holds the newest offsets of a query, for its group."""

    group: str
    progress: QueryProgress


class OffsetCommits:
    """Commits the newest offsets of each query to its group. Calls are thread-safe, and none of them waits except `close`.

    In a forked child, calls do nothing.

    Args:
        make_resolver: returns the context manager of an object with `commit_offsets(group, offsets)`. The thread's loop uses it.
        retry_after: seconds from a failure to the next attempt.
        clock: returns seconds, for the limit of warnings.

    Attributes:
        done, failed: the number of commits, by query.
    """

    def __init__(
        self,
        make_resolver: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        retry_after: float = _RETRY_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._make_resolver = make_resolver
        self._retry_after = retry_after
        self._clock = clock
        self._pid = os.getpid()
        # Guards the fields below. It is held for a few dictionary operations at a time.
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._running: set[str] = set()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._life: _Life | None = None
        # Used by the thread alone.
        self._unreported = 0
        self._quiet_until = -1.0
        _open.add(self)

    def put(self, query: str, group: str, progress: QueryProgress) -> None:
        """Commit the offsets of a query's progress, unless newer ones come first. After `close`, nothing is committed.

        Args:
            query: the query's id; it runs until `end`.
            group: the consumer group.
            progress: has the offsets; the thread parses them.
        """
        if self._is_forked:
            return
        with self._lock:
            if self._is_closed:
                return
            self._running.add(query)
            self._pending[query] = _Pending(group, progress)
            if self._thread is None:
                self._start()
            self._wake()

    def end(self, query: str) -> None:
        """Let the thread end once no query runs and the last offsets are committed. They are not tried again after a failure."""
        if self._is_forked:
            return
        with self._lock:
            self._running.discard(query)
            self._wake()

    def close(self, timeout: float) -> None:
        """Commit what is pending, and end the thread. Commits that take longer than `timeout` seconds are cancelled.

        A second call, and a call from the thread itself, only marks the commits as closed.
        """
        if self._is_forked:
            return
        with self._lock:
            self._is_closed = True
            self._wake()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(timeout)
        if thread.is_alive():
            with self._lock:
                if self._life is not None:
                    self._life.cancel()
            thread.join(_CANCEL_SECONDS)

    @property
    def _is_forked(self) -> bool:
        """Return whether this is a forked child: the thread is not in it, and its lock may never be released."""
        return os.getpid() != self._pid

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._serve, name="aioproducer-query-offsets", daemon=True
        )
        try:
            self._thread.start()
        # The system has no more threads, or the interpreter exits. The next offsets try again.
        except RuntimeError as error:
            self._thread = None
            self._warn(error)

    def _wake(self) -> None:
        if self._life is not None:
            self._life.wake(is_closing=self._is_closed)

    # --- in the thread

    def _serve(self) -> None:
        while True:
            error = None
            try:
                # The coroutine is made after the loop.
                with asyncio.Runner() as runner:
                    runner.run(self._commit_all())
            # `close` cancels a commit that takes too long.
            except asyncio.CancelledError:
                pass
            # The system has no file for a loop. The next offsets start a thread again.
            except OSError as failure:
                error = failure
                self._warn(failure)
            with self._lock:
                self._life = None
                # Offsets may have come while the connections closed.
                if error is not None or self._is_closed or not self._pending:
                    self._thread = None
                    return

    async def _commit_all(self) -> None:
        life = _Life()
        with self._lock:
            self._life = life
            self._wake()
        while pending := await self._next(life):
            try:
                async with self._make_resolver() as resolver:
                    while pending:
                        await self._commit(resolver, pending)
                        pending = await self._next(life)
            # A query never fails because its offsets are not committed.
            except Exception as error:
                self._put_back(pending)
                self._warn(error)
                await life.closing(self._retry_after)

    async def _next(self, life: _Life) -> dict[str, _Pending]:
        """Wait for offsets. Returns those of all queries; nothing: the thread ends."""
        while True:
            life.sleep()
            with self._lock:
                if self._pending or self._is_closed or not self._running:
                    pending, self._pending = self._pending, {}
                    return pending
            await life.woken()

    async def _commit(self, resolver: Any, pending: dict[str, _Pending]) -> None:
        """Commit the offsets of some queries at the same time, and remove those that are done. Raises the first error."""
        results = await asyncio.gather(
            *(self._commit_one(resolver, each) for each in pending.values()), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        for query, result in zip(tuple(pending), results, strict=True):
            if not isinstance(result, BaseException):
                self.done[query] += result
                del pending[query]
        if errors:
            raise errors[0]

    @staticmethod
    async def _commit_one(resolver: Any, pending: _Pending) -> int:
        """Commit the offsets of one query. Returns the number of commits: 0 without offsets."""
        offsets: Mapping[TopicPartition, int] = pending.progress.offsets().read
        if not offsets:
            return 0
        await resolver.commit_offsets(pending.group, offsets)
        return 1

    def _put_back(self, failed: Mapping[str, _Pending]) -> None:
        """Keep the offsets of running queries for the next attempt, unless newer ones came."""
        self.failed.update(failed.keys())
        with self._lock:
            for query, pending in failed.items():
                if query in self._running and not self._is_closed:
                    self._pending.setdefault(query, pending)

    def _warn(self, error: Exception) -> None:
        self._unreported += 1
        now = self._clock()
        if now < self._quiet_until:
            return
        _log.warning(
            "The offsets of a Spark query could not be committed to its consumer group (failures since the last warning: %d): %s. "
            "The query is not affected. The newest offsets are tried again every %g s; the next warning comes in %g s at the earliest.",
            self._unreported,
            str(error) or repr(error),
            self._retry_after,
            _WARNING_EVERY,
        )
        self._unreported = 0
        self._quiet_until = now + _WARNING_EVERY


class _Life:
    """Holds what other threads need of the thread's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._awake = asyncio.Event()
        self._closing = asyncio.Event()

    def wake(self, *, is_closing: bool) -> None:
        """Wake the thread. Any thread may call it."""
        for event in (self._awake, self._closing) if is_closing else (self._awake,):
            # A closed loop: the thread looks at the pending offsets once more before it ends.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(event.set)

    def cancel(self) -> None:
        """Cancel what the thread waits for. Any thread may call it."""
        if self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)

    def sleep(self) -> None:
        """Begin to wait: a `wake` from now on ends `woken`."""
        self._awake.clear()

    async def woken(self) -> None:
        """Wait until `wake`. Its deadline is the end of the query, or `close`."""
        await self._awake.wait()

    async def closing(self, seconds: float) -> None:
        """Wait until `close`, at most some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()


_open: weakref.WeakSet[OffsetCommits] = weakref.WeakSet()


def _close_all() -> None:
    """Commit the last offsets before the interpreter stops daemon threads."""
    for commits in tuple(_open):
        commits.close(_EXIT_SECONDS)


atexit.register(_close_all)
