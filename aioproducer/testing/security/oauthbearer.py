r"""The server of OAUTHBEARER (RFC 7628), and the tokens that it takes, with the texts and limits of Kafka's server.

1. The client's message is matched as a whole. A malformed one is refused at once. Deviation: Kafka closes the connection
   without an answer if the scheme is not Bearer.
2. A token that is not accepted is answered with an error in JSON. The client's answer to it is `\x01`, and then the exchange is refused
   with the JSON as its text.
3. The session ends with the token, whether the listener limits sessions or not.

A token is an unsecured JWT (RFC 7519 section 6), as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler takes them; or one that a function
verifies; or an opaque text that is known.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aioproducer.testing.security.mechanisms import Refusal

__all__ = ["ListenerTokens", "OAuthBearerServer", "unsecured_token"]

_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>"
    + _NAME
    + rb"))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_ERROR_TAKEN: Final = b"\x01"
_INVALID: Final = {"status": "invalid_token"}
_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class ListenerTokens:
    """Holds which bearer tokens a listener takes.

        ListenerTokens()                                              # unsecured JWTs, see `unsecured_token`
        ListenerTokens(scope=("produce",), extensions={"logicalCluster": "lkc-1"})
        ListenerTokens(unsecured=False, opaque={"canary-token": "alice"})

    Args:
        unsecured: whether JWTs without a signature are taken (`"alg": "none"`).
        opaque: the principal of each token that is known as it is; they do not end.
        verify: returns the claims of any other token, or None if it is not good; the dates in them are checked besides.
        scope: words that the claim `scope` must have.
        audience: the claim `aud` has it; empty: any.
        extensions: SASL extensions that a client must send (KIP-342).
    """

    unsecured: bool = True
    opaque: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    verify: Callable[[str], Mapping[str, Any] | None] | None = None
    scope: tuple[str, ...] = ()
    audience: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict[str, str])


def unsecured_token(
    user: str, seconds: float = 3600.0, *, now: float | None = None, **claims: Any
) -> str:
    """Return a JWT without a signature, which Kafka's default validator and the fake take.

    Args:
        user: the claim `sub`, which becomes the principal.
        seconds: until it ends.
        now: the time of its issue, in seconds since 1970; None: the clock's.
        claims: more claims, such as `scope`. They replace those that are made here; None leaves one out.
    """
    issued_at = time.time() if now is None else now
    # Kafka counts whole milliseconds, and refuses what was issued within the one that has not ended
    told = {"sub": user, "iat": int(issued_at), "exp": issued_at + seconds, **claims}
    body = {name: value for name, value in told.items() if value is not None}
    return ".".join((_encoded({"alg": "none"}), _encoded(body), ""))


def _encoded(part: Mapping[str, Any]) -> str:
    return (
        base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode())
        .decode()
        .rstrip("=")
    )


def _parsed(message: bytes) -> tuple[bytes | None, str, dict[str, str]]:
    """Return authorization id, token, and all pairs of the client's first message.

    Raises:
        Refusal: the message is malformed.
    """
    match = _FIRST.fullmatch(message)
    if match is None:
        raise Refusal
    pairs = [
        pair.partition("=")[::2] for pair in match["pairs"].decode("ascii").split("\x01") if pair
    ]
    bearer = _AUTH.fullmatch(dict(pairs).get("auth", ""))
    if bearer is None or bearer["scheme"].lower() != "bearer" or len(dict(pairs)) < len(pairs):
        raise Refusal
    return match["authzid"], bearer["token"], dict(pairs)


class OAuthBearerServer:
    """Authenticates one client by OAUTHBEARER.

    Args:
        tokens: which tokens are taken.
        now: the loop's time.
        wall_now: the same time, in seconds since 1970.
    """

    def __init__(self, tokens: ListenerTokens, now: float, wall_now: float) -> None:
        self.claimed: str | None = None
        self.principal: str | None = None
        self.ends: float | None = None
        self._tokens = tokens
        self._now = now
        self._wall_now = wall_now
        self._error: str | None = None

    def respond(self, token: bytes) -> bytes:
        """Take the client's message, or its answer to an error.

        Raises:
            Refusal: the message is malformed, an extension is missing, or the client has taken the error.
        """
        if self._error is not None:
            raise Refusal(self._error if token == _ERROR_TAKEN else None)
        authorization_id, bearer, pairs = _parsed(token)
        claims = self._claims(bearer)
        error = _INVALID if claims is None else self._fault(claims)
        if error is not None or claims is None:
            self._error = json.dumps(error, separators=(",", ":"))
            return self._error.encode()
        self._check_names(authorization_id, str(claims["sub"]), pairs)
        self.principal = str(claims["sub"])
        self.ends = None if claims["exp"] is None else self._now + claims["exp"] - self._wall_now
        return b""

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token; None: it is not good."""
        owner = self._tokens.opaque.get(token)
        if owner is not None:
            return {
                "sub": owner,
                "exp": None,
                "scope": " ".join(self._tokens.scope),
                "aud": self._tokens.audience,
            }
        claims = _unsecured(token) if self._tokens.unsecured else None
        if claims is None and self._tokens.verify is not None:
            claims = self._tokens.verify(token)
        if (
            claims is None
            or not isinstance(claims.get("sub"), str)
            or not isinstance(claims.get("exp"), (int, float))
        ):
            return None
        self.claimed = claims["sub"]
        return claims

    def _fault(self, claims: Mapping[str, Any]) -> dict[str, str] | None:
        """Return the error of a token by its claims; None: it is good."""
        self.claimed = claims["sub"]
        if claims["exp"] is not None and claims["exp"] <= self._wall_now:
            return _INVALID
        if max(claims.get("nbf", 0), claims.get("iat", 0)) > self._wall_now:
            return _INVALID
        given = claims.get("aud", "")
        if self._tokens.audience and self._tokens.audience not in (
            [given] if isinstance(given, str) else given
        ):
            return _INVALID
        scope = claims.get("scope", "")
        if not set(self._tokens.scope) <= set(scope.split() if isinstance(scope, str) else scope):
            return {"status": "insufficient_scope", "scope": " ".join(self._tokens.scope)}
        return None

    def _check_names(
        self, authorization_id: bytes | None, principal: str, pairs: Mapping[str, str]
    ) -> None:
        """Check the authorization id and the extensions."""
        asked = (
            None
            if authorization_id is None
            else authorization_id.decode("ascii").replace("=2C", ",").replace("=3D", "=")
        )
        if asked not in {None, principal}:
            raise Refusal(
                f"Authentication failed: Client requested an authorization id ({asked}) that is different from the token's principal name"
                f" ({principal})"
            )
        wrong = [
            name for name, value in self._tokens.extensions.items() if pairs.get(name) != value
        ]
        if wrong:
            raise Refusal(
                f"Authentication failed: {len(wrong)} extensions are invalid! They are: {', '.join(wrong)}"
            )


def _unsecured(token: str) -> Mapping[str, Any] | None:
    """Return the claims of a JWT without a signature; None: it is none."""
    parts = token.split(".")
    if len(parts) != _PARTS or parts[2]:
        return None
    try:
        header, claims = (
            json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            for part in parts[:2]
        )
    except ValueError:
        return None
    return (
        claims
        if isinstance(header, dict) and header.get("alg") == "none" and isinstance(claims, dict)
        else None
    )
