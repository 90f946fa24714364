"""Messages and their codecs: `codec("Produce.request", 9).encode(message("Produce.request", acks=-1, ...))`.

Codecs are compiled at first use, one function at a time, from the text in `messages`; about a millisecond each.
A message has one type for all its versions. Knows no frame, header or connection.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from aioproducer.wire.codegen import Source
from aioproducer.wire.decoder import make_decoder
from aioproducer.wire.encoder import make_encoder
from aioproducer.wire.messages import SPECS
from aioproducer.wire.spec import ZERO_ID, default_source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.wire.spec import Field, MessageSpec

__all__ = ["Codec", "Message", "codec", "message", "message_type"]


class Message:
    """What every message and every structure in one is: fields by name, equal when they are equal."""

    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_comparable(getattr(self, name)) == _comparable(getattr(other, name)) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # fields may be set


def _comparable(value: object) -> object:
    """A list and a tuple of the same elements are the same array."""
    return tuple(value) if isinstance(value, list) else value


class Codec:
    """One message in one version.

    Attributes:
        encode: `encode(message)`: chunks of bytes. A `bytes` field may be a buffer or a sequence of buffers, which are not copied
            unless they are small. ValueError: a value that its field cannot hold.
        decode: `decode(buffer, offset=0)`: the message, which must fill the buffer from `offset` on. ProtocolError: it does not.
            Arrays are lists, of numbers tuples; what the version lacks has its default. A buffer that is not `bytes` is copied once.
        decode_in_steps: `decode` as a generator that returns the message; it yields after each element of a top-level array and of
            the arrays in its elements, so that a large answer can be decoded a bit at a time.
    """

    def __init__(self, name: str, version: int) -> None:
        self._spec = _spec(name)
        if version not in self._spec.versions:
            raise ValueError(f"{name} is known in versions {self._spec.versions.start} to {self._spec.versions.stop - 1}, not {version}")
        self._version = version

    @cached_property
    def encode(self) -> Callable[[Any], list[Buffer]]:
        """Message to chunks."""
        encode: Callable[[Any], list[Buffer]] = make_encoder(self._spec, self._version)
        return encode

    @cached_property
    def decode(self) -> Callable[..., Any]:
        """Bytes to message."""
        decode: Callable[..., Any] = make_decoder(self._spec, self._version, _types(self._spec.name), stepped=False)
        return decode

    @cached_property
    def decode_in_steps(self) -> Callable[..., Generator[None, None, Any]]:
        """Bytes to message, a bit at a time."""
        decode: Callable[..., Generator[None, None, Any]] = make_decoder(self._spec, self._version, _types(self._spec.name), stepped=True)
        return decode


@cache
def codec(name: str, version: int) -> Codec:
    """The codec of "Produce.request" or the like. ValueError: no such message or version."""
    return Codec(name, version)


def message(name: str, /, **fields: object) -> Any:
    """A new "Produce.request", or structure in one: "Produce.request.topics". What is not given has its default.

    Raises:
        ValueError: no such message or structure.
        TypeError: no such field.
    """
    return message_type(name)(**fields)


@cache
def message_type(name: str) -> type[Any]:
    """What `message(name)` makes; also takes its fields by position. ValueError: no such message or structure."""
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
    """A message's types, by path."""
    spec = _spec(name)
    types: dict[str, type[Any]] = {}
    _add_type(spec.name, spec.fields, types)
    return types


def _add_type(path: str, fields: Sequence[Field], types: dict[str, type[Any]]) -> None:
    structures = [field for field in fields if field.kind == "struct"]
    for field in structures:
        _add_type(field.path, field.fields, types)
    owned = [field for field in structures if not field.is_array]
    source = Source(f"{path} type", {"ZERO_ID": ZERO_ID, **{f"new_{field.name}": types[field.path] for field in owned}})
    arguments = "".join(f", {field.name}={default_source(field)}" for field in fields)
    with source.block(f"def __init__(self{arguments}):"):
        for field in owned:  # a default that is shared could be changed through one message for all
            source.line(f"if {field.name} is None: {field.name} = new_{field.name}()")
        for field in fields:
            source.line(f"self.{field.name} = {field.name}")
    names = {"__slots__": tuple(field.name for field in fields), "__init__": source.compile("__init__"), "__module__": __name__}
    types[path] = type(path, (Message,), names)
