"""What one client process is told, and what it tells: both travel as JSON. Knows no client, workload or broker."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

VALUE_BYTES = 100
FEW_KEYS = 1_000
HERD = 2_000
BATCH_SIZE = 16_384
WARM_UP = 20_000
"""At most so many records before the clock starts, and at most a fifth of those that are measured."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every client is told in its own words; with acks=all, and idempotence wherever it is known.

    Attributes:
        own: more of it, in the client's own words, over what it would be told otherwise.
    """

    linger_ms: int = 0
    batch_size: int = BATCH_SIZE
    compression: str = "none"
    own: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run of one client.

    Attributes:
        way: of sending, by its name in `workloads`.
        warm_up: records before the clock starts.
        keys: how many different ones; 0: none is there twice.
        text: whether values are lines of JSON, of 1,000 kinds, for codecs; else they are all the same.
        tasks: of a herd.
        load: what a task counts to before each send, or records a second, as its way says (`latency`).
        settings: the client's.
    """

    client: str
    way: str
    bootstrap_servers: str
    topics: list[str]
    partitions: int
    records: int
    warm_up: int = 0
    keys: int = FEW_KEYS
    value_bytes: int = VALUE_BYTES
    text: bool = False
    tasks: int = HERD
    load: int = 0
    settings: Settings = dataclasses.field(default_factory=Settings)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        fields = json.loads(text)
        return cls(**fields | {"settings": Settings(**fields["settings"])})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the process measured of itself while the workload ran, each thread of it; and of the whole run, what it was told of its records.

    Attributes:
        records: that were measured; may differ from those asked for where a client ends by itself.
        counts: acknowledged records of each topic's each partition, warm-up included; empty: this client was not told.
        offsets: the sum of their offsets; None: this client was not told.
        build: the client's versions, in words.
        p50_ms: from the call to the acknowledgement; 0 where the workload has none.
    """

    records: int
    seconds: float
    cpu_seconds: float
    peak_mib: float
    growth_mib: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    counts: list[int] = dataclasses.field(default_factory=list)
    offsets: int | None = None
    build: str = ""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Told:
        return cls(**json.loads(text))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What one run of one client cost, and whether the log has its records once each and no other."""

    client: str
    workload: str
    records: int
    acknowledged: int
    is_gapless: bool
    seconds: float
    cpu_seconds: float
    rate: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    peak_mib: float
    growth_mib: float
    build: str = ""

    @property
    def is_sound(self) -> bool:
        return self.is_gapless and self.acknowledged == self.records


def is_gapless(told: Told, starts: list[int], ends: list[int]) -> bool:
    """Whether a client was told just the offsets that the log grew by: each partition's run begins at its start, without hole or double."""
    grown = [end - start for start, end in zip(starts, ends, strict=True)]
    runs = zip(starts, grown, strict=True)
    return told.counts in ([], grown) and told.offsets in (None, sum(start * count + count * (count - 1) // 2 for start, count in runs))


def measure(name: str, task: Task, told: Told, starts: list[int], ends: list[int]) -> Measure:
    """`name`: of the workload. `starts` and `ends` are those of the log before and after."""
    written = sum(ends) - sum(starts) - task.warm_up
    return Measure(
        client=task.client,
        workload=name,
        records=task.records,
        acknowledged=(sum(told.counts) - task.warm_up) if told.counts else written,
        is_gapless=written == task.records and is_gapless(told, starts, ends),
        seconds=told.seconds,
        cpu_seconds=told.cpu_seconds,
        rate=told.records / told.seconds,
        cpu_us=told.cpu_seconds / told.records * 1e6,
        p50_ms=told.p50_ms,
        p99_ms=told.p99_ms,
        peak_mib=told.peak_mib,
        growth_mib=told.growth_mib,
        build=told.build,
    )
