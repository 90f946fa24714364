"""Makes the connections to one broker: look-up of its name, dialling, TLS, the handshake of a new connection (KIP-35, KIP-511), and SASL.

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
import re
from typing import TYPE_CHECKING, Final

from aioproducer.errors import (
    AuthenticationFailed,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    broker_error,
)
from aioproducer.interfaces import USER_FAILURES, is_cancelled
from aioproducer.net.connection import Connection
from aioproducer.net.tls import TlsStream, server_name
from aioproducer.net.tls_contexts import after_handshake, in_handshake, no_name
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey
from aioproducer.wire.frame import FRAME_LIMIT
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.errors import TransportError
    from aioproducer.interfaces import Stream
    from aioproducer.net.broker_connection import BrokerConnection

# Kafka 4.0: from this version of Produce on, a request names topics by their ids, which no two clusters share.
_FIRST_WITH_TOPIC_IDS: Final = 13
# Handshakes in one cycle: the last of them uses the oldest version of ApiVersions.
_TRIES: Final = 3
# Bytes of a frame from a peer that has not answered ApiVersions yet, or is not authenticated. To decode as many takes about 20 ms. A broker
# sends a few thousand.
_STRANGERS_LIMIT: Final = 256 * 1024
_UNSUPPORTED_VERSION: Final = 35
_SOFTWARE: Final = "aioproducer"
# The first ApiVersions version with which a broker lets the client wait; with older versions the broker waits (KIP-219).
_FIRST_WITH_MUTING: Final = 2
# The first Metadata version with a cluster id.
_FIRST_WITH_CLUSTER_ID: Final = 2
_FIRST_METADATA_WITH_MUTING: Final = 6
# Brokers refuse these characters in a software version; the + of a local version is one of them (PEP 440).
_STRANGE: Final = r"[^a-zA-Z0-9.-]"
_CLOSED_AFTER_GREETING: Final = (
    " after ApiVersions was answered: does the listener want SASL (security_protocol={})?"
)


class ConnectionSetup:
    """Makes the connections of a `BrokerConnection`, one at a time.

    Attributes:
        alive: connections with a stream, and their addresses: the latest one, which may not be ready yet, and those that are closing.
    """

    def __init__(self, owner: BrokerConnection) -> None:
        self.alive: dict[Connection, str] = {}
        self._owner = owner
        self._broker = owner.node.broker
        self._addresses = owner.node.addresses
        self._settings = owner.node.settings
        self._where = owner.node.where
        self._is_first = True
        # Consecutive handshakes during which the connection ended.
        self._closings = 0
        self._is_resolving = False
        # The stream during its TLS handshake.
        self._tls_stream: TlsStream | None = None
        security = self._settings.security
        self._tls = None if security is None else security.tls
        self._sasl = None if security is None else security.sasl

    async def attempt(self, failures: int) -> Connection:
        """Make one attempt after `failures` failed ones. Returns a connection that is ready to use. Cancellation leaves no stream open.

        Raises:
            AuthenticationFailed: this client and the broker do not accept each other.
            KafkaError, OSError: no address gave a connection; the text names each address and its reason.
        """
        patience = self._settings.setup.after(failures + 1, self._settings.chance())
        if self._sasl is not None:
            # a connection would wait for a token at the broker's expense
            await self._sasl.prepare(patience)
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

    def delay(self) -> str:
        """Return why the attempt that runs has no address yet, for an error's text; empty if it has addresses, or if none runs."""
        return "the name is not resolved" if self._is_resolving else ""

    async def _resolve(self, patience: float) -> tuple[str, ...]:
        self._is_resolving = True
        try:
            async with asyncio.timeout(patience) as timer:
                return tuple(await self._addresses.to_try())
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise ConnectionLost(
                f"{self._where}: the name was not resolved within {round(patience, 3):g} s"
            ) from error
        finally:
            self._is_resolving = False

    async def _dial(self, address: str, where: str, patience: float) -> Connection:
        settings = self._settings
        connection = Connection(
            where,
            settings.client_id,
            self._on_lost,
            self._owner.node.changed,
            max_in_flight=settings.max_in_flight,
            max_idle=settings.max_idle,
            traffic=settings.observer.traffic(self._broker.node_id),
            step=settings.step,
        )
        connection.frames.limit = _STRANGERS_LIMIT
        if self._sasl is not None:
            connection.host = self._name_of(address)
        try:
            async with asyncio.timeout(patience) as timer:
                await self._open(address, connection)
                # it may have been lost since the dial
                if not connection.is_lost:
                    self.alive[connection] = address
                await self._shake_hands(connection, address)
                if self._sasl is not None:
                    await self._sasl.authenticate(connection, settings.request_timeout)
                await self._identify(connection)
            connection.frames.limit = FRAME_LIMIT
        except TimeoutError as error:
            why = "" if self._tls_stream is None else ": the TLS handshake was not answered"
            if connection.slow_step:
                why = f": it took too long to {connection.slow_step}"
            self.drop(connection)
            if not timer.expired():
                raise
            raise ConnectionLost(
                f"{where}: no usable connection within {round(patience, 3):g} s{why}"
            ) from error
        # no stream stays open, whatever ends the attempt
        except BaseException:
            self.drop(connection)
            raise
        return connection

    async def _open(self, address: str, connection: Connection) -> None:
        """Dial an address, and encrypt the stream if the settings ask for it."""
        tls, port = self._tls, self._broker.port
        if tls is None:
            await self._settings.dialer.dial(address, port, lambda: connection)
            return
        name = self._name_of(address)
        if not name:
            raise no_name(self._broker.host, "it is empty")
        context = await tls.context()
        # all dials that waited for one context go on in the same iteration: each makes its TLS object in a turn of its own
        await tls.turns.turn()
        stream = TlsStream(connection, context, name, tls.turns)
        await self._settings.dialer.dial(address, port, lambda: stream)
        self._tls_stream = stream
        try:
            await stream.handshake()
        # a ValueError reports a name that has no form for the DNS
        except (OSError, ValueError) as error:
            raise in_handshake(
                error, name, tls, "PLAINTEXT" if self._sasl is None else "SASL_PLAINTEXT"
            ) from error
        self._tls_stream = None

    def _name_of(self, address: str) -> str:
        """Return the name that the broker's certificate must have: that of the cluster, or of the bootstrap address as it is dialled."""
        is_canonical = self._settings.canonical_bootstrap and self._broker.node_id < 0
        return server_name(address if is_canonical else self._broker.host)

    async def _shake_hands(self, connection: Connection, address: str) -> None:
        settings = self._settings
        is_last = self._closings % _TRIES == _TRIES - 1
        try:
            throttle = await negotiate_versions(
                connection,
                settings.request_timeout,
                settings.software_version,
                in_oldest_form=is_last,
            )
        except (ConnectionLost, ProtocolError) as error:
            told = self._told(error, connection, address)
            if told is None:
                raise
            raise told from (error.__cause__ or error)
        if not is_last:
            self._closings = 0
        # a broker that let this client in by another connection wants no SASL
        if self._broker.node_id < 0 and self._sasl is None:
            connection.close_hint = _CLOSED_AFTER_GREETING.format(
                "SASL_PLAINTEXT" if self._tls is None else "SASL_SSL"
            )
        self._owner.node.throttle(throttle)

    def _told(
        self, error: ConnectionLost | ProtocolError, connection: Connection, address: str
    ) -> TransportError | None:
        """Return what a failed greeting says of the listener; None: it says no more than its own error."""
        if isinstance(error, ConnectionLost):
            told = (
                None
                if self._tls is None
                else after_handshake(error.__cause__, self._name_of(address), self._tls)
            )
            self._closings += not isinstance(told, AuthenticationFailed)
            return told
        # an alert is certain, so that `start` need not wait; a connection that ends without one may be that of a broker that stops
        is_alert = self._tls is None and connection.frames.found_tls_alert
        return AuthenticationFailed(str(error), "tls") if is_alert else None

    async def _identify(self, connection: Connection) -> None:
        """Raise ConnectionLost if a known broker belongs to another cluster than it did."""
        is_first, self._is_first = self._is_first, False
        known = self._settings.cluster_id()
        is_sure = connection.agreed.get(ApiKey.PRODUCE, 0) >= _FIRST_WITH_TOPIC_IDS and (
            self._owner.label == "produce" or is_first
        )
        if known is None or self._broker.node_id < 0 or is_sure:
            return
        found, throttle = await read_cluster_id(connection, self._settings.request_timeout)
        if found not in {None, known}:
            self._settings.on_another_cluster()
            raise ConnectionLost(f"{connection.where} belongs to cluster {found!r}, not {known!r}")
        self._owner.node.throttle(throttle)

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
        self._owner.on_lost(connection, self.alive.pop(connection, ""))


def _with_reasons(reasons: list[str], error: KafkaError) -> KafkaError:
    """Return the error of an attempt: the reasons of all addresses, and the type of the last one if it is about authentication."""
    if isinstance(error, AuthenticationFailed):
        return type(error)("; ".join(reasons), error.stage, error.mechanism, error.code)
    return ConnectionLost("; ".join(reasons))


async def negotiate_versions(
    connection: Connection, timeout: float, software_version: str, *, in_oldest_form: bool = False
) -> int:
    """Ask the broker for its API versions and features, and keep them in `connection` (NET-02).

    The first request has this client's newest ApiVersions version. If the broker does not know it, one more request follows.

    Args:
        connection: a connection that has just been made.
        timeout: seconds for each answer.
        software_version: version of this client.
        in_oldest_form: use the oldest ApiVersions version, for a broker that closes the connection when it does not know a version.

    Returns:
        Milliseconds for which the broker throttles this client.

    Raises:
        TransportError: the connection ended.
        BrokerError: the broker refuses the request.
    """
    version = CLIENT_VERSIONS[ApiKey.API_VERSIONS][not in_oldest_form]
    software_version = re.sub(_STRANGE, "-", software_version)
    request = message(
        "ApiVersions.request",
        client_software_name=_SOFTWARE,
        client_software_version=software_version,
    )
    raw = await connection.ask(ApiKey.API_VERSIONS, version, request, timeout)
    if int.from_bytes(raw.frame[raw.offset : raw.offset + 2], "big") == _UNSUPPORTED_VERSION:
        # a broker that does not know the request's version answers with version 0
        refusal = raw.decode(version=0)
        offered = {api.api_key: api.max_version for api in refusal.api_keys}
        raw = await connection.ask(
            ApiKey.API_VERSIONS,
            max(0, min(version - 1, offered.get(ApiKey.API_VERSIONS, 0))),
            request,
            timeout,
        )
    answer = raw.decode()
    if answer.error_code:
        raise broker_error(answer.error_code)
    connection.features = {
        feature.name: feature.max_version_level for feature in answer.finalized_features
    }
    connection.features_epoch = answer.finalized_features_epoch
    offers = {
        api.api_key: (api.min_version, api.max_version)
        for api in answer.api_keys
        if api.min_version <= api.max_version
    }
    connection.learn_versions(offers)
    return int(answer.throttle_time_ms) if raw.version >= _FIRST_WITH_MUTING else 0


async def read_cluster_id(connection: Connection, timeout: float) -> tuple[str | None, int]:
    """Return the id of the cluster that a broker belongs to, and the milliseconds for which the broker throttles this client.

    The id is None if the broker gives none, or is older than Kafka 0.10.1.

    Args:
        connection: a connection whose versions are negotiated.
        timeout: seconds for the answer.

    Raises:
        TransportError: the connection ended.
    """
    version = connection.agreed.get(ApiKey.METADATA, 0)
    if version < _FIRST_WITH_CLUSTER_ID:
        return None, 0
    request = message("Metadata.request", topics=[], allow_auto_topic_creation=False)
    answer = (await connection.ask(ApiKey.METADATA, version, request, timeout)).decode()
    return answer.cluster_id, int(
        answer.throttle_time_ms
    ) if version >= _FIRST_METADATA_WITH_MUTING else 0
