"""Holds bytes that no repr, pickle or traceback with locals shows: what SASL sends, and the keys that it derives."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Never

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SecretBytes"]


class SecretBytes:
    """Holds secret bytes in a closure. A caller uses `reveal` within the expression that needs them, never as a local variable."""

    __slots__ = ("_reveal",)

    def __init__(self, data: bytes) -> None:
        self._reveal: Callable[[], bytes] = lambda: data

    def reveal(self) -> bytes:
        """Return the bytes."""
        return self._reveal()

    def __repr__(self) -> str:
        return "<SecretBytes hidden>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretBytes):
            return NotImplemented
        return hmac.compare_digest(self._reveal(), other._reveal())

    def __hash__(self) -> int:
        return hash(SecretBytes)

    def __reduce__(self) -> Never:
        """Refuse to be pickled or copied.

        Raises:
            TypeError: always.
        """
        raise TypeError("secret bytes are not pickled")
