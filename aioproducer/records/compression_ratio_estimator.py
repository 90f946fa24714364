"""The compression ratios of topics, estimated from their latest batches (Kafka's CompressionRatioEstimator).

The estimate lets a batch take more raw bytes than `batch_size`. It rises at once when a batch compresses worse than estimated, and falls
slowly when batches compress better. Java keeps one estimator for the whole process; here each producer has its own
(RCD-07).
"""

from __future__ import annotations

from typing import Final

from aioproducer.model import Compression

__all__ = ["CompressionRatios"]

# The factor by which an estimated size is raised.
_SAFETY: Final = 1.05
_BETTER: Final = 0.005
_WORSE: Final = 0.05
_AT_FIRST: Final = 1.0


class CompressionRatios:
    """Holds the estimated ratios by topic and codec: bytes after compression for each byte before."""

    __slots__ = ("_guesses",)

    def __init__(self) -> None:
        self._guesses: dict[tuple[str, Compression], float] = {}

    def guess(self, topic: str, codec: Compression) -> float:
        """Return the estimated ratio; 1.0 before the first batch."""
        return self._guesses.get((topic, codec), _AT_FIRST)

    def room(self, topic: str, codec: Compression, size: int) -> int:
        """Return the raw bytes that should compress to at most `size`, with `_SAFETY` as a margin; never fewer than `size`."""
        return max(size, int(size / (self.guess(topic, codec) * _SAFETY)))

    def observe(self, topic: str, codec: Compression, ratio: float) -> None:
        """Update the estimate with the ratio of a compressed batch."""
        guess = self.guess(topic, codec)
        guess = max(guess + _WORSE, ratio) if ratio > guess else max(guess - _BETTER, ratio)
        self._guesses[topic, codec] = guess

    def retract(self, topic: str, codec: Compression, ratio: float) -> None:
        """Reset the estimate after a broker refused a batch of that ratio as too large (BAT-03).

        The new estimate is 1.0 (no compression), or `ratio` if that is larger.
        """
        self._guesses[topic, codec] = max(_AT_FIRST, ratio)

    def forget(self, topic: str) -> None:
        """Drop the estimates of a topic."""
        for codec in Compression:
            self._guesses.pop((topic, codec), None)
