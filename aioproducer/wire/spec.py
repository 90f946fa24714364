"""The text of `messages`, read into values. Knows no bytes and no particular message."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ZERO_ID", "Field", "MessageSpec", "default_source", "parse"]

ZERO_ID: Final = bytes(16)  # Kafka's "no id"
_ALWAYS: Final = range(1 << 15)  # versions are int16
_NEVER: Final = range(0)
_FIXED: Final = frozenset({"i8", "i16", "i32", "i64", "bool", "uuid"})
_IMPLICIT: Final = {"bool": False, "uuid": ZERO_ID, "str": "", "bytes": b"", "struct": None}  # defaults; of numbers 0
_LINE: Final = re.compile(
    r"""(?P<name>\w+)
    \ (?P<array>\[)?(?P<kind>i8|i16|i32|i64|bool|uuid|str|bytes|\{\}|(?<=\[))(?(array)\])
    (?P<null>\?(?P<null_versions>\d+\+)?)?
    (?:\ (?P<versions>\d+(?:-\d+|\+)?))?
    (?:\ tag(?P<tag>\d+))?
    (?:\ =(?P<default>true|-?\d+))?""",
    re.VERBOSE,
)


@dataclasses.dataclass(slots=True, kw_only=True)
class Field:
    """One field.

    Attributes:
        path: where it is, from its message on: "Produce.request.topics".
        kind: `i8 i16 i32 i64 bool uuid str bytes struct`; of an array, of its elements.
        versions, null_versions: which have it, and in which it may be null.
        tag: its number, if it is a tagged field.
        fields: of a structure.
    """

    name: str
    path: str
    kind: str
    is_array: bool
    versions: range
    null_versions: range
    tag: int | None
    default: object
    fields: list[Field] = dataclasses.field(default_factory=list)

    @property
    def is_fixed(self) -> bool:
        """Whether it takes the same number of bytes whatever its value."""
        return not self.is_array and self.kind in _FIXED


@dataclasses.dataclass(slots=True)
class MessageSpec:
    """One message: its name ("Produce.request"), the versions that we speak, the first with compact lengths and tags."""

    name: str
    versions: range
    flexible: int
    fields: list[Field] = dataclasses.field(default_factory=list)


def default_source(field: Field) -> str:
    """A field's default as an expression, for generated code; a structure's is None there, and its owner makes a fresh one."""
    return "ZERO_ID" if field.kind == "uuid" else repr(field.default)


def parse(text: str) -> Mapping[str, MessageSpec]:
    """The messages of a text, by name. ValueError names a line that it does not understand."""
    specs: dict[str, MessageSpec] = {}
    open_fields: list[list[Field]] = []  # by depth: where a line of that indent belongs
    paths: list[str] = []
    for line in filter(None, text.splitlines()):
        depth = (len(line) - len(line.lstrip())) // 2
        if depth == 0:
            name, versions, _, flexible = line.split()
            specs[name] = MessageSpec(name, _versions(versions), int(flexible))
            open_fields, paths = [specs[name].fields], [name]
            continue
        del open_fields[depth:], paths[depth:]
        field = _field(line, paths[-1])
        open_fields[-1].append(field)
        open_fields.append(field.fields)
        paths.append(field.path)
    return specs


def _field(line: str, path: str) -> Field:
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise ValueError(f"{line!r} is no field")
    kind = match["kind"].strip("{}") or "struct"
    if (kind == "bytes" and match["tag"]) or (kind in {"bytes", "uuid"} and match["array"]):
        raise ValueError(f"{line!r} needs what encoder and decoder do not do: no message that we speak has such a field")
    nullable = _versions(match["null_versions"]) if match["null"] else _NEVER
    return Field(
        name=match["name"],
        path=f"{path}.{match['name']}",
        kind=kind,
        is_array=bool(match["array"]),
        versions=_versions(match["versions"]),
        null_versions=nullable,
        tag=int(match["tag"]) if match["tag"] else None,
        default=_default(match, kind),
    )


def _default(match: re.Match[str], kind: str) -> object:
    """What a field is in a version without it: as the text says, or as Kafka does where its definition says nothing."""
    if match["array"]:
        return ()
    if match["default"]:
        return match["default"] == "true" or int(match["default"])
    is_always_nullable = match["null"] and not match["null_versions"]
    return None if is_always_nullable else _IMPLICIT.get(kind, 0)


def _versions(word: str | None) -> range:
    """`3`, `3+`, `3-12`, or nothing for all."""
    if word is None:
        return _ALWAYS
    first, _, last = word.rstrip("+").partition("-")
    return range(int(first), _ALWAYS.stop if word.endswith("+") else int(last or first) + 1)
