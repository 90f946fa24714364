"""Holds bearer tokens (RFC 6750), and what gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aioproducer.secret import Secret

__all__ = ["Token", "TokenSource"]


class Token(NamedTuple):
    """Holds a token, and what this client knows of it without verifying it.

    Attributes:
        text: the token, hidden.
        expires_at: in seconds since 1970; None: not known.
        principal: whom the token is for, for error texts and `health()`; empty: not known.
        extensions: SASL extensions of its own (RFC 7628, KIP-342), as (name, value).
    """

    text: Secret
    expires_at: float | None
    principal: str
    extensions: tuple[tuple[str, str], ...] = ()


class TokenSource(Protocol):
    """Gives tokens.

    Attributes:
        name: names the source in error texts: "the token function", "the token endpoint id.example.com". It has no secret.
    """

    name: str

    def fetch(self) -> Token:
        """Return a new token. The call may block: it is made in a daemon thread.

        Raises:
            TokenUnavailable: there is none. The text has no secret and quotes nothing that a user's code raised.
        """
