"""A small Kafka client for tests: sends any request to any broker, creates topics, reads end offsets.

It uses `wire` alone, so that its results do not depend on the producer under test. It makes one connection per broker at the first
request; requests may overlap. It retries only answers of a cluster that is not ready.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from aioproducer.errors import (
    BrokerError,
    ConnectionLost,
    ProtocolError,
    RequestTimedOut,
    TransportError,
    broker_error,
)
from aioproducer.wire.api import NAMES, ApiKey, negotiate
from aioproducer.wire.frame import FrameReader, correlation_of, decode_response, encode_request
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from aioproducer.interfaces import Dialer, Receiver, Stream

__all__ = ["WireClient"]

T = TypeVar("T")

_LATEST: Final = -1
_RETRY_SECONDS: Final = 0.03
_TOPIC_EXISTS: Final = 36
_BOOTSTRAP: Final = (
    -1
)  # means any broker of `bootstrap_servers` until Metadata has named the brokers


class WireClient:
    """Sends Kafka requests one by one, for tests that inspect or change a cluster.

    Args:
        bootstrap_servers: host:port, comma separated; the client uses the first that accepts a connection.
        dialer: makes connections; by default sockets of the running loop.
        timeout: seconds that one request, or one method of several, may take.
    """

    def __init__(
        self, bootstrap_servers: str, *, dialer: Dialer | None = None, timeout: float = 10.0
    ) -> None:
        self._addresses = [_address(server) for server in bootstrap_servers.split(",")]
        self._dialer: Dialer = dialer or _SocketDialer()
        self._timeout = timeout
        self._connections: dict[int, _Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._dialling = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; waiting requests fail with ConnectionLost. A later request connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def ask(
        self,
        key: ApiKey,
        /,
        *,
        node: int | None = None,
        version: int | None = None,
        **fields: object,
    ) -> Any:
        """Send one request. Returns the decoded answer.

        Args:
            key: the request.
            node: the id of the broker, as `metadata` named it; by default one of `bootstrap_servers`.
            version: the request's version; by default the highest that both sides speak.
            fields: the request's fields; the others have their defaults.

        Raises:
            ConnectionLost: no connection, or it ended before the answer.
            RequestTimedOut: no answer within `timeout`; the connection is closed.
            ProtocolError: an answer that cannot be decoded, or no common version.

        Cancellation: the answer is dropped when it comes.
        """
        place = _BOOTSTRAP if node is None else node
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._connection(place)
                return await connection.ask(
                    key, connection.negotiated(key) if version is None else version, fields
                )
        except TimeoutError as error:
            if isinstance(error, RequestTimedOut):
                raise
            if place in self._connections:
                self._connections.pop(place).close()
            raise RequestTimedOut(f"no answer to {NAMES[key]} within {self._timeout} s") from error

    async def metadata(self, topics: Iterable[str] | None = None) -> Any:
        """Return the cluster's Metadata answer for these topics, or for all. Errors and cancellation as `ask`; topics are not created."""
        wanted = (
            None
            if topics is None
            else [message("Metadata.request.topics", name=topic) for topic in topics]
        )
        answer = await self.ask(ApiKey.METADATA, topics=wanted, allow_auto_topic_creation=False)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int = 1,
    ) -> None:
        """Create a topic, and wait until each of its partitions has a leader.

        Args:
            name: the topic's name.
            partitions: number of partitions.
            config: Kafka's topic options, such as {"retention.ms": -1}.
            replication_factor: copies of each partition.

        Raises:
            BrokerError: the cluster refuses it, or has no leader for each partition within `timeout`.
            TransportError: as `ask`.

        Cancellation: the topic may or may not have been created.
        """
        options = [
            message("CreateTopics.request.topics.configs", name=option, value=str(value))
            for option, value in (config or {}).items()
        ]
        topic = message(
            "CreateTopics.request.topics",
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=options,
        )
        refused = False

        async def create() -> None:
            nonlocal refused
            result = (
                await self.ask(
                    ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=int(self._timeout * 1000)
                )
            ).topics[0]
            # the answer before was an error such as REQUEST_TIMED_OUT, but the cluster did create the topic
            if result.error_code == _TOPIC_EXISTS and refused:
                return
            refused = True
            _check(result.error_code, result.error_message)

        await self._until_ready(create)
        await self._until_ready(lambda: self._ends(name, partitions))

    async def end_offsets(self, topic: str) -> list[int]:
        """Return the offset after the last record of each partition.

        Raises:
            BrokerError: no such topic, or a partition was without a leader for `timeout`.
            TransportError: as `ask`.
        """
        _check((await self.metadata([topic])).topics[0].error_code, topic)
        return await self._until_ready(lambda: self._ends(topic, 1))

    async def _ends(self, topic: str, partitions: int) -> list[int]:
        """Return the end offsets from each leader. Metadata may name a leader before that broker has taken over."""
        found = (await self.metadata([topic])).topics[0]
        _check(found.error_code, topic)
        leaders: dict[int, list[int]] = {}
        for partition in found.partitions:
            _check(partition.error_code, f"{topic}-{partition.partition_index}")
            leaders.setdefault(partition.leader_id, []).append(partition.partition_index)
        ends: dict[int, int] = {}
        for leader, indexes in leaders.items():
            wanted = [
                message(
                    "ListOffsets.request.topics.partitions",
                    partition_index=index,
                    timestamp=_LATEST,
                )
                for index in indexes
            ]
            asked = message("ListOffsets.request.topics", name=topic, partitions=wanted)
            answer = await self.ask(ApiKey.LIST_OFFSETS, node=leader, replica_id=-1, topics=[asked])
            for partition in answer.topics[0].partitions:
                _check(partition.error_code, f"{topic}-{partition.partition_index}")
                ends[partition.partition_index] = partition.offset
        if len(ends) < partitions:
            raise broker_error(
                "LEADER_NOT_AVAILABLE",
                f"{len(ends)} of {partitions} partitions of {topic} are there",
            )
        return [ends[index] for index in sorted(ends)]

    async def _until_ready(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry, for `timeout` at most, while the cluster answers that it is not ready."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        while True:
            try:
                return await attempt()
            except BrokerError as error:
                if not error.retriable or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def _connection(self, node: int) -> _Connection:
        async with self._dialling:
            known = self._connections.get(node)
            if known is not None and not known.is_closed:
                return known
            if node != _BOOTSTRAP and node not in self._brokers:
                raise ConnectionLost(
                    f"the address of broker {node} is not known; `metadata` tells it"
                )
            failures = []
            for host, port in self._addresses if node == _BOOTSTRAP else [self._brokers[node]]:
                connection = _Connection()
                try:
                    await connection.open(self._dialer, host, port)
                except (OSError, TransportError) as error:
                    failures.append(f"{host}:{port}: {error}")
                else:
                    self._connections[node] = connection
                    return connection
            raise ConnectionLost(f"no connection to {'; '.join(failures)}")


class _Connection:
    """One connection: sends requests, and gives each answer to its waiter. A `Receiver`."""

    def __init__(self) -> None:
        self.is_closed = False
        self._stream: Stream | None = None
        self._frames = FrameReader()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next = 0
        self._versions: dict[int, tuple[int, int]] = {}

    async def open(self, dialer: Dialer, host: str, port: int) -> None:
        """Connect, and request the broker's versions; a failure closes the connection."""
        self._stream = await dialer.dial(host, port, lambda: self)
        try:
            # every broker answers version 0
            answer = await self.ask(ApiKey.API_VERSIONS, 0, {})
            _check(answer.error_code, "ApiVersions")
        # whatever ends the dial, a cancellation too, closes the stream
        except BaseException as error:
            self.close()
            if isinstance(error, BrokerError):
                raise ProtocolError(f"{host}:{port} does not tell its versions: {error}") from error
            raise
        self._versions = {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }

    def negotiated(self, key: ApiKey) -> int:
        version = negotiate(key, self._versions)
        if version is None:
            raise ProtocolError(
                f"the broker speaks {NAMES[key]} {self._versions.get(key, 'in no version')}, none of which we do"
            )
        return version

    async def ask(self, key: ApiKey, version: int, fields: Mapping[str, object]) -> Any:
        body = codec(f"{NAMES[key]}.request", version).encode(
            message(f"{NAMES[key]}.request", **fields)
        )
        if self._stream is None or self.is_closed:
            raise ConnectionLost("the connection is closed")
        correlation_id = self._next
        self._next += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        self._stream.write(
            b"".join(encode_request(key, version, correlation_id, "aioproducer-testing", body))
        )
        frame = await answer
        _, offset = decode_response(key, version, frame)
        return codec(f"{NAMES[key]}.response", version).decode(frame, offset)

    def close(self) -> None:
        if self._stream is not None and not self._stream.is_closing():
            self._stream.abort()
        self._fail(ConnectionLost("the connection was closed by this side"))

    def connection_made(self, _transport: object, /) -> None:
        """Do nothing: `dial` returns the stream as well."""

    def data_received(self, data: bytes, /) -> None:
        try:
            for frame in self._frames.feed(data):
                waiter = self._waiting.pop(correlation_of(frame), None)
                if waiter is None:
                    raise ProtocolError("an answer to no question")
                # a cancelled request has no waiter
                if not waiter.done():
                    waiter.set_result(frame)
            self._frames.check()
        except ProtocolError as error:
            self._fail(error)
            if self._stream is not None:
                self._stream.abort()

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        self._fail(ConnectionLost(f"the connection ended: {exc or 'the other side closed it'}"))

    def pause_writing(self) -> None:
        """Do nothing: requests are small and few, and the transport's buffer holds them."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def _fail(self, error: TransportError) -> None:
        self.is_closed = True
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_exception(error)


class _SocketDialer:
    """Dials plain sockets of the running loop."""

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        factory = cast("Callable[[], asyncio.Protocol]", receiver)  # the same shape
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        return transport


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    return host.strip("[]"), int(port)


def _check(code: int, what: str | None) -> None:
    if code:
        raise broker_error(code, what)
