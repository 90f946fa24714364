"""A broker's side of SASL, written from the RFCs and Kafka's rules apart from `aioproducer.sasl`, for scripted streams."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from scripted import Asked, ScriptedStream, api_versions

from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Login", "SaslBroker", "ScramServer"]

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class ScramServer:
    """One exchange of a SCRAM server (RFC 5802, section 3)."""

    def __init__(
        self, mechanism: str, users: dict[str, str], *, salt: bytes = b"salt of the user"
    ) -> None:
        self.hash = HASHES[mechanism]
        self.users = users
        self.salt = salt
        self.count = 4096
        self.user: str | None = None
        self.is_token = False

    def first(self, data: bytes) -> bytes:
        match = re.fullmatch(rb"n,,(n=([^,]*),r=([!-+\--~]+)(,tokenauth=true)?)", data)
        assert match is not None, data
        self.user = match[2].decode().replace("=2C", ",").replace("=3D", "=")
        self.is_token = match[4] is not None
        self.bare = match[1]
        self.nonce = match[3] + b"server"
        self.said = b"r=%b,s=%b,i=%d" % (self.nonce, base64.b64encode(self.salt), self.count)
        return self.said

    def last(self, data: bytes) -> bytes | None:
        """Return the server's last message; None: the proof is wrong."""
        unproved, _, proof = data.rpartition(b",p=")
        if unproved != b"c=biws,r=" + self.nonce:
            return None
        password = self.users.get(self.user or "", "")
        salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), self.salt, self.count)
        everything = b",".join((self.bare, self.said, unproved))
        stored = hashlib.new(self.hash, hmac.digest(salted, b"Client Key", self.hash)).digest()
        signature = hmac.digest(stored, everything, self.hash)
        key = bytes(
            one ^ other for one, other in zip(base64.b64decode(proof), signature, strict=True)
        )
        if self.user not in self.users or hashlib.new(self.hash, key).digest() != stored:
            return None
        return b"v=" + base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", self.hash), everything, self.hash)
        )


class Login(NamedTuple):
    """A judged authentication."""

    at: float
    stream: ScriptedStream
    mechanism: str
    user: str | None
    is_good: bool
    is_renewal: bool


class _State:
    def __init__(self) -> None:
        self.mechanism: str | None = None
        self.user: str | None = None
        self.scram: ScramServer | None = None
        self.began_at = -10.0
        self.ends_at: float | None = None


class SaslBroker:
    """Answers as a broker with a SASL listener does: give `answers` to a `ScriptedDialer`.

    Attributes:
        users: names and passwords.
        mechanisms: that are enabled.
        session_ms: of each session; 0: it does not end.
        logins: what was judged.
        violations: what no client may do.
        seen: the other requests, each with its stream.
        others: answers other requests.
    """

    def __init__(
        self,
        users: dict[str, str],
        mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    ) -> None:
        self.users = users
        self.mechanisms = mechanisms
        self.session_ms = 0
        self.logins: list[Login] = []
        self.violations: list[str] = []
        self.seen: list[tuple[ScriptedStream, Asked]] = []
        self.others: Callable[[ScriptedStream, Asked], None] = lambda stream, asked: stream.answer(
            asked
        )
        self.silent: set[ApiKey] = set()
        self._states: dict[ScriptedStream, _State] = {}

    def renewals(self) -> int:
        return sum(login.is_renewal and login.is_good for login in self.logins)

    def answers(self, stream: ScriptedStream, asked: Asked) -> None:
        if stream.is_closing():
            return
        state = self._states.setdefault(stream, _State())
        now = asyncio.get_running_loop().time()
        if asked.key in self.silent:
            return
        if asked.key is ApiKey.API_VERSIONS:
            api_versions(stream, asked)
        elif asked.key is ApiKey.SASL_HANDSHAKE:
            self._handshake(stream, asked, state, now)
        elif asked.key is ApiKey.SASL_AUTHENTICATE:
            self._authenticate(stream, asked, state, now)
        elif state.mechanism is not None or state.user is None:
            self.violations.append(f"{asked.key.name} in an exchange")
            stream.abort()
        elif state.ends_at is not None and now > state.ends_at:
            stream.end()
        else:
            self.seen.append((stream, asked))
            self.others(stream, asked)

    def _handshake(self, stream: ScriptedStream, asked: Asked, state: _State, now: float) -> None:
        mechanism = asked.message.mechanism
        if state.user is not None and now - state.began_at < 1:
            self.violations.append("a renewal within a second")
            stream.answer(asked, message("SaslHandshake.response", error_code=34))
            return
        state.began_at = now
        if mechanism not in self.mechanisms:
            stream.answer(
                asked,
                message("SaslHandshake.response", error_code=33, mechanisms=list(self.mechanisms)),
            )
            stream.end()
            return
        state.mechanism = mechanism
        state.scram = ScramServer(mechanism, self.users) if mechanism in HASHES else None
        stream.answer(asked, message("SaslHandshake.response", mechanisms=list(self.mechanisms)))

    def _authenticate(
        self, stream: ScriptedStream, asked: Asked, state: _State, now: float
    ) -> None:
        data = asked.message.auth_bytes
        if state.mechanism == "PLAIN":
            _, user, password = data.decode().split("\0")
            self._judge(
                stream, asked, state, now, user, b"" if self.users.get(user) == password else None
            )
        elif state.scram is None:
            self.violations.append("SaslAuthenticate without SaslHandshake")
            stream.abort()
        elif state.scram.user is None:
            stream.answer(
                asked,
                message("SaslAuthenticate.response", auth_bytes=state.scram.first(data)),
            )
        else:
            self._judge(stream, asked, state, now, state.scram.user, state.scram.last(data))

    def _judge(
        self,
        stream: ScriptedStream,
        asked: Asked,
        state: _State,
        now: float,
        user: str,
        proof: bytes | None,
    ) -> None:
        is_renewal = state.user is not None
        is_same = not is_renewal or state.user == user
        is_good = proof is not None and is_same
        self.logins.append(Login(now, stream, state.mechanism or "", user, is_good, is_renewal))
        state.mechanism = None
        if is_good:
            state.user = user
            state.ends_at = now + self.session_ms / 1000 if self.session_ms else None
            answer = message(
                "SaslAuthenticate.response", auth_bytes=proof, session_lifetime_ms=self.session_ms
            )
            stream.answer(asked, answer)
            return
        text = (
            "Authentication failed: Invalid username or password"
            if is_same
            else "Cannot change principals during re-authentication"
        )
        answer = message("SaslAuthenticate.response", error_code=58, error_message=text)
        asyncio.get_running_loop().call_later(0.3, self._refuse, stream, asked, answer)

    def _refuse(self, stream: ScriptedStream, asked: Asked, answer: Any) -> None:
        if not stream.is_closing():
            stream.answer(asked, answer)
            stream.end()
