"""Authenticates connections by SASL: runs the rules of `aioproducer.sasl` over a connection, and their slow steps in daemon threads."""

from __future__ import annotations

import asyncio
import base64
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from aioproducer.errors import ConfigError, ConnectionLost
from aioproducer.net.daemon_thread import in_daemon_thread
from aioproducer.net.held_requests import HeldRequests
from aioproducer.sasl.handshake import handshake
from aioproducer.sasl.plain import Plain
from aioproducer.sasl.scram import SCRAM_HASHES, Scram
from aioproducer.sasl.session import Session
from aioproducer.sasl.steps import SlowStep
from aioproducer.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.net.connection import Connection
    from aioproducer.net.kerberos import Kerberos
    from aioproducer.sasl.steps import AskBroker, Mechanism

__all__ = ["SaslLogin"]


class SaslLogin:
    """Authenticates the connections of one producer with the same credentials.

    Args:
        mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or GSSAPI, which has neither username nor password.
        username: or a reference to it. Error texts show it.
        password: or a reference to it, which is read at each authentication.
        token_auth: the credentials are the id and the HMAC of a delegation token (KIP-48), for SCRAM alone.
        kerberos: makes the mechanism GSSAPI of each connection; None: it is another mechanism.
        chance: returns a random number in [0, 1), for the times of renewals.

    Attributes:
        mechanism: as given.
        chance: as given.

    Raises:
        ConfigError: no such mechanism, no password, or a token for another mechanism than SCRAM.
    """

    def __init__(
        self,
        mechanism: str,
        username: str | Secret,
        password: Secret | None,
        *,
        token_auth: bool = False,
        kerberos: Kerberos | None = None,
        chance: Callable[[], float],
    ) -> None:
        self.mechanism = mechanism
        self.chance = chance
        self._kerberos = kerberos
        self._mechanism = _mechanism(mechanism, username, password, token_auth=token_auth) if kerberos is None else None
        # The slow steps that run, by their names.
        self._running: dict[str, asyncio.Future[Any]] = {}

    async def authenticate(self, connection: Connection, timeout: float) -> float:
        """Authenticate a new connection, or renew the session of one. Returns the session's seconds; 0: it does not end.

        From the first request on, all other requests of the connection are held: in `connection.held`. They are sent at a success. After
        an error with `connection.held` set, and after a cancellation, the connection must be closed.

        Args:
            connection: its API versions are known.
            timeout: seconds for the whole; the time for which the broker throttles is added.

        Raises:
            CredentialsRefused: the broker refuses the credentials.
            BrokerNotTrusted: the broker breaks the rules of the mechanism.
            TokenUnavailable: there is no ticket.
            AuthenticationFailed: the broker answers another error.
            TransportError: the connection ended, the time is over, or the credentials could not be read.
        """
        began_at = asyncio.get_running_loop().time()
        mechanism = self._mechanism if self._kerberos is None else self._kerberos.mechanism(connection.host)
        assert mechanism is not None
        steps = handshake(mechanism, connection.versions)
        held: HeldRequests | None = None
        result: Any = None
        try:
            while True:
                step = steps.send(result)
                left = max(began_at, connection.muted_until) + timeout - asyncio.get_running_loop().time()
                if isinstance(step, SlowStep):
                    result = await self._take(step, connection, left)
                    continue
                if held is None:
                    held = HeldRequests(connection)
                result = await _ask(step, connection, left)
        except StopIteration as end:
            seconds: float = end.value
        connection.session = Session(began_at, asyncio.get_running_loop().time(), seconds)
        if held is not None:
            held.release()
        return seconds

    async def _take(self, step: SlowStep, connection: Connection, timeout: float) -> Any:
        """Take a slow step in a thread; connections that need the same one share it."""
        connection.slow_step = step.name
        running = self._running.get(step.name)
        if running is None:
            running = self._running[step.name] = in_daemon_thread(step.function, "sasl")
            running.add_done_callback(partial(self._forget, step.name))
        try:
            async with asyncio.timeout(timeout) as timer:
                result = await asyncio.shield(running)
        except TimeoutError as error:
            if not timer.expired():
                raise
            # the next attempt begins anew, in another thread
            self._forget(step.name, running)
            raise ConnectionLost(f"{connection.where}: it took longer than {timeout:.1f} s to {step.name}") from error
        # the text names the reference
        except (ConfigError, OSError) as error:
            raise ConnectionLost(f"{connection.where}: the credentials cannot be read: {error}") from error
        connection.slow_step = ""
        return result

    def _forget(self, name: str, running: asyncio.Future[Any]) -> None:
        if self._running.get(name) is running:
            del self._running[name]


async def _ask(step: AskBroker, connection: Connection, timeout: float) -> Any:
    """Send a request of the exchange. Returns the decoded answer."""
    answer = await connection.ask(step.key, step.version, step.message, timeout)
    return answer.decode()


def _mechanism(name: str, username: str | Secret, password: Secret | None, *, token_auth: bool) -> Mechanism:
    user = username if isinstance(username, str) else username.reference or "(hidden)"
    secret_name = Secret(username) if isinstance(username, str) else username
    if password is None:
        raise ConfigError(f"sasl_mechanism={name} needs a sasl_password")
    if name in SCRAM_HASHES:
        return Scram(name, user, secret_name, password, _nonce, is_token=token_auth)
    if token_auth:
        raise ConfigError(f"sasl_token_auth is for SCRAM, not for sasl_mechanism={name}")
    if name == Plain.name:
        return Plain(user, secret_name, password)
    raise ConfigError(f"sasl_mechanism={name}: it must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")


def _nonce() -> str:
    # always of the same length, so that runs in virtual time send the same numbers of bytes
    return base64.b64encode(secrets.token_bytes(24)).decode("ascii")
