"""What the systems of KIP-526 (metadata) and KIP-693 (the circuit breaker) are good for, each on and off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Holds the result of one run.

    Attributes:
        rows: of the table: each has a value, or text, by the column's heading; all have the columns of the first.
        bars: the claims in words, and whether the run confirmed each.
    """

    rows: Sequence[Mapping[str, Any]]
    bars: Mapping[str, bool] = field(default_factory=dict)
