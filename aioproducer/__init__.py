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
    from aioproducer.build import (
        BuildInfo as BuildInfo,
        build_info as build_info,
    )
    from aioproducer.config import ProducerConfig as ProducerConfig
    from aioproducer.config.producer_config import ProducerOptions as ProducerOptions
    from aioproducer.core.circuit_breaker import (
        FailureRateCircuitBreaker as FailureRateCircuitBreaker,
    )
    from aioproducer.engine.append.thread_bridge import (
        FromThread as FromThread,
        ThreadDelivery as ThreadDelivery,
    )
    from aioproducer.engine.chosen_build import Delivery as Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries as Deliveries
    from aioproducer.errors import (
        AuthenticationFailed as AuthenticationFailed,
        BootstrapFailed as BootstrapFailed,
        BrokerError as BrokerError,
        BrokerNotTrusted as BrokerNotTrusted,
        BufferExhausted as BufferExhausted,
        CertificateNotTrusted as CertificateNotTrusted,
        CommitFailed as CommitFailed,
        ConfigError as ConfigError,
        ConnectionLost as ConnectionLost,
        CredentialsRefused as CredentialsRefused,
        DeliveryError as DeliveryError,
        DeliveryTimeout as DeliveryTimeout,
        KafkaError as KafkaError,
        MetadataTimeout as MetadataTimeout,
        PartitionUnavailable as PartitionUnavailable,
        Persisted as Persisted,
        ProducerClosed as ProducerClosed,
        ProducerFenced as ProducerFenced,
        ProtocolError as ProtocolError,
        RecordTooLarge as RecordTooLarge,
        RequestTimedOut as RequestTimedOut,
        SendTimeout as SendTimeout,
        SerializationError as SerializationError,
        TokenUnavailable as TokenUnavailable,
        TransactionAbortable as TransactionAbortable,
        TransactionAborted as TransactionAborted,
        TransactionError as TransactionError,
        TransactionExpired as TransactionExpired,
        TransactionFatal as TransactionFatal,
        TransactionMisuse as TransactionMisuse,
        TransactionTimeout as TransactionTimeout,
        TransportError as TransportError,
        UsageError as UsageError,
        WouldBlock as WouldBlock,
    )
    from aioproducer.interfaces import (
        CircuitBreakManager as CircuitBreakManager,
        Dialer as Dialer,
        Encoder as Encoder,
        Interceptor as Interceptor,
        PartitionCircuitBreaker as PartitionCircuitBreaker,
        Partitioner as Partitioner,
        ProducerStatusContext as ProducerStatusContext,
        Receiver as Receiver,
        Resolver as Resolver,
        Serializer as Serializer,
        Stream as Stream,
    )
    from aioproducer.metrics.registry import (
        Distribution as Distribution,
        MetricName as MetricName,
        Snapshot as Snapshot,
    )
    from aioproducer.model import (
        Acks as Acks,
        BrokerSecurity as BrokerSecurity,
        CircuitEvent as CircuitEvent,
        CircuitState as CircuitState,
        Compression as Compression,
        ConsumerGroupMetadata as ConsumerGroupMetadata,
        FailedRecord as FailedRecord,
        FlushSummary as FlushSummary,
        Header as Header,
        Headers as Headers,
        HeadersLike as HeadersLike,
        Health as Health,
        OffsetAndMetadata as OffsetAndMetadata,
        Position as Position,
        PreparedTransaction as PreparedTransaction,
        ProducerRecord as ProducerRecord,
        Record as Record,
        RecordMetadata as RecordMetadata,
        TimestampType as TimestampType,
        TopicPartition as TopicPartition,
        TransactionDescription as TransactionDescription,
        TransactionListing as TransactionListing,
    )
    from aioproducer.partitioners import RoundRobinPartitioner as RoundRobinPartitioner
    from aioproducer.producer import Producer as Producer
    from aioproducer.records.rows_checksum import rows_checksum as rows_checksum
    from aioproducer.serializers import (
        json_serializer as json_serializer,
        string_serializer as string_serializer,
    )
    from aioproducer.topic import Topic as Topic
    from aioproducer.transaction_resolver import TransactionResolver as TransactionResolver

    __version__: str
# A type checker that read `__getattr__` would accept every name.
else:
    # The names of each module. Tests compare them with the imports above, which only type checkers read.
    _NAMES = {
        "build": (
            "BuildInfo",
            "build_info",
        ),
        "config.producer_config": (
            "ProducerConfig",
            "ProducerOptions",
        ),
        "core.circuit_breaker": ("FailureRateCircuitBreaker",),
        "engine.append.thread_bridge": (
            "FromThread",
            "ThreadDelivery",
        ),
        "engine.chosen_build": ("Delivery",),
        "engine.delivery.deliveries": ("Deliveries",),
        "errors": (
            "AuthenticationFailed",
            "BootstrapFailed",
            "BrokerError",
            "BrokerNotTrusted",
            "BufferExhausted",
            "CertificateNotTrusted",
            "CommitFailed",
            "ConfigError",
            "ConnectionLost",
            "CredentialsRefused",
            "DeliveryError",
            "DeliveryTimeout",
            "KafkaError",
            "MetadataTimeout",
            "PartitionUnavailable",
            "Persisted",
            "ProducerClosed",
            "ProducerFenced",
            "ProtocolError",
            "RecordTooLarge",
            "RequestTimedOut",
            "SendTimeout",
            "SerializationError",
            "TokenUnavailable",
            "TransactionAbortable",
            "TransactionAborted",
            "TransactionError",
            "TransactionExpired",
            "TransactionFatal",
            "TransactionMisuse",
            "TransactionTimeout",
            "TransportError",
            "UsageError",
            "WouldBlock",
        ),
        "interfaces": (
            "CircuitBreakManager",
            "Dialer",
            "Encoder",
            "Interceptor",
            "PartitionCircuitBreaker",
            "Partitioner",
            "ProducerStatusContext",
            "Receiver",
            "Resolver",
            "Serializer",
            "Stream",
        ),
        "metrics.registry": (
            "Distribution",
            "MetricName",
            "Snapshot",
        ),
        "model": (
            "Acks",
            "BrokerSecurity",
            "CircuitEvent",
            "CircuitState",
            "Compression",
            "ConsumerGroupMetadata",
            "FailedRecord",
            "FlushSummary",
            "Header",
            "Headers",
            "HeadersLike",
            "Health",
            "OffsetAndMetadata",
            "Position",
            "PreparedTransaction",
            "ProducerRecord",
            "Record",
            "RecordMetadata",
            "TimestampType",
            "TopicPartition",
            "TransactionDescription",
            "TransactionListing",
        ),
        "partitioners": ("RoundRobinPartitioner",),
        "producer": ("Producer",),
        "records.rows_checksum": ("rows_checksum",),
        "serializers": (
            "json_serializer",
            "string_serializer",
        ),
        "topic": ("Topic",),
        "transaction_resolver": ("TransactionResolver",),
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names}
    __all__ = sorted(_HOMES)

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = _importlib.import_module("aioproducer.build").VERSION
        elif name == "errors":
            value = _importlib.import_module("aioproducer.errors")
        elif name in _HOMES:
            value = getattr(_importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "__version__"})
