"""The parser of the text in `messages`, and the specifications of messages and fields that it makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

# Kafka's value for "no id".
ZERO_ID: Final = bytes(16)
# Versions are of type int16.
_ALWAYS: Final = range(1 << 15)
_NEVER: Final = range(0)
_FIXED: Final = frozenset({"i8", "i16", "i32", "i64", "bool", "uuid"})
# The defaults of fields without one in the text; a number's default is 0.
_IMPLICIT: Final = {"bool": False, "uuid": ZERO_ID, "str": "", "bytes": b"", "struct": None}
_LINE: Final = r"""(?P<name>\w+)
    \ (?P<array>\[)?(?P<kind>i8|i16|i32|i64|bool|uuid|str|bytes|\{\}|(?<=\[))(?(array)\])
    (?P<null>\?(?P<null_versions>\d+\+)?)?
    (?:\ (?P<versions>\d+(?:-\d+|\+)?))?
    (?:\ tag(?P<tag>\d+))?
    (?:\ =(?P<default>true|-?\d+))?
    (?P<secret>\ secret)?"""


class Field(NamedTuple):
    """Holds the specification of one field.

    Attributes:
        path: the path of the field from its message on: "Produce.request.topics".
        kind: `i8 i16 i32 i64 bool uuid str bytes struct`; for an array, the kind of its elements.
        versions, null_versions: the versions that have the field, and the versions in which it may be null.
        tag: the number of a tagged field, else None.
        is_secret: the field may hold credentials, and the message's repr shows only its length.
        fields: the fields of a structure.
    """

    name: str
    path: str
    kind: str
    is_array: bool
    versions: range
    null_versions: range
    tag: int | None
    default: object
    is_secret: bool
    fields: list[Field]

    @property
    def is_fixed(self) -> bool:
        """Return True if the field takes the same number of bytes for all its values."""
        return not self.is_array and self.kind in _FIXED


class MessageSpec:
    """Holds the specification of one message.

    Args:
        name: the message's name: "Produce.request".
        versions: the versions that this client knows.
        flexible: the first version with compact lengths and tags.
        text: the lines of the message's fields, which are parsed when they are first read: a client uses few of the messages.
    """

    __slots__ = ("_fields", "flexible", "name", "text", "versions")

    def __init__(self, name: str, versions: range, flexible: int, text: str) -> None:
        self.name: str = name
        self.versions: range = versions
        self.flexible: int = flexible
        self.text: str = text
        self._fields: list[Field] | None = None

    @property
    def fields(self) -> list[Field]:
        """Return the message's fields.

        Raises:
            ValueError: a line is not valid; the error's text has the line.
        """
        if self._fields is None:
            self._fields = _fields_of(self.name, self.text)
        return self._fields


def default_source(field: Field) -> str:
    """Return a field's default as an expression for generated code.

    A structure's default is None, for which the message that has the field makes a new structure.
    """
    return "ZERO_ID" if field.kind == "uuid" else repr(field.default)


def parse(text: str) -> Mapping[str, MessageSpec]:
    """Return the messages of a text, by name."""
    specs: dict[str, MessageSpec] = {}
    # A message begins at each line that is not indented.
    for message in re.split(r"\n+(?! )", text.strip("\n")):
        head, _, fields = message.partition("\n")
        name, versions, _, flexible = head.split()
        specs[name] = MessageSpec(name, _versions(versions), int(flexible), fields)
    return specs


def _fields_of(name: str, text: str) -> list[Field]:
    fields: list[Field] = []
    # by depth, the list to which a field of that indent is added
    open_fields, paths = [fields], [name]
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        del open_fields[depth:], paths[depth:]
        field = _field(line, paths[-1])
        open_fields[-1].append(field)
        open_fields.append(field.fields)
        paths.append(field.path)
    return fields


def _field(line: str, path: str) -> Field:
    match = re.fullmatch(_LINE, line.strip(), re.VERBOSE)
    if match is None:
        raise ValueError(f"{line!r} is no field")
    kind = match["kind"].strip("{}") or "struct"
    if (kind == "bytes" and match["tag"]) or (kind in {"bytes", "uuid"} and match["array"]):
        raise ValueError(
            f"{line!r} needs what encoder and decoder do not do: no message that we speak has such a field"
        )
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
        is_secret=match["secret"] is not None,
        fields=[],
    )


def _default(match: re.Match[str], kind: str) -> object:
    """Return the value of a field in a version without it: the text's default, or Kafka's if the definition has none."""
    if match["array"]:
        return ()
    if match["default"]:
        return match["default"] == "true" or int(match["default"])
    is_always_nullable = match["null"] and not match["null_versions"]
    return None if is_always_nullable else _IMPLICIT.get(kind, 0)


def _versions(word: str | None) -> range:
    """Return the versions of the word `3`, `3+` or `3-12`; None means all."""
    if word is None:
        return _ALWAYS
    first, _, last = word.rstrip("+").partition("-")
    return range(int(first), _ALWAYS.stop if word.endswith("+") else int(last or first) + 1)
