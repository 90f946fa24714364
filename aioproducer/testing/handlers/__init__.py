"""The answers of a fake broker, one module per subject. Each answer tells its versions and its differences from Kafka."""

from aioproducer.testing.handlers import (
    connect,
    groups,
    metadata,
    produce,
    reads,
    topics,
    transactions,
)
from aioproducer.testing.handlers.handler import HANDLERS

__all__ = [
    "HANDLERS",
    "connect",
    "groups",
    "metadata",
    "produce",
    "reads",
    "topics",
    "transactions",
]
