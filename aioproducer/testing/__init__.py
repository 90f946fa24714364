"""For tests of code that uses this package: a Kafka cluster within the process, and a real one beside it.

`FakeCluster` needs nothing but this package; `KafkaServer` needs Java. Neither is imported before it is asked for, as pytest
imports this package with its plugin.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.kafka_server import KafkaServer

__all__ = ["FakeCluster", "KafkaServer"]

_HOMES: Final = {"FakeCluster": "aioproducer.testing.cluster", "KafkaServer": "aioproducer.testing.kafka_server"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
