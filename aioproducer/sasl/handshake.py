"""The SASL exchange with a broker, for a new connection and for the renewal of a session (KIP-43, KIP-152, KIP-368).

1. SaslHandshake 1 names the mechanism. Its answer has error 33 with the broker's mechanisms, or 34, or none.
2. SaslAuthenticate 0 to 2 has the client's bytes, and its answer the broker's bytes, or error 58 with the broker's text. The last answer
   has the session's lifetime.
3. SaslHandshake 0, before Kafka 1.0, is followed by bytes without a Kafka header: it is not supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import (
    AuthenticationFailed,
    CredentialsRefused,
    ProtocolError,
    broker_error,
    printable,
)
from aioproducer.sasl.mechanism import AskBroker, SlowStep, TokenStep
from aioproducer.wire.api import ApiKey, negotiate
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from aioproducer.sasl.mechanism import Exchange, Mechanism, Steps

_UNSUPPORTED_MECHANISM: Final = 33
_ILLEGAL_STATE: Final = 34
_FAILED: Final = 58
_HANDSHAKE_VERSION: Final = 1
# Why brokers refuse credentials that look right, by mechanism.
_ADVICE: Final = {
    "OAUTHBEARER": ". Is the clock right, and are issuer and audience of the token those of the broker?"
}
# Seconds: a broker may say 2^63 - 1 ms.
MAX_SESSION: Final = 366 * 86_400.0


def handshake(mechanism: Mechanism, versions: Mapping[int, tuple[int, int]]) -> Steps:
    """Authenticate a connection. Returns the seconds of the session; 0: it does not end.

    The credentials are read before the first request, so that a reference that cannot be read leaves a connection as it was.

    Args:
        mechanism: with the credentials.
        versions: the broker's (lowest, highest) version by API key.

    Yields:
        The steps; the caller sends the result of each.

    Raises:
        TokenUnavailable: there is no token.
        CredentialsRefused: the broker refuses the credentials or the mechanism, or its listener has no SASL.
        BrokerNotTrusted: the broker breaks the rules of the mechanism.
        AuthenticationFailed: the broker answers another error.
        ProtocolError: the broker is older than Kafka 1.0.
    """
    version = negotiate(ApiKey.SASL_AUTHENTICATE, versions)
    if version is None or negotiate(ApiKey.SASL_HANDSHAKE, versions) != _HANDSHAKE_VERSION:
        raise ProtocolError(
            "the broker speaks no SaslHandshake 1 and SaslAuthenticate; SASL needs Kafka 1.0 or newer"
        )
    exchange = mechanism.exchange()
    token = yield from _sent(exchange, None)
    request = message("SaslHandshake.request", mechanism=mechanism.name)
    answer = yield AskBroker(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, request)
    _check_handshake(answer, mechanism)
    while token is not None:
        answer = yield AskBroker(
            ApiKey.SASL_AUTHENTICATE, version, message("SaslAuthenticate.request", auth_bytes=token)
        )
        _check(answer, mechanism)
        token = yield from _sent(exchange, answer.auth_bytes)
    seconds: float = answer.session_lifetime_ms / 1000
    return max(0.0, min(seconds, MAX_SESSION))


def _sent(
    exchange: Exchange, data: bytes | None
) -> Generator[SlowStep | TokenStep, Any, bytes | None]:
    """Send the broker's bytes to a mechanism. Returns the bytes that it answers; None: the exchange is over."""
    try:
        step = exchange.send(data)
        while isinstance(step, (SlowStep, TokenStep)):
            step = exchange.send((yield step))
    except StopIteration:
        return None
    return step


def _check_handshake(answer: Any, mechanism: Mechanism) -> None:
    """Raise the error of an answer to SaslHandshake."""
    code = answer.error_code
    if code == _UNSUPPORTED_MECHANISM:
        offered = printable(", ".join(answer.mechanisms)) or "none"
        raise _refused(
            f"the broker has no SASL mechanism {mechanism.name}; it has {offered}", mechanism, code
        )
    if code == _ILLEGAL_STATE:
        raise _refused(
            "a listener without SASL: security_protocol=PLAINTEXT or SSL", mechanism, code
        )
    _check(answer, mechanism)


def _check(answer: Any, mechanism: Mechanism) -> None:
    """Raise the error of an answer."""
    code = answer.error_code
    if not code:
        return
    told = printable(getattr(answer, "error_message", None) or "")
    error = broker_error(code, told or None)
    text = f"the broker refuses user {mechanism.user!r} by {mechanism.name}: {error}"
    if code in (_FAILED, _ILLEGAL_STATE, _UNSUPPORTED_MECHANISM):
        raise _refused(
            text + (_ADVICE.get(mechanism.name, "") if code == _FAILED else ""), mechanism, code
        )
    raise AuthenticationFailed(text, "sasl", mechanism.name, code)


def _refused(reason: str, mechanism: Mechanism, code: int) -> CredentialsRefused:
    return CredentialsRefused(reason, "sasl", mechanism.name, code)


# Decides when the session of an authenticated connection is renewed (KIP-368).


# Kafka's share of a session, drawn for each renewal so that connections do not renew together (SaslClientAuthenticator).
_EARLIEST: Final = 0.85
_SPREAD: Final = 0.10
# Seconds. A broker refuses a renewal within a second after it began the last authentication.
_MIN_INTERVAL: Final = 1.05
# A shorter session would end before it may be renewed: its connection is made anew when the broker ends it.
_SHORTEST: Final = 1.2


class Session(NamedTuple):
    """Holds the session that an authentication began; times are seconds of one clock.

    Attributes:
        began_at: start of the authentication.
        authenticated_at: its end.
        seconds: lifetime of the session, which the broker counts from somewhere in between; 0: it does not end.
    """

    began_at: float
    authenticated_at: float
    seconds: float

    @property
    def ends_at(self) -> float | None:
        """Return the time at which the broker may end the session, not later than it does; None: never."""
        return self.began_at + self.seconds if self.seconds else None

    def renew_at(self, chance: float) -> float | None:
        """Return the time at which the renewal is due; None: the session is not renewed. `chance`: a random number in [0, 1)."""
        if self.seconds < _SHORTEST:
            return None
        due = self.began_at + self.seconds * (_EARLIEST + _SPREAD * chance)
        return max(due, self.authenticated_at + _MIN_INTERVAL)
