"""The rows of the bench of Spark's sinks: what is written, by which sinks, and the bars."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DROPPING", "JVM", "NOOP", "ONCE", "OURS", "ROWS", "SMALL", "Row", "Way"]

Columns: TypeAlias = Literal["key, value", "key, value, headers"]
JVM: Final = "JVM sink"
OURS: Final = "ours"
ONCE: Final = "ours, exactly once"
NOOP: Final = "noop"
DROPPING: Final = "Python, drops"
_MILLION: Final = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """Holds a sink and its options."""

    name: str
    format: str
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_to_kafka(self) -> bool:
        return self.format not in {"noop", "dropping"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Holds one workload.

    Attributes:
        name: for `--only`.
        rows: how many are written.
        columns: of the DataFrame.
        is_cached: whether the rows are made before the first round.
        ways: the sinks, in the order of the first round.
        conf: settings of Spark's session while the row is written. The session has its defaults for them else.
    """

    name: str
    rows: int = _MILLION
    columns: Columns = "key, value"
    is_cached: bool = True
    ways: tuple[Way, ...]
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)


def ways(jvm: Mapping[str, str] | None = None, **options: str) -> tuple[Way, ...]:
    """Return the two sinks, with options of both, and those of the JVM sink alone."""
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return Way(JVM, "kafka", {**named, **(jvm or {})}), Way(OURS, "aioproducer", named)


_TUNED: Final = {"kafka.linger.ms": "5", "kafka.batch.size": str(128 * 1024)}
# The largest number: Spark then does not measure the Arrow batch before each row.
_UNMEASURED: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}
_ONCE: Final = Way(ONCE, "aioproducer", {"delivery": "exactly_once"})
_DROPPING: Final = Way(DROPPING, "dropping")

ROWS: Final[Mapping[str, Row]] = {
    row.name: row
    for row in (
        Row(name="kv", ways=(*ways(), _ONCE, _DROPPING)),
        Row(name="kv5", rows=5 * _MILLION, ways=ways()),
        Row(name="headers", columns="key, value, headers", ways=(*ways(), _DROPPING)),
        Row(name="unmeasured", columns="key, value, headers", ways=ways(), conf=_UNMEASURED),
        Row(name="zstd", ways=ways(compression_type="zstd")),
        Row(name="uncached", is_cached=False, ways=(Way(NOOP, "noop"), *ways())),
        Row(name="tuned", ways=ways(_TUNED)),
    )
}

SMALL: Final = (Way(NOOP, "noop"), Way(JVM, "kafka"), _DROPPING, Way(OURS, "aioproducer"), _ONCE)
"""The sinks of the small micro-batches."""
