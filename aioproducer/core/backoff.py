"""Exponential backoff with jitter (KIP-580, KIP-144). Knows no clock; the random number is an argument."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Backoff"]

_JITTER: Final = 0.2  # Kafka's ExponentialBackoff: +-20 %
_MAX_DOUBLINGS: Final = 62  # 2 to this power is past any maximum, and still a float


class Backoff(NamedTuple):
    """`first` seconds, doubled at each failure up to `longest`."""

    first: float
    longest: float

    def after(self, failures: int, chance: float) -> float:
        """Seconds to wait after so many failures in a row (1 = the first); `chance` is random in [0, 1)."""
        pause = min(self.longest, self.first * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
        return min(self.longest, pause * (1 - _JITTER + 2 * _JITTER * chance))
