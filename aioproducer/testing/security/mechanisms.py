"""The servers of the SASL mechanisms PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677), with the limits of Kafka's servers.

As in Kafka: names of SCRAM users are ASCII; extensions and the reserved field `m=` are ignored, but for `tokenauth=true` (KIP-48).
Deviation: the server of SCRAM compares the channel binding with the first message's, as RFC 5802 says; Kafka does not look at it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer.testing.security.accounts import HASHES

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.testing.security.accounts import Accounts, ScramCredential

__all__ = ["MechanismServer", "PlainServer", "Refusal", "ScramServer"]

_BASE64: Final = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_SASL_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"  # ASCII without NUL, "," and "="
_EXTENSIONS: Final = rb"(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST: Final = re.compile(
    rb"(?P<header>n,(?:a=(?P<authzid>"
    + _SASL_NAME
    + rb"))?,)(?P<bare>(?:m=[^,\x00]+,)?n=(?P<name>"
    + _SASL_NAME
    + rb"),"
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)" + _EXTENSIONS + rb")"
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<unproved>c=(?P<binding>"
    + _BASE64
    + rb"),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\x00]+)*),p=(?P<proof>"
    + _BASE64
    + rb")"
)
_OTHER_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
_INVALID: Final = "Authentication failed: Invalid username or password"
_PLAIN_PARTS: Final = 3
_TOKEN_AUTH: Final = b",tokenauth=true"


class Refusal(Exception):
    """Refuses a client; `text` is Kafka's text for it, or None for the text that tells the client nothing but the mechanism."""

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or "invalid credentials")
        self.text = text


class MechanismServer(Protocol):
    """Authenticates one client by one mechanism.

    Attributes:
        claimed: the name that the client gave; None: no message had one.
        principal: the authenticated user; None: the exchange has not ended.
        ends: loop time at which the client's credential ends; None: never.
    """

    claimed: str | None
    principal: str | None
    ends: float | None

    def respond(self, token: bytes) -> bytes:
        """Take the client's next token; return the server's next one. Raises Refusal."""


class PlainServer:
    """Authenticates one client by PLAIN: one message of authorization id, user and password, with NUL between them."""

    def __init__(self, accounts: Accounts) -> None:
        self.claimed: str | None = None
        self.principal: str | None = None
        self.ends: float | None = None
        self._accounts = accounts

    def respond(self, token: bytes) -> bytes:
        """Take the message; return the empty answer.

        Raises:
            Refusal: it is malformed, the password is wrong, or the authorization id is another user's.
        """
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != _PLAIN_PARTS:
            raise Refusal(
                f"Invalid SASL/PLAIN response: expected {_PLAIN_PARTS} tokens, got {len(parts)}"
            )
        authorization_id, user, password = parts
        self.claimed = user
        if not user or not password:
            raise Refusal(
                f"Authentication failed: {'password' if user else 'username'} not specified"
            )
        if not self._accounts.accepts(user, password):
            raise Refusal(_INVALID)
        if authorization_id not in {"", user}:
            raise Refusal(_OTHER_ID)
        self.principal = user
        return b""


class ScramServer:
    """Authenticates one client by SCRAM-SHA-256 or SCRAM-SHA-512.

    Args:
        mechanism: which of the two.
        find: returns the credential of a name; its second argument tells whether the name is a delegation token's id.
        nonce: the server's part of the nonce: printable ASCII without a comma.
    """

    def __init__(
        self, mechanism: str, find: Callable[[str, bool], ScramCredential | None], nonce: str
    ) -> None:
        self.claimed: str | None = None
        self.principal: str | None = None
        self.ends: float | None = None
        self._hash = HASHES[mechanism]
        self._find = find
        self._own_nonce = nonce.encode()
        self._credential: ScramCredential | None = None
        self._nonce = self._header = self._said = b""

    def respond(self, token: bytes) -> bytes:
        """Take the client's first or final message; return the server's.

        Raises:
            Refusal: a message is malformed, the user is unknown, or the proof is wrong.
        """
        return (
            self._first(token) if self._credential is None else self._final(token, self._credential)
        )

    def _first(self, token: bytes) -> bytes:
        match = _CLIENT_FIRST.fullmatch(token)
        if match is None:
            raise Refusal
        self.claimed = _unescaped(match["name"])
        credential = self._find(self.claimed, _TOKEN_AUTH in match["extensions"])
        if credential is None:
            raise Refusal
        if match["authzid"] is not None and _unescaped(match["authzid"]) != self.claimed:
            raise Refusal(_OTHER_ID)
        self._credential, self._header, self._nonce = (
            credential,
            match["header"],
            match["nonce"] + self._own_nonce,
        )
        answer = b"r=%b,s=%b,i=%d" % (
            self._nonce,
            base64.b64encode(credential.salt),
            credential.iterations,
        )
        self._said = match["bare"] + b"," + answer
        return answer

    def _final(self, token: bytes, credential: ScramCredential) -> bytes:
        match = _CLIENT_FINAL.fullmatch(token)
        if (
            match is None
            or match["nonce"] != self._nonce
            or base64.b64decode(match["binding"]) != self._header
        ):
            raise Refusal
        said = self._said + b"," + match["unproved"]
        signature = hmac.digest(credential.stored_key, said, self._hash)
        try:
            proof = base64.b64decode(match["proof"], validate=True)
            client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        except (binascii.Error, ValueError):
            raise Refusal from None
        if not hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), credential.stored_key
        ):
            raise Refusal
        self.principal, self.ends = credential.owner, credential.ends
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, said, self._hash))


def _unescaped(name: bytes) -> str:
    return name.decode("ascii").replace("=2C", ",").replace("=3D", "=")
