"""The asyncio-native producer for Apache Kafka.

    async with Producer(bootstrap_servers="localhost:9092") as producer:
        delivery = await producer.send("orders", b"value", key=b"k")  # queued
        metadata = await delivery                                     # acknowledged

`Producer` sends records, `ProducerConfig` has all options, and `aioproducer.errors` all errors. `aioproducer.testing` has a fake cluster
for tests.
"""

# A name is imported when it is first used (PEP 562): pytest loads this package's plugin in every run of every project that has it installed.
import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from aioproducer import errors as errors
    from aioproducer.build import BuildInfo, build_info
    from aioproducer.config import ProducerConfig
    from aioproducer.config.producer_options import ProducerOptions
    from aioproducer.core.circuit_breaker import FailureRateCircuitBreaker
    from aioproducer.engine.append.thread_bridge import FromThread, ThreadDelivery
    from aioproducer.engine.chosen_build import Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries
    from aioproducer.errors import (
        AuthenticationFailed,
        BootstrapFailed,
        BrokerError,
        BrokerNotTrusted,
        BufferExhausted,
        CertificateNotTrusted,
        CommitFailed,
        ConfigError,
        ConnectionLost,
        CredentialsRefused,
        DeliveryError,
        DeliveryTimeout,
        KafkaError,
        MetadataTimeout,
        PartitionUnavailable,
        Persisted,
        ProducerClosed,
        ProducerFenced,
        ProtocolError,
        RecordTooLarge,
        RequestTimedOut,
        SendTimeout,
        SerializationError,
        TokenUnavailable,
        TransactionAbortable,
        TransactionAborted,
        TransactionError,
        TransactionExpired,
        TransactionFatal,
        TransactionMisuse,
        TransactionTimeout,
        TransportError,
        UsageError,
        WouldBlock,
    )
    from aioproducer.failed_record import FailedRecord
    from aioproducer.interceptors import Interceptor
    from aioproducer.interfaces import (
        CircuitBreakManager,
        Dialer,
        Encoder,
        PartitionCircuitBreaker,
        Partitioner,
        ProducerStatusContext,
        Receiver,
        Resolver,
        Serializer,
        Stream,
    )
    from aioproducer.metrics.registry import Distribution, MetricName, Snapshot
    from aioproducer.model import (
        Acks,
        BrokerSecurity,
        CircuitEvent,
        CircuitState,
        Compression,
        ConsumerGroupMetadata,
        FlushSummary,
        Header,
        Headers,
        HeadersLike,
        Health,
        OffsetAndMetadata,
        Position,
        PreparedTransaction,
        ProducerRecord,
        Record,
        RecordMetadata,
        TimestampType,
        TopicPartition,
        TransactionDescription,
        TransactionListing,
    )
    from aioproducer.partitioners import RoundRobinPartitioner
    from aioproducer.producer import Producer
    from aioproducer.row_checksum import rows_checksum
    from aioproducer.serializers import json_serializer, string_serializer
    from aioproducer.topic import Topic
    from aioproducer.transaction_resolver import TransactionResolver

    __version__: str

__all__ = [
    "Acks",
    "AuthenticationFailed",
    "BootstrapFailed",
    "BrokerError",
    "BrokerNotTrusted",
    "BrokerSecurity",
    "BufferExhausted",
    "BuildInfo",
    "CertificateNotTrusted",
    "CircuitBreakManager",
    "CircuitEvent",
    "CircuitState",
    "CommitFailed",
    "Compression",
    "ConfigError",
    "ConnectionLost",
    "ConsumerGroupMetadata",
    "CredentialsRefused",
    "Deliveries",
    "Delivery",
    "DeliveryError",
    "DeliveryTimeout",
    "Dialer",
    "Distribution",
    "Encoder",
    "FailedRecord",
    "FailureRateCircuitBreaker",
    "FlushSummary",
    "FromThread",
    "Header",
    "Headers",
    "HeadersLike",
    "Health",
    "Interceptor",
    "KafkaError",
    "MetadataTimeout",
    "MetricName",
    "OffsetAndMetadata",
    "PartitionCircuitBreaker",
    "PartitionUnavailable",
    "Partitioner",
    "Persisted",
    "Position",
    "PreparedTransaction",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerOptions",
    "ProducerRecord",
    "ProducerStatusContext",
    "ProtocolError",
    "Receiver",
    "Record",
    "RecordMetadata",
    "RecordTooLarge",
    "RequestTimedOut",
    "Resolver",
    "RoundRobinPartitioner",
    "SendTimeout",
    "SerializationError",
    "Serializer",
    "Snapshot",
    "Stream",
    "ThreadDelivery",
    "TimestampType",
    "TokenUnavailable",
    "Topic",
    "TopicPartition",
    "TransactionAbortable",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionError",
    "TransactionExpired",
    "TransactionFatal",
    "TransactionListing",
    "TransactionMisuse",
    "TransactionResolver",
    "TransactionTimeout",
    "TransportError",
    "UsageError",
    "WouldBlock",
    "build_info",
    "json_serializer",
    "rows_checksum",
    "string_serializer",
]

# The module of each name that is not in errors. Tests compare it with the imports above, which only type checkers read.
_HOMES = {
    "Acks": "model",
    "BrokerSecurity": "model",
    "BuildInfo": "build",
    "CircuitBreakManager": "interfaces",
    "CircuitEvent": "model",
    "CircuitState": "model",
    "Compression": "model",
    "ConsumerGroupMetadata": "model",
    "Deliveries": "engine.delivery.deliveries",
    "Delivery": "engine.chosen_build",
    "FailedRecord": "failed_record",
    "FailureRateCircuitBreaker": "core.circuit_breaker",
    "Distribution": "metrics.registry",
    "FlushSummary": "model",
    "FromThread": "engine.append.thread_bridge",
    "Header": "model",
    "Headers": "model",
    "HeadersLike": "model",
    "Health": "model",
    "Interceptor": "interceptors",
    "MetricName": "metrics.registry",
    "OffsetAndMetadata": "model",
    "Position": "model",
    "PreparedTransaction": "model",
    "PartitionCircuitBreaker": "interfaces",
    "Partitioner": "interfaces",
    "Dialer": "interfaces",
    "Encoder": "interfaces",
    "Receiver": "interfaces",
    "Serializer": "interfaces",
    "Stream": "interfaces",
    "Resolver": "interfaces",
    "ProducerOptions": "config.producer_options",
    "Producer": "producer",
    "ProducerConfig": "config",
    "ProducerStatusContext": "interfaces",
    "ProducerRecord": "model",
    "Record": "model",
    "RecordMetadata": "model",
    "RoundRobinPartitioner": "partitioners",
    "Snapshot": "metrics.registry",
    "ThreadDelivery": "engine.append.thread_bridge",
    "TimestampType": "model",
    "Topic": "topic",
    "TopicPartition": "model",
    "TransactionDescription": "model",
    "TransactionListing": "model",
    "TransactionResolver": "transaction_resolver",
    "build_info": "build",
    "json_serializer": "serializers",
    "rows_checksum": "row_checksum",
    "string_serializer": "serializers",
}


# A type checker that read `__getattr__` would accept every name.
if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = _importlib.import_module("aioproducer.build").VERSION
        elif name == "errors":
            value = _importlib.import_module("aioproducer.errors")
        elif name in __all__:
            value = getattr(_importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
