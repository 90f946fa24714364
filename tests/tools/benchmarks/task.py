"""Holds the input and the output of one client process; both are sent as JSON."""

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
    """Holds settings for every client, which translates them into its own; with acks=all, and idempotence where the client has it.

    Attributes:
        own: more settings, by the client's own names, which override the others.
    """

    linger_ms: int = 0
    batch_size: int = BATCH_SIZE
    compression: str = "none"
    own: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Describes one run of one client.

    Attributes:
        way: the function that sends, by its name in `workloads`.
        warm_up: records before the clock starts.
        keys: the number of different keys.
        tasks: the number of tasks of a herd.
        load: the number that a task counts to before each send, or records a second, depending on `way`.
        settings: the client's.
    """

    client: str
    way: str
    bootstrap_servers: str
    topic: str
    partitions: int
    records: int
    warm_up: int = 0
    value_bytes: int = VALUE_BYTES
    keys: int = FEW_KEYS
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
    """Holds the figures of a process with all its threads while the workload ran, and the results of all records of the run.

    Attributes:
        records: the number of measured records; may differ from the requested number where a client ends by itself.
        counts: acknowledged records of each partition, warm-up included; empty: the client does not get them.
        offsets: the sum of their offsets; None: the client does not get them.
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
    """Holds the cost of one run of one client, and whether the log has exactly its records, each once."""

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
    """Return whether a client got exactly the new offsets of the log.

    The offsets of each partition begin at its start, without a gap or a duplicate.
    """
    grown = [end - start for start, end in zip(starts, ends, strict=True)]
    runs = zip(starts, grown, strict=True)
    return told.counts in ([], grown) and told.offsets in (
        None,
        sum(start * count + count * (count - 1) // 2 for start, count in runs),
    )


def measure(name: str, task: Task, told: Told, starts: list[int], ends: list[int]) -> Measure:
    """Return the measure of the workload `name`. `starts` and `ends` are the log's end offsets before and after it."""
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
