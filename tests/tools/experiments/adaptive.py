"""KIP-794: measures shares, total rate and latency while one broker of three has a tenth of the others' rate.

The records have no key, and go to 12 partitions of fake brokers in a loop with jumping time. The brokers' rates are set, so the machine's
own speed does not affect the figures. Each partitioning method runs with two loads. One sends as fast as `buffer_memory` allows. The
other is an open loop at half the rate of the two fast brokers: it sends at its times, without waiting for acknowledgements.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer import Producer
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import run_jumping

from .result import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["run", "run_for"]

_PARTITIONS: Final = 12
_SPEED: Final = 2_000_000  # bytes a second that a fast broker takes
_SLOWER: Final = 10
_LATENCY: Final = 0.002  # seconds
_VALUE: Final = bytes(1000)
_CHUNK: Final = 200  # records of one `send_many`
_TICK: Final = 0.005  # seconds between the open loop's sends
_TOPIC: Final = "t"
_OPTIONS: Final[Mapping[str, Any]] = {"buffer_memory": 4 * 2**20, "max_block_ms": 600_000, "delivery_timeout_ms": 600_000}
_ADAPTIVE: Final = "partitioner_adaptive_partitioning_enable"
_TIMEOUT: Final = "partitioner_availability_timeout_ms"
_ALONE: Final = "the two fast brokers alone"
_WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    _ALONE: {},
    "uniform": {_ADAPTIVE: False},
    "uniform, late brokers avoided": {_ADAPTIVE: False, _TIMEOUT: 100},
    "adaptive (the default)": {},
    "adaptive, late brokers avoided": {_TIMEOUT: 100},
}
_COLOURS: Final = ("#2f6fde", "#12a594", "#b03a6f")


@dataclass(frozen=True, slots=True)
class Measured:
    """Holds the figures of one method: bytes of values a second by broker, at full load; milliseconds of records, at half load."""

    rates: Sequence[float]
    latencies: Sequence[float]

    @property
    def rate(self) -> float:
        return sum(self.rates)

    def percentile(self, hundredths: int) -> float:
        return statistics.quantiles(self.latencies, n=100)[hundredths - 1]


async def run(quick: bool) -> Result:
    """Run all methods."""
    return await run_for(4.0 if quick else 20.0)


async def run_for(seconds: float) -> Result:
    """Run all methods, for so long."""
    measured = {name: await asyncio.to_thread(_measure, name, options, seconds) for name, options in _WAYS.items()}
    alone = measured[_ALONE].rate
    adaptive = measured["adaptive (the default)"]
    return Result(
        rows=[_row(name, one, alone) for name, one in measured.items()],
        text=(
            f"{_PARTITIONS} partitions on three brokers, of which two take {_SPEED / 1e6:g} MB/s and the third {_SPEED / _SLOWER / 1e6:g}; "
            f"`buffer_memory` {_OPTIONS['buffer_memory'] // 2**20} MiB, batches of 16 KiB, answers on their way for {_LATENCY * 1000:g} ms. "
            f"Rates and shares at full load, over {seconds:g} s after the first {seconds / 2:g}; times from when a record was to be sent "
            f"to its acknowledgement, at {_SPEED / 1e6:g} MB/s in an open loop of {seconds:g} s."
        ),
        draw=partial(_draw, measured),
        bars={
            f"adaptive keeps at least 90 % of what the two fast brokers take ({adaptive.rate / alone:.0%})": adaptive.rate >= 0.9 * alone
        },
    )


def _row(name: str, one: Measured, alone: float) -> dict[str, Any]:
    shares = {f"to broker {at} [%]": 100 * rate / one.rate for at, rate in enumerate(one.rates, 1)}
    return {
        "choice": name,
        "MB/s": one.rate / 1e6,
        "of two brokers [%]": 100 * one.rate / alone,
        **shares,
        "p50 [ms]": one.percentile(50),
        "p99 [ms]": one.percentile(99),
    }


def _measure(name: str, options: Mapping[str, Any], seconds: float) -> Measured:
    brokers = 2 if name == _ALONE else 3
    rates = run_jumping(_full_load(brokers, options, seconds))
    return Measured([*rates, *[0.0] * (3 - brokers)], run_jumping(_half_load(brokers, options, seconds)))


def _cluster(brokers: int) -> FakeCluster:
    cluster = FakeCluster(brokers, memory=True)
    cluster.create_topic(_TOPIC, partitions=_PARTITIONS)
    for node_id, broker in cluster.brokers.items():
        broker.latency = _LATENCY
        broker.bandwidth = _SPEED / _SLOWER if node_id == 3 else _SPEED
    return cluster


def _producer(cluster: FakeCluster, options: Mapping[str, Any]) -> Producer[Any, Any]:
    return Producer(**cluster.client_options, **_OPTIONS, **options, chance=random.Random(794).random)


async def _full_load(brokers: int, options: Mapping[str, Any], seconds: float) -> list[float]:
    """Return the bytes a second that each broker appends, once memory is full."""
    loop = asyncio.get_running_loop()
    async with _cluster(brokers) as cluster, _producer(cluster, options) as producer:

        async def send() -> None:
            while True:
                await producer.send_many(_TOPIC, [_VALUE] * _CHUNK)

        sending = loop.create_task(send())
        await asyncio.sleep(seconds / 2)
        before = _taken(cluster)
        await asyncio.sleep(seconds)
        after = _taken(cluster)
        sending.cancel()
        await asyncio.wait([sending])
    return [(after[node_id] - before[node_id]) / seconds for node_id in sorted(cluster.brokers)]


def _taken(cluster: FakeCluster) -> Counter[int | None]:
    """Return the bytes of values by broker."""
    taken: Counter[int | None] = Counter()
    for partition, records in cluster.end_offsets(_TOPIC).items():
        taken[cluster.leader(_TOPIC, partition)] += records * len(_VALUE)
    return taken


async def _half_load(brokers: int, options: Mapping[str, Any], seconds: float) -> list[float]:
    """Return milliseconds from each record's time to its acknowledgement."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    async with _cluster(brokers) as cluster, _producer(cluster, options) as producer:

        def end(due: float, _delivery: object) -> None:
            latencies.append((loop.time() - due) * 1000)

        async def send(due: float) -> None:
            for _ in range(int(_SPEED * _TICK / len(_VALUE))):
                delivery = await producer.send(_TOPIC, _VALUE)
                delivery.add_done_callback(partial(end, due))

        async with asyncio.TaskGroup() as group:
            began = loop.time()
            for tick in range(int(seconds / _TICK)):
                due = began + tick * _TICK
                await asyncio.sleep(due - loop.time())
                group.create_task(send(due))
        await producer.flush()
    return latencies


def _draw(measured: Mapping[str, Measured], path: Path) -> None:
    """Draw bytes a second by broker, and times, with a bar for each method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained", facecolor="white")
    rates, times = figure.subplots(1, 2, sharey=True)
    names = list(measured)[::-1]
    left = [0.0] * len(names)
    for at, colour in enumerate(_COLOURS):
        widths = [measured[name].rates[at] / 1e6 for name in names]
        rates.barh(names, widths, left=left, color=colour, label=f"broker {at + 1}" + (f", {_SLOWER} x slower" if at == 2 else ""))
        left = [one + width for one, width in zip(left, widths, strict=True)]
    rates.set_xlabel("MB/s taken at full load")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    times.barh(names, [measured[name].percentile(99) for name in names], color="#888888")
    times.set_xscale("log")
    times.set_xlabel("p99 at half load [ms]")
    for axes in (rates, times):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
