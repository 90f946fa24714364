"""Opens the clients: aioproducer in both builds and of another tree, aiokafka, confluent-kafka.

All have acks=all, idempotence, and the other settings of a task.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
from typing import TYPE_CHECKING, Any, cast

from tests.tools.benchmarks import confluent
from tests.tools.benchmarks.task import Settings
from tests.tools.benchmarks.workloads import WAYS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    from tests.tools.benchmarks.workloads import Client, Job, Tally

OURS, PURE, PEER, CALLBACK = "aioproducer", "aioproducer_pure", "aiokafka", "confluent"
BASE, BASE_PURE = "base", "base_pure"
"""Our producer of another tree, in both builds, to compare before and after."""
OF_BASE = {BASE, BASE_PURE}
BASE_TREE = "AIOPRODUCER_BENCH_BASE"
"""The variable that says where that tree is."""
BASELINE = Settings()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Holds how a client is opened, its functions that send, and whether its process runs plain Python."""

    open: Callable[[str, Settings], AbstractAsyncContextManager[Any]]
    ways: Mapping[str, Callable[[Any, Job], Coroutine[Any, Any, Tally]]]
    build: Callable[[], str]
    is_pure: bool = False


@contextlib.asynccontextmanager
async def aioproducer(
    bootstrap_servers: str, settings: Settings = BASELINE
) -> AsyncGenerator[Client]:
    from aioproducer import Producer

    producer: Producer[bytes, bytes] = Producer(
        bootstrap_servers=bootstrap_servers,
        **{
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": settings.linger_ms,
            "batch_size": settings.batch_size,
            "compression_type": settings.compression,
            **settings.own,
        },
    )
    async with producer:
        yield cast("Client", producer)


@contextlib.asynccontextmanager
async def aiokafka(bootstrap_servers: str, settings: Settings = BASELINE) -> AsyncGenerator[Client]:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        **{
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": settings.linger_ms,
            "max_batch_size": settings.batch_size,
            "compression_type": None if settings.compression == "none" else settings.compression,
            **settings.own,
        },
    )
    async with producer:
        yield cast("Client", producer)


def our_build() -> str:
    """Return our version, and which of our two builds runs."""
    import aioproducer as package

    tell = getattr(package, "build_info", None)
    return f"aioproducer {package.__version__}, " + (str(tell()) if tell else "plain Python")


CLIENTS: dict[str, Kind] = {
    OURS: Kind(open=aioproducer, ways=WAYS, build=our_build),
    PURE: Kind(open=aioproducer, ways=WAYS, build=our_build, is_pure=True),
    PEER: Kind(
        open=aiokafka,
        ways={name: way for name, way in WAYS.items() if name not in {"many", "columns"}},
        build=lambda: f"aiokafka {importlib.metadata.version('aiokafka')}",
    ),
    CALLBACK: Kind(open=confluent.producer, ways=confluent.WAYS, build=confluent.build),
    BASE: Kind(open=aioproducer, ways=WAYS, build=our_build),
    BASE_PURE: Kind(open=aioproducer, ways=WAYS, build=our_build, is_pure=True),
}
