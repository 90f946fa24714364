"""The deliveries of `send_many`: kept as runs of records in one batch, each made when it is asked for.

A million deliveries would be a million objects; a run of records that stand behind each other in one batch is three numbers. Records of
several partitions keep, beside the runs of each partition, in which partition each record is.

Knows nothing of how records come into batches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, overload

from aioproducer.engine.hot import Delivery, make_delivery
from aioproducer.engine.result import Outcome
from aioproducer.model import FlushSummary, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from aioproducer.engine.result import BatchResult
    from aioproducer.errors import DeliveryError

__all__ = ["Deliveries", "Run"]

T = TypeVar("T")
Run: TypeAlias = "list[Any]"  # [result, index of its first record there, records]: a list, as the last one grows
_BLOCK: Final = 1024  # records that are looked through for one


class _Block:
    """Some of the records, in order: the runs of each partition, and which partition each record is in (None: all in the first)."""

    __slots__ = ("_ranks", "count", "picks", "runs")

    def __init__(self, count: int, runs: list[list[Run]], picks: array[int] | None) -> None:
        self.count = count
        self.runs = runs
        self.picks = picks
        self._ranks: Sequence[int] = ()

    def place(self, at: int) -> tuple[BatchResult, int]:
        """The result of one record, and its index there."""
        group, nth = 0, at
        if self.picks is not None:
            group = self.picks[at]
            if len(self._ranks) <= at:
                self._ranks = _ranks(self.picks, len(self.runs))
            nth = self._ranks[at]
        for result, first, count in self.runs[group]:
            if nth < count:
                return result, first + nth
            nth -= count
        raise IndexError(at)

    def walk(self, each: Callable[[BatchResult, int, int], Iterable[T]]) -> Iterator[T]:
        """What `each` makes of the runs, in the order of the records."""
        lines = [chain.from_iterable(each(*run) for run in runs) for runs in self.runs]
        return lines[0] if self.picks is None else map(next, map(lines.__getitem__, self.picks))


def _ranks(picks: Sequence[int], groups: int) -> Sequence[int]:
    """The how many-th of its group each is: kept from the first look on, for a window of `send_columns` has thousands."""
    seen = [0] * groups
    ranks = array("I")
    for pick in picks:
        ranks.append(seen[pick])
        seen[pick] += 1
    return ranks


class Deliveries(Sequence[Delivery]):
    """The deliveries of many records, in their order: a sequence, and awaitable as a whole.

    `await deliveries` waits until every record has ended, and gives the list of their `RecordMetadata`, or raises the `DeliveryError` of
    the first one that failed. `await deliveries.wait()` gives the numbers and raises for none. Each `Delivery` is made when it is asked
    for, so two looks at one index give two handles of the same record.

    Cancellation: ends only the waiting; the records are sent all the same.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._starts: list[int] = []
        self._count = 0
        self._singles: dict[int, int] | None = None  # groups by partition, of a last block that still grows

    # Made by `send_many`

    def add(self, count: int, runs: list[list[Run]], picks: array[int] | None = None) -> None:
        """Records that were queued together."""
        self._singles = None
        last = self._blocks[-1] if self._blocks else None
        if picks is None and last is not None and last.picks is None:
            last.runs[0] += runs[0]
            last.count += count
        else:
            self._starts.append(self._count)
            self._blocks.append(_Block(count, runs, picks))
        self._count += count

    def add_one(self, result: BatchResult, index: int) -> None:
        """A record that was queued alone."""
        if self._singles is None or self._blocks[-1].count >= _BLOCK:
            self._singles = {}
            self._starts.append(self._count)
            self._blocks.append(_Block(0, [], array("H")))
        block = self._blocks[-1]
        group = self._singles.setdefault(result.partition, len(block.runs))
        if group == len(block.runs):
            block.runs.append([])
        runs = block.runs[group]
        if runs and runs[-1][0] is result and runs[-1][1] + runs[-1][2] == index:
            runs[-1][2] += 1
        else:
            runs.append([result, index, 1])
        assert block.picks is not None
        block.picks.append(group)
        block.count += 1
        self._count += 1

    def attach(self, error: BaseException, call: str = "send_many") -> None:
        """Let an error tell what was queued before it: see `of`."""
        error.add_note(f"{call}: {self._count} records were queued before this.")
        error.queued = self  # type: ignore[attr-defined]

    @staticmethod
    def of(error: BaseException) -> Deliveries:
        """What `send_many` or `send_columns` had queued when it raised `error`; these records are sent. Empty if it did not raise it.

        A time-out that cancelled it (`asyncio.timeout`) is looked through to the cancellation.
        """
        seen: BaseException | None = error
        while seen is not None:
            queued = getattr(seen, "queued", None)
            if isinstance(queued, Deliveries):
                return queued
            seen = seen.__cause__ or seen.__context__
        return Deliveries()

    # A sequence

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...

    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._count))]
        at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            raise IndexError(f"there are {self._count} deliveries, and none at {index}")
        block = bisect_right(self._starts, at) - 1
        return make_delivery(*self._blocks[block].place(at - self._starts[block]))

    def __iter__(self) -> Iterator[Delivery]:
        return self._walk(_deliveries)

    def _walk(self, each: Callable[[BatchResult, int, int], Iterable[T]]) -> Iterator[T]:
        return chain.from_iterable(block.walk(each) for block in self._blocks)

    # As a whole

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._metadata().__await__()

    async def _metadata(self) -> list[RecordMetadata]:
        await self.wait()
        return list(self._walk(_metadata))

    async def wait(self) -> FlushSummary:
        """Until every record has ended; raises for none of them. Whoever waits here has looked at their failures."""
        for part in self._parts():
            part.look()
        while (pending := next((part for part in self._parts() if part.outcome is Outcome.PENDING), None)) is not None:
            await pending.wait()
        return self.summary()

    def summary(self) -> FlushSummary:
        """How many are acknowledged, failed and pending, now."""
        counts = dict.fromkeys(Outcome, 0)
        for result, first, count in self._runs():
            if result.outcome is not Outcome.SPLIT:
                counts[result.outcome] += count
                continue
            for index in range(first, first + count):
                counts[result.place_of(index)[0].outcome] += 1
        return FlushSummary(counts[Outcome.ACKNOWLEDGED] + counts[Outcome.DONE], counts[Outcome.FAILED], counts[Outcome.PENDING])

    def done(self) -> bool:
        """Whether every record has ended."""
        return not self.summary().pending

    def failures(self) -> Iterator[tuple[int, DeliveryError]]:
        """Index and error of each record that has failed by now, in order."""
        if not self.summary().failed:
            return
        for index, delivery in enumerate(self):
            if delivery.done() and (error := delivery.exception()) is not None:
                yield index, error

    def _runs(self) -> Iterator[Run]:
        return (run for block in self._blocks for runs in block.runs for run in runs)

    def _parts(self) -> Iterator[BatchResult]:
        """The results that the records share, those of a split batch in its place."""
        for result, first, count in self._runs():
            if result.outcome is Outcome.SPLIT:
                yield from dict.fromkeys(result.place_of(index)[0] for index in range(first, first + count))
            else:
                yield result

    def __repr__(self) -> str:
        acknowledged, failed, pending = self.summary()
        return f"<Deliveries of {self._count} records: {acknowledged} acknowledged, {failed} failed, {pending} pending>"


def _deliveries(result: BatchResult, first: int, count: int) -> Iterator[Delivery]:
    return (make_delivery(result, index) for index in range(first, first + count))


def _metadata(result: BatchResult, first: int, count: int) -> Iterator[RecordMetadata]:
    return result.get_many(first, count)
