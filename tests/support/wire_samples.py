"""Messages to try, made from their specs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from aioproducer.wire.messages import SPECS
from aioproducer.wire.primitives import JOINED
from aioproducer.wire.schema import codec, message_type
from aioproducer.wire.spec import ZERO_ID

if TYPE_CHECKING:
    import random

    from aioproducer.wire.spec import Field

EVERY_CODEC = [(name, version) for name, spec in SPECS.items() for version in spec.versions]
VARINT_4E9 = b"\xff\xff\xff\xff\x0f"
_BITS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}
_KNOWN_ERRORS = st.sampled_from(
    [-1, 0, 1, 2, 3, 6, 7, 10, 35, 87]
)  # kio refuses codes that it does not know


def messages(name: str, version: int, *, tame: bool = False) -> st.SearchStrategy[Any]:
    """Any message of that version. Tame: with error codes and times that kio takes."""
    return _structures(name, SPECS[name].fields, version, tame=tame)


def encoded(name: str, version: int, message: Any) -> bytes:
    """The message as one piece."""
    return b"".join(codec(name, version).encode(message))


def buffers() -> st.SearchStrategy[bytes]:
    """Small ones and large ones, on both sides of where a buffer becomes a chunk of its own; no two are the same object."""
    sizes = st.sampled_from([0, 1, 61, JOINED - 1, JOINED, 3 * JOINED])
    return st.builds(lambda size, fill: bytes([fill]) * size, sizes, st.integers(0, 255))


def in_steps(name: str, version: int, data: bytes) -> tuple[Any, int]:
    """Return the stepped decoder's result for the bytes, and the number of its steps."""
    decoding = codec(name, version).decode_in_steps(data)
    steps = 0
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            return end.value, steps
        steps += 1


def full_message(path: str, fields: list[Field]) -> Any:
    """A message with something in every field and two of everything."""
    singles = {"str": "text", "bytes": b"records", "uuid": bytes(range(16)), "bool": True}
    values = {}
    for field in fields:
        single = (
            full_message(field.path, field.fields)
            if field.kind == "struct"
            else singles.get(field.kind, 3)
        )
        values[field.name] = [single, single] if field.is_array else single
    return message_type(path)(**values)


def full_sample(name: str, version: int) -> bytes:
    """That, in a version."""
    return encoded(name, version, full_message(name, SPECS[name].fields))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four changes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                changed[at : at + 4] = chance.choice(
                    [b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xfe", VARINT_4E9]
                )
            case 2:
                changed[at:at] = chance.choice(
                    [b"\xff", VARINT_4E9, b"\xff\xff\xff\xff\xff\x01", b"\0"]
                )
            case 3:
                del changed[at:]
            case _:
                del changed[at : at + chance.randint(1, 5)]
    return bytes(changed)


def _structures(
    path: str, fields: list[Field], version: int, *, tame: bool
) -> st.SearchStrategy[Any]:
    present = {
        field.name: _values(field, version, tame=tame)
        for field in fields
        if version in field.versions
    }
    return st.builds(message_type(path), **present)


def _values(field: Field, version: int, *, tame: bool) -> st.SearchStrategy[Any]:
    values = _singles(field, version, tame=tame)
    if field.is_array:
        longest = 20 if field.kind in _BITS else 3
        values = st.lists(values, max_size=longest)
        if field.kind in _BITS:
            values = values.map(tuple)
    return st.none() | values if version in field.null_versions else values


def _singles(field: Field, version: int, *, tame: bool) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        return _structures(field.path, field.fields, version, tame=tame)
    if field.kind in _BITS:
        if tame and field.name.endswith("error_code"):
            return _KNOWN_ERRORS
        if tame and field.name.endswith("_ms"):
            return st.integers(0, 2**31 - 1)
        return st.integers(-(2 ** _BITS[field.kind]), 2 ** _BITS[field.kind] - 1)
    return {
        "bool": st.booleans(),
        "str": st.text(max_size=150),
        "uuid": st.just(ZERO_ID) | st.binary(min_size=16, max_size=16),
        "bytes": st.binary(max_size=300),
    }[field.kind]
