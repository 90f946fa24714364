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
    )
    from aioproducer.build import (
        build_info as build_info,
    )
    from aioproducer.config import ProducerConfig as ProducerConfig
    from aioproducer.config.producer_config import ProducerOptions as ProducerOptions
    from aioproducer.core.circuit_breaker import (
        FailureRateCircuitBreaker as FailureRateCircuitBreaker,
    )
    from aioproducer.engine.append.thread_bridge import (
        FromThread as FromThread,
    )
    from aioproducer.engine.append.thread_bridge import (
        ThreadDelivery as ThreadDelivery,
    )
    from aioproducer.engine.chosen_build import Delivery as Delivery
    from aioproducer.engine.delivery.deliveries import Deliveries as Deliveries
    from aioproducer.errors import (
        AuthenticationFailed as AuthenticationFailed,
    )
    from aioproducer.errors import (
        BootstrapFailed as BootstrapFailed,
    )
    from aioproducer.errors import (
        BrokerError as BrokerError,
    )
    from aioproducer.errors import (
        BrokerNotTrusted as BrokerNotTrusted,
    )
    from aioproducer.errors import (
        BufferExhausted as BufferExhausted,
    )
    from aioproducer.errors import (
        CertificateNotTrusted as CertificateNotTrusted,
    )
    from aioproducer.errors import (
        CommitFailed as CommitFailed,
    )
    from aioproducer.errors import (
        ConfigError as ConfigError,
    )
    from aioproducer.errors import (
        ConnectionLost as ConnectionLost,
    )
    from aioproducer.errors import (
        CredentialsRefused as CredentialsRefused,
    )
    from aioproducer.errors import (
        DeliveryError as DeliveryError,
    )
    from aioproducer.errors import (
        DeliveryTimeout as DeliveryTimeout,
    )
    from aioproducer.errors import (
        KafkaError as KafkaError,
    )
    from aioproducer.errors import (
        MetadataTimeout as MetadataTimeout,
    )
    from aioproducer.errors import (
        PartitionUnavailable as PartitionUnavailable,
    )
    from aioproducer.errors import (
        Persisted as Persisted,
    )
    from aioproducer.errors import (
        ProducerClosed as ProducerClosed,
    )
    from aioproducer.errors import (
        ProducerFenced as ProducerFenced,
    )
    from aioproducer.errors import (
        ProtocolError as ProtocolError,
    )
    from aioproducer.errors import (
        RecordTooLarge as RecordTooLarge,
    )
    from aioproducer.errors import (
        RequestTimedOut as RequestTimedOut,
    )
    from aioproducer.errors import (
        SendTimeout as SendTimeout,
    )
    from aioproducer.errors import (
        SerializationError as SerializationError,
    )
    from aioproducer.errors import (
        TokenUnavailable as TokenUnavailable,
    )
    from aioproducer.errors import (
        TransactionAbortable as TransactionAbortable,
    )
    from aioproducer.errors import (
        TransactionAborted as TransactionAborted,
    )
    from aioproducer.errors import (
        TransactionError as TransactionError,
    )
    from aioproducer.errors import (
        TransactionExpired as TransactionExpired,
    )
    from aioproducer.errors import (
        TransactionFatal as TransactionFatal,
    )
    from aioproducer.errors import (
        TransactionMisuse as TransactionMisuse,
    )
    from aioproducer.errors import (
        TransactionTimeout as TransactionTimeout,
    )
    from aioproducer.errors import (
        TransportError as TransportError,
    )
    from aioproducer.errors import (
        UsageError as UsageError,
    )
    from aioproducer.errors import (
        WouldBlock as WouldBlock,
    )
    from aioproducer.interfaces import (
        CircuitBreakManager as CircuitBreakManager,
    )
    from aioproducer.interfaces import (
        Dialer as Dialer,
    )
    from aioproducer.interfaces import (
        Encoder as Encoder,
    )
    from aioproducer.interfaces import (
        Interceptor as Interceptor,
    )
    from aioproducer.interfaces import (
        PartitionCircuitBreaker as PartitionCircuitBreaker,
    )
    from aioproducer.interfaces import (
        Partitioner as Partitioner,
    )
    from aioproducer.interfaces import (
        ProducerStatusContext as ProducerStatusContext,
    )
    from aioproducer.interfaces import (
        Receiver as Receiver,
    )
    from aioproducer.interfaces import (
        Resolver as Resolver,
    )
    from aioproducer.interfaces import (
        Serializer as Serializer,
    )
    from aioproducer.interfaces import (
        Stream as Stream,
    )
    from aioproducer.metrics.registry import (
        Distribution as Distribution,
    )
    from aioproducer.metrics.registry import (
        MetricName as MetricName,
    )
    from aioproducer.metrics.registry import (
        Snapshot as Snapshot,
    )
    from aioproducer.model import (
        Acks as Acks,
    )
    from aioproducer.model import (
        BrokerSecurity as BrokerSecurity,
    )
    from aioproducer.model import (
        CircuitEvent as CircuitEvent,
    )
    from aioproducer.model import (
        CircuitState as CircuitState,
    )
    from aioproducer.model import (
        Compression as Compression,
    )
    from aioproducer.model import (
        ConsumerGroupMetadata as ConsumerGroupMetadata,
    )
    from aioproducer.model import (
        FailedRecord as FailedRecord,
    )
    from aioproducer.model import (
        FlushSummary as FlushSummary,
    )
    from aioproducer.model import (
        Header as Header,
    )
    from aioproducer.model import (
        Headers as Headers,
    )
    from aioproducer.model import (
        HeadersLike as HeadersLike,
    )
    from aioproducer.model import (
        Health as Health,
    )
    from aioproducer.model import (
        OffsetAndMetadata as OffsetAndMetadata,
    )
    from aioproducer.model import (
        Position as Position,
    )
    from aioproducer.model import (
        PreparedTransaction as PreparedTransaction,
    )
    from aioproducer.model import (
        ProducerRecord as ProducerRecord,
    )
    from aioproducer.model import (
        Record as Record,
    )
    from aioproducer.model import (
        RecordMetadata as RecordMetadata,
    )
    from aioproducer.model import (
        TimestampType as TimestampType,
    )
    from aioproducer.model import (
        TopicPartition as TopicPartition,
    )
    from aioproducer.model import (
        TransactionDescription as TransactionDescription,
    )
    from aioproducer.model import (
        TransactionListing as TransactionListing,
    )
    from aioproducer.partitioners import RoundRobinPartitioner as RoundRobinPartitioner
    from aioproducer.producer import Producer as Producer
    from aioproducer.records.rows_checksum import rows_checksum as rows_checksum
    from aioproducer.serializers import (
        json_serializer as json_serializer,
    )
    from aioproducer.serializers import (
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
