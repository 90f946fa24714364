"""The asyncio-native producer for Apache Kafka."""

from importlib.metadata import version as _version

from aioproducer.config import ProducerConfig
from aioproducer.engine.hot import Delivery
from aioproducer.errors import (
    BootstrapFailed,
    BrokerError,
    BufferExhausted,
    ConfigError,
    ConnectionLost,
    DeliveryError,
    KafkaError,
    MetadataTimeout,
    Persisted,
    ProducerClosed,
    ProtocolError,
    RecordTooLarge,
    RequestTimedOut,
    SendTimeout,
    SerializationError,
    TransportError,
    UsageError,
)
from aioproducer.model import Acks, Compression, FlushSummary, Header, Headers, RecordMetadata, TimestampType, TopicPartition
from aioproducer.producer import Producer
from aioproducer.serializers import json_serializer, string_serializer

__all__ = [
    "Acks",
    "BootstrapFailed",
    "BrokerError",
    "BufferExhausted",
    "Compression",
    "ConfigError",
    "ConnectionLost",
    "Delivery",
    "DeliveryError",
    "FlushSummary",
    "Header",
    "Headers",
    "KafkaError",
    "MetadataTimeout",
    "Persisted",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProtocolError",
    "RecordMetadata",
    "RecordTooLarge",
    "RequestTimedOut",
    "SendTimeout",
    "SerializationError",
    "TimestampType",
    "TopicPartition",
    "TransportError",
    "UsageError",
    "json_serializer",
    "string_serializer",
]

__version__ = _version("aioproducer")
