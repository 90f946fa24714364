"""Holds passwords and keys so that no repr, log, pickle or traceback shows them, and reads them where a reference points.

A reference is the whole value of a secret option: `${env:NAME}` (an environment variable), `${file:/path:key}` (a key of a properties
file), `${file:/path}` (a whole file), `${dir:/path:file}` (a file of a directory). These are the providers of KIP-297, KIP-421, KIP-632 and
KIP-887. A reference is read at each use, so a rotated password needs no restart. Any other text is the secret itself.
"""

from __future__ import annotations

import hmac
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Never

from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Secret"]

_REFERENCE: Final = re.compile(r"\$\{(?P<provider>env|file|dir):(?P<place>[^{}]+)\}")


class Secret:
    """Holds one secret text, or a reference to it.

    The text is in a closure: no attribute, `vars`, `asdict`, traceback with locals or JSON shows it. `copy` and `deepcopy` return the same
    object. Only a reference can be pickled.

    Attributes:
        reference: the reference as it was given; None: the secret was given as its text.
    """

    __slots__ = ("_read", "reference")

    def __init__(self, text: str) -> None:
        match = _REFERENCE.fullmatch(text.strip())
        self.reference = text.strip() if match is not None else None
        self._read: Callable[[], str] = (lambda: text) if match is None else partial(_resolve, match["provider"], match["place"])

    def reveal(self) -> str:
        """Return the text. A reference is read now, which may block: call this in a worker thread.

        Raises:
            ConfigError: the reference names a variable, file or key that cannot be read; the text names it.
        """
        return self._read()

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
        return hmac.compare_digest(self._read().encode(), other._read().encode())

    def __hash__(self) -> int:
        return hash((Secret, self.reference))

    def __bool__(self) -> bool:
        return self.reference is not None or bool(self._read())

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Secret:
        return self

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """Return the reference for a pickle.

        Raises:
            TypeError: the secret is given as its text.
        """
        if self.reference is None:
            raise TypeError("a secret that was given as text is not pickled: give a reference such as ${env:NAME} or ${file:/path}")
        return Secret, (self.reference,)


def _resolve(provider: str, place: str) -> str:
    if provider == "env":
        if place not in os.environ:
            raise ConfigError(f"${{env:{place}}}: there is no environment variable {place}")
        return os.environ[place]
    path, colon, key = place.rpartition(":")
    if provider == "dir":
        if not colon:
            raise ConfigError(f"${{dir:{place}}}: write ${{dir:/path:file}}")
        return _text(Path(path) / key, f"${{dir:{place}}}").strip()
    # a Windows drive has a colon, too
    if not colon or Path(place).is_file():
        return _text(Path(place), f"${{file:{place}}}").strip()
    return _property(_text(Path(path), f"${{file:{place}}}"), key, place)


def _text(path: Path, reference: str) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        _refuse(f"{reference}: {path} cannot be read: {error.strerror or type(error).__name__}")
    except UnicodeDecodeError:
        _refuse(f"{reference}: {path} is no UTF-8 text")


def _refuse(text: str) -> Never:
    # a decoding error would carry the file's bytes as its context
    raise ConfigError(text) from None


def _property(text: str, key: str, place: str) -> str:
    """Return the value of a key of a properties file, written as `key=value` or `key: value`."""
    for line in text.splitlines():
        name, _, value = re.sub(r"\s*[=:]\s*", "=", line.strip(), count=1).partition("=")
        if name == key and not line.lstrip().startswith(("#", "!")):
            return value
    raise ConfigError(f"${{file:{place}}}: the file has no key {key!r}")
