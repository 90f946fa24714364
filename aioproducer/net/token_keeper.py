"""Keeps one valid bearer token for all connections of a producer.

1. One task fetches tokens, one at a time, for any number of connections. It refreshes the token by its own timer, without any call of the
   user's. It belongs to the producer's supervisor and ends with it.
2. The old token is used until a new one is there, as long as it lives. A failed fetch changes nothing but the time of the next one.
3. Fetches are at least a second apart. Pauses after failures grow.
4. A call that blocks runs in a daemon thread. One that takes too long is left alone, and the next attempt has a thread of its own; while
   four calls hang, none is added.
5. A token's end is converted to the loop's time when the token comes, so a wall clock that jumps later changes nothing.
6. A token in a file is read anew when its file has changed, which is looked for at each authentication.
7. A broker that refuses the token makes the next authentication wait for a new one, if there is one.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import ConfigError, TokenUnavailable
from aioproducer.net.daemon_thread import in_daemon_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.produce_attempt import Backoff
    from aioproducer.net.observer import Observer
    from aioproducer.sasl.tokens import AsyncTokenSource, RefreshPolicy, Token, TokenSource

__all__ = ["KeeperSettings", "TokenKeeper"]

# Seconds between the starts of two fetches.
_MIN_INTERVAL: Final = 1.0
_MOST_HANGING: Final = 4
# An authentication waits for a refresh that is under way for this part of the old token's remaining life, and not longer than these seconds.
_PATIENCE_SHARE: Final = 0.25
_PATIENCE: Final = 2.0
# Assumed life, in seconds, of a token without a known end.
_ASSUMED_LIFE: Final = 3600.0
# Failures in a row after which `start` waits no longer: some four seconds, if each comes at once.
_MANY: Final = 5
_STOPPED: Final = "the producer does not run"


class KeeperSettings(NamedTuple):
    """Holds when tokens are fetched.

    Attributes:
        policy: when a token is refreshed.
        backoff: pauses after failures, in seconds.
        timeout: seconds after which a fetch has failed.
        wall_clock: returns the seconds since 1970.
        chance: returns a random number in [0, 1).
    """

    policy: RefreshPolicy
    backoff: Backoff
    timeout: float
    wall_clock: Callable[[], float]
    chance: Callable[[], float]


class _Kept(NamedTuple):
    """Holds a token, and its times in the loop's time."""

    token: Token
    fetched_at: float
    ends_at: float
    refresh_at: float


class TokenKeeper:
    """Keeps the token of one producer.

    Args:
        source: gives tokens.
        check: raises TokenUnavailable for a token that cannot be sent.

    Attributes:
        failures: fetches that failed since the last success.
        last_error: the error of the latest fetch; None: it succeeded, or there was none.
    """

    def __init__(self, source: TokenSource | AsyncTokenSource, check: Callable[[Token], object], settings: KeeperSettings) -> None:
        self.failures: int = 0
        self.last_error: TokenUnavailable | None = None
        self._source = source
        self._check = check
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._kept: _Kept | None = None
        # A broker refused the token that is kept.
        self._is_doubted = False
        self._not_before = 0.0
        # Of a source in a file: returns what changes with the file; what it was at the latest fetch; and the look that is under way.
        self._stamp: Callable[[], object] | None = getattr(source, "stamp", None)
        self._stamped: object = None
        self._looking: asyncio.Future[object] | None = None
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        # Calls that took too long and have not returned.
        self._hanging: list[asyncio.Future[tuple[object, Token]]] = []

    # For connections

    async def token(self, timeout: float) -> Token:
        """Return a token that is valid now. While there is none, wait for the next fetch.

        Args:
            timeout: seconds that the call waits at most.

        Raises:
            TokenUnavailable: that fetch failed, or the time is over; the fetch goes on.
        """
        if self._stamp is not None and self._kept is not None:
            await self._look(self._stamp)
        kept = self._kept
        now = self._loop.time()
        if kept is None or now >= kept.ends_at or self._is_doubted:
            await self._outcome(timeout)
        # A renewal of a session gets the new token, unless that takes long. After a failed refresh the old one does.
        elif now >= kept.refresh_at and not self.failures:
            await self._outcome(min(timeout, _PATIENCE, (kept.ends_at - now) * _PATIENCE_SHARE))
        kept = self._kept
        if kept is not None and self._loop.time() < kept.ends_at:
            return kept.token
        if self.last_error is None:
            raise self._unavailable(f"no token from {self._source.name} within {timeout:.1f} s")
        raise self._unavailable(str(self.last_error)) from self.last_error

    async def _look(self, stamp: Callable[[], object]) -> None:
        """Let the token be fetched anew if its file has changed. Connections that look at the same time share one look."""
        if self._looking is None or self._looking.done():
            self._looking = in_daemon_thread(stamp, "token")
        done, _ = await asyncio.wait({self._looking}, timeout=_PATIENCE)
        seen = self._looking.result() if done else None
        if seen not in {None, self._stamped}:
            # also if it cannot be read: it is read once for each change
            self._stamped = seen
            self._is_doubted = True
            self._changed.set()

    async def _outcome(self, timeout: float) -> None:
        """Wait until a fetch has succeeded or failed, or the time is over."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await future

    def refused(self, token: Token) -> None:
        """Note that a broker refused a token: a new one is fetched, if the keeper still has this one."""
        if self._kept is not None and self._kept.token is token:
            self._is_doubted = True
            self._changed.set()

    def accepted(self, token: Token, session: float) -> None:
        """Note that a broker accepted a token, for a session of so many seconds (0: without an end), which tells the token's life."""
        kept = self._kept
        if kept is None or kept.token is not token:
            return
        if token.expires_at is None and session:
            after = self._settings.policy.refresh_after(session, self._settings.chance())
            self._kept = kept._replace(refresh_at=min(kept.refresh_at, self._loop.time() + after))
            self._changed.set()

    # For people

    @property
    def principal(self) -> str | None:
        """Return the principal that the token names; None: it names none."""
        return (self._kept.token.principal or None) if self._kept is not None else None

    @property
    def is_failing(self) -> bool:
        """Return True if there has been no token yet, and the source failed at each of five attempts."""
        return self._kept is None and self.failures >= _MANY

    @property
    def absence(self) -> TokenUnavailable | None:
        """Return why there is no valid token; None: there is one, or the first fetch has not ended."""
        has_one = self._kept is not None and self._loop.time() < self._kept.ends_at
        return None if has_one else self.last_error

    @property
    def age(self) -> float | None:
        """Return the seconds since the token was fetched; None: there is no token."""
        return self._loop.time() - self._kept.fetched_at if self._kept is not None else None

    @property
    def expires_at(self) -> float | None:
        """Return the end of the token, in seconds since 1970 as its source counts; None: there is no token, or its end is not known."""
        return self._kept.token.expires_at if self._kept is not None else None

    # The task

    async def run(self, observer: Observer) -> None:
        """Fetch a token, and refresh it before it ends. The body of the task. `observer` is told how each fetch ended."""
        try:
            while True:
                await self._pause()
                began_at = self._loop.time()
                found = await self._fetched()
                self._is_doubted = False
                if isinstance(found, TokenUnavailable):
                    self.failures += 1
                    self.last_error = found
                    observer.token_failed(self._source.name, found, self.failures)
                else:
                    self.failures = 0
                    self.last_error = None
                    self._kept = found
                    observer.token_fetched(self._source.name, found.ends_at - found.fetched_at)
                pause = self._settings.backoff.after(self.failures, self._settings.chance()) if self.failures else 0.0
                self._not_before = began_at + max(_MIN_INTERVAL, pause)
                self._notify()
        finally:
            if not self._loop.is_closed():
                self.last_error = self.last_error or self._unavailable(_STOPPED)
                self._notify()

    def _notify(self) -> None:
        """Wake the calls that wait for the end of a fetch."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _pause(self) -> None:
        """Wait until a fetch is due."""
        while (left := self._due_at() - self._loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left if left < math.inf else None):
                    await self._changed.wait()
            self._changed.clear()

    def _due_at(self) -> float:
        if self._kept is None or self._is_doubted:
            return self._not_before
        return max(self._kept.refresh_at, self._not_before)

    async def _fetched(self) -> _Kept | TokenUnavailable:
        """Fetch a token. Returns it, or why there is none."""
        try:
            token = await self._call()
            self._check(token)
        except TokenUnavailable as error:
            text = str(error)
        # its text names the reference that cannot be read
        except ConfigError as error:
            text = f"it cannot be read: {error}"
        # asyncio.CancelledError is none: it ends the task
        except Exception as error:
            text = f"it raised {type(error).__name__}"
        else:
            return self._kept_of(token)
        return self._unavailable(text if self._source.name in text else f"{self._source.name}: {text}")

    def _kept_of(self, token: Token) -> _Kept | TokenUnavailable:
        now = self._loop.time()
        policy, chance = self._settings.policy, self._settings.chance()
        if token.expires_at is None:
            return _Kept(token, now, math.inf, now + policy.refresh_after(_ASSUMED_LIFE, chance))
        life = token.expires_at - self._settings.wall_clock()
        if life <= 0:
            return self._unavailable(f"{self._source.name}: the token expired {-life:.0f} s ago. Is the clock of this machine right?")
        return _Kept(token, now, now + life, now + policy.refresh_after(life, chance))

    async def _call(self) -> Token:
        """Call the source, in a thread or in the loop, for as long as one fetch may take."""
        timeout = self._settings.timeout
        if hasattr(self._source, "fetch_async"):
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    return await self._source.fetch_async()
            raise self._unavailable(f"no answer within {timeout:g} s")
        self._hanging = [call for call in self._hanging if not call.done()]
        if len(self._hanging) >= _MOST_HANGING:
            raise self._unavailable(f"{len(self._hanging)} calls of it have not returned")
        call = in_daemon_thread(partial(_stamped, self._stamp, self._source.fetch), "token")
        done, _ = await asyncio.wait({call}, timeout=timeout)
        if not done:
            self._hanging.append(call)
            raise self._unavailable(f"no answer within {timeout:g} s")
        # a file that changes while it is read is read once more
        self._stamped, token = call.result()
        return token

    def _unavailable(self, reason: str) -> TokenUnavailable:
        return TokenUnavailable(reason, "token", "OAUTHBEARER")


def _stamped(stamp: Callable[[], object] | None, fetch: Callable[[], Token]) -> tuple[object, Token]:
    """Return the stamp of a file, and the token that was read after it."""
    return (None if stamp is None else stamp()), fetch()
