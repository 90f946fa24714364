"""How many of the requests on their way to a broker wait there for others. Knows nothing of what they are.

A broker serves the requests of one connection one after the other. So of those in flight, some are on the way, one is served, and the rest
stand in line: what is sent then is answered no sooner than if it had been sent later, with more in it. How many stand there is told by how
long answers take: as much longer than the quickest, as there are others before them (Little's law; TCP Vegas goes by the same).
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["Queueing"]

_FADES: Final = 60.0  # seconds in which what was quickest is taken for some three times as long: the way there may have become longer
_QUICK: Final = 0.0005  # seconds; what is quicker was not in line, however much quicker others were


class Queueing:
    """What the answers of one broker tell."""

    __slots__ = ("_answered_at", "_last", "_quickest")

    def __init__(self) -> None:
        self._quickest = math.inf
        self._last = 0.0
        self._answered_at = 0.0

    def answered(self, now: float, seconds: float) -> None:
        """An answer came, so long after its request went; both in seconds."""
        faded = self._quickest * (1 + (now - self._answered_at) / _FADES)
        self._quickest, self._last, self._answered_at = max(min(faded, seconds), _QUICK), seconds, now

    def waiting(self, in_flight: int) -> float:
        """How many of so many requests stand in line; 0.0 while nothing is known."""
        return in_flight * max(1 - self._quickest / self._last, 0.0) if self._last else 0.0
