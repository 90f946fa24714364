"""Holds a case, and its result."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.tools.spark_faults.count import Counted
    from tests.tools.spark_faults.faults import Fault

__all__ = ["EXACTLY_ONCE", "OURS", "THEIRS", "Case", "Kafka", "Kills", "Kind", "Result", "Run"]

Kind: TypeAlias = Literal["worker", "driver", "executor", "broker"]
Kafka: TypeAlias = Literal["one", "version-1", "three"]
OURS: Final = "aioproducer"
THEIRS: Final = "kafka"
EXACTLY_ONCE: Final = {"delivery": "exactly_once"}
_SEEDS_APART: Final = 100  # more than the cases have seeds of their own
_ROWS_APART: Final = 1_237


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """Holds random kills. Each comes a random time after rows have come to the sink, so that it meets something half written.

    Attributes:
        kinds: one of these at random, each time.
        count: how many.
        every: the shortest and the longest time, in seconds.
        seed: of the random choices.
    """

    kinds: tuple[Kind, ...]
    count: int
    every: tuple[float, float] = (0.05, 1.5)
    seed: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Holds what one run of the query is told, beside what the case says.

    Attributes:
        faults: of the sink's steps.
        options: of the sink.
        source_options: of the source.
        after: seconds to wait before it.
        dies: whether the run must fail.
        says: what the failed run must say.
        is_stopped: whether its processes are stopped (SIGSTOP) when its fault strikes, and go on after the next run.
    """

    faults: tuple[Fault, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    after: float = 0.0
    dies: bool = False
    says: str = ""
    is_stopped: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Holds one case: a query from its first run to the end of its input, and what strikes it meanwhile.

    Attributes:
        name: the case's.
        runs: in their order; the last one is started again until all input is through.
        kills: random kills, in any run.
        poison: rows at which the Python stage fails.
        slow: seconds of the Python stage for each 100 rows.
        rows: of the source.
        per_batch: rows of a micro-batch.
        format: the sink.
        options: of the sink.
        conf: Spark's settings.
        master: Spark's.
        kafka: one node; one with transaction.version 1; three nodes.
        seconds: that one query may take.
        again: how often the last run starts its query again in its own process when that has failed; a driver that died is another process.
    """

    name: str
    runs: tuple[Run, ...] = (Run(),)
    kills: Kills | None = None
    poison: tuple[int, ...] = ()
    slow: float = 0.0
    rows: int = 60_000
    per_batch: int = 6_000
    format: str = OURS
    options: Mapping[str, str] = dataclasses.field(default_factory=lambda: EXACTLY_ONCE)
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)
    master: str = "local[2,3]"
    kafka: Kafka = "one"
    seconds: float = 240.0
    again: int = 0

    @property
    def promises_once(self) -> bool:
        """Return whether a doubled row breaks the sink's promise."""
        return self.format == OURS and self.options.get("delivery") == "exactly_once"

    def seeded(self, seed: int) -> Case:
        """Return the case with other choices at random, if it has any: 0 is the case itself."""
        kills = (
            dataclasses.replace(self.kills, seed=self.kills.seed + _SEEDS_APART * seed)
            if self.kills
            else None
        )
        poison = tuple(sorted((number + _ROWS_APART * seed) % self.rows for number in self.poison))
        return dataclasses.replace(self, kills=kills, poison=poison)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Holds what a case came to.

    Attributes:
        case: the case.
        struck: the faults, by what they did.
        runs: of the query.
        counted: the rows in the sink's topic.
        seconds: of all runs.
        complaints: what went another way than the case says.
        errors: what the failed runs said.
    """

    case: Case
    struck: Mapping[str, int]
    runs: int
    counted: Counted
    seconds: float
    complaints: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def faults(self) -> int:
        return sum(self.struck.values())

    @property
    def is_right(self) -> bool:
        """Return whether the sink kept its promise, and the case went as it says."""
        counted = self.counted
        once = counted.is_right or not self.case.promises_once
        return once and not (counted.lost or counted.strange or counted.is_stuck or self.complaints)
