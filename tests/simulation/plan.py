"""Draws a seed's plan before the run: cluster, producer options, workload, network and faults.

Numbers are small where that makes events coincide: batches of a few records, memory for a few batches, time-outs about as long as faults.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aioproducer.model import counted
from tests.simulation.breaker import FICKLE
from tests.simulation.faults import FAULTS, SECURITY_FAULTS, TOKEN_FAULTS, Fault
from tests.simulation.network import Weather
from tests.simulation.security import Secured, draw_security, draw_tokens
from tests.simulation.systems import POLICIES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = ["ALL_FAULTS", "PROFILES", "REST", "Plan", "Workload", "draw", "kinds_of"]

PROFILES: Final = ("plain", "idempotent", "transactional")
_SHARES: Final = (25, 45, 30)
_NETWORK: Final = ("refused", "cut", "pause", "silence", "latency")
_CLIENT: Final = ("cancel", "stop", "short_memory", "short_timeout", "oversize")
_SECURITY: Final = ("tls", "sessions")
ALL_FAULTS: Final = (*_NETWORK, *_CLIENT, *_SECURITY, *FAULTS)
"""The names of all faults that a seed may have."""
REST: Final = 6.0
"""Seconds that a task pauses for, if it pauses between calls."""
_LONGEST: Final = (
    20_000  # ms that a circuit is open: every partition must accept a record again within a minute
)
_RESTS: Final = 0.06  # probability of such a pause after a call


def kinds_of(profile: str) -> frozenset[str]:
    """Return the classes of timed faults that a profile has."""
    return frozenset(kind for kind, fault in FAULTS.items() if profile in fault.profiles)


@dataclass(frozen=True, slots=True)
class Workload:
    """Describes the client's work. Values that a caller does not give are drawn.

    Attributes:
        topics: number of partitions by topic.
        tasks: number of tasks that send at the same time.
        records: approximate number of records of all tasks.
        sizes: bytes of padding in a record's value; one of these.
        pause: longest time between a task's calls, in seconds.
        cancelled: probability that a call is cancelled at some point.
        stop_at: seconds after which `stop` is called during the work; None: at the end.
        stop_cancelled: seconds after which that call is cancelled, and made again.
        options: the producer's options.
        rests: probability that a task pauses after a call, for longer than the producer keeps unused topics.
    """

    topics: Mapping[str, int]
    tasks: int
    records: int
    sizes: tuple[int, ...]
    pause: float
    cancelled: float
    stop_at: float | None
    stop_cancelled: float | None
    options: Mapping[str, Any]
    rests: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Describes one run.

    Attributes:
        brokers: number of brokers.
        topic_config: options of every topic.
        lag: seconds that replicas are behind: an acknowledgement with acks=all waits this long.
        transaction_version: finalized level of `transaction.version`.
        marker_delay: seconds between a transaction's end and its markers.
        weather: latency and faults of the network, until `calm_at`.
        faults: the faults, in order of time.
        calm_at: seconds after which all faults end.
        security: what the cluster demands of the producer.
    """

    seed: int
    profile: str
    brokers: int
    topic_config: Mapping[str, object]
    lag: float
    transaction_version: int
    marker_delay: float
    weather: Weather
    faults: tuple[Fault, ...]
    calm_at: float
    workload: Workload
    security: Secured

    def lines(self) -> list[str]:
        """Return the plan as readable text."""
        return [
            f"seed {self.seed}, {self.profile}: {counted(self.brokers, 'broker')}, topics {dict(self.workload.topics)} {dict(self.topic_config)}",
            f"replicas lag {self.lag:.4f} s, markers {self.marker_delay} s, transactions of version {self.transaction_version}; {self.weather}",
            f"{self.security}",
            f"{self.workload}",
            *(f"fault at {fault.at:.4f}: {fault}" for fault in self.faults),
        ]


def draw(
    seed: int,
    profile: str | None = None,
    faults: Collection[str] | None = None,
) -> Plan:
    """Draw the plan of a seed.

    Args:
        seed: any number; equal arguments give equal plans.
        profile: one of `PROFILES`; None: drawn.
        faults: only these of `ALL_FAULTS`; None: all.

    Raises:
        ValueError: no such profile or fault.
    """
    _check(profile, faults)
    rng = random.Random(f"plan {seed}")
    drawn = rng.choices(PROFILES, _SHARES)[0]
    profile = profile or drawn
    chosen = set(ALL_FAULTS if faults is None else faults)
    brokers = rng.choice((1, 2, 3, 3))
    calm_at = rng.uniform(0.2, 3.0)
    made = _choosy(
        random.Random(f"choosy {seed}"), _workload(rng, profile, chosen, calm_at), chosen, calm_at
    )
    config = _topic_config(rng, chosen)
    kinds = _kinds(rng, profile, chosen)
    in_order = _faults(rng, kinds, calm_at, made.topics, brokers)
    secured, logins = _security(
        random.Random(f"security {seed}"), chosen, calm_at, made.topics, brokers
    )
    secured, absences = _tokens(
        random.Random(f"tokens {seed}"), secured, chosen, calm_at, made.topics, brokers
    )
    in_order = tuple(sorted((*in_order, *logins, *absences), key=lambda fault: fault.at))
    lag = (
        rng.choice((0.0, 0.0, 0.002, 0.02))
        if "crash_tail" not in kinds
        else rng.choice((0.005, 0.05))
    )
    return Plan(
        seed,
        profile,
        brokers,
        config,
        lag,
        transaction_version=rng.choice((1, 2, 2)),
        marker_delay=rng.choice((0.0, 0.0, 0.03, 0.3)),
        weather=_weather(rng, chosen),
        faults=in_order,
        calm_at=calm_at,
        workload=made,
        security=secured,
    )


def _check(profile: str | None, faults: Collection[str] | None) -> None:
    unknown = sorted(set(faults or ()) - set(ALL_FAULTS))
    if unknown or profile not in {None, *PROFILES}:
        raise ValueError(
            f"{unknown or profile!r}: profiles are {', '.join(PROFILES)}, faults {', '.join(ALL_FAULTS)}"
        )


def _topic_config(rng: random.Random, chosen: Collection[str]) -> dict[str, object]:
    if "oversize" in chosen and rng.random() < 0.2:
        return {"max.message.bytes": rng.choice((150, 300, 600))}
    return {}


def _kinds(rng: random.Random, profile: str, chosen: Collection[str]) -> list[str]:
    """Draw a few kinds of faults for the run, so that some runs have few faults and some have many of one kind."""
    kinds = [
        kind
        for kind in FAULTS
        if kind in chosen
        and kind in kinds_of(profile)
        and kind not in {*SECURITY_FAULTS, *TOKEN_FAULTS}
    ]
    return rng.sample(kinds, min(len(kinds), rng.choice((0, 2, 4, 6, 9))))


def _faults(
    rng: random.Random,
    kinds: Iterable[str],
    calm_at: float,
    topics: Mapping[str, int],
    brokers: int,
) -> tuple[Fault, ...]:
    """Draw some faults of each kind, in order of time."""
    drawn = [
        FAULTS[kind].draw(
            rng, kind, calm_at * rng.random() ** rng.choice((1, 2, 6)), topics, brokers
        )
        for kind in kinds
        for _ in range(rng.randint(1, 4))
    ]
    return tuple(sorted(drawn, key=lambda fault: fault.at))


def _security(
    rng: random.Random,
    chosen: Collection[str],
    calm_at: float,
    topics: Mapping[str, int],
    brokers: int,
) -> tuple[Secured, tuple[Fault, ...]]:
    """Draw the security of the cluster and its faults.

    The random source is its own, so that the seed's other values do not change.
    """
    secured = draw_security(rng, chosen)
    kinds = [kind for kind in SECURITY_FAULTS if kind in chosen]
    some = rng.sample(kinds, min(len(kinds), rng.choice((0, 1, 2))))
    return secured, _faults(rng, some, calm_at, topics, brokers) if secured.has_sasl else ()


def _tokens(
    rng: random.Random,
    secured: Secured,
    chosen: Collection[str],
    calm_at: float,
    topics: Mapping[str, int],
    brokers: int,
) -> tuple[Secured, tuple[Fault, ...]]:
    """Draw bearer tokens and the faults of their source, by a random source of its own."""
    drawn = draw_tokens(rng, secured)
    kinds = [
        kind
        for kind in TOKEN_FAULTS
        if kind in chosen and drawn.token_seconds and rng.random() < 0.5
    ]
    return drawn, _faults(rng, kinds, calm_at, topics, brokers)


def _weather(rng: random.Random, chosen: Collection[str]) -> Weather:
    def some(kind: str, most: float) -> float:
        drawn = rng.choice((0.0, most / 4, most))
        return drawn if kind in chosen else 0.0

    latency = rng.choice(((0.0001, 0.001), (0.0005, 0.005), (0.001, 0.05)))
    return Weather(
        latency=latency if "latency" in chosen else (0.0005, 0.0005),
        refused=some("refused", 0.2),
        cut=some("cut", 0.4),
        pause=some("pause", 0.3),
        silence=some("silence", 0.1),
        pause_seconds=rng.choice((0.02, 0.3, 2.0)),
        reach=rng.choice((300.0, 1500.0, 5000.0)),
        room=rng.choice((512, 65_536, 65_536)),
    )


def _workload(
    rng: random.Random, profile: str, chosen: Collection[str], calm_at: float
) -> Workload:
    topics = {f"t{number}": rng.randint(1, 4) for number in range(rng.randint(1, 3))}
    records = rng.choice((20, 25, 30, 40, 50, 80))
    tasks = rng.choice((1, 1, 2, 4, 8)) if profile != "transactional" else rng.choice((1, 1, 2, 4))
    stops = "stop" in chosen and rng.random() < 0.15
    return Workload(
        topics=topics,
        tasks=tasks,
        records=records,
        sizes=rng.choice(((0,), (0, 20, 100), (10, 10, 200), (0, 10, 50, 400))),
        # the last choice spreads the sends over the time of the faults
        pause=rng.choice((0.0, 0.002, 0.02, 4 * calm_at * tasks / records)),
        cancelled=rng.choice((0.0, 0.1, 0.3)) if "cancel" in chosen else 0.0,
        stop_at=rng.uniform(0, calm_at) if stops else None,
        stop_cancelled=rng.uniform(0, 0.2) if "cancel" in chosen and rng.random() < 0.2 else None,
        options=_options(rng, profile, chosen),
    )


def _choosy(
    rng: random.Random, workload: Workload, chosen: Collection[str], calm_at: float
) -> Workload:
    """Add options for partitions that are left out and for topics that expire.

    The random source is its own, so that the seed's other values do not change.
    """
    interval = rng.choice((100, 500, 2_000, 6_000))
    options: dict[str, Any] = {
        "partitioner_adaptive_partitioning_enable": rng.random() < 0.7,
        "partitioner_availability_timeout_ms": rng.choice((0, 10, 20, 500)),
        "metadata_max_idle_ms": rng.choice((5_000, 300_000)),
        "circuit_breaker_class": rng.choices((None, "failure_rate", FICKLE), (2, 6, 2))[0],
        "circuit_breaker_trigger_message_count": rng.choice((1, 1, 1, 5)),
        "circuit_breaker_trigger_failure_perc": rng.choice((10, 10, 50, 100)),
        "circuit_breaker_mute_retry_interval_ms": interval,
        "circuit_breaker_mute_retry_max_interval_ms": max(
            interval, min(interval * rng.choice((1, 4, 16)), _LONGEST)
        ),
        "circuit_breaker_keyed_policy": rng.choices(POLICIES, (3, 4, 3))[0],
    }
    pause = workload.pause
    # most circuits open while most faults happen: spread the sends over that time
    if options["circuit_breaker_class"] and rng.random() < 0.7:
        pause = 4 * calm_at * workload.tasks / workload.records
    # with little memory, the bytes of a muted partition soon block other sends
    if options["circuit_breaker_class"] and "short_memory" in chosen and rng.random() < 0.5:
        options |= {
            "buffer_memory": max(workload.options["batch_size"] + 300, 2_200),
            "max_block_ms": max(interval // 4, 20),
        }
    # a transactional task pauses between transactions, which are fewer than records
    often = _RESTS * 4 if "transactional_id" in workload.options else _RESTS
    rests = often if options["metadata_max_idle_ms"] < REST * 1000 and rng.random() < 0.5 else 0.0
    return dataclasses.replace(
        workload, options={**workload.options, **options}, pause=pause, rests=rests
    )


def _options(rng: random.Random, profile: str, chosen: Collection[str]) -> dict[str, Any]:
    batch = rng.choice((1, 120, 300, 300, 2000, 2000))
    memory = (
        rng.choice((1200, 2500, 6000))
        if "short_memory" in chosen and rng.random() < 0.4
        else 1_000_000
    )
    request = rng.choice((300, 800, 2000))
    delivery = request + rng.choice(
        (100, 500, 2000) if "short_timeout" in chosen and rng.random() < 0.4 else (8_000, 20_000)
    )
    options: dict[str, Any] = {
        "batch_size": batch,
        "linger_ms": rng.choice((0, 2, 20, "auto")),
        "max_in_flight_requests_per_connection": rng.randint(1, 5),
        "buffer_memory": max(memory, batch + 700),
        "compression_type": rng.choice(("none", "none", "none", "none", "gzip", "lz4")),
        "request_timeout_ms": request,
        "delivery_timeout_ms": delivery + 20,
        "max_block_ms": rng.choice((500, 3_000, 20_000)),
        "close_timeout_ms": rng.choice((100, 3_000, 30_000)),
        "retry_backoff_ms": rng.choice((5, 50)),
        "retry_backoff_max_ms": rng.choice((50, 400)),
        "reconnect_backoff_ms": rng.choice((5, 50)),
        "reconnect_backoff_max_ms": rng.choice((50, 400)),
        "socket_connection_setup_timeout_ms": 1_000,
        "socket_connection_setup_timeout_max_ms": 2_000,
        "metadata_max_age_ms": rng.choice((800, 5_000, 300_000)),
        "connections_max_idle_ms": rng.choice((400, 540_000, 540_000)),
    }
    if profile == "plain":
        options["acks"] = rng.choice(("all", "all", "all", 1, 0))
        options["retries"] = rng.choice((2_147_483_647, 2_147_483_647, 0, 3))
        options["enable_idempotence"] = False
    else:
        options["enable_idempotence"] = True
    if profile == "transactional":
        options["transactional_id"] = "simulated"
        options["transaction_timeout_ms"] = rng.choice((1_000, 10_000, 60_000))
    options["batch_max_size"] = rng.choice((1, 4 * batch, 262_144))
    return options
