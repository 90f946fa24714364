"""PLAIN: the user's name and password as they are (RFC 4616)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.errors import BrokerNotTrusted, CredentialsRefused, printable
from aioproducer.sasl.mechanism import SecretBytes, read_secret

if TYPE_CHECKING:
    from aioproducer.config.secret import Secret
    from aioproducer.sasl.mechanism import Exchange


class Plain:
    """Is the mechanism PLAIN with one user's credentials.

    Args:
        user: names the user in error texts.
    """

    name = "PLAIN"

    def __init__(self, user: str, username: Secret, password: Secret) -> None:
        self.user = user
        self._username = username
        self._password = password

    def exchange(self) -> Exchange:
        """Begin the exchange of one authentication: one message, and an empty answer.

        Raises:
            CredentialsRefused: the name or the password has a NUL character, which separates them in the message.
            BrokerNotTrusted: the broker goes on after the message.
        """
        username = yield from read_secret(self._username)
        password = yield from read_secret(self._password)
        if 0 in username + password:
            raise CredentialsRefused(
                "the user name or the password has a NUL character, which PLAIN cannot send",
                "sasl",
                self.name,
            )
        challenge: bytes = yield SecretBytes(b"\0".join((b"", username, password)))
        if challenge:
            told = printable(challenge[:100].decode(errors="replace"))
            raise BrokerNotTrusted(
                f"PLAIN ends after one message, and the broker goes on with {told!r}",
                "sasl",
                self.name,
            )
