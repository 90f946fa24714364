"""The text of `messages`, read into values. Knows no bytes and no particular message."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ZERO_ID", "Field", "MessageSpec", "default_source", "parse"]

ZERO_ID: Final = bytes(16)  # Kafka's "no id"
_ALWAYS: Final = range(1 << 15)  # versions are int16
_NEVER: Final = range(0)
_NUMBERS: Final = frozenset({"i8", "i16", "i32", "i64"})
_KINDS: Final = _NUMBERS | {"bool", "uuid", "str", "bytes", "struct"}
_TYPE: Final = re.compile(r"(?P<array>\[)?(?P<kind>\w*|\{\})(?(array)\])(?P<null>\?(?P<from>\d+\+)?)?")
_VERSIONS: Final = re.compile(r"(\d+)(?:-(\d+)|(\+))?")


@dataclass(slots=True, kw_only=True)
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
    fields: list[Field]

    @property
    def is_fixed(self) -> bool:
        """Whether it takes the same number of bytes whatever its value."""
        return not self.is_array and self.kind in _NUMBERS | {"bool", "uuid"}


@dataclass(slots=True)
class MessageSpec:
    """One message: its name ("Produce.request"), the versions that we speak, the first with compact lengths and tags."""

    name: str
    versions: range
    flexible: int
    fields: list[Field] = field(default_factory=list)


def default_source(field: Field) -> str:
    """A field's default as an expression, for generated code; a structure's is None there, and its owner makes a fresh one."""
    return "ZERO_ID" if field.kind == "uuid" and not field.is_array else repr(field.default)


def parse(text: str) -> Mapping[str, MessageSpec]:
    """The messages of a text, by name. ValueError names a line that it does not understand."""
    specs: dict[str, MessageSpec] = {}
    open_fields: list[list[Field]] = []  # by depth: where a line of that indent belongs
    paths: list[str] = []
    for line in filter(None, text.splitlines()):
        words = line.split()
        depth = (len(line) - len(line.lstrip())) // 2
        del open_fields[depth:], paths[depth:]
        if depth == 0:
            spec = MessageSpec(words[0], _versions(words[1]), int(words[3]))
            specs[spec.name] = spec
            open_fields, paths = [spec.fields], [spec.name]
            continue
        try:
            entry = _field(words, paths[-1])
        except (LookupError, ValueError) as error:
            raise ValueError(f"{line!r}: {error}") from error
        open_fields[-1].append(entry)
        open_fields.append(entry.fields)
        paths.append(entry.path)
    return specs


def _field(words: Sequence[str], path: str) -> Field:
    match = _TYPE.fullmatch(words[1])
    if match is None:
        raise ValueError("no such type")
    kind = "struct" if match["kind"] == "{}" or words[1].startswith("[]") else match["kind"]
    if kind not in _KINDS:
        raise ValueError("no such type")
    versions, tag, default = _ALWAYS, None, _default(kind, is_array=bool(match["array"]), is_nullable=bool(match["null"]))
    for word in words[2:]:
        if word.startswith("tag"):
            tag = int(word.removeprefix("tag"))
        elif word.startswith("="):
            default = True if word == "=true" else int(word[1:])
        else:
            versions = _versions(word)
    if kind == "bytes" and tag is not None:
        raise ValueError("tagged bytes are not written by `writing`")
    return Field(
        name=words[0],
        path=f"{path}.{words[0]}",
        kind=kind,
        is_array=bool(match["array"]),
        versions=versions,
        null_versions=_versions(match["from"]) if match["from"] else _ALWAYS if match["null"] else _NEVER,
        tag=tag,
        default=default,
        fields=[],
    )


def _default(kind: str, *, is_array: bool, is_nullable: bool) -> object:
    """What a field is in a version without it, when the text gives no other."""
    if is_array:
        return ()
    if is_nullable:
        return None
    return {"bool": False, "uuid": ZERO_ID, "str": "", "bytes": b"", "struct": None}.get(kind, 0)


def _versions(word: str) -> range:
    """`3`, `3+` or `3-12`."""
    match = _VERSIONS.fullmatch(word)
    if match is None:
        raise ValueError(f"{word!r} is no range of versions")
    first, last, is_open = match.groups()
    return range(int(first), _ALWAYS.stop if is_open else int(last or first) + 1)
