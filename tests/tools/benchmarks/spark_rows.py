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
        ways: the sinks, in the order of the first round.
    """

    name: str
    rows: int = _MILLION
    columns: Columns = "key, value"
    ways: tuple[Way, ...]


_BOTH: Final = (Way(JVM, "kafka"), Way(OURS, "aioproducer"))
_ONCE: Final = Way(ONCE, "aioproducer", {"delivery": "exactly_once"})
_DROPPING: Final = Way(DROPPING, "dropping")

ROWS: Final[Mapping[str, Row]] = {
    row.name: row
    for row in (
        Row(name="kv", ways=(*_BOTH, _ONCE, _DROPPING)),
        Row(name="headers", columns="key, value, headers", ways=(*_BOTH, _DROPPING)),
    )
}

SMALL: Final = (Way(NOOP, "noop"), Way(JVM, "kafka"), _DROPPING, Way(OURS, "aioproducer"), _ONCE)
"""The sinks of the small micro-batches."""
