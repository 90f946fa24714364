"""Holds bearer tokens (RFC 6750), what gives them, and when they are replaced.

1. A token is refreshed at 80 to 85 % of its life. A session is renewed at 85 to 95 % of its own, so a renewal has the new token.
2. A token's life is known from its source, or from the `exp` of a JWT. Nothing is verified here: that is the broker's part.

The options of the first rule are those of Java's `ExpiringCredentialRefreshingLogin` (KIP-255, KIP-368).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from aioproducer.config.secret import Secret

# Parts of a signed JWT: header, claims and signature, of which the last may be empty.
_PARTS: Final = 3
# Characters of a principal that texts may have.
_LONGEST_PRINCIPAL: Final = 200


class Token(NamedTuple):
    """Holds a token, and what this client knows of it without verifying it.

    Attributes:
        text: the token, hidden.
        expires_at: in seconds since 1970; None: not known.
        principal: the subject of the token, for error texts and `health()`; empty: not known.
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


class JwtClaims(NamedTuple):
    """Holds what a JWT says of itself, not verified.

    Attributes:
        expires_at: its `exp`, in seconds since 1970; None: it has none, or the token is no JWT.
        principal: its `sub`; empty: it has none.
    """

    expires_at: float | None = None
    principal: str = ""


def jwt_claims(token: str) -> JwtClaims:
    """Return the claims of a token. A token that is no JWT is opaque: it has none."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return JwtClaims()
    try:
        claims: Any = json.loads(
            base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True)
        )
    # a RecursionError reports JSON that is nested too deeply
    except (binascii.Error, ValueError, RecursionError):
        return JwtClaims()
    if not isinstance(claims, dict):
        return JwtClaims()
    subject: Any = claims.get("sub")
    is_shown = isinstance(subject, str) and subject.isprintable()
    return JwtClaims(_seconds(claims.get("exp")), subject[:_LONGEST_PRINCIPAL] if is_shown else "")


def _seconds(expires_at: object) -> float | None:
    if isinstance(expires_at, bool) or not isinstance(expires_at, (int, float)):
        return None
    try:
        seconds = float(expires_at)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


class RefreshPolicy(NamedTuple):
    """Holds when a token is refreshed; times are seconds.

    Attributes:
        factor: share of the token's life after which it is refreshed.
        jitter: share of the life that is added at random.
        min_period: life of a token within which it is not refreshed.
        buffer: time before the token's end that is left for the refresh. A life shorter than both times together has neither.
    """

    factor: float = 0.8
    jitter: float = 0.05
    min_period: float = 60.0
    buffer: float = 300.0

    def refresh_after(self, life: float, chance: float) -> float:
        """Return the seconds from the fetch of a token to its refresh.

        Args:
            life: seconds from the fetch to the end of the token.
            chance: a random number in [0, 1).
        """
        after = life * (self.factor + self.jitter * chance)
        if life < self.min_period + self.buffer:
            return max(after, 0.0)
        return max(self.min_period, min(after, life - self.buffer))
