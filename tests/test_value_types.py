"""Tests of `aioproducer.topic`: what a topic of each type encodes, with the classes of pydantic and msgspec or with look-alikes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import json
import pathlib
import subprocess
import sys
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Generic, NewType, TypedDict, TypeVar

import pydantic
import pytest

from aioproducer.errors import ConfigError, SerializationError
from aioproducer.serializers import AS_BYTES, Encoding
from aioproducer.topic import step_of

if TYPE_CHECKING:
    from aioproducer import Encoder
    from aioproducer.model import Headers

T = TypeVar("T")


def encoded(kind: Any, value: object) -> bytes | None:
    """Return what a topic of this type makes of a value."""
    step = step_of("value", kind)
    made, key, headers = Encoding("orders", AS_BYTES, step).encode(
        "orders", value, None, (), lambda _what, function, *given: function(*given)
    )
    assert (key, headers) == (None, ())
    return made


WHEN = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
NUMBER = uuid.UUID(int=1)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Part:
    name: str
    price: Decimal = Decimal("9.50")


@dataclasses.dataclass
class Order:
    id: int
    parts: list[Part] = dataclasses.field(default_factory=list)
    at: dt.datetime = WHEN
    colour: Colour = Colour.RED
    number: uuid.UUID = NUMBER


class Row(TypedDict):
    id: int
    name: str


class Model(pydantic.BaseModel):
    id: int
    at: dt.datetime
    name: str = pydantic.Field("ü", serialization_alias="Name")


class Derived(Model):
    more: int = 1


class Aliased(Model):
    def model_dump_json(self, **options: Any) -> str:
        return super().model_dump_json(**{"by_alias": True, **options})


class Boxed(pydantic.BaseModel, Generic[T]):
    value: T


@pydantic.dataclasses.dataclass
class PydanticOrder:
    id: int


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (bytes, b"v", b"v"),
        (bytes, bytearray(b"v"), b"v"),
        (str, "ü", "ü".encode()),
        (Row, {"id": 1, "name": "ü"}, '{"id":1,"name":"ü"}'.encode()),
        (
            Order,
            Order(1, [Part("a")]),
            (
                b'{"id":1,"parts":[{"name":"a","price":"9.50"}],"at":"2026-01-02T00:00:00+00:00","colour":"red",'
                b'"number":"00000000-0000-0000-0000-000000000001"}'
            ),
        ),
        (PydanticOrder, PydanticOrder(1), b'{"id":1}'),
        (NewType("Name", NewType("Text", str)), "ü", "ü".encode()),
        (Annotated[Order, "checked"], Order(1, at=WHEN), encoded(Order, Order(1, at=WHEN))),
        (Boxed[int], Boxed[int](value=1), b'{"value":1}'),
        (lambda value: b"%d" % value, 1, b"1"),
        (lambda topic, headers, value: f"{topic} {value}".encode(), 1, b"orders 1"),
        (functools.partial(str.encode, encoding="latin-1"), "ü", b"\xfc"),
    ],
)
def test_each_type(kind: Any, value: object, made: bytes) -> None:
    assert encoded(kind, value) == made
    assert encoded(kind, None) is None


@pytest.mark.parametrize(
    "value",
    [Model(id=1, at=WHEN), Derived(id=2, at=WHEN), Aliased(id=3, at=WHEN)],
    ids=lambda value: type(value).__name__,
)
def test_a_model_is_what_model_dump_json_returns(value: Model) -> None:
    """Also of a derived class, and where the program has changed the method."""
    assert (
        encoded(Model if type(value) is not Aliased else Aliased, value)
        == value.model_dump_json().encode()
    )


def test_a_struct() -> None:
    """msgspec's JSON."""
    msgspec = pytest.importorskip("msgspec")
    struct = msgspec.defstruct("Struct", [("id", int), ("at", dt.datetime)])
    assert (
        encoded(struct, struct(1, WHEN))
        == msgspec.json.encode(struct(1, WHEN))
        == b'{"id":1,"at":"2026-01-02T00:00:00Z"}'
    )
    with pytest.raises(SerializationError, match="value for 'orders' is dict, not Struct"):
        encoded(struct, {"id": 1})


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        (str, b"v", "bytes"),
        (bytes, "v", "str"),
        (Order, {"id": 1}, "dict"),
        (Row, Order(1), "Order"),
        (Model, Order(1), "Order"),
    ],
)
def test_a_value_of_another_type(kind: Any, value: object, name: str) -> None:
    """Said with both types, and not with the value."""
    with pytest.raises(
        SerializationError,
        match=f"value for 'orders' is {name}, not {'bytes' if kind is bytes else '(str|Order|dict|Model)'}",
    ):
        encoded(kind, value)


def test_what_json_does_not_have() -> None:
    """It is an error, as NaN is."""

    @dataclasses.dataclass
    class Holds:
        value: Any

    assert json.loads(
        encoded(Holds, Holds([pathlib.PurePosixPath("/a"), dt.date(2026, 1, 2), dt.time(3)])) or b""
    ) == {"value": ["/a", "2026-01-02", "03:00:00"]}
    for value in ({1}, b"bytes", float("nan"), object()):
        with pytest.raises(
            SerializationError,
            match=r"value_serializer raised (TypeError|ValueError) in .* on a Holds for 'orders'",
        ):
            encoded(Holds, Holds(value))


class Prepares:
    async def prepare(self, topic: str) -> Encoder[object]:
        raise LookupError(topic)


async def later(_value: object) -> bytes:
    return b""


@pytest.mark.parametrize(
    "kind", [int, dict, list[int], dict[str, int], object, 5, "str", Prepares], ids=repr
)
def test_what_is_none_of_them(kind: Any) -> None:
    """Said when the handle is made; a class of serializers is not a serializer."""
    with pytest.raises(
        ConfigError, match=r"value=.* is none of: bytes, str, a pydantic model"
    ) as caught:
        step_of("value", kind)
    assert str(caught.value).endswith("give an object of it") is (kind is Prepares)


def test_a_coroutine_function() -> None:
    with pytest.raises(ConfigError, match="Await before `send`"):
        step_of("key", later)


def test_nothing_is_imported_for_it() -> None:
    """A program without pydantic and msgspec does not import them by its topics."""
    program = """
import dataclasses, sys
from aioproducer import Producer
@dataclasses.dataclass
class Order:
    id: int
Producer().topic("orders", key=str, value=Order)
print(*sorted({"aioproducer.topic", "msgspec", "pydantic"} & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["aioproducer.topic"]


def test_headers_are_those_of_the_record() -> None:
    """A function of three arguments gets them."""
    seen: list[Headers] = []

    def encode(topic: str, headers: Headers, value: str) -> bytes:
        seen.append(headers)
        return value.encode()

    step = step_of("value", encode)
    encoding = Encoding("orders", AS_BYTES, step)
    assert encoding.encode(
        "orders", "v", None, [("a", b"b")], lambda _what, function, *given: function(*given)
    ) == (
        b"v",
        None,
        [("a", b"b")],
    )
    assert seen == [[("a", b"b")]]
