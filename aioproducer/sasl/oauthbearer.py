r"""OAUTHBEARER: a bearer token and SASL extensions (RFC 7628, KIP-255, KIP-342).

1. The client's message is `n,,\x01auth=Bearer TOKEN\x01NAME=VALUE\x01...\x01`. Kafka's brokers take no authorization id in it.
2. An empty answer is success. Any other answer is the broker's error in JSON. The client answers it with `\x01`, and the broker ends the
   exchange with error 58. Error 58 has the text for people, so the JSON is used only if a broker breaks that rule.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config.security_options import extension_fault
from aioproducer.errors import CredentialsRefused, TokenUnavailable, printable
from aioproducer.sasl.mechanism import TokenStep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.sasl.mechanism import Exchange
    from aioproducer.sasl.tokens import Token

NAME: Final = "OAUTHBEARER"
# Names the user in error texts while no token names it.
_UNKNOWN: Final = "(opaque token)"
_SEPARATOR: Final = "\x01"
# Kafka's sasl.server.max.receive.size is 512 KiB: a broker closes the connection without a word. 1 KiB is left for the request's header.
_MOST_BYTES: Final = 511 * 1024
# RFC 6750, section 2.1.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def first_message(token: Token, extensions: Iterable[tuple[str, str]]) -> bytes:
    """Return the client's message for a token, with its extensions; those of the token itself take precedence.

    Raises:
        TokenUnavailable: the token or an extension of it cannot be sent; the text quotes neither.
    """
    pairs = {**dict(extensions), **dict(token.extensions)}
    text = token.text.reveal()
    more = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
    message = f"n,,{_SEPARATOR}auth=Bearer {text}{_SEPARATOR}{more}{_SEPARATOR}".encode(
        "utf-8", "surrogatepass"
    )
    fault = extension_fault(token.extensions) or _fault(text, len(message))
    if fault:
        raise TokenUnavailable(fault, "token", NAME)
    return message


def _fault(text: str, size: int) -> str:
    """Return why a token cannot be sent; empty: it can."""
    if not text:
        return "the token is empty"
    if not text.isascii():
        return "the token has characters that are not ASCII"
    if any(character.isspace() for character in text):
        return "the token has a blank or a line break"
    if _TOKEN.fullmatch(text) is None:
        return "the token has characters that no bearer token has (RFC 6750)"
    return (
        f"the token and its extensions have {size} bytes; brokers take at most {_MOST_BYTES}"
        if size > _MOST_BYTES
        else ""
    )


class OAuthBearer:
    """Is the mechanism OAUTHBEARER.

    Args:
        extensions: SASL extensions of each authentication, as (name, value); `extension_fault` has checked them.

    Attributes:
        user: the principal of the latest token, for error texts.
    """

    name = NAME

    def __init__(self, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        self.user: str = _UNKNOWN
        self._extensions = extensions

    def check(self, token: Token) -> None:
        """Check that a token can be sent.

        Raises:
            TokenUnavailable: it cannot; the text says why, and does not quote it.
        """
        first_message(token, self._extensions)

    def exchange(self) -> Exchange:
        """Begin the exchange of one authentication.

        Raises:
            TokenUnavailable: there is no token, or none that can be sent. Nothing was sent.
            CredentialsRefused: the broker told an error, and did not end the exchange with it.
        """
        token = yield TokenStep()
        self.user = token.principal or _UNKNOWN
        told: bytes = yield first_message(token, self._extensions)
        if told:
            yield _SEPARATOR.encode()
            raise CredentialsRefused(
                f"the broker refuses the token of user {self.user!r}: {_status(told)}", "sasl", NAME
            )


def _status(told: bytes) -> str:
    """Return the status in a broker's error, as far as it can be read."""
    try:
        error: Any = json.loads(told)
    except (ValueError, RecursionError):
        error = None
    status = error.get("status") if isinstance(error, dict) else None
    return printable(status) if isinstance(status, str) and status else "it does not say why"
