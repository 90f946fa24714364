"""KIP-693 on three real nodes: the broker of one partition of 20 is stopped (SIGSTOP), with the circuit breaker on and off.

    python -m tests.tools.experiments.breaker_real

Real time, so the figures are this machine's; the shares are the point. Records are sent to 19 partitions that two nodes lead and to one of
the third node's, by name (strict).
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from aioproducer import Producer
from aioproducer.testing import KafkaCluster

from .breaker import Measured, interval_of
from .open_loop import OpenLoop, Place

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOPIC: Final = "t"
_SIZE: Final = 1000
_RATE: Final = 1000.0  # records a second
_STOPPED: Final = 3
_SPARE: Final = 45  # partitions of the topic, of which 20 are sent to
_OPTIONS: Final[Mapping[str, Any]] = {"buffer_memory": 2**19, "max_block_ms": 5000, "request_timeout_ms": 20_000}
_ON_OFF: Final[Mapping[str, Mapping[str, Any]]] = {
    "off": {},
    "on": {"circuit_breaker_class": "failure_rate", "circuit_breaker_mute_retry_max_interval_ms": 8000},
}


async def _places(cluster: KafkaCluster) -> list[int]:
    """Return a partition of the node that is stopped, and 19 partitions of the other nodes."""
    leaders = [await cluster.leader(_TOPIC, partition) for partition in range(_SPARE)]
    return [leaders.index(_STOPPED), *[at for at, leader in enumerate(leaders) if leader != _STOPPED][:19]]


async def _play(cluster: KafkaCluster, breaker: str) -> Measured:
    measured = Measured("SIGSTOP", "named, strict", breaker)
    bad, *others = await _places(cluster)
    ends = await cluster.end_offsets(_TOPIC)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **_OPTIONS, **_ON_OFF[breaker]) as producer:
        loop = OpenLoop(producer, _TOPIC, _SIZE, bad, before=10.0, seconds=45.0, after=25.0)

        def heal() -> None:
            measured.interval = interval_of(producer)
            cluster.resume(_STOPPED)

        places = [Place(named=partition, partition=partition) for partition in (bad, *others)]
        await loop.run(places, _RATE, lambda: cluster.pause(_STOPPED), heal)
    measured.take(loop)
    acknowledged = sum(sent.is_acknowledged for sent in loop.history.sent)
    unsure = sum(bool(sent.ends) and sent.ends[0].persisted == "maybe" for sent in loop.history.sent)
    logged = sum(await cluster.end_offsets(_TOPIC)) - sum(ends)
    if not acknowledged <= logged <= acknowledged + unsure:
        measured.wrong = [f"{acknowledged} acknowledged, {unsure} may be written, {logged} in the log"]
    return measured


async def main() -> int:
    """Run with the breaker on and off, one after the other, on one cluster."""
    async with KafkaCluster() as cluster:
        await cluster.create_topic(_TOPIC, _SPARE, replication_factor=1)
        runs = []
        for breaker in _ON_OFF:
            runs.append(await _play(cluster, breaker))
            await cluster.restore()
    shown = Table(title="one of 20 partitions on a node that is stopped", title_justify="left")
    for heading in runs[0].row:
        shown.add_column(heading, justify="right")
    for one in runs:
        shown.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in one.row.values()))
    console = Console(highlight=False)
    console.width = max(console.width, 150)
    console.print(shown)
    for wrong in (wrong for one in runs for wrong in one.wrong):
        console.print(f"WRONG: {wrong}")
    return 0 if runs[1].kept >= 0.9 and not any(one.wrong for one in runs) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
