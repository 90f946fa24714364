"""The states of one connection's SASL authentication, as Kafka's SaslServerAuthenticator has them; no I/O, time is an argument.

1. First one ApiVersions request, then SaslHandshake; either may be left out, and any other request closes the connection.
2. Between SaslHandshake and the last SaslAuthenticate, any other request is answered with ILLEGAL_SASL_STATE, and ends the connection.
3. SaslHandshake on an authenticated connection begins a re-authentication (KIP-368): not twice within a second, by the same mechanism and
   as the same principal.
4. A session's end is judged when a request other than such a SaslHandshake is read.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import broker_error
from aioproducer.testing.security.listener import SIMPLE_SERVERS, WITH_TOKENS
from aioproducer.testing.security.mechanisms import Refusal, ScramServer
from aioproducer.testing.security.oauthbearer import ListenerTokens, OAuthBearerServer
from aioproducer.testing.security.tls import server_context
from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from aioproducer.testing.security.accounts import Accounts
    from aioproducer.testing.security.listener import ListenerSecurity, ListenerTls
    from aioproducer.testing.security.mechanisms import MechanismServer

__all__ = [
    "ANONYMOUS",
    "MOST_BYTES",
    "Admission",
    "Authenticator",
    "BrokerSecurity",
    "Ending",
    "Outcome",
]

ANONYMOUS: Final = "ANONYMOUS"
MOST_BYTES: Final = (
    512 * 1024
)  # of a request during authentication: Kafka's sasl.server.max.receive.size
_ILLEGAL: Final = broker_error("ILLEGAL_SASL_STATE").code
_UNSUPPORTED: Final = broker_error("UNSUPPORTED_SASL_MECHANISM").code
_FAILED: Final = broker_error("SASL_AUTHENTICATION_FAILED").code
_LEAST_BETWEEN_RENEWALS: Final = (
    1.0  # seconds; Kafka's KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS
)
_AFTER_AUTHENTICATION: Final = "SaslAuthenticate request received after successful authentication"


class BrokerSecurity:
    """Holds the security of one broker; a change applies to the connections and authentications that follow.

    Args:
        listener: what the broker demands of clients.
        accounts: the users that it knows.
        nonces: numbers for the nonces of SCRAM, each of them new within the cluster.
        wall_clock: returns the seconds since 1970, for the dates of tokens.
    """

    def __init__(
        self,
        listener: ListenerSecurity,
        accounts: Accounts,
        nonces: Iterator[int] | None = None,
        wall_clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self.listener = listener
        self.accounts = accounts
        self._nonces = nonces or itertools.count(1)
        self._wall_clock = wall_clock
        self._context: tuple[ListenerTls, ssl.SSLContext] | None = None

    def copy(self) -> BrokerSecurity:
        """Return the same security for another broker of the cluster."""
        return BrokerSecurity(self.listener, self.accounts.copy(), self._nonces, self._wall_clock)

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection, made anew after the listener's TLS has changed."""
        tls = self.listener.tls
        assert tls is not None
        if self._context is None or self._context[0] is not tls:
            self._context = (tls, server_context(tls))
        return self._context[1]

    def server(self, mechanism: str, now: float) -> MechanismServer:
        """Return a server for one exchange. It looks for users when a token comes."""
        if mechanism in SIMPLE_SERVERS:
            return SIMPLE_SERVERS[mechanism](self.accounts)
        if mechanism == WITH_TOKENS:
            return OAuthBearerServer(
                self.listener.tokens or ListenerTokens(), now, self._wall_clock()
            )
        # numbers instead of chance: a run in virtual time repeats byte for byte
        nonce = hashlib.sha256(b"nonce %d" % next(self._nonces)).hexdigest()[:32]
        return ScramServer(
            mechanism,
            lambda name, is_token: self.accounts.scram(mechanism, name, is_token=is_token, now=now),
            nonce,
        )


class Admission(enum.Enum):
    """Tells what happens to a request that was read."""

    SERVE = enum.auto()
    ILLEGAL = enum.auto()  # ILLEGAL_SASL_STATE, then the end of the connection
    CLOSE = enum.auto()
    EXPIRED = enum.auto()  # closed, as the session has ended


class Ending(enum.Enum):
    """Tells how an answer ends its connection."""

    STAYS = enum.auto()
    REFUSED = enum.auto()  # answered after Kafka's delay, then closed
    CLOSED_LATER = enum.auto()  # closed after Kafka's delay, without an answer
    CLOSED = enum.auto()


class Outcome(NamedTuple):
    """Holds the answer to SaslHandshake or SaslAuthenticate. `is_end` tells whether it ends an exchange, for the log."""

    code: int = 0
    text: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0
    ending: Ending = Ending.STAYS
    is_end: bool = False

    def __repr__(self) -> str:
        return f"Outcome(code={self.code}, ending={self.ending})"


class _State(enum.Enum):
    NEW = enum.auto()
    VERSIONS_TOLD = enum.auto()
    RENEWING = enum.auto()  # SaslHandshake was read on an authenticated connection
    EXCHANGE = enum.auto()
    OPEN = enum.auto()


class Authenticator:
    """Holds the state of one connection's authentication.

    Attributes:
        principal: the authenticated user, or ANONYMOUS.
        mechanism: the mechanism of the last SaslHandshake; None: there was none.
        is_renewal: whether the current or last exchange was a re-authentication.
        session_ends: loop time at which the session ends; None: never.
    """

    def __init__(self, security: BrokerSecurity) -> None:
        self.principal: str = ANONYMOUS
        self.mechanism: str | None = None
        self.is_renewal: bool = False
        self.session_ends: float | None = None
        self._security = security
        self._has_sasl = security.listener.has_sasl
        self._state = _State.NEW if self._has_sasl else _State.OPEN
        self._server: MechanismServer | None = None
        self._renewal_began: float | None = None
        self._takes_raw_tokens = False

    @property
    def claimed(self) -> str | None:
        """Return the name that the client gave in the last exchange."""
        return self._server.claimed if self._server is not None else None

    @property
    def is_open(self) -> bool:
        """Return whether any request is served."""
        return self._state is _State.OPEN

    @property
    def takes_raw_tokens(self) -> bool:
        """Return whether the next frame is a token without a header, as after SaslHandshake 0."""
        return self._takes_raw_tokens and self._state is _State.EXCHANGE

    def admit(self, key: int, now: float) -> Admission:
        """Judge a request by its number when it is read. SaslHandshake may begin a re-authentication."""
        if self._state is _State.OPEN:
            return self._admit_open(key, now)
        if self._state is _State.EXCHANGE:
            return Admission.SERVE if key == ApiKey.SASL_AUTHENTICATE else Admission.ILLEGAL
        allowed = (
            {ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS}
            if self._state is _State.NEW
            else {ApiKey.SASL_HANDSHAKE}
        )
        return Admission.SERVE if key in allowed else Admission.CLOSE

    def identify(self, principal: str) -> bool:
        """Take the principal of a client certificate, unless SASL tells the principal. Returns whether it was taken."""
        if self._has_sasl:
            return False
        self.principal, self.mechanism = principal, "TLS"
        return True

    def versions_told(self) -> None:
        """Note that an ApiVersions request was answered without an error."""
        if self._state is _State.NEW:
            self._state = _State.VERSIONS_TOLD

    def handshake(self, mechanism: str, version: int, now: float) -> Outcome:
        """Answer SaslHandshake."""
        if self._state is _State.OPEN:
            return Outcome(_ILLEGAL)
        before, self.mechanism = self.mechanism, mechanism
        self._server = None
        if mechanism not in self._security.listener.mechanisms:
            return Outcome(
                _UNSUPPORTED,
                ending=Ending.CLOSED if self.is_renewal else Ending.REFUSED,
                is_end=True,
            )
        # Kafka answers a renewal by another mechanism without an error, and closes when the first token comes
        if not self.is_renewal or mechanism == before:
            self._server = self._security.server(mechanism, now)
        self._state = _State.EXCHANGE
        self._takes_raw_tokens = version == 0
        return Outcome()

    def authenticate(self, token: bytes, now: float) -> Outcome:
        """Answer SaslAuthenticate, or a raw token."""
        if self._state is not _State.EXCHANGE:
            return Outcome(_ILLEGAL, _AFTER_AUTHENTICATION)
        if self._server is None:
            return Outcome(_FAILED, ending=Ending.CLOSED_LATER, is_end=True)
        try:
            answer = self._server.respond(token)
        except Refusal as refusal:
            what = "re-authentication" if self.is_renewal else "authentication"
            return self._refused(
                refusal.text
                or f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self.mechanism}"
            )
        principal = self._server.principal
        if principal is None:
            return Outcome(token=answer)
        if self.is_renewal and principal != self.principal:
            return self._refused(
                f"Cannot change principals during re-authentication from User.{self.principal}: User.{principal}"
            )
        return self._authenticated(principal, answer, self._server.ends, now)

    def _refused(self, text: str) -> Outcome:
        return Outcome(_FAILED, text, ending=Ending.REFUSED, is_end=True)

    def _authenticated(
        self, principal: str, answer: bytes, ends: float | None, now: float
    ) -> Outcome:
        self.principal = principal
        self._state = _State.OPEN
        limit_ms = self._security.listener.session_ms
        lifetimes = ([limit_ms] if limit_ms else []) + (
            [] if ends is None else [max(0, int((ends - now) * 1000))]
        )
        lifetime_ms = min(lifetimes, default=0)
        self.session_ends = now + lifetime_ms / 1000 if lifetimes else None
        return Outcome(token=answer, lifetime_ms=lifetime_ms, is_end=True)

    def _admit_open(self, key: int, now: float) -> Admission:
        if key == ApiKey.SASL_HANDSHAKE and self._has_sasl and not self._has_renewed_lately(now):
            self._renewal_began, self.is_renewal, self._state = now, True, _State.RENEWING
            return Admission.SERVE
        if self.session_ends is not None and now > self.session_ends:
            return Admission.EXPIRED
        return Admission.SERVE

    def _has_renewed_lately(self, now: float) -> bool:
        return (
            self._renewal_began is not None and now - self._renewal_began < _LEAST_BETWEEN_RENEWALS
        )
