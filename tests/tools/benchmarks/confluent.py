"""Runs confluent-kafka's Producer, with a callback for each record but in `many`."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from tests.tools.benchmarks.workloads import SAMPLED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from confluent_kafka import Producer

    from tests.tools.benchmarks.task import Settings
    from tests.tools.benchmarks.workloads import Job, Tally

SERVED = 500
"""Records between two calls of `poll(0)`, which runs the callbacks."""
FULL_SECONDS = 0.05
"""One wait for space in a full queue."""


def config(bootstrap_servers: str, settings: Settings) -> dict[str, Any]:
    """Return the settings by librdkafka's names. The partitioner is Java's, as with every client here."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": settings.linger_ms,
        "batch.size": settings.batch_size,
        "compression.type": settings.compression,
        "partitioner": "murmur2_random",
        **{name: value for name, value in settings.own.items() if "." in name},
    }


def build() -> str:
    """Return the versions of confluent-kafka and librdkafka."""
    import confluent_kafka

    return f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"


@contextlib.asynccontextmanager
async def producer(bootstrap_servers: str, settings: Settings) -> AsyncGenerator[Producer]:
    """Open the Producer without asyncio. It blocks the event loop of its process, which has no other task."""
    from confluent_kafka import Producer

    yield Producer(config(bootstrap_servers, settings))


async def stream(client: Producer, job: Job) -> Tally:
    """Call `produce` with a callback for each record, then `flush`. The callback reads the two facts."""
    tally = job.tally()
    counts, offsets = tally.counts, 0

    def delivered(error: object, message: Any) -> None:
        nonlocal offsets
        if error is None:
            offsets += message.offset()
            counts[message.partition()] += 1

    produce, poll, topic, value = client.produce, client.poll, job.topic, job.value
    for number, key in enumerate(job.keys):
        callback = delivered if number % SAMPLED else _noting(tally, delivered)
        try:
            produce(topic, value, key, on_delivery=callback)
        except BufferError:
            _produce_late(client, topic, value, key, callback)
        if not number % SERVED:
            poll(0)
    client.flush()
    tally.offsets = offsets
    return tally


def _noting(tally: Tally, callback: Callable[[object, Any], None]) -> Callable[[object, Any], None]:
    """Return the same callback, which also notes the seconds of its record from now."""
    began = time.perf_counter()

    def noted(error: object, message: Any) -> None:
        tally.note(began, message)
        callback(error, message)

    return noted


def _produce_late(
    client: Producer,
    topic: str,
    value: bytes,
    key: bytes | None,
    callback: Callable[..., None] | None,
) -> None:
    while True:
        client.poll(FULL_SECONDS)
        with contextlib.suppress(BufferError):
            client.produce(topic, value, key, on_delivery=callback)
            return


async def single(client: Producer, job: Job) -> Tally:
    """Send one record at a time, and wait for each in `flush`."""
    tally, clock, topic, value = job.tally(), time.perf_counter, job.topic, job.value

    def delivered(error: object, message: Any) -> None:
        if error is None:
            tally.offsets += message.offset()
            tally.counts[message.partition()] += 1

    for key in job.keys:
        before = clock()
        client.produce(topic, value, key, on_delivery=delivered)
        client.flush()
        tally.latencies.append(clock() - before)
    return tally


async def many(client: Producer, job: Job) -> Tally:
    """Call `produce` with values without keys and callbacks, then `flush`. The log shows whether all records arrived."""
    produce, poll, topic, value = client.produce, client.poll, job.topic, job.value
    for number in range(len(job.keys)):
        try:
            produce(topic, value)
        except BufferError:
            _produce_late(client, topic, value, None, None)
        if not number % SERVED:
            poll(0)
    client.flush()
    return job.tally(is_told=False)


WAYS = {"stream": stream, "single": single, "many": many}
