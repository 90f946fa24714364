"""Computes exponential backoff with jitter (KIP-580, KIP-144)."""

from __future__ import annotations

from typing import Final

from aioproducer.named_tuples import NamedTuple

__all__ = ["Backoff"]

# Kafka's ExponentialBackoff: +-20 %.
_JITTER: Final = 0.2
# 2 to this power exceeds any maximum, and is still a float.
_MAX_DOUBLINGS: Final = 62


class Backoff(NamedTuple):
    """Holds the limits of a backoff: `first` seconds, doubled at each failure up to `longest`."""

    first: float
    longest: float

    def after(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after `failures` failures in a row (1 = the first). `chance`: a random number in [0, 1)."""
        pause = min(self.longest, self.first * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
        return min(self.longest, pause * (1 - _JITTER + 2 * _JITTER * chance))
