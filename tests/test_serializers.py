"""Tests of `aioproducer.serializers`."""

from __future__ import annotations

import functools
import json
import operator
import re
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from aioproducer.engine.observability.diagnostics import SlowCallbacks
from aioproducer.errors import SerializationError
from aioproducer.serializers import AS_BYTES, adapt, json_serializer, serialize, string_serializer

if TYPE_CHECKING:
    from collections.abc import Callable


HEADERS: Final = (("trace", b"1"),)


def given(function: Callable[..., Any] | None, value: object) -> bytes | None:
    """Return the bytes that the function makes of a value."""
    encoded, headers = serialize(
        "value", adapt(function), "orders", HEADERS, value, SlowCallbacks(time.monotonic).call
    )
    assert headers is HEADERS
    return encoded


class Named:
    """A serializer with all three arguments, as an object."""

    def __call__(self, topic: str, headers: Any, value: object) -> bytes:
        return f"{topic} {headers} {value}".encode()

    def method(self, topic: str, headers: Any, value: object) -> bytes:
        return self(topic, headers, value)

    def plain(self, value: str) -> bytes:
        return value.encode()


def three(topic: str, headers: Any, value: object) -> bytes:
    return f"{topic} {headers} {value}".encode()


@pytest.mark.parametrize(
    "function",
    [three, Named(), Named().method, functools.partial(Named.__call__, Named())],
    ids=repr,
)
def test_a_serializer_of_three_arguments(function: Callable[..., bytes]) -> None:
    """Topic, headers, value: Kafka's own."""
    assert given(function, "v") == b"orders (('trace', b'1'),) v"


@pytest.mark.parametrize(
    "function",
    [
        string_serializer,
        str.encode,
        Named().plain,
        operator.methodcaller("encode"),
        lambda value: value.encode(),
        lambda value, encoding="utf-8", errors="strict": value.encode(encoding, errors),
        lambda *values: values[0].encode(),
        functools.partial(str.encode, encoding="utf-8"),
        functools.partial(bytes, encoding="utf-8"),
    ],
    ids=repr,
)
def test_a_plain_function_of_the_value(function: Callable[..., bytes]) -> None:
    """A function gets only the value, even if it could take more: `str.encode` has three parameters."""
    assert given(function, "ü") == "ü".encode()


def test_a_function_that_shows_no_signature() -> None:
    """A function without a signature, such as `bytes`, gets the value."""
    assert given(bytes, [1, 2]) == b"\1\2"


def test_no_serializer() -> None:
    """Then there is nothing to call."""
    assert adapt(None) is AS_BYTES


@pytest.mark.parametrize("function", [None, json_serializer, three])
def test_none_stays_none(function: Callable[..., bytes] | None) -> None:
    """A null key, or a tombstone; no serializer sees it."""
    assert given(function, None) is None


def test_bytes_without_a_serializer_are_taken_as_they_are() -> None:
    """The same object: nothing is copied."""
    value = b"bytes"
    assert given(None, value) is value


class MoreBytes(bytes):
    """A user's subclass of bytes."""


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"bytes"),
        memoryview(b"bytes"),
        memoryview(b"b?y?t?e?s?")[::2],
        MoreBytes(b"bytes"),
    ],
    ids=repr,
)
def test_buffers_become_bytes(value: Any) -> None:
    """The record holds a copy: a caller that changes the buffer later does not change the record. The same holds for a serializer's
    buffer.
    """
    for made in (given(None, value), given(lambda _: value, "v")):
        assert made == b"bytes"
        assert type(made) is bytes


def test_bytes_go_through_a_serializer_too() -> None:
    """It may encrypt, or frame."""
    assert given(lambda value: b"<" + value + b">", b"v") == b"<v>"


@pytest.mark.parametrize("value", ["secret", 1, [b"secret"], {"secret": 1}], ids=repr)
def test_what_is_no_bytes_needs_a_serializer(value: object) -> None:
    """The text says what to do, and never what the value is."""
    with pytest.raises(
        SerializationError,
        match=f"value for 'orders' is {type(value).__name__}, not bytes.*value_serializer",
    ) as caught:
        given(None, value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("made", ["secret", None, 1, [1]], ids=repr)
def test_a_serializer_that_gives_no_bytes(made: Any) -> None:
    """A serializer must give bytes: one that returns None does not make a tombstone."""
    with pytest.raises(
        SerializationError,
        match=f"value_serializer gave {type(made).__name__} for 'orders', not bytes",
    ) as caught:
        given(lambda _: made, "v")
    assert "secret" not in str(caught.value)


def test_a_serializer_that_raises() -> None:
    """Its error is the cause; only its kind and place are in the text, for its text may hold the value."""
    place = rf"in <lambda> \({re.escape(__file__)}:\d+\)"
    with pytest.raises(
        SerializationError, match=f"value_serializer raised KeyError {place} on a dict for 'orders'"
    ) as caught:
        given(lambda value: value["secret"], {})
    assert isinstance(caught.value.__cause__, KeyError)
    assert "secret" not in str(caught.value)


def test_a_serializer_without_a_place() -> None:
    """A builtin has no frame."""
    with pytest.raises(
        SerializationError, match="value_serializer raised TypeError on a dict for 'orders'"
    ):
        given(bytes.upper, {})


def test_a_lambda_that_gives_a_coroutine() -> None:
    """The text says where to await, and no warning of the coroutine follows."""

    async def later(_value: object) -> bytes:
        return b""

    with pytest.raises(
        SerializationError,
        match="gave coroutine for 'orders', not bytes: await in your code, before `send`",
    ):
        given(lambda value: later(value), "v")


def test_an_interrupt_is_not_swallowed() -> None:
    """Only what a serializer does wrong is its error."""

    def interrupt(_value: object) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        given(interrupt, "v")


def test_json() -> None:
    """Compact, and readable in any language."""
    value = {"id": 1, "name": "Zoë", "tags": [None, True]}
    made = json_serializer(value)
    assert made == '{"id":1,"name":"Zoë","tags":[null,true]}'.encode()
    assert json.loads(made) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}], ids=repr)
def test_what_is_no_json(value: object) -> None:
    """Python would write NaN, which no other reader takes."""
    with pytest.raises(SerializationError, match="ValueError"):
        given(json_serializer, value)
