"""Holds passwords and keys so that no repr, log, pickle or traceback shows them, and reads them where a reference points.

A reference is the whole value of a secret option: `${env:NAME}` (an environment variable), `${file:/path:key}` (a key of a properties
file), `${file:/path}` (a whole file), `${dir:/path:file}` (a file of a directory). These are the providers of KIP-297, KIP-421, KIP-632 and
KIP-887. A reference is read at each use, so a rotated password needs no restart. Any other text is the secret itself.

An error of this module is raised where no frame holds what was read: tools that record tracebacks write down the locals of each frame.
"""

from __future__ import annotations

import re
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["PROVIDERS", "NotText", "Secret", "hide", "is_reference"]

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
        from aioproducer.secret_references import file_of

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
    from aioproducer.secret_references import resolve

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
