"""Tests of `aioproducer.net.tokens`: one fetch for all, its times, failures, and sources that hang."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, now, settle

from aioproducer.config.secret import Secret
from aioproducer.core.retries import Backoff
from aioproducer.errors import ConfigError, TokenUnavailable
from aioproducer.net.observer import Observer
from aioproducer.net.tokens import KeeperSettings, TokenKeeper
from aioproducer.sasl.tokens import RefreshPolicy, Token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EPOCH = 1_900_000_000.0


class Source:
    """Gives tokens of `seconds` by a fetch that takes no time; `results` are what the next fetches return or raise."""

    name = "the source"

    def __init__(self, seconds: float | None = 100.0) -> None:
        self.seconds = seconds
        self.results: list[Any] = []
        self.fetches: list[float] = []

    def token(self) -> Token:
        ends = None if self.seconds is None else now() + EPOCH + self.seconds
        return Token(Secret(f"canary-{len(self.fetches)}"), ends, "alice")

    def fetch(self) -> Token:
        self.fetches.append(now())
        result = self.results.pop(0) if self.results else self.token()
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, Token)
        return result


class AsyncSource(Source):
    """Does the same by a coroutine function, which takes `takes` seconds."""

    takes = 0.0

    async def fetch_async(self) -> Token:
        self.fetches.append(now())
        result = self.results.pop(0) if self.results else self.token()
        await asyncio.sleep(self.takes)
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, Token)
        return result


class Seen(Observer):
    def __init__(self) -> None:
        self.lives: list[float] = []
        self.failures: list[tuple[str, int]] = []

    def token_fetched(self, source: str, seconds: float) -> None:
        self.lives.append(seconds)

    def token_failed(self, source: str, error: Any, failures: int) -> None:
        self.failures.append((str(error), failures))


@contextlib.asynccontextmanager
async def keeping(
    source: Any, *, chance: float = 0.5, timeout: float = 30.0, **settings: Any
) -> AsyncIterator[tuple[TokenKeeper, Seen]]:
    """Run a keeper without jitter in its pauses; its wall clock goes with the loop's."""
    check = settings.pop("check", lambda _: None)
    made = KeeperSettings(
        settings.pop("policy", RefreshPolicy()),
        Backoff(0.1, 10.0),
        timeout,
        settings.pop("wall_clock", lambda: asyncio.get_running_loop().time() + EPOCH),
        lambda: chance,
    )
    keeper, seen = TokenKeeper(source, check, made), Seen()
    task = asyncio.ensure_future(keeper.run(seen))
    try:
        yield keeper, seen
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


def text(token: Token) -> str:
    return token.text.reveal()


@jumping
async def test_pauses_after_failures_grow_to_ten_seconds() -> None:
    """They are 0.1 s, 0.2 s, ... with 20 % of jitter, and fetches are a second apart at least."""
    source = Source()
    source.results = [RuntimeError("canary-text")] * 100
    async with keeping(source, chance=0.0) as (keeper, seen):
        await asyncio.sleep(60)
        pauses = [
            round(after - before, 6)
            for before, after in zip(source.fetches, source.fetches[1:], strict=False)
        ]
        assert pauses[:8] == [1, 1, 1, 1, 1.28, 2.56, 5.12, 8]
        assert set(pauses[8:]) == {8}
        assert seen.failures[0] == ("the source: it raised RuntimeError", 1)
        assert keeper.is_failing


@jumping
async def test_tokens_that_live_for_a_moment_cause_a_fetch_a_second() -> None:
    source = Source(0.01)
    async with keeping(source):
        await asyncio.sleep(10.5)
        assert len(source.fetches) == 11


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ConfigError("${file:/a}: /a cannot be read"),
            r"the source: it cannot be read: \$\{file:/a\}: /a cannot be read",
        ),
        (
            TokenUnavailable("the source raised RuntimeError", "token"),
            "the source raised RuntimeError",
        ),
        (TokenUnavailable("it has none", "token"), "the source: it has none"),
        (OSError(5, "canary-text"), "the source: it raised OSError"),
        (StopIteration("canary-text"), "the source: it raised RuntimeError"),
        (
            Token(Secret("canary-a"), EPOCH, ""),
            "the source: the token expired 1[0-9]{3} s ago. Is the clock of this machine right\\?",
        ),
    ],
    ids=["reference", "function", "other words", "OSError", "StopIteration", "expired"],
)
@jumping
async def test_fault_100_a_source_that_gives_none(error: Any, words: str) -> None:
    """Words of the package are told, all others are not quoted."""
    source = Source()
    source.results = [error]
    async with keeping(source) as (keeper, _):
        with pytest.raises(TokenUnavailable, match=f"^{words}$") as caught:
            await keeper.token(5.0)
        assert "canary" not in str(caught.value)
        assert not keeper.is_failing
        await keeper.token(5.0)


@jumping
async def test_fault_100_a_token_that_cannot_be_sent_does_not_replace_one_that_can() -> None:
    source = Source()
    bad = Token(Secret("canary-bad"), None, "")

    def check(token: Token) -> None:
        if token is bad:
            raise TokenUnavailable("the token has a blank", "token")

    async with keeping(source, check=check) as (keeper, seen):
        await keeper.token(1.0)
        source.results = [bad]
        await asyncio.sleep(82.6)
        assert seen.failures == [("the source: the token has a blank", 1)]
        assert text(await keeper.token(1.0)) == "canary-1"


@jumping
async def test_a_renewal_waits_for_a_refresh_that_is_under_way() -> None:
    """It gets the new token, unless that takes longer than a quarter of what the old one has left, or two seconds."""
    source = AsyncSource(100.0)
    async with keeping(source) as (keeper, _):
        await keeper.token(1.0)
        source.takes = 1.5
        await asyncio.sleep(82.5)
        began = now()
        assert text(await keeper.token(10.0)) == "canary-2"
        assert now() - began == pytest.approx(1.5)
        source.takes = 20.0
        await asyncio.sleep(82.5)
        began = now()
        assert text(await keeper.token(10.0)) == "canary-2"
        assert now() - began == pytest.approx(2.0)


@jumping
async def test_a_coroutine_function_that_hangs() -> None:
    """It is cancelled after the time-out, and the next attempt begins."""
    source = AsyncSource()
    source.takes = 1e9
    async with keeping(source, timeout=5.0) as (keeper, seen):
        with pytest.raises(TokenUnavailable, match=r"no token from the source within 2\.0 s"):
            await keeper.token(2.0)
        source.takes = 0.0
        with pytest.raises(TokenUnavailable, match="the source: no answer within 5 s"):
            await keeper.token(10.0)
        await keeper.token(10.0)
        assert len(seen.failures) == 1


@jumping
async def test_a_token_whose_end_is_not_known() -> None:
    """It is refreshed after an hour, or by the session that a broker gave for it; it is used until a new one is there."""
    source = Source(None)
    async with keeping(source) as (keeper, _):
        token = await keeper.token(1.0)
        keeper.accepted(token, 0.0)
        await asyncio.sleep(2900)
        assert len(source.fetches) == 1
        await asyncio.sleep(400)
        assert len(source.fetches) == 2
        token = await keeper.token(1.0)
        keeper.accepted(token, 100.0)
        source.results = [RuntimeError()] * 5000
        await asyncio.sleep(82.6)
        assert len(source.fetches) == 3
        await asyncio.sleep(10_000)
        assert await keeper.token(1.0) is token


@jumping
async def test_a_token_that_a_broker_refuses_is_replaced() -> None:
    """The next call waits for a new one. Where there is none, it gets the refused one again: the broker tells why."""
    source = Source()
    async with keeping(source) as (keeper, _):
        first = await keeper.token(1.0)
        keeper.refused(Token(Secret("canary-of-before"), None, ""))
        assert await keeper.token(5.0) is first
        keeper.refused(first)
        second = await keeper.token(5.0)
        assert second is not first
        source.results = [RuntimeError()]
        keeper.refused(second)
        assert await keeper.token(5.0) is second
        assert len(source.fetches) == 3


@jumping
async def test_cancelled_calls_leave_the_fetch_to_the_others() -> None:
    source = AsyncSource()
    source.takes = 1.0
    async with keeping(source) as (keeper, _):
        first, second = (asyncio.ensure_future(keeper.token(5.0)) for _ in range(2))
        await settle()
        first.cancel()
        assert text(await second) == "canary-1"
        assert first.cancelled()
        assert len(source.fetches) == 1


# In threads
