"""Holds passwords and keys so that no repr, log, error, pickle or JSON shows them, and reads them where a reference points.

A reference is the whole value of a secret option: `${env:NAME}` (an environment variable), `${file:/path:key}` (a key of a properties
file), `${file:/path}` (a whole file), `${dir:/path:file}` (a file of a directory). These are the providers of KIP-297, KIP-421, KIP-632 and
KIP-887. A reference is read at each use, so a rotated password needs no restart. Any other text is the secret itself.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aioproducer.errors import ConfigError

PROVIDERS: Final = ("env", "file", "dir")
_REFERENCE: Final = re.compile(rf"\$\{{(?P<provider>{'|'.join(PROVIDERS)}):(?P<place>[^{{}}]+)\}}")
# Key and value of a line of a properties file: the key ends at the first `=`, `:` or blank without a backslash before it.
_PROPERTY: Final = r"(?P<key>(?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*)?(?P<value>.*)"
_ESCAPE: Final = r"\\(u[0-9a-fA-F]{4}|.)"
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Secret:
    """Holds one secret text, or a reference to it.

    `copy` and `deepcopy`, and so `asdict`, return the same object. Only a reference can be pickled.

    Attributes:
        reference: the reference as it was given; None: the secret was given as its text.
    """

    __slots__ = ("_text", "reference")

    def __init__(self, text: str) -> None:
        self.reference: str | None = text.strip() if is_reference(text) else None
        self._text = text

    def reveal(self) -> str:
        """Return the text. A reference is read now, which may block: call this in a worker thread.

        Raises:
            ConfigError: the reference names a variable, file or key that cannot be read, or is empty; the text names it.
        """
        return self._text if self.reference is None else _resolve(self.reference)

    @property
    def file(self) -> Path | None:
        """Return the file that a reference names; None: it names none. The file is not looked for, except one with a colon in its name."""
        provider, place = _parts(self.reference or "${env:}")
        if provider == "env":
            return None
        path, _, name = place.rpartition(":")
        if provider == "dir":
            return Path(path) / name
        return Path(path if path and not Path(place).is_file() else place)

    def __repr__(self) -> str:
        return f"<Secret {self.reference or 'hidden'}>"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self.reference is not None or other.reference is not None:
            return self.reference == other.reference
        return hmac.compare_digest(
            self._text.encode("utf-8", "surrogatepass"),
            other._text.encode("utf-8", "surrogatepass"),
        )

    def __hash__(self) -> int:
        return hash((Secret, self.reference))

    def __bool__(self) -> bool:
        return bool(self._text)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """Return the reference for a pickle.

        Raises:
            TypeError: the secret is given as its text.
        """
        if self.reference is None:
            raise TypeError(
                "a secret that was given as text is not pickled: give a reference such as ${env:NAME} or ${file:/path}"
            )
        return Secret, (self.reference,)


def is_reference(text: str) -> bool:
    """Return whether the whole text is a reference."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def has_reference(text: str) -> bool:
    """Return whether there is a reference within the text."""
    return _REFERENCE.search(text) is not None


def has_private_key(value: object) -> bool:
    """Return whether a value is a text with a private key in PEM, which is a secret whatever it was given for."""
    return isinstance(value, str) and "PRIVATE KEY-----" in value


# Reading what a reference names


class _Unreadable(Exception):
    """Says why a reference gives no text."""


def _parts(reference: str) -> tuple[str, str]:
    provider, _, place = reference[2:-1].partition(":")
    return provider, place


def _resolve(reference: str) -> str:
    provider, place = _parts(reference)
    try:
        text = _READERS[provider](place)
        if not text:
            raise _Unreadable("it is empty")
    except _Unreadable as why:
        raise ConfigError(f"{reference}: {why}") from None
    return text


def _variable(name: str) -> str:
    if name not in os.environ:
        raise _Unreadable(f"there is no environment variable {name}")
    return os.environ[name]


def _file(place: str) -> str:
    path, colon, key = place.rpartition(":")
    # a Windows drive has a colon, too
    if not colon or Path(place).is_file():
        return _content(Path(place)).strip()
    properties = dict(read_properties(_content(Path(path))))
    if key not in properties:
        raise _Unreadable(f"the file has no key {key!r}")
    return properties[key]


def _file_of_directory(place: str) -> str:
    path, colon, name = place.rpartition(":")
    if not colon or Path(name).name != name:
        raise _Unreadable("write ${dir:/path:file}")
    return _content(Path(path) / name).strip()


_READERS: Final = {"env": _variable, "file": _file, "dir": _file_of_directory}


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise _Unreadable(
            f"{path} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    # the error holds the bytes of the file
    except UnicodeDecodeError:
        raise _Unreadable(f"{path} is no UTF-8 text") from None


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
