"""The clients, told the same: acks=all, linger 0, batches of 16,384 bytes, no compression, idempotence; ours also without it, and without metrics.

Knows no workload.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from tests.benchmarks.workloads import Client

OURS, PEER, PLAIN, SILENT = "aioproducer", "aiokafka", "plain", "without_metrics"
"""Ours, the one that it is held against, and ours without idempotence, and without metrics."""


@contextlib.asynccontextmanager
async def aioproducer(
    bootstrap_servers: str, *, enable_idempotence: bool = True, metrics_recording_level: str = "info"
) -> AsyncGenerator[Client]:
    """Ours, started and stopped."""
    from aioproducer import Producer

    producer: Producer[bytes, bytes] = Producer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        linger_ms=0,
        batch_size=16_384,
        compression_type="none",
        enable_idempotence=enable_idempotence,
        metrics_recording_level=metrics_recording_level,
    )
    async with producer:
        yield cast("Client", producer)


@contextlib.asynccontextmanager
async def aiokafka(bootstrap_servers: str) -> AsyncGenerator[Client]:
    """The peer, started and stopped."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        linger_ms=0,
        max_batch_size=16_384,
        compression_type=None,
        enable_idempotence=True,
    )
    async with producer:
        yield cast("Client", producer)


CLIENTS: Mapping[str, Callable[[str], AbstractAsyncContextManager[Client]]] = {
    OURS: aioproducer,
    PEER: aiokafka,
    PLAIN: functools.partial(aioproducer, enable_idempotence=False),
    SILENT: functools.partial(aioproducer, metrics_recording_level="none"),
}
