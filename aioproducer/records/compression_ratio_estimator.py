"""How far a topic's records compress, guessed from its last batches (Kafka's CompressionRatioEstimator, java-producer.md RCD-07).

The guess lets a batch take more raw bytes than `batch_size`. It gives way at once where batches compress worse than it says, and
follows slowly where they compress better. Java keeps one for the whole process; here each producer has its own. Knows no codec.
"""

from __future__ import annotations

from typing import Final

from aioproducer.model import Compression

__all__ = ["SAFETY", "CompressionRatios"]

SAFETY: Final = 1.05  # by which an estimated size is raised
_BETTER: Final = 0.005
_WORSE: Final = 0.05
_AT_FIRST: Final = 1.0


class CompressionRatios:
    """Bytes after compression for each byte before, by topic and codec."""

    __slots__ = ("_guesses",)

    def __init__(self) -> None:
        self._guesses: dict[tuple[str, Compression], float] = {}

    def guess(self, topic: str, codec: Compression) -> float:
        """What to reckon with; 1.0 before the first batch."""
        return self._guesses.get((topic, codec), _AT_FIRST)

    def room(self, topic: str, codec: Compression, size: int) -> int:
        """Raw bytes that should compress to `size`, with something to spare; never fewer than `size`."""
        return max(size, int(size / (self.guess(topic, codec) * SAFETY)))

    def observe(self, topic: str, codec: Compression, ratio: float) -> None:
        """A batch was compressed, by that ratio."""
        guess = self.guess(topic, codec)
        guess = max(guess + _WORSE, ratio) if ratio > guess else max(guess - _BETTER, ratio)
        self._guesses[topic, codec] = guess

    def retract(self, topic: str, codec: Compression, ratio: float) -> None:
        """A batch of that ratio was too large for its broker: begin again, with no hope that it compresses at all (BAT-03)."""
        self._guesses[topic, codec] = max(_AT_FIRST, ratio)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        for codec in Compression:
            self._guesses.pop((topic, codec), None)
