"""Holds producers of three makes behind one interface (`stage.Client`).

Options have our names; each client gets those that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, ClassVar

from aioproducer import Producer
from tests.tls_peers import context_of_pem

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractAsyncContextManager

    from aioproducer.testing import FakeCluster

    from .stage import Client

__all__ = ["Aiokafka", "Confluent", "Ours", "make"]

_STOPPING = 10.0  # seconds that another client may take to stop


class Ours:
    """Adapts aioproducer."""

    def __init__(self) -> None:
        self.producer: Producer[Any, Any] | None = None

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        counted = {"batch_max_size": 1} if "batch_size" in options else {}  # its batches are counted
        self.producer = Producer(**{**cluster.client_options, **counted, **options})
        await self.producer.start()

    async def send(self, topic: str, value: bytes, partition: int | None) -> Awaitable[tuple[int, int]]:
        assert self.producer is not None
        delivery = await self.producer.send(topic, value, partition=partition)

        async def ended() -> tuple[int, int]:
            metadata = await delivery
            return metadata.partition, metadata.offset

        return ended()

    async def begin(self) -> None:
        assert self.producer is not None
        await self.producer.begin_transaction()

    async def commit(self) -> None:
        assert self.producer is not None
        await self.producer.commit_transaction()

    async def abort(self) -> None:
        assert self.producer is not None
        await self.producer.abort_transaction()

    async def offsets(self, group: str, topic: str, offset: int) -> None:
        assert self.producer is not None
        await self.producer.send_offsets_to_transaction({(topic, 0): offset}, group)

    def scope(self) -> AbstractAsyncContextManager[Any]:
        """Run the body in a transaction that ends with it."""
        assert self.producer is not None
        return self.producer.transaction()

    async def stop(self) -> None:
        assert self.producer is not None
        await self.producer.stop()


class Aiokafka:
    """Adapts aiokafka. It has one time-out for a request and for a record, and none for the calls of a transaction."""

    _NAMES = (
        "acks",
        "enable_idempotence",
        "linger_ms",
        "max_request_size",
        "metadata_max_age_ms",
        "request_timeout_ms",
        "retry_backoff_ms",
        "transactional_id",
        "transaction_timeout_ms",
    )

    def __init__(self) -> None:
        self._producer: Any = None
        self._block = 60.0

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaProducer

        given = {name: options[name] for name in self._NAMES if name in options} | _security_of_aiokafka(options)
        if "delivery_timeout_ms" in options:  # the longer of the two: it ends the record
            given["request_timeout_ms"] = options["delivery_timeout_ms"]
        if "batch_size" in options:
            given["max_batch_size"] = options["batch_size"]
        self._block = options.get("max_block_ms", 60_000) / 1000
        servers = options.get("bootstrap_servers", cluster.bootstrap_servers)
        self._producer = AIOKafkaProducer(bootstrap_servers=servers, **{"acks": "all", **given})
        try:
            async with asyncio.timeout(self._block + 5):
                await self._producer.start()
        except BaseException:
            with contextlib.suppress(Exception):
                await self._producer.stop()
            raise

    async def send(self, topic: str, value: bytes, partition: int | None) -> Awaitable[tuple[int, int]]:
        future = await self._producer.send(topic, value, partition=partition)

        async def ended() -> tuple[int, int]:
            metadata = await future  # None with acks=0
            return (0 if partition is None else partition, -1) if metadata is None else (metadata.partition, metadata.offset)

        return ended()

    async def begin(self) -> None:
        await self._bounded(self._producer.begin_transaction())

    async def commit(self) -> None:
        await self._bounded(self._producer.commit_transaction())

    async def abort(self) -> None:
        await self._bounded(self._producer.abort_transaction())

    async def offsets(self, group: str, topic: str, offset: int) -> None:
        from aiokafka import TopicPartition

        await self._bounded(self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def scope(self) -> AbstractAsyncContextManager[Any]:
        """Run the body in a transaction that ends with it."""
        scope: AbstractAsyncContextManager[Any] = self._producer.transaction()
        return scope

    async def _bounded(self, call: Awaitable[None]) -> None:
        async with asyncio.timeout(self._block):
            await call

    async def stop(self) -> None:
        async with asyncio.timeout(_STOPPING):
            await self._producer.stop()


def _security_of_aiokafka(options: dict[str, Any]) -> dict[str, Any]:
    """Return its options of TLS and SASL: it takes an SSLContext."""
    names = {"security_protocol": "security_protocol", "sasl_mechanism": "sasl_mechanism"}
    names |= {"sasl_username": "sasl_plain_username", "sasl_password": "sasl_plain_password"}
    given = {theirs: options[ours] for ours, theirs in names.items() if ours in options}
    if "ssl_truststore_certificates" in options:
        given["ssl_context"] = context_of_pem(
            options["ssl_truststore_certificates"],
            options.get("ssl_keystore_key", "") + options.get("ssl_keystore_certificate_chain", ""),
        )
    return given


class Confluent:
    """Adapts confluent-kafka's Producer, which a thread polls."""

    _NAMES: ClassVar = {
        "acks": "acks",
        "batch_size": "batch.size",
        "connections_max_idle_ms": "connections.max.idle.ms",
        "delivery_timeout_ms": "delivery.timeout.ms",
        "enable_idempotence": "enable.idempotence",
        "linger_ms": "linger.ms",
        "max_in_flight_requests_per_connection": "max.in.flight.requests.per.connection",
        "max_request_size": "message.max.bytes",
        "metadata_max_age_ms": "metadata.max.age.ms",
        "reconnect_backoff_max_ms": "reconnect.backoff.max.ms",
        "reconnect_backoff_ms": "reconnect.backoff.ms",
        "request_timeout_ms": "request.timeout.ms",
        "retry_backoff_ms": "retry.backoff.ms",
        "sasl_mechanism": "sasl.mechanism",
        "sasl_password": "sasl.password",
        "sasl_username": "sasl.username",
        "security_protocol": "security.protocol",
        "ssl_keystore_certificate_chain": "ssl.certificate.pem",
        "ssl_keystore_key": "ssl.key.pem",
        "ssl_truststore_certificates": "ssl.ca.pem",
        "transactional_id": "transactional.id",
        "transaction_timeout_ms": "transaction.timeout.ms",
    }

    def __init__(self) -> None:
        self._producer: Any = None
        self._polling: asyncio.Future[None] | None = None
        self._is_over = False
        self._block = 60.0
        self._reaching: dict[str, Any] = {}

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        from confluent_kafka import Producer as Other

        loop = asyncio.get_running_loop()
        given = {self._NAMES[name]: value for name, value in options.items() if name in self._NAMES}
        if "metadata_max_age_ms" in options:
            given["topic.metadata.refresh.interval.ms"] = options["metadata_max_age_ms"]
        if "socket_connection_setup_timeout_ms" in options:
            given["socket.connection.setup.timeout.ms"] = options["socket_connection_setup_timeout_ms"]
        if "request_timeout_ms" in options:
            given["socket.timeout.ms"] = max(1000, options["request_timeout_ms"])
        self._block = options.get("max_block_ms", 60_000) / 1000
        security = {name: value for name, value in given.items() if name.startswith(("sasl.", "security.", "ssl."))}
        self._reaching = {"bootstrap.servers": options.get("bootstrap_servers", cluster.bootstrap_servers), "log_level": 0, **security}
        self._producer = Other({**self._reaching, "statistics.interval.ms": 0, **given})
        self._polling = loop.run_in_executor(None, self._poll)
        try:  # without transactions it has no start of its own: one request to the cluster stands for the start of the other clients
            if "transactional_id" in options:
                await loop.run_in_executor(None, self._producer.init_transactions, self._block)
            else:
                await loop.run_in_executor(None, self._producer.list_topics, None, min(self._block, 10))
        except BaseException:
            self._is_over = True
            raise

    def _poll(self) -> None:
        from confluent_kafka import KafkaException

        while not self._is_over:
            with contextlib.suppress(KafkaException):  # a fatal error; the client reports its records all the same
                self._producer.poll(0.02)

    async def send(self, topic: str, value: bytes, partition: int | None) -> Awaitable[tuple[int, int]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[int, int]] = loop.create_future()

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                loop.call_soon_threadsafe(future.set_exception, RuntimeError(str(error)))
            else:
                offset = message.offset()
                loop.call_soon_threadsafe(future.set_result, (message.partition(), -1 if offset is None else offset))

        until = time.monotonic() + self._block
        while True:
            try:
                self._producer.produce(topic, value, partition=-1 if partition is None else partition, on_delivery=on_delivery)
            except BufferError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.02)
            else:
                return future

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def commit(self) -> None:
        await asyncio.to_thread(self._producer.commit_transaction, self._block)

    async def abort(self) -> None:
        await asyncio.to_thread(self._producer.abort_transaction, self._block)

    async def offsets(self, group: str, topic: str, offset: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._reaching, "group.id": group})
        send = self._producer.send_offsets_to_transaction
        try:
            await asyncio.to_thread(send, [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), self._block)
        finally:
            await asyncio.to_thread(consumer.close)

    async def stop(self) -> None:
        from confluent_kafka import KafkaException

        loop = asyncio.get_running_loop()
        with contextlib.suppress(KafkaException):  # the client raises the fatal error again; its records have reported their own results
            await loop.run_in_executor(None, self._producer.flush, _STOPPING)
        self._is_over = True
        if self._polling is not None:
            await self._polling


def make(name: str) -> Client:
    """Return a client by its name on the page."""
    makers: dict[str, type[Client]] = {"aioproducer": Ours, "aiokafka": Aiokafka, "confluent-kafka": Confluent}
    return makers[name]()
