"""Reads what references to secrets name: environment variables, files, and keys of properties files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproducer.errors import ConfigError
from aioproducer.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["file_of", "read_properties", "resolve"]

# Key and value of a line of a properties file: the key ends at the first `=`, `:` or blank without a backslash before it.
_PROPERTY: Final = r"(?P<key>(?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)"
_ESCAPE: Final = r"\\(u[0-9a-fA-F]{4}|.)"
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class _Found(NamedTuple):
    """Holds what a reference gave: the text, or why there is none."""

    text: str = ""
    why: str = ""


def resolve(provider: str, place: str) -> str:
    """Return the text that a reference names.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    found = {"env": _variable, "file": _file, "dir": _file_of_directory}[provider](place)
    if found.text:
        return found.text
    raise ConfigError(f"${{{provider}:{place}}}: {found.why or 'it is empty'}")


def file_of(provider: str, place: str) -> Path:
    """Return the file that a reference to a file or a directory names."""
    path, _, name = place.rpartition(":")
    if provider == "dir":
        return Path(path) / name
    return Path(path if path and not Path(place).is_file() else place)


def _variable(name: str) -> _Found:
    return _Found(os.environ[name]) if name in os.environ else _Found(why=f"there is no environment variable {name}")


def _file_of_directory(place: str) -> _Found:
    path, colon, name = place.rpartition(":")
    if not colon or Path(name).name != name:
        return _Found(why="write ${dir:/path:file}")
    return _whole(Path(path) / name)


def _file(place: str) -> _Found:
    path, colon, key = place.rpartition(":")
    # A Windows drive has a colon, too.
    if not colon or Path(place).is_file():
        return _whole(Path(place))
    found = _content(Path(path))
    if found.why:
        return found
    value = dict(read_properties(found.text)).get(key)
    return _Found(why=f"the file has no key {key!r}") if value is None else _Found(value)


def _whole(path: Path) -> _Found:
    found = _content(path)
    return _Found(found.text.strip(), found.why)


def _content(path: Path) -> _Found:
    try:
        return _Found(path.read_text("utf-8"))
    except OSError as error:
        return _Found(why=f"{path} cannot be read: {error.strerror or type(error).__name__}")
    # The error holds the bytes of the file.
    except UnicodeDecodeError:
        return _Found(why=f"{path} is no UTF-8 text")


def read_properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a properties file, as `java.util.Properties.load` reads them."""
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        # An odd number of backslashes at the end continues the line.
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        match = re.fullmatch(_PROPERTY, line, re.DOTALL)
        if match is not None:
            yield _unescaped(match["key"]), _unescaped(match["value"])


def _unescaped(text: str) -> str:
    return re.sub(_ESCAPE, _character, text, flags=re.DOTALL)


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1][1:], 16)) if len(match[1]) > 1 else _ESCAPED.get(match[1], match[1])
