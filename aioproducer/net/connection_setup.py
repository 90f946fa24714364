"""Makes the connections to one broker: look-up of its name, dialling, TLS, the handshake of a new connection, and its authentication.

1. The addresses of the broker are dialled in order. An address that refuses is followed by the next one. An address that times out or
   breaks the protocol ends the attempt, and the next attempt begins with another address.
2. Each attempt has a time limit, which grows with the failures (KIP-601).
3. Some old brokers close the connection instead of answering an ApiVersions request of a version that they do not know. After two such
   closings, the third handshake uses the oldest version.
4. SASL follows the handshake, within the same time. Nothing else is sent meanwhile, and the broker's frames are small.
5. The address of a known broker may lead to another cluster by now: a pod's address is used again, a name stands for another cluster.
   So brokers are asked for their cluster's id before a connection is used, except where that is sure: Produce requests of Kafka 4.0 name
   topics by ids, which no two clusters share; and the first control connection follows the answer that named its address.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from aioproducer.errors import AuthenticationFailed, ConnectionLost, KafkaError, ProtocolError
from aioproducer.net.connection import Connection
from aioproducer.net.handshake import negotiate_versions, read_cluster_id
from aioproducer.net.name_resolution import describe_lookups
from aioproducer.net.task_cancellation import is_cancelled, without_generator_exit
from aioproducer.user_functions import USER_FAILURES
from aioproducer.wire.api import ApiKey
from aioproducer.wire.frame import FRAME_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.errors import TransportError
    from aioproducer.interfaces import Receiver, Stream
    from aioproducer.net.addresses import Addresses
    from aioproducer.net.settings import NetSettings
    from aioproducer.net.tls import TlsStream
    from aioproducer.net.tls_contexts import TlsContexts

__all__ = ["ConnectionSetup"]

# Kafka 4.0: from this version of Produce on, a request names topics by their ids, which no two clusters share.
_FIRST_WITH_TOPIC_IDS: Final = 13
# Handshakes in one cycle: the last of them uses the oldest version of ApiVersions.
_TRIES: Final = 3
# Bytes of a frame from a peer that has not answered ApiVersions yet, or is not authenticated. To decode as many takes about 20 ms. A broker
# sends a few thousand.
_STRANGERS_LIMIT: Final = 256 * 1024
_CLOSED_AFTER_GREETING: Final = " after ApiVersions was answered: does the listener want SASL (security_protocol={})?"


class ConnectionSetup:
    """Makes connections to one broker, one at a time.

    Args:
        addresses: addresses of the broker's host.
        on_lost: called once for each connection that ends, after its requests have failed, with its address.
        on_change: called when a connection is writable again.
        on_throttle: called with the milliseconds for which the broker throttles this client.
        is_for_records: whether Produce requests alone are sent over the connections.

    Attributes:
        alive: connections with a stream, and their addresses: the latest one, which may not be ready yet, and those that are closing.
    """

    def __init__(
        self,
        broker: Broker,
        addresses: Addresses,
        settings: NetSettings,
        *,
        on_lost: Callable[[Connection, str], None],
        on_change: Callable[[], None],
        on_throttle: Callable[[int], None],
        is_for_records: bool,
    ) -> None:
        self.alive: dict[Connection, str] = {}
        self._broker = broker
        self._addresses = addresses
        self._settings = settings
        self._notify_lost = on_lost
        self._on_change = on_change
        self._on_throttle = on_throttle
        self._is_for_records = is_for_records
        self._is_first = True
        self._where = f"{broker.host}:{broker.port}"
        # Consecutive handshakes during which the connection ended.
        self._closings = 0
        self._is_resolving = False
        # The stream during its TLS handshake.
        self._tls_stream: TlsStream | None = None
        self._tls = None if settings.security is None else settings.security.tls
        self._has_sasl = settings.security is not None and settings.security.sasl is not None

    async def attempt(self, failures: int) -> Connection:
        """Make one attempt after `failures` failed ones. Returns a connection that is ready to use. Cancellation leaves no stream open.

        Raises:
            AuthenticationFailed: this client and the broker do not accept each other.
            KafkaError, OSError: no address gave a connection; the text names each address and its reason.
        """
        patience = self._settings.setup.after(failures + 1, self._settings.chance())
        await self._prepare(patience)
        reasons: list[str] = []
        for address in await self._resolve(patience):
            where = self._where if address == self._broker.host else f"{self._where} ({address})"
            try:
                return await self._dial(address, where, patience)
            except KafkaError as error:
                self._addresses.failed(address)
                reasons.append(str(error) if str(error).startswith(where) else f"{where}: {error}")
                raise _with_reasons(reasons, error) from error
            # a dialer of the user's may raise anything
            except USER_FAILURES as error:
                if is_cancelled():
                    raise
                self._addresses.failed(address)
                reasons.append(f"{where}: {str(error) or type(error).__name__}")
                cause = error
        raise ConnectionLost("; ".join(reasons)) from cause

    async def _prepare(self, patience: float) -> None:
        """Wait for what the authentication needs: a connection would wait for it at the broker's expense."""
        security = self._settings.security
        if security is not None and security.sasl is not None:
            await security.sasl.prepare(patience)

    def delay(self) -> str:
        """Return why the attempt that runs has no address yet, for an error's text; empty if it has addresses, or if none runs."""
        if not self._is_resolving:
            return ""
        why = describe_lookups(self._broker.host)
        return f"the name is not resolved{why and ': '}{why}"

    async def _resolve(self, patience: float) -> tuple[str, ...]:
        self._is_resolving = True
        try:
            async with asyncio.timeout(patience) as timer:
                return tuple(await without_generator_exit("the resolver", self._addresses.to_try()))
        except TimeoutError as error:
            if not timer.expired():
                raise
            why = describe_lookups(self._broker.host)
            raise ConnectionLost(f"{self._where}: the name was not resolved within {round(patience, 3):g} s{why and ': '}{why}") from error
        finally:
            self._is_resolving = False

    async def _dial(self, address: str, where: str, patience: float) -> Connection:
        settings = self._settings
        traffic = settings.observer.traffic(self._broker.node_id)
        connection = Connection(
            where,
            settings.client_id,
            self._on_lost,
            self._on_change,
            max_in_flight=settings.max_in_flight,
            max_idle=settings.max_idle,
            traffic=traffic,
        )
        connection.frames.limit = _STRANGERS_LIMIT
        if settings.security is not None and settings.security.sasl is not None:
            connection.host = self._name_of(address)
        try:
            async with asyncio.timeout(patience) as timer:
                await self._open(address, connection)
                # it may have been lost since the dial
                if not connection.is_lost:
                    self.alive[connection] = address
                await self._shake_hands(connection, address)
                await self._authenticate(connection)
                await self._identify(connection)
            connection.frames.limit = FRAME_LIMIT
        except TimeoutError as error:
            why = "" if self._tls_stream is None else ": the TLS handshake was not answered"
            if connection.slow_step:
                why = f": it took too long to {connection.slow_step}"
            self.drop(connection)
            if not timer.expired():
                raise
            raise ConnectionLost(f"{where}: no usable connection within {round(patience, 3):g} s{why}") from error
        except BaseException:
            self.drop(connection)
            raise
        return connection

    async def _open(self, address: str, connection: Connection) -> None:
        """Dial an address, and encrypt the stream if the settings ask for it."""
        tls = self._tls
        if tls is None:
            await self._call_dialer(address, connection)
            return
        # PLAINTEXT loads nothing of TLS
        from aioproducer.net.tls import TlsStream
        from aioproducer.net.tls_errors import in_handshake, no_name

        name = self._name_of(address)
        if not name:
            raise no_name(self._broker.host, "it is empty")
        context = await tls.context()
        # all dials that waited for one context go on in the same iteration: each makes its TLS object in a turn of its own
        await tls.turns.turn()
        stream = TlsStream(connection, context, name, tls.turns)
        await self._call_dialer(address, stream)
        self._tls_stream = stream
        try:
            await stream.handshake()
        # a ValueError reports a name that has no form for the DNS
        except (OSError, ValueError) as error:
            raise in_handshake(error, name, tls, "SASL_PLAINTEXT" if self._has_sasl else "PLAINTEXT") from error
        self._tls_stream = None

    async def _call_dialer(self, address: str, receiver: Receiver) -> None:
        await without_generator_exit("the dialer", self._settings.dialer.dial(address, self._broker.port, lambda: receiver))

    def _name_of(self, address: str) -> str:
        """Return the name that the broker's certificate must have: that of the cluster, or of the bootstrap address as it is dialled."""
        from aioproducer.net.tls import server_name

        is_canonical = self._settings.canonical_bootstrap and self._broker.node_id < 0
        return server_name(address if is_canonical else self._broker.host)

    async def _shake_hands(self, connection: Connection, address: str) -> None:
        settings = self._settings
        is_last = self._closings % _TRIES == _TRIES - 1
        try:
            throttle = await negotiate_versions(connection, settings.request_timeout, settings.software_version, in_oldest_form=is_last)
        except (ConnectionLost, ProtocolError) as error:
            told = self._told(error, connection, address)
            if told is None:
                raise
            raise told from (error.__cause__ or error)
        if not is_last:
            self._closings = 0
        # a broker that let this client in by another connection wants no SASL
        if self._broker.node_id < 0 and not self._has_sasl:
            connection.close_hint = _CLOSED_AFTER_GREETING.format("SASL_PLAINTEXT" if self._tls is None else "SASL_SSL")
        self._on_throttle(throttle)

    def _told(self, error: ConnectionLost | ProtocolError, connection: Connection, address: str) -> TransportError | None:
        """Return what a failed greeting says of the listener; None: it says no more than its own error."""
        if isinstance(error, ConnectionLost):
            told = None if self._tls is None else self._told_after_handshake(error, address, self._tls)
            self._closings += not isinstance(told, AuthenticationFailed)
            return told
        # an alert is certain, so that `start` need not wait; a connection that ends without one may be that of a broker that stops
        is_alert = self._tls is None and connection.frames.found_tls_alert
        return AuthenticationFailed(str(error), "tls") if is_alert else None

    def _told_after_handshake(self, error: ConnectionLost, address: str, tls: TlsContexts) -> TransportError | None:
        """Return the error of TLS because of which a connection ended after its handshake; None: it ended by another one."""
        from aioproducer.net.tls_errors import after_handshake

        return after_handshake(error.__cause__, self._name_of(address), tls)

    async def _authenticate(self, connection: Connection) -> None:
        security = self._settings.security
        if security is not None and security.sasl is not None:
            await security.sasl.authenticate(connection, self._settings.request_timeout)

    async def _identify(self, connection: Connection) -> None:
        """Raise ConnectionLost if a known broker belongs to another cluster than it did."""
        is_first, self._is_first = self._is_first, False
        known = self._settings.cluster_id()
        is_sure = connection.agreed.get(ApiKey.PRODUCE, 0) >= _FIRST_WITH_TOPIC_IDS and (self._is_for_records or is_first)
        if known is None or self._broker.node_id < 0 or is_sure:
            return
        found, throttle = await read_cluster_id(connection, self._settings.request_timeout)
        if found not in {None, known}:
            self._settings.on_another_cluster()
            raise ConnectionLost(f"{connection.where} belongs to cluster {found!r}, not {known!r}")
        self._on_throttle(throttle)

    # The end

    @property
    def streams(self) -> list[Stream]:
        """Return the streams that exist, the one in its TLS handshake included."""
        streams: list[Stream] = [connection.stream for connection in self.alive]
        return streams if self._tls_stream is None else [*streams, self._tls_stream]

    def drop(self, connection: Connection) -> None:
        """Abort a connection that is not used, and the stream that is in its TLS handshake."""
        stream, self._tls_stream = self._tls_stream, None
        if stream is not None:
            # The stream below it is one of a user's dialer. The error of the attempt is the one to tell.
            with contextlib.suppress(*USER_FAILURES):
                stream.abort()
        if connection in self.alive:
            connection.abort(ConnectionLost(f"{self._where}: the connection was given up"))

    def _on_lost(self, connection: Connection) -> None:
        self._notify_lost(connection, self.alive.pop(connection, ""))


def _with_reasons(reasons: list[str], error: KafkaError) -> KafkaError:
    """Return the error of an attempt: the reasons of all addresses, and the type of the last one if it is about authentication."""
    if isinstance(error, AuthenticationFailed):
        return type(error)("; ".join(reasons), error.stage, error.mechanism, error.code)
    return ConnectionLost("; ".join(reasons))
