"""Tests of `aioproducer.serializers`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.errors import SerializationError
from aioproducer.serializers import AS_BYTES, BYTES, Encoding, Encodings, adapt

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.model import Headers


def call(_what: str, function: Callable[..., Any], *given: Any) -> Any:
    return function(*given)


class Prefix:
    """A two-phase serializer, and its own encoder, which frames a value with the number of its preparation."""

    def __init__(self) -> None:
        self.count = 0
        self.stale = False

    async def prepare(self, topic: str) -> Prefix:
        self.count += 1
        self.stale = False
        return self

    def encode(self, value: bytes, headers: Headers) -> Any:
        return b"%d:" % self.count + value, [*headers, ("by", b"%d" % self.count)]

    def is_stale(self) -> bool:
        return self.stale


def test_plain_functions_need_no_preparation() -> None:
    encoding = Encoding(
        "orders",
        adapt(str.encode),
        adapt(lambda topic, headers, value: b"%s %s" % (topic.encode(), value)),
    )
    assert encoding.is_current()
    assert not encoding.is_plain
    assert encoding.encode("orders", b"v", "k", (), call) == (b"orders v", b"k", ())
    assert encoding.encode("orders", None, None, (), call) == (None, None, ())


def test_both_parts_may_change_the_headers() -> None:
    """The key's encoder comes first, and the value's gets the headers that it returned."""
    key, value = Prefix(), Prefix()
    encoding = Encoding("orders", adapt(key), adapt(value))
    assert not encoding.is_current()
    assert encoding.name == "key_serializer Prefix and value_serializer Prefix"
    asyncio.run(encoding.prepare())
    assert encoding.is_current()
    made = encoding.encode("orders", b"v", b"k", (("a", b""),), call)
    assert made == (b"1:v", b"1:k", [("a", b""), ("by", b"1"), ("by", b"1")])


def test_a_stale_encoder_is_prepared_again() -> None:
    """What the fast path made of the steps is dropped with it."""
    value = Prefix()
    encoding = Encoding("orders", AS_BYTES, adapt(value))
    asyncio.run(encoding.prepare())
    encoding.fast = "made"
    value.stale = True
    assert not encoding.is_current()
    assert encoding.fast is None
    asyncio.run(encoding.prepare())
    assert encoding.is_current()
    assert encoding.encode("orders", b"v", None, (), call)[0] == b"2:v"


def test_an_encoder_without_is_stale_is_never_stale() -> None:
    class Plain:
        async def prepare(self, topic: str) -> Any:
            return type("Encodes", (), {"encode": lambda self, value, headers: value})()

    encoding = Encoding("orders", AS_BYTES, adapt(Plain()))  # type: ignore[arg-type]
    asyncio.run(encoding.prepare())
    assert encoding.is_current()


@pytest.mark.parametrize("given", [None, object()], ids=["none", "no encoder"])
def test_a_preparation_without_an_encoder(given: object) -> None:
    """It is not prepared then, and the error names its topic."""

    class Gives:
        async def prepare(self, topic: str) -> Any:
            return given

    encoding = Encoding("orders", AS_BYTES, adapt(Gives()))
    with pytest.raises(
        SerializationError,
        match=rf"value_serializer .*'orders', .* {type(given).__name__}, which has no `encode`",
    ):
        asyncio.run(encoding.prepare())
    assert not encoding.is_current()


@pytest.mark.parametrize("given", [None, object()], ids=["none", "an encoder"])
def test_a_preparation_that_is_no_coroutine(given: object) -> None:
    """`prepare` is a plain function. The error says so, whatever that returns."""

    class Gives:
        def prepare(self, topic: str) -> Any:
            return given

    encoding = Encoding("orders", adapt(Gives()), AS_BYTES)  # type: ignore[arg-type]
    with pytest.raises(
        SerializationError,
        match=rf"key_serializer .*'orders', .* {type(given).__name__}, which cannot be awaited: make it an",
    ):
        asyncio.run(encoding.prepare())
    assert not encoding.is_current()


def test_an_encoding_for_each_topic() -> None:
    """The same one each time, until the topic is forgotten."""
    encodings = Encodings(None, str.encode)
    orders = encodings.of("orders")
    assert encodings.of("orders") is orders
    assert encodings.of("others") is not orders
    encodings.forget("orders")
    encodings.forget("unknown")
    assert encodings.by_topic.keys() == {"others"}
    assert not encodings.is_plain
    assert Encodings(None, None).is_plain
    assert BYTES.is_plain
    assert repr(orders) == "<Encoding for 'orders'>"
