"""Reads what references to secrets name: environment variables, files, and keys of properties files."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["NotText", "PROVIDERS", "Secret", "file_of", "hide", "is_reference", "read_properties", "resolve"]

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


# Holds passwords and keys so that no repr, log, pickle or traceback shows them, and reads them where a reference points.
#
# A reference is the whole value of a secret option: `${env:NAME}` (an environment variable), `${file:/path:key}` (a key of a properties
# file), `${file:/path}` (a whole file), `${dir:/path:file}` (a file of a directory). These are the providers of KIP-297, KIP-421, KIP-632 and
# KIP-887. A reference is read at each use, so a rotated password needs no restart. Any other text is the secret itself.
#
# An error of this module is raised where no frame holds what was read: tools that record tracebacks write down the locals of each frame.


PROVIDERS: Final = ("env", "file", "dir")
_REFERENCE: Final = rf"\$\{{(?P<provider>{'|'.join(PROVIDERS)}):(?P<place>[^{{}}]+)\}}"
# The text of a private key in PEM, for any option.
_PRIVATE_KEY: Final = "PRIVATE KEY-----"


class NotText:
    """Holds a value of a secret option that is no string: its repr may show a secret.

    Attributes:
        type_name: the name of the value's type.
    """

    __slots__ = ("_reveal", "type_name")

    def __init__(self, value: object) -> None:
        self.type_name: str = type(value).__name__
        self._reveal: Callable[[], Any] = lambda: value

    def reveal(self) -> Any:
        """Return the value."""
        return self._reveal()

    def __repr__(self) -> str:
        return f"<{self.type_name} hidden>"

    def __eq__(self, other: object) -> bool:
        return self._reveal() is other._reveal() if isinstance(other, NotText) else NotImplemented

    def __hash__(self) -> int:
        return id(self._reveal())

    def __copy__(self) -> NotText:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> NotText:
        return self

    def __reduce__(self) -> tuple[type[NotText], tuple[Any]]:
        """Return a function for a pickle, which writes its name down.

        Raises:
            TypeError: the value is none; its state may have a secret.
        """
        if not isinstance(self._reveal(), FunctionType):
            raise TypeError(
                "an object that may hold a secret is not pickled: give a function of a module, or a reference such as ${file:/path}"
            )
        return NotText, (self._reveal(),)


class Secret:
    """Holds one secret text, or a reference to it.

    The text is in a closure: no attribute, `vars`, `asdict`, traceback with locals or JSON shows it. `copy` and `deepcopy` return the same
    object. Only a reference can be pickled.

    Attributes:
        reference: the reference as it was given; None: the secret was given as its text.
    """

    __slots__ = ("_read", "reference")

    def __init__(self, text: str) -> None:
        match = re.fullmatch(_REFERENCE, text.strip())
        self.reference: str | None = text.strip() if match is not None else None
        self._read: Callable[[], str] = (lambda: text) if match is None else partial(_resolve, match["provider"], match["place"])

    def reveal(self) -> str:
        """Return the text. A reference is read now, which may block: call this in a worker thread.

        Raises:
            ConfigError: the reference names a variable, file or key that cannot be read, or is empty; the text names it.
        """
        return self._read()

    @property
    def file(self) -> Path | None:
        """Return the file that a reference names; None: it names none. The file is not looked for, except one with a colon in its name."""
        match = re.fullmatch(_REFERENCE, self.reference or "")
        if match is None or match["provider"] == "env":
            return None
        # Only a config with a reference imports the code that reads it.

        return file_of(match["provider"], match["place"])

    @property
    def is_encodable(self) -> bool:
        """Return whether UTF-8 has all characters of the text. A reference is not read for that."""
        return self.reference is not None or _is_encodable(self._read())

    @property
    def is_mixed(self) -> bool:
        """Return whether the text has a reference within other text, where it is not read."""
        return self.reference is None and re.search(_REFERENCE, self._read()) is not None

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
        # It loads OpenSSL's hashes, and secrets are rarely compared.
        import hmac

        return hmac.compare_digest(self._read().encode("utf-8", "surrogatepass"), other._read().encode("utf-8", "surrogatepass"))

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
    # Only a config with a reference imports the code that reads it.

    return resolve(provider, place)


def is_reference(text: str) -> bool:
    """Return whether the whole text is a reference."""
    return re.fullmatch(_REFERENCE, text.strip()) is not None


def hide(options: dict[Any, Any], is_shown: Callable[[Any], bool]) -> None:
    """Replace each value by a `Secret`, in place, unless `is_shown` returns True for its name. A private key is replaced under any name.

    None stays None. What is no string becomes a `NotText`.
    """
    options.update({name: _hidden(value, is_shown=is_shown(name)) for name, value in options.items()})


def _hidden(value: Any, *, is_shown: bool) -> Any:
    if isinstance(value, str) and (not is_shown or _PRIVATE_KEY in value):
        return Secret(value)
    return value if is_shown or value is None or isinstance(value, (Secret, NotText)) else NotText(value)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
