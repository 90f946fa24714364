"""The Python stage above the sink: it fails in the middle of a partition, or is slow."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from tests.tools.spark_faults.faults import Injected, note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

__all__ = ["PoisonedStage", "number_of"]


def number_of(value: bytes) -> int:
    """Return the number that a row's value begins with."""
    return int(value.split(b" ", 1)[0])


@dataclasses.dataclass(frozen=True)
class PoisonedStage:
    """Holds the function that `mapInArrow` calls.

    Attributes:
        poison: the numbers of the rows at which it fails, each once.
        folder: the query's.
        slow: seconds that each Arrow batch takes.
    """

    poison: frozenset[int]
    folder: Path
    slow: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(self.slow)
            if self.poison:
                self._look(batch)
            yield batch

    def _look(self, batch: pa.RecordBatch) -> None:
        for value in batch.column("value").to_pylist():
            number = number_of(value)
            if number in self.poison and note(f"poison-{number}", "raise", self.folder):
                raise Injected(f"injected: poison {number}")
