"""Runs kafka-python, which blocks, with its own functions that send."""

from __future__ import annotations

import contextlib
import itertools
import time
from functools import partial
from typing import TYPE_CHECKING

from tests.tools.benchmarks.clients import version_of
from tests.tools.benchmarks.workloads import SAMPLED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka import KafkaProducer

    from tests.tools.benchmarks.task import Settings
    from tests.tools.benchmarks.workloads import Job, Tally


def build() -> str:
    return version_of("kafka-python")


@contextlib.asynccontextmanager
async def producer(bootstrap_servers: str, settings: Settings) -> AsyncGenerator[KafkaProducer]:
    """Open the producer, and close it after the block. It blocks the event loop of its process, which has no other task."""
    from kafka import KafkaProducer

    client = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        **{
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": settings.linger_ms,
            "batch_size": settings.batch_size,
            "compression_type": None if settings.compression == "none" else settings.compression,
            **settings.own,
        },
    )
    try:
        yield client
    finally:
        client.close()


async def stream(client: KafkaProducer, job: Job) -> Tally:
    """Call `send()` for each record, flush, then read every result."""
    send, topic, value = client.send, job.topic, job.value
    tally, futures = job.tally(), []
    for first in range(0, len(job.keys), SAMPLED):
        began = time.perf_counter()
        futures += [send(topic, value, key) for key in job.keys[first : first + SAMPLED]]
        futures[first].add_callback(partial(tally.note, began))
    client.flush()
    counts, offsets = tally.counts, 0
    for future in futures:
        metadata = future.get()
        offsets += metadata.offset
        counts[metadata.partition] += 1
    tally.offsets = offsets
    return tally


async def mixed(client: KafkaProducer, job: Job) -> Tally:
    """Send as `stream` does, to many topics alternately, or with many values."""
    send = client.send
    each = zip(itertools.cycle(job.topics), itertools.cycle(job.values), job.keys, strict=False)
    tally, futures = job.tally(), []
    for first in range(0, len(job.keys), SAMPLED):
        began = time.perf_counter()
        futures += [send(topic, value, key) for topic, value, key in itertools.islice(each, SAMPLED)]
        futures[first].add_callback(partial(tally.note, began))
    client.flush()
    for cell, future in zip(job.cells(), futures, strict=False):
        metadata = future.get()
        tally.offsets += metadata.offset
        tally.counts[cell + metadata.partition] += 1
    return tally


async def single(client: KafkaProducer, job: Job) -> Tally:
    """Send one record at a time, and wait for each."""
    tally, clock, topic, value = job.tally(), time.perf_counter, job.topic, job.value
    for key in job.keys:
        before = clock()
        metadata = client.send(topic, value, key).get()
        tally.latencies.append(clock() - before)
        tally.offsets += metadata.offset
        tally.counts[metadata.partition] += 1
    return tally
