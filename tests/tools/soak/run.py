"""Runs one soak: a real Kafka behind a `FaultProxy`, the client's process, and cuts of its connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.kafka_cluster import KafkaCluster

from .judge import Sample, complaints

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Callable

    from tests.support.proxy import FaultProxy

__all__ = ["Chosen", "ClientFailed", "Soaked", "soak"]

_ROOT: Final = pathlib.Path(__file__).parents[3]
_TOPIC: Final = "soaked"
_PARTITIONS: Final = 6
# the log takes a few hundred MiB on the disk, at any rate
_PROPERTIES: Final = {
    "log.retention.check.interval.ms": 5_000,
    "log.segment.delete.delay.ms": 1_000,
}
_RETENTION: Final = {
    "retention.bytes": 16 * 2**20,
    "segment.bytes": 4 * 2**20,
    "file.delete.delay.ms": 1_000,
}
_STOP_SECONDS: Final = 180.0  # the client's `flush` waits at most as long as a record may live
_SLOW: Final = (
    50_000,
    2_000_000,
)  # bytes a second of a connection before it is cut in the middle of a request or an answer


class ClientFailed(Exception):
    """The client ended too early, or did not end; the text holds the end of its stderr."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Holds the options of a run.

    Attributes:
        minutes: the duration of the sends.
        rate: records a second.
        seed: of the random times and kinds of the cuts.
        every: seconds between two samples.
        pause: the least and the most seconds between two cuts.
        options: of the producer, as JSON.
    """

    minutes: float = 30.0
    rate: float = 50_000
    seed: int = 1
    every: float = 5.0
    pause: tuple[float, float] = (5.0, 15.0)
    options: str = "{}"


@dataclass(slots=True)
class Soaked:
    """Holds the results of a run: the client's samples, the number of cuts, and the complaints."""

    samples: list[Sample]
    cuts: int = 0
    wrong: list[str] | None = None


async def soak(chosen: Chosen, tell: Callable[[Soaked], object] = lambda _: None) -> Soaked:
    """Run the soak. It calls `tell` after each sample.

    Raises:
        ClientFailed: the client ended by itself.
        KafkaServerFailed: Kafka does not start.

    Cancellation: the client and Kafka are ended.
    """
    soaked = Soaked([])
    async with KafkaCluster(1, properties=_PROPERTIES, proxied=True) as cluster:
        await cluster.create_topic(_TOPIC, _PARTITIONS, _RETENTION)
        async with _client(cluster.bootstrap_servers, chosen) as client:
            reading = asyncio.create_task(_read(client, soaked, tell))
            cutting = asyncio.create_task(_cut(cluster.proxies[1], chosen, soaked))
            await asyncio.wait(
                [reading, cutting], timeout=chosen.minutes * 60, return_when=asyncio.FIRST_COMPLETED
            )
            cutting.cancel()
            await asyncio.wait([cutting])
            cluster.proxies[1].heal()
            await _stop(client, reading)
        written = sum(await cluster.end_offsets(_TOPIC))
    soaked.wrong = complaints(soaked.samples, chosen.rate, written)
    return soaked


@contextlib.asynccontextmanager
async def _client(bootstrap_server: str, chosen: Chosen) -> AsyncIterator[Process]:
    words = (
        "--bootstrap-server",
        bootstrap_server,
        "--topic",
        _TOPIC,
        "--rate",
        str(chosen.rate),
        "--every",
        str(chosen.every),
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.tools.soak.client", *words, "--options", chosen.options),
        cwd=_ROOT,
        stdin=pipe,
        stdout=pipe,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read(client: Process, soaked: Soaked, tell: Callable[[Soaked], object]) -> None:
    """Read the client's samples, until it ends."""
    assert client.stdout is not None
    while line := await client.stdout.readline():
        soaked.samples.append(Sample(**json.loads(line)))
        tell(soaked)


async def _cut(proxy: FaultProxy, chosen: Chosen, soaked: Soaked) -> None:
    """Cut all connections now and then: at once, in the middle of a slow request or answer, with answers lost, or for a while."""
    chance = random.Random(chosen.seed)
    while True:
        await asyncio.sleep(chance.uniform(*chosen.pause))
        kind = chance.choice(("at once", "slow", "lost", "refused"))
        if kind == "slow":
            proxy.slow(chance.uniform(*_SLOW))
        elif kind == "lost":
            proxy.black_hole("answers")
        elif kind == "refused":
            proxy.cut()
        await asyncio.sleep(0.0 if kind == "at once" else chance.uniform(0.05, 1.0))
        proxy.reset()
        proxy.heal()
        soaked.cuts += 1


async def _stop(client: Process, reading: asyncio.Task[None]) -> None:
    """Close the client's stdin, and wait until it has flushed and ended."""
    assert client.stdin is not None
    client.stdin.close()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await reading
            status = await client.wait()
    except TimeoutError:
        raise ClientFailed(f"it did not end within {_STOP_SECONDS} s") from None
    if status:
        raise ClientFailed(f"it ended with {status}: its stderr is above")
