"""KIP-693: one partition of 20 fails, with the circuit breaker on and off.

It measures the other 19, and the recovery of the one. The brokers are fake, in a loop with jumping time. Their rates are set, so the
machine's own speed does not affect the figures. An open loop sends at half the rate of the healthy brokers, at its times, without waiting
for acknowledgements. The simulation's checker judges each run: no acknowledged record is lost, no record is in the log twice, each
partition's records are in call order.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from aioproducer import Producer
from aioproducer.core.topic_routing import murmur2
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import run_jumping
from tests.simulation.checker import Promise, check, read_log

from . import Result
from .open_loop import OpenLoop, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


__all__ = ["run"]

_PARTITIONS: Final = 20
_BAD: Final = 19
_TOPIC: Final = "t"
_SPEED: Final = 2_000_000  # bytes a second that all brokers take together
_LATENCY: Final = 0.002
_SIZE: Final = 2500
_BREAKER: Final[Mapping[str, Any]] = {
    "circuit_breaker_class": "failure_rate",
    "circuit_breaker_mute_retry_max_interval_ms": 8000,
}
_OPTIONS: Final[Mapping[str, Any]] = {
    "buffer_memory": 2**19,
    "max_block_ms": 5000,
    "partitioner_adaptive_partitioning_enable": False,
}
_ON_OFF: Final[Mapping[str, Mapping[str, Any]]] = {"off": {}, "on": _BREAKER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Holds the seconds of a run before, during and after its fault, and the load. `settling` is the fault's time before the measurement.

    Attributes:
        load: share of the healthy brokers' rate.
    """

    before: float = 10.0
    failing: float = 60.0
    settling: float = 20.0
    after: float = 25.0
    load: float = 0.5


WHOLE: Final = Times()
QUICK: Final = Times(failing=35.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """Describes how the one partition fails.

    `brokers` is the number of brokers, and so says whether the partition shares one: if a broker is silent, all its partitions fail.
    """

    name: str
    brokers: int
    begin: Callable[[FakeCluster], object]


def _errors(cluster: FakeCluster) -> None:
    cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=_TOPIC, partition=_BAD, times=None)


def _black_hole(cluster: FakeCluster) -> None:
    cluster.hang("Produce", topic=_TOPIC, partition=_BAD)


def _slow(cluster: FakeCluster) -> None:
    broker = cluster.brokers[cluster.leader(_TOPIC, _BAD) or 0]
    broker.bandwidth, broker.latency = _SPEED / _PARTITIONS / 25, 2.0


def _heal(cluster: FakeCluster) -> None:
    cluster.faults.clear()
    for broker in cluster.brokers.values():
        broker.bandwidth, broker.latency = _SPEED / len(cluster.brokers), _LATENCY


_FAULTS: Final = (
    Fault("errors", 5, _errors),
    Fault("black hole", _PARTITIONS, _black_hole),
    Fault("slow", _PARTITIONS, _slow),
)


@dataclass(slots=True)
class Measured:
    """Holds the results of one run: the times of the fault, acknowledgements of the other 19 as (time, milliseconds), and more."""

    fault: str
    traffic: str
    breaker: str
    times: Times = WHOLE
    begun: float = 0.0
    healed: float = 0.0
    acknowledged: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0
    interval: float = 0.0
    recovery: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def rate(self, since: float, until: float) -> float:
        """Return acknowledged records a second, of the other 19."""
        return sum(since <= at < until for at, _ in self.acknowledged) / (until - since)

    def take(self, loop: OpenLoop) -> None:
        """Note the results of a run."""
        self.begun, self.healed, self.refused, self.acknowledged = (
            loop.begun,
            loop.healed,
            loop.refused,
            loop.acknowledged,
        )
        self.recovery = loop.recovered - loop.healed

    @property
    def before(self) -> tuple[float, float]:
        """Return the begin and end of the healthy measurement, without the first fifth."""
        return self.begun - 0.8 * self.times.before, self.begun

    @property
    def during(self) -> tuple[float, float]:
        """Return the begin and end of the measurement during the fault."""
        return self.begun + self.times.settling, self.healed

    @property
    def healthy(self) -> float:
        return self.rate(*self.before)

    @property
    def failing(self) -> float:
        return self.rate(*self.during)

    @property
    def kept(self) -> float:
        return self.failing / self.healthy

    def p99(self, since: float, until: float) -> float:
        """Return the p99 of milliseconds from a record's time to its acknowledgement, of the other 19; 0: no acknowledgement came."""
        times = [taken for at, taken in self.acknowledged if since <= at < until]
        return statistics.quantiles(times, n=100)[98] if len(times) > 1 else 0.0

    @property
    def row(self) -> dict[str, Any]:
        return {
            "fault": self.fault,
            "records": self.traffic,
            "breaker": self.breaker,
            "other 19, healthy [1/s]": self.healthy,
            "failing [1/s]": self.failing,
            "kept [%]": 100 * self.kept,
            "p99, healthy [ms]": self.p99(*self.before),
            "p99, failing [ms]": self.p99(*self.during) or "none came",
            "refused": self.refused,
            "interval [s]": self.interval,
            "recovery [s]": self.recovery,
            "violations": len(self.wrong),
        }


async def run(*, quick: bool) -> Result:
    """Run all faults, with both kinds of records, with the breaker on and off."""
    times = QUICK if quick else WHOLE
    capacity = await asyncio.to_thread(lambda: run_jumping(_capacity(times.before / 2)))
    runs = [
        await asyncio.to_thread(
            _measure, fault, Measured(fault.name, traffic, breaker, times), capacity * times.load
        )
        for fault in _FAULTS
        for traffic in ("no key", "key, strict")
        for breaker in _ON_OFF
    ]
    on, off = ([one for one in runs if one.breaker == breaker] for breaker in ("on", "off"))
    least, most = min(one.kept for one in on), max(one.kept for one in off)
    late = max(one.recovery - one.interval for one in on)
    return Result(
        rows=[one.row for one in runs],
        bars={
            f"with the breaker the other 19 keep at least 90 % of their healthy rate ({least:.0%} at least)": least
            >= 0.9,
            f"without it the collapse is visible: less than half is left ({most:.0%} at most)": most
            < 0.5,
            f"recovery takes at most the interval in force and 1 s more ({late:+.1f} s at most)": late
            <= 1.0,
            "nothing is lost, doubled or out of order": not any(one.wrong for one in runs),
        },
    )


def _cluster(brokers: int) -> FakeCluster:
    cluster = FakeCluster(brokers, memory=True)
    cluster.create_topic(_TOPIC, partitions=_PARTITIONS)
    for partition in range(_PARTITIONS):
        node_id = 1 + partition % brokers
        if cluster.leader(_TOPIC, partition) != node_id:
            cluster.move_leader(_TOPIC, partition, node_id)
    _heal(cluster)
    return cluster


def _producer(cluster: FakeCluster, **options: Any) -> Producer[Any, Any]:
    return Producer(
        **cluster.client_options, **{**_OPTIONS, **options}, chance=random.Random(693).random
    )


async def _capacity(seconds: float) -> float:
    """Return the records a second at full load, limited by memory alone."""
    async with (
        _cluster(_PARTITIONS) as cluster,
        _producer(cluster, max_block_ms=60_000) as producer,
    ):

        async def send() -> None:
            while True:
                await producer.send_many(_TOPIC, [bytes(_SIZE)] * 50)

        sending = asyncio.create_task(send())
        await asyncio.sleep(seconds)
        before = sum(cluster.end_offsets(_TOPIC).values())
        await asyncio.sleep(seconds)
        after = sum(cluster.end_offsets(_TOPIC).values())
        sending.cancel()
        await asyncio.wait([sending])
    return (after - before) / seconds


def _keys() -> list[bytes]:
    """Return a key for each partition."""
    names: Iterator[bytes] = (b"key-%d" % number for number in count())
    found: dict[int, bytes] = {}
    while len(found) < _PARTITIONS:
        key = next(names)
        found.setdefault((murmur2(key) & 0x7FFFFFFF) % _PARTITIONS, key)
    return [found[partition] for partition in range(_PARTITIONS)]


def _measure(fault: Fault, measured: Measured, rate: float) -> Measured:
    run_jumping(_play(fault, measured, rate))
    return measured


async def _play(fault: Fault, measured: Measured, rate: float) -> None:
    times = measured.times
    places = (
        [Place()]
        if measured.traffic == "no key"
        else [Place(key, partition=at) for at, key in enumerate(_keys())]
    )
    async with (
        _cluster(fault.brokers) as cluster,
        _producer(cluster, **_ON_OFF[measured.breaker]) as producer,
    ):
        loop = OpenLoop(
            producer,
            _TOPIC,
            _SIZE,
            _BAD,
            before=times.before,
            seconds=times.failing,
            after=times.after,
        )

        def heal() -> None:
            measured.interval = _interval_of(producer)
            _heal(cluster)

        await loop.run(places, rate, partial(fault.begin, cluster), heal)
    measured.take(loop)
    logs = {
        (_TOPIC, number): read_log(cluster.log(_TOPIC, number).batches())
        for number in range(_PARTITIONS)
    }
    promise = Promise(
        keeps=True, is_once=True, is_ordered=True, is_ordered_when_acknowledged=True, lifetime=121.0
    )
    measured.wrong = check(loop.history, logs, promise)


def _interval_of(producer: Producer[Any, Any]) -> float:
    """Return the interval of the open circuit, in seconds; 0: no circuit is open."""
    engine = producer._engine
    circuit_break_manager = engine.parts.circuit_break_manager if engine is not None else None
    return (
        max((circuit.interval for circuit in circuit_break_manager._open.values()), default=0.0)
        if circuit_break_manager is not None
        else 0.0
    )
