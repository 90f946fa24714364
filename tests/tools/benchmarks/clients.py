"""Opens the clients with one interface, aioproducer and aiokafka.

Both have acks=all, idempotence, and the other settings of a task. Ours also runs without idempotence, and without metrics.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
from typing import TYPE_CHECKING, Any, cast

from tests.tools.benchmarks.task import Settings
from tests.tools.benchmarks.workloads import WAYS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    from tests.tools.benchmarks.workloads import Client, Job, Tally

OURS, PEER, PLAIN, SILENT, PURE = "aioproducer", "aiokafka", "plain", "without_metrics", "aioproducer_pure"
"""Our producer, the peer that it is compared with, and ours without idempotence, without metrics, and in plain Python."""
BASE, BASE_PURE = "base", "base_pure"
"""Our producer of another tree, in both builds, to compare before and after."""
OF_BASE = {BASE, BASE_PURE}
BASE_TREE = "AIOPRODUCER_BENCH_BASE"
"""The variable that says where that tree is."""
BASELINE = Settings()
CHOOSES_PURE = "AIOPRODUCER_PURE"
"""The variable by which one of our two builds is chosen."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Holds how a client is opened, its functions that send, and the needs of its process.

    Attributes:
        own: settings of this kind, by the client's own names.
        env: of its process.
    """

    open: Callable[[str, Settings], AbstractAsyncContextManager[Any]]
    ways: Mapping[str, Callable[[Any, Job], Coroutine[Any, Any, Tally]]]
    build: Callable[[], str]
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def settings(self, asked: Settings) -> Settings:
        """Return the kind's own settings, overridden by those of the task."""
        return dataclasses.replace(asked, own={**self.own, **asked.own})


@contextlib.asynccontextmanager
async def aioproducer(bootstrap_servers: str, settings: Settings = BASELINE) -> AsyncGenerator[Client]:
    """Start our producer, and stop it after the block."""
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
    """Start aiokafka's producer, and stop it after the block."""
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


def version_of(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


CLIENTS: dict[str, Kind] = {
    OURS: Kind(open=aioproducer, ways=WAYS, build=our_build),
    PURE: Kind(open=aioproducer, ways=WAYS, build=our_build, env={CHOOSES_PURE: "1"}),
    BASE: Kind(open=aioproducer, ways=WAYS, build=our_build),
    BASE_PURE: Kind(open=aioproducer, ways=WAYS, build=our_build, env={CHOOSES_PURE: "1"}),
    PEER: Kind(open=aiokafka, ways={name: way for name, way in WAYS.items() if name != "many"}, build=lambda: version_of("aiokafka")),
    PLAIN: Kind(open=aioproducer, ways=WAYS, build=our_build, own={"enable_idempotence": False}),
    SILENT: Kind(open=aioproducer, ways=WAYS, build=our_build, own={"metrics_recording_level": "none"}),
}
