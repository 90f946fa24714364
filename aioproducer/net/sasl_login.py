"""Authenticates connections by SASL: runs the rules of `aioproducer.sasl` over a connection, and their slow steps in threads."""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config.secret import Secret
from aioproducer.errors import ConfigError, ConnectionLost, CredentialsRefused
from aioproducer.net.threads import SlowCalls
from aioproducer.sasl.handshake import Session, handshake
from aioproducer.sasl.mechanism import AskBroker, SlowStep, TokenStep
from aioproducer.sasl.plain import Plain
from aioproducer.sasl.scram import Scram

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.net.connection import Connection
    from aioproducer.net.tokens import TokenKeeper
    from aioproducer.sasl.mechanism import Mechanism
    from aioproducer.sasl.tokens import Token

# SASL_AUTHENTICATION_FAILED
_FAILED: Final = 58


class SaslLogin:
    """Authenticates the connections of one producer with the same credentials.

    Args:
        for_host: returns the mechanism of one authentication, with its credentials, by its broker's name.
        tokens: gives the tokens of a mechanism that asks for them.
    """

    def __init__(
        self, for_host: Callable[[str], Mechanism], tokens: TokenKeeper | None = None
    ) -> None:
        self._for_host = for_host
        self._tokens = tokens
        self._calls = SlowCalls()

    async def prepare(self, timeout: float) -> None:
        """Wait for a token, if the mechanism needs one: without it, no connection is dialled.

        Raises:
            TokenUnavailable: there is none, or none within `timeout` seconds.
        """
        if self._tokens is not None:
            await self._tokens.token(timeout)

    async def authenticate(self, connection: Connection, timeout: float) -> float:
        """Authenticate a new connection, or renew the session of one. Returns the session's seconds; 0: it does not end.

        From the first request on, all other requests of the connection are held: in `connection.held`. They are sent at a success. After
        an error with `connection.held` set, and after a cancellation, the connection must be closed.

        Args:
            connection: its API versions are known.
            timeout: seconds for the whole; the time for which the broker throttles is added.

        Raises:
            TokenUnavailable: there is no token, and nothing was sent; or no Kerberos ticket.
            CredentialsRefused: the broker refuses the credentials.
            BrokerNotTrusted: the broker breaks the rules of the mechanism.
            AuthenticationFailed: the broker answers another error.
            TransportError: the connection ended, the time is over, or the credentials could not be read.
        """
        began_at = asyncio.get_running_loop().time()
        mechanism = self._for_host(connection.host)
        steps = handshake(mechanism, connection.versions)
        token: Token | None = None
        result: Any = None
        try:
            while True:
                step = steps.send(result)
                left = (
                    max(began_at, connection.muted_until)
                    + timeout
                    - asyncio.get_running_loop().time()
                )
                if connection.held is None and isinstance(step, AskBroker):
                    connection.hold()
                result = await self._result(step, connection, left)
                if isinstance(step, TokenStep):
                    token = result
        except StopIteration as end:
            seconds: float = end.value
        except CredentialsRefused as error:
            self._on_refused(token, error)
            raise
        if self._tokens is not None and token is not None:
            self._tokens.accepted(token, seconds)
        connection.user = mechanism.user
        connection.session = Session(began_at, asyncio.get_running_loop().time(), seconds)
        connection.release()
        return seconds

    def _on_refused(self, token: Token | None, error: CredentialsRefused) -> None:
        """Doubt the token that a broker refused; errors 33 and 34 are about the mechanism."""
        if self._tokens is not None and token is not None and error.code in {None, _FAILED}:
            self._tokens.refused(token)

    async def _result(
        self, step: AskBroker | SlowStep | TokenStep, connection: Connection, timeout: float
    ) -> Any:
        """Return the result of a step of the exchange."""
        if isinstance(step, SlowStep):
            return await self._take(step, connection, timeout)
        if isinstance(step, TokenStep):
            assert self._tokens is not None
            return await self._tokens.token(timeout)
        return await _ask(step, connection, timeout)

    async def _take(self, step: SlowStep, connection: Connection, timeout: float) -> Any:
        """Take a slow step in a thread."""
        connection.slow_step = step.name
        try:
            async with asyncio.timeout(timeout) as timer:
                result = await self._calls.run(step.function)
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise ConnectionLost(
                f"{connection.where}: it took longer than {timeout:.1f} s to {step.name}"
            ) from error
        # the text names the reference
        except (ConfigError, OSError) as error:
            raise ConnectionLost(
                f"{connection.where}: the credentials cannot be read: {error}"
            ) from error
        connection.slow_step = ""
        return result


async def _ask(step: AskBroker, connection: Connection, timeout: float) -> Any:
    """Send a request of the exchange. Returns the decoded answer."""
    answer = await connection.ask(step.key, step.version, step.message, timeout)
    return answer.decode()


def password_mechanism(
    name: str, username: str | Secret, password: Secret, *, is_token: bool = False
) -> Mechanism:
    """Return PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.

    Args:
        username: or a reference to it. Error texts show it.
        password: or a reference to it, which is read at each authentication.
        is_token: the credentials are the id and the HMAC of a delegation token (KIP-48), for SCRAM alone.
    """
    user = username if isinstance(username, str) else username.reference or "(hidden)"
    secret_name = Secret(username) if isinstance(username, str) else username
    if name == Plain.name:
        return Plain(user, secret_name, password)
    return Scram(name, user, secret_name, password, _nonce, is_token=is_token)


def _nonce() -> str:
    # always of the same length, so that runs in virtual time send the same numbers of bytes
    return base64.b64encode(secrets.token_bytes(24)).decode("ascii")
