"""A SASL mechanism: the steps of an authentication, which its generator yields and the caller takes.

The caller sends the result of each step back. So the rules need no loop and no thread, and tests play the broker by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from aioproducer.config.secret import Secret
    from aioproducer.wire.api import ApiKey


class SecretBytes(bytes):
    """Holds bytes that no repr shows: asyncio's debug mode logs the results of tasks."""

    def __repr__(self) -> str:
        return "<SecretBytes hidden>"

    __str__ = __repr__


class AskBroker(NamedTuple):
    """Asks the caller to send a request and wait. The result is the decoded answer."""

    key: ApiKey
    version: int
    message: Any


class SlowStep(NamedTuple):
    """Asks the caller to call a function that may take long, in a thread. The result is what the function returns.

    Attributes:
        name: what the function does, for error texts.
    """

    name: str
    function: Callable[[], Any]


class TokenStep(NamedTuple):
    """Asks the caller for a token that is valid now. The result is a `Token`."""


# The exchange of a mechanism: yields the bytes to send, and is sent the broker's bytes. It returns when the mechanism's rules are met.
Exchange: TypeAlias = Generator[bytes | SlowStep | TokenStep, Any, None]
Steps: TypeAlias = Generator[AskBroker | SlowStep | TokenStep, Any, float]


class Mechanism(Protocol):
    """Is a SASL mechanism with the credentials of one user.

    Attributes:
        name: as brokers call it.
        user: names the user in error texts.
    """

    name: str
    user: str

    def exchange(self) -> Exchange:
        """Begin the exchange of one authentication."""


def read_secret(secret: Secret) -> Generator[SlowStep, Any, SecretBytes]:
    """Return the bytes of a secret: plain UTF-8. A reference is read in a slow step."""
    if secret.reference is None:
        return _encoded(secret)
    encoded: SecretBytes = yield SlowStep(f"read {secret.reference}", partial(_encoded, secret))
    return encoded


def _encoded(secret: Secret) -> SecretBytes:
    # the error of a strict encoder has the whole text
    return SecretBytes(secret.reveal().encode("utf-8", "surrogatepass"))
