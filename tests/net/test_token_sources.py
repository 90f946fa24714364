"""Tests of `aioproducer.net.tokens`: what users give as a source of tokens, and what their code returns and raises."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.config.secret import Secret
from aioproducer.errors import TokenUnavailable
from aioproducer.net.tokens import AsyncFunctionSource, FunctionSource, TextSource, source_of
from aioproducer.sasl.tokens import Token
from aioproducer.testing import unsecured_token

if TYPE_CHECKING:
    pass

ENDS = 1_900_000_000


def fetched(given: Any) -> Token:
    """Return the token of one fetch from what a user gives."""
    source = source_of(given)
    return (
        asyncio.run(source.fetch_async())
        if isinstance(source, AsyncFunctionSource)
        else source.fetch()
    )  # type: ignore[union-attr]


class Provider:
    """As kafka-python's AbstractTokenProvider."""

    def token(self) -> str:
        return "canary-token"

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class AsyncProvider:
    """As aiokafka's AbstractTokenProvider."""

    async def token(self) -> str:
        return "canary-token"


class AsyncCallable:
    async def __call__(self) -> str:
        return "canary-token"


async def coroutine_function() -> str:
    return "canary-token"


def oauth_cb(config: str) -> tuple[str, float]:
    """As confluent-kafka's callback."""
    assert config == ""
    return "canary-token", ENDS


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        (Secret("canary-token"), TextSource, "sasl_oauthbearer_token"),
        (lambda: "canary-token", FunctionSource, "the token function"),
        (functools.partial(str, "canary-token"), FunctionSource, "the token function"),
        (oauth_cb, FunctionSource, "the token function"),
        (Provider(), FunctionSource, "token() of Provider"),
        (coroutine_function, AsyncFunctionSource, "the token function"),
        (functools.partial(coroutine_function), AsyncFunctionSource, "the token function"),
        (AsyncCallable(), AsyncFunctionSource, "the token function"),
        (AsyncProvider(), AsyncFunctionSource, "token() of AsyncProvider"),
    ],
    ids=[
        "text",
        "function",
        "partial",
        "oauth_cb",
        "object",
        "coroutine function",
        "its partial",
        "its object",
        "object of aiokafka's kind",
    ],
)
def test_what_may_be_given(given: Any, kind: type, name: str) -> None:
    source = source_of(given)
    assert (type(source), source.name) == (kind, name)
    assert fetched(given).text == Secret("canary-token")


@pytest.mark.parametrize(
    ("returned", "ends", "principal", "extensions"),
    [
        ("canary-token", None, "", ()),
        (unsecured_token("alice", 60, now=ENDS, canary="canary-claim"), ENDS + 60, "alice", ()),
        (("canary-token", ENDS), ENDS, "", ()),
        (("canary-token", ENDS * 1000), ENDS, "", ()),
        (("canary-token", Decimal(ENDS)), ENDS, "", ()),
        (("canary-token", float(ENDS), "alice"), ENDS, "alice", ()),
        (("canary-token", ENDS, "alice", {"a": "b"}), ENDS, "alice", (("a", "b"),)),
        (("canary-token", None, "alice", None), None, "alice", ()),
        (
            (unsecured_token("alice", 60, now=ENDS, canary="canary-claim"), ENDS + 5, "bob"),
            ENDS + 5,
            "bob",
            (),
        ),
        ((Secret("canary-token"), ENDS), ENDS, "", ()),
        (Token(Secret("canary-token"), 5.0, "alice"), 5.0, "alice", ()),
    ],
    ids=[
        "str",
        "JWT",
        "s",
        "ms",
        "Decimal",
        "principal",
        "extensions",
        "unknown end",
        "JWT with an end",
        "Secret",
        "Token",
    ],
)
def test_what_a_function_may_return(
    returned: Any, ends: float | None, principal: str, extensions: Any
) -> None:
    """Seconds and milliseconds since 1970 are told apart by their size; what is said beside a JWT takes precedence."""
    token = fetched(lambda: returned)
    assert token[1:] == (ends, principal, extensions)
    assert isinstance(token.text, Secret)
    assert "canary" not in repr(token)


class WithoutExtensions(Provider):
    def extensions(self) -> Any:
        return None


class Awaitable:
    """No coroutine, which would be closed."""

    def __await__(self) -> Any:
        raise AssertionError


def test_an_object_whose_extensions_are_none() -> None:
    assert fetched(WithoutExtensions()).extensions == ()


def test_extensions_of_an_object_are_asked_for_with_its_token() -> None:
    assert fetched(Provider()).extensions == (("logicalCluster", "lkc-1"),)


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self) -> Any:
        raise self.error

    def __repr__(self) -> str:
        return "<Raising>"


BAD = "the token function returned "
RETURNED = [
    (None, BAD + "None; a token is a str"),
    (b"canary-token", BAD + "a value of type bytes; a token is a str"),
    ((), BAD + r"a tuple of \(\); a token is"),
    ((b"canary-token", ENDS), BAD + r"a tuple of \(bytes, int\)"),
    (("canary-token", 1, "a", {}, 5), BAD + r"a tuple of \(str, int, str, dict, int\)"),
    (
        ("canary-token", 3600),
        BAD + "an end of the token that is no time since 1970: a duration is added to time.time()",
    ),
    (("canary-token", float("nan")), BAD + "an end of the token that is no time since 1970"),
    (
        ("canary-token", "1900000000"),
        BAD + "the end of a token as str: it is a number of seconds or milliseconds since 1970",
    ),
    (("canary-token", True), BAD + "the end of a token as bool"),
    (("canary-token", ENDS, b"canary-a"), BAD + "a principal that is bytes, not str"),
    (
        ("canary-token", ENDS, "a", ["canary-a"]),
        BAD + "extensions that are no mapping of str to str",
    ),
    (("canary-token", ENDS, "a", {"a": 1}), BAD + "extensions that are no mapping of str to str"),
    (
        ("canary-token", ENDS, "a", {"auth": "canary-a"}),
        BAD + "extensions that cannot be sent: .*'auth'",
    ),
    ("${env:CANARY}", BAD + "a reference, not a token"),
]


@pytest.mark.parametrize(
    ("returned", "text"), RETURNED, ids=[str(number) for number in range(len(RETURNED))]
)
def test_fault_100_what_is_no_token(returned: Any, text: str) -> None:
    """The text says what was returned, and quotes nothing of it."""
    with pytest.raises(TokenUnavailable, match=text) as caught:
        fetched(lambda: returned)
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(caught.value)


@pytest.mark.parametrize(
    ("error", "is_async"),
    [
        (RuntimeError("canary-text"), False),
        (RuntimeError("canary-text"), True),
        (KeyError("canary-text"), True),
        (StopIteration("canary-text"), False),
    ],
    ids=["function", "coroutine function", "KeyError", "StopIteration"],
)
def test_fault_100_what_a_function_raises_is_not_quoted(
    error: BaseException, is_async: bool
) -> None:
    """Its type is told; its text may have the token, and is neither in the text nor the cause."""

    async def raising() -> None:
        raise error

    with pytest.raises(TokenUnavailable) as caught:
        fetched(raising if is_async else Raising(error))
    assert str(caught.value) == f"the token function raised {type(error).__name__}"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_plain_function_that_returns_a_coroutine() -> None:
    with pytest.raises(
        TokenUnavailable,
        match="the token function returned an awaitable: give the coroutine function itself",
    ):
        fetched(lambda: coroutine_function())
    with pytest.raises(TokenUnavailable, match="the token function returned an awaitable"):
        fetched(Awaitable)


def test_a_coroutine_that_cancels_itself_has_failed() -> None:
    """A cancellation from outside ends it; one of its own is an error like others."""

    async def cancelled() -> str:
        raise asyncio.CancelledError("canary-text")

    with pytest.raises(TokenUnavailable, match="the token function raised CancelledError"):
        fetched(cancelled)

    async def main() -> None:
        async def waiting() -> str:
            await asyncio.Event().wait()
            return ""

        task = asyncio.ensure_future(AsyncFunctionSource("it", waiting).fetch_async())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_builtin_without_a_signature() -> None:
    """It is called without an argument."""
    function = contextvars.ContextVar("token", default="canary-token").get
    with pytest.raises(ValueError, match="signature"):
        inspect.signature(function)
    assert fetched(function).text == Secret("canary-token")
