"""Holds `Deliveries`, the deliveries of `send_many`, as runs of records in one batch.

A million deliveries would be a million objects, so each is made on access. A run of consecutive records in one batch is three numbers.
Records of several partitions are kept as the runs of each partition, and the partition of each record. The records of a run have the
same state, which is read once for the run: they have ended or not, and how. So the cost of `wait`, `summary`, `first_failure` and
`offsets` is proportional to the number of batches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any, Final, Never, TypeAlias, TypeVar, overload

from aioproducer.engine.chosen_build import REASON, Delivery, ProduceRequestResult, make_delivery
from aioproducer.engine.delivery.outcome import Outcome
from aioproducer.errors import DeliveryError, UsageError
from aioproducer.model import FlushSummary, RecordMetadata, counted

T = TypeVar("T")
# [result, index of the first record there, number of records]: a list, because the last run grows.
Run: TypeAlias = "list[Any]"
# Records that are searched for one.
_BLOCK: Final = 1024
_WRITTEN: Final = frozenset({Outcome.ACKNOWLEDGED, Outcome.DONE})
_STAY: Final = (
    "they learn what becomes of their records in the process that sent them. Pass on their outcomes, `await deliveries` or "
    "`list(deliveries.failures())`"
)
_first: Final = itemgetter(0)
_result: Final = Delivery.result


class _Block:
    """Holds some of the records, in order.

    Attributes:
        count: the number of records.
        runs: the runs of each partition.
        picks: for each record, the index of its partition in `runs`; None: all records are in the first.
    """

    __slots__ = ("_ranks", "count", "picks", "runs")

    def __init__(self, count: int, runs: list[list[Run]], picks: array[int] | None) -> None:
        self.count = count
        self.runs = runs
        self.picks = picks
        self._ranks: Sequence[int] = ()

    def place(self, at: int) -> tuple[ProduceRequestResult, int]:
        """Return the result of the record at `at`, and its index there."""
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

    def unsplit(self) -> list[list[Run]]:
        """Return the runs of each partition. The parts of a batch that was split take its place."""
        for group, runs in enumerate(self.runs):
            if any(run[0].outcome is Outcome.SPLIT for run in runs):
                # A new list, because an unfinished iteration may use the old one.
                self.runs[group] = [part for run in runs for part in _unsplit(*run)]
        return self.runs

    def first_failed(self) -> tuple[int, ProduceRequestResult] | None:
        """Return the index of the first record that failed, and its result. Returns None if none failed."""
        found = None
        for group, runs in enumerate(self.unsplit()):
            rank = 0
            for result, _, count in runs:
                if result.outcome is Outcome.FAILED:
                    at = rank if self.picks is None else _place_of(self.picks, group, rank)
                    found = min(found or (at, result), (at, result), key=_first)
                    break
                rank += count
        return found

    def walk(self, each: Callable[[ProduceRequestResult, int, int], Iterable[T]]) -> Iterator[T]:
        """Return an iterator of the items that `each` returns for the runs, in the order of the records."""
        lines = [chain.from_iterable(each(*run) for run in runs) for runs in self.runs]
        return lines[0] if self.picks is None else map(next, map(lines.__getitem__, self.picks))


def _ranks(picks: Sequence[int], groups: int) -> Sequence[int]:
    """Return the rank of each record in its group.

    The block keeps the ranks after the first lookup, because a window of `send_columns` has thousands of records.
    """
    seen = [0] * groups
    ranks = array("I")
    for pick in picks:
        ranks.append(seen[pick])
        seen[pick] += 1
    return ranks


def _place_of(picks: Sequence[int], group: int, rank: int) -> int:
    """Return the index of the record with the rank `rank` in `group`."""
    return next(islice((at for at, pick in enumerate(picks) if pick == group), rank, None))


def _unsplit(result: ProduceRequestResult, first: int, count: int) -> Iterator[Run]:
    """Yield the runs that replace one run. For a batch that was split, these are the parts that have its records now."""
    if result.outcome is not Outcome.SPLIT:
        yield [result, first, count]
        return
    part, begin, taken = *result.place_of(first), 0
    for place, index in map(result.place_of, range(first, first + count)):
        if place is not part or index != begin + taken:
            yield [part, begin, taken]
            part, begin, taken = place, index, 0
        taken += 1
    yield [part, begin, taken]


class Deliveries(Sequence[Delivery]):
    """Holds the deliveries of many records, in order: a sequence, which is also awaitable as a whole.

    `await deliveries` waits until every record has ended. It returns the list of their `RecordMetadata`, or raises the `DeliveryError` of
    the first record that failed. `await deliveries.wait()` returns the counts and raises for no record. Each `Delivery` is made on
    access, so two accesses to one index return two handles of the same record.

    Cancellation: only the wait ends; the records are sent all the same.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._starts: list[int] = []
        self._count = 0
        # The groups by partition of the last block, while it still grows.
        self._singles: dict[int, int] | None = None

    # Made by `send_many`

    def add(self, count: int, runs: list[list[Run]], picks: Any = None) -> None:
        """Add records that were queued together."""
        self._singles = None
        last = self._blocks[-1] if self._blocks else None
        if picks is None and last is not None and last.picks is None:
            last.runs[0] += runs[0]
            last.count += count
        else:
            self._starts.append(self._count)
            self._blocks.append(_Block(count, runs, picks))
        self._count += count

    def add_one(self, result: ProduceRequestResult, index: int) -> None:
        """Add a record that was queued alone."""
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
        """Attach these deliveries to an error: their records were queued before it. `of` returns them."""
        # Not by attribute assignment: an error class of the caller may refuse that, as a frozen dataclass does.
        told = vars(error)
        told["__notes__"] = [
            *told.get("__notes__", ()),
            f"{call}: {counted(self._count, 'record')} queued before this.",
        ]
        told["_queued"] = _Queued(self)

    @staticmethod
    def of(error: BaseException) -> Deliveries:
        """Return the deliveries of the records that `send_many` or `send_columns` had queued when it raised `error`.

        These records are sent. The result is empty if neither call raised `error`. If a timeout cancelled the call (`asyncio.timeout`),
        the result is that of the cancellation.

        Raises:
            UsageError: the error was pickled. Its deliveries stayed in the process that sent the records: take their outcomes there.
        """
        seen: BaseException | None = error
        while seen is not None:
            queued = vars(seen).get("_queued")
            if isinstance(queued, _Queued):
                if queued.deliveries is None:
                    raise UsageError(
                        f"{type(error).__name__} was pickled, without its deliveries: {_STAY}"
                    )
                return queued.deliveries
            seen = seen.__cause__ or seen.__context__
        return Deliveries()

    def __copy__(self) -> Deliveries:
        """Return itself: a copied error refers to the same records."""
        return self

    def __deepcopy__(self, memo: object) -> Deliveries:
        """Return itself, as `__copy__` does."""
        return self

    def __reduce__(self) -> Never:
        raise TypeError(f"Deliveries cannot be pickled: {_STAY}")

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
            raise IndexError(f"no delivery at {index} of {self._count}")
        block = bisect_right(self._starts, at) - 1
        return make_delivery(*self._blocks[block].place(at - self._starts[block]))

    def __iter__(self) -> Iterator[Delivery]:
        return self._walk(_deliveries)

    def _walk(self, each: Callable[[ProduceRequestResult, int, int], Iterable[T]]) -> Iterator[T]:
        return chain.from_iterable(block.walk(each) for block in self._blocks)

    # As a whole

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._metadata().__await__()

    async def _metadata(self) -> list[RecordMetadata]:
        await self.wait()
        return list(self._walk(_metadata))

    async def wait(self) -> FlushSummary:
        """Wait until every record has ended. Returns the counts, and raises for no record.

        The failures then count as looked at.
        """
        runs = self._runs()
        for result, _, _ in runs:
            result.look()
        for run in runs:
            await _ended(run)
        return self.summary()

    def summary(self) -> FlushSummary:
        """Return how many records are acknowledged, failed and pending now."""
        counts = dict.fromkeys(Outcome, 0)
        for result, _, count in self._runs():
            counts[result.outcome] += count
        return FlushSummary(
            counts[Outcome.ACKNOWLEDGED] + counts[Outcome.DONE],
            counts[Outcome.FAILED],
            counts[Outcome.PENDING],
        )

    def done(self) -> bool:
        """Return whether every record has ended."""
        return not any(result.outcome is Outcome.PENDING for result, _, _ in self._runs())

    def failures(self) -> Iterator[tuple[int, DeliveryError]]:
        """Yield the index and error of each record that has failed by now, in order."""
        if self.first_failure() is not None:
            for index, error in enumerate(self._walk(_errors)):
                if error is not None:
                    yield index, error

    def first_failure(self) -> tuple[int, DeliveryError] | None:
        """Return the index and error of the first record that has failed by now, or None if none has.

        The state of the batches is read, not that of each record.
        """
        for start, block in zip(self._starts, self._blocks, strict=True):
            found = block.first_failed()
            if found is not None:
                at, result = found
                error = result.failure()
                assert error is not None
                return start + at, error
        return None

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return the first and last offset of the records acknowledged by now, by partition.

        The state of the batches is read, not that of each record. Records of other senders may be between the two offsets. Records
        without a known offset (acks=0) are left out.
        """
        offsets: dict[int, tuple[int, int]] = {}
        for result, first, count in self._runs():
            if result.outcome in _WRITTEN and result.base_offset >= 0 and count:
                begin = result.base_offset + first
                before = offsets.get(result.partition, (begin, begin))
                offsets[result.partition] = min(before[0], begin), max(before[1], begin + count - 1)
        return offsets

    def _runs(self) -> list[Run]:
        """Return all runs. The parts of a batch that was split take its place."""
        return [run for block in self._blocks for runs in block.unsplit() for run in runs]

    def __repr__(self) -> str:
        acknowledged, failed, pending = self.summary()
        return f"<Deliveries of {counted(self._count, 'record')}: {acknowledged} acknowledged, {failed} failed, {pending} pending>"


class _Queued:
    """Is the attribute by which an error has its deliveries. A pickled error leaves them behind."""

    __slots__ = ("deliveries",)

    def __init__(self, deliveries: Deliveries | None = None) -> None:
        self.deliveries = deliveries

    def __deepcopy__(self, memo: object) -> _Queued:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Queued, ()


def _deliveries(result: ProduceRequestResult, first: int, count: int) -> Iterator[Delivery]:
    return (make_delivery(result, index) for index in range(first, first + count))


def _metadata(result: ProduceRequestResult, first: int, count: int) -> Iterator[RecordMetadata]:
    """Return an iterator of `Delivery.result` for each record. It raises an error in the place of its record."""
    if REASON:
        # Plain Python: column by column is a quarter faster than record by record.
        return result.get_many(first, count)
    # Compiled: a delivery makes its record's metadata in a sixth of the time that `tuple.__new__` takes.
    return map(_result, map(make_delivery, repeat(result, count), range(first, first + count)))


def _errors(result: ProduceRequestResult, first: int, count: int) -> Iterator[DeliveryError | None]:
    del first
    failed = result.outcome is Outcome.FAILED
    return (result.failure() if failed else None for _ in range(count))


async def _ended(run: Run) -> None:
    """Wait until all records of a run have ended."""
    result = run[0]
    if result.outcome is Outcome.PENDING:
        await result.wait()
    if result.outcome is Outcome.SPLIT:
        for part in _unsplit(*run):
            await _ended(part)
