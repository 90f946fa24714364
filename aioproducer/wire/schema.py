"""Messages and their codecs: `codec("Produce.request", 9).encode(message("Produce.request", acks=-1, ...))`.

Codecs are compiled at first use, one function at a time, from the text in `messages`. One function takes about a millisecond.
A message has one type for all its versions.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from aioproducer.wire.codegen import Source
from aioproducer.wire.decoder import Decoder
from aioproducer.wire.encoder import Encoder
from aioproducer.wire.messages import SPECS
from aioproducer.wire.spec import ZERO_ID, default_source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.wire.spec import Field, MessageSpec


class Message:
    """Is the base class of all messages and of the structures in them. Messages are equal if their fields are equal.

    The repr shows only the length of a field that may hold credentials, so that no log and no traceback shows them.
    """

    __slots__: tuple[str, ...] = ()
    _secret: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self._shown(name)}' for name in self.__slots__)})"

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        return (
            f"<{len(value)} secret bytes>"
            if name in self._secret and value is not None
            else repr(value)
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _comparable(getattr(self, name)) == _comparable(getattr(other, name))
            for name in self.__slots__
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # fields may be set


def _comparable(value: object) -> object:
    """Return a list as a tuple, so that a list and a tuple of the same elements are equal; other values unchanged."""
    return tuple(value) if isinstance(value, list) else value


class Codec:
    """Holds the codec of one message in one version.

    Attributes:
        encode: `encode(message)` returns chunks of bytes. A `bytes` field may be a buffer or a sequence of buffers, which are not copied
            unless they are small. It raises ValueError for a value that its field cannot hold.
        decode: `decode(buffer, offset=0, most=...)` returns the message, which must fill the buffer from `offset` on; else it raises
            ProtocolError. It also does if the arrays of strings and structures have more than `most` elements together. Arrays are lists, and tuples if their elements are numbers. A field that the version lacks has its default. A buffer that is
            not `bytes` is copied once.
        decode_in_steps: `decode` as a generator that returns the message. It yields after each element of a top-level array and of
            the arrays in its elements, so that a caller can decode a large answer in small steps.
    """

    def __init__(self, name: str, version: int) -> None:
        versions = _spec(name).versions
        if version not in versions:
            raise ValueError(
                f"{name} is known in versions {versions.start} to {versions.stop - 1}, not {version}"
            )
        self._place = name, version

    @property
    def encode(self) -> Callable[[Any], list[Buffer]]:
        encode: Callable[[Any], list[Buffer]] = _encoder(*self._place)
        return encode

    @property
    def decode(self) -> Callable[..., Any]:
        decode: Callable[..., Any] = _decoder(*self._place, stepped=False)
        return decode

    @property
    def decode_in_steps(self) -> Callable[..., Generator[None, None, Any]]:
        decode: Callable[..., Generator[None, None, Any]] = _decoder(*self._place, stepped=True)
        return decode


# Not `cached_property`: before Python 3.12 it holds a lock while it makes a value, in a child that is forked meanwhile forever.
@cache
def _encoder(name: str, version: int) -> Any:
    return Encoder(_spec(name), version).make()


@cache
def _decoder(name: str, version: int, *, stepped: bool) -> Any:
    return Decoder(_spec(name), version, _types(name), stepped=stepped).make()


@cache
def codec(name: str, version: int) -> Codec:
    """Return the codec of a message in a version; `name` is "Produce.request", for example.

    Raises:
        ValueError: there is no such message or version.
    """
    return Codec(name, version)


def message(name: str, /, **fields: object) -> Any:
    """Return a new message ("Produce.request"), or a structure in a message ("Produce.request.topics").

    A field that is not given has its default.

    Raises:
        ValueError: there is no such message or structure.
        TypeError: there is no such field.
    """
    return message_type(name)(**fields)


@cache
def message_type(name: str) -> type[Any]:
    """Return the type of the objects that `message(name)` makes. The type also takes its fields by position.

    Raises:
        ValueError: there is no such message or structure.
    """
    types = _types(".".join(name.split(".")[:2]))
    if name not in types:
        raise ValueError(f"there is no structure {name}")
    return types[name]


def _spec(name: str) -> MessageSpec:
    if name not in SPECS:
        raise ValueError(f"there is no message {name}")
    return SPECS[name]


@cache
def _types(name: str) -> dict[str, type[Any]]:
    """Return the types of a message and of its structures, by path."""
    spec = _spec(name)
    types: dict[str, type[Any]] = {}
    _add_type(spec.name, spec.fields, types)
    return types


def _add_type(path: str, fields: Sequence[Field], types: dict[str, type[Any]]) -> None:
    for field in fields:
        if field.kind == "struct":
            _add_type(field.path, field.fields, types)
    names = {
        "__slots__": tuple(field.name for field in fields),
        "__init__": _constructor(path, fields, types),
        "__module__": __name__,
        "_secret": frozenset(field.name for field in fields if field.is_secret),
    }
    types[path] = type(path, (Message,), names)


def _constructor(
    path: str, fields: Sequence[Field], types: dict[str, type[Any]]
) -> Callable[..., None]:
    """Return the `__init__` of the type of a message or structure."""
    owned = [field for field in fields if field.kind == "struct" and not field.is_array]
    source = Source(
        f"{path} type",
        {"ZERO_ID": ZERO_ID, **{f"new_{field.name}": types[field.path] for field in owned}},
    )
    arguments = "".join(f", {field.name}={default_source(field)}" for field in fields)
    with source.block(f"def __init__(self{arguments}):"):
        # each message gets structures of its own: a change to a shared default would change all messages
        for field in owned:
            source.line(f"if {field.name} is None: {field.name} = new_{field.name}()")
        for field in fields:
            source.line(f"self.{field.name} = {field.name}")
    made: Callable[..., None] = source.compile("__init__")
    return made
