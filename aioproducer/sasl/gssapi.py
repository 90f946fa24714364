"""GSSAPI, by which Kerberos authenticates (RFC 4752), over a security context that is given.

1. The context makes the tokens and reads the broker's. Each of its steps may ask a KDC or read a file: it is a slow step.
2. Then the broker offers security layers, in a wrapped message of four bytes. Kafka has none of them: the client chooses "no layer" with a
   largest message of 0, as Java's does.
3. The client names no authorization identity: it acts as the principal of its ticket.
4. Each exchange has a context of its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from aioproducer.errors import BrokerNotTrusted, printable
from aioproducer.sasl.mechanism import SecretBytes, SlowStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.sasl.mechanism import Exchange

# The bits of the layers, and the length of the message that offers them: one byte of bits, three of a size.
_NO_LAYER: Final = 0x01
_OFFER_LENGTH: Final = 4
_CHOICE: Final = bytes((_NO_LAYER, 0, 0, 0))


class Context(Protocol):
    """Is the client's side of one security context. Its methods raise the package's errors.

    Attributes:
        principal: the client's, for error texts.
    """

    principal: str

    @property
    def complete(self) -> bool:
        """Return True if both sides have proved their identity. Then `wrap` and `unwrap` may be called."""

    def step(self, token: bytes | None) -> bytes | None:
        """Take the broker's token, or None to begin. Returns the token to send; None: there is none. The call may block."""

    def wrap(self, data: bytes) -> bytes:
        """Return a message with its proof of origin."""

    def unwrap(self, message: bytes) -> bytes:
        """Return what the broker wrapped."""


class Gssapi:
    """Is the mechanism GSSAPI for one connection.

    Args:
        service: names the broker's service in texts, such as "kafka@broker-1".
        user: names the client in error texts until its context does.
        open_context: returns a new context. The call may block.
    """

    name = "GSSAPI"

    def __init__(self, service: str, user: str, open_context: Callable[[], Context]) -> None:
        self.user: str = user
        self._name = f"get a Kerberos ticket for {service}"
        self._open_context = open_context

    def exchange(self) -> Exchange:
        """Begin the exchange of one authentication.

        Raises:
            TokenUnavailable: there is no ticket, and later there may be one.
            CredentialsRefused: the KDC refuses the client, or does not know the service.
            BrokerNotTrusted: the broker does not prove its identity, or demands a security layer, or goes on after the last message.
        """
        context: Context = yield SlowStep(self._name, self._open_context)
        self.user = context.principal
        token: bytes = yield self._step(context, None)
        while not context.complete:
            answer = yield token
            token = yield self._step(context, answer)
        offer = context.unwrap((yield token))
        if len(offer) != _OFFER_LENGTH or not offer[0] & _NO_LAYER:
            raise self._not_trusted(
                f"the broker offers no connection without a security layer: its offer is {offer[:16].hex() or 'empty'}"
            )
        rest: bytes = yield context.wrap(_CHOICE)
        if rest:
            raise self._not_trusted(
                f"the exchange is over, and the broker goes on with {printable(rest[:100].decode(errors='replace'))!r}"
            )

    def _step(self, context: Context, token: bytes | None) -> SlowStep:
        return SlowStep(self._name, partial(_taken, context, token))

    def _not_trusted(self, reason: str) -> BrokerNotTrusted:
        return BrokerNotTrusted(f"{self.name}: {reason}", "sasl", self.name)


def _taken(context: Context, token: bytes | None) -> SecretBytes:
    # a token of the first step lets its holder pose as the client for minutes
    return SecretBytes(context.step(token) or b"")
