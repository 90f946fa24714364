"""The deliveries of `send_many`: kept as runs of records in one batch, each made when it is asked for.

A million deliveries would be a million objects; a run of records that stand behind each other in one batch is three numbers. Records of
several partitions keep, beside the runs of each partition, in which partition each record is. What all records of a run have in common is
asked of the run: whether they have ended, and how. So `wait`, `summary`, `first_failure` and `offsets` take as long as there are batches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload

from aioproducer.engine.delivery.chosen_build import REASON, Delivery, Outcome, make_delivery
from aioproducer.engine.delivery.copied_deliveries import restored, state_of
from aioproducer.model import FlushSummary, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from aioproducer.engine.delivery.chosen_build import ProduceRequestResult
    from aioproducer.engine.delivery.copied_deliveries import RunState
    from aioproducer.errors import DeliveryError

__all__ = ["Deliveries", "Run"]

T = TypeVar("T")
Run: TypeAlias = "list[Any]"  # [result, index of its first record there, records]: a list, as the last one grows
_BLOCK: Final = 1024  # records that are looked through for one
_WRITTEN: Final = frozenset({Outcome.ACKNOWLEDGED, Outcome.DONE})
_first: Final = itemgetter(0)
_result: Final = Delivery.result


class _Block:
    """Some of the records, in order: the runs of each partition, and which partition each record is in (None: all in the first)."""

    __slots__ = ("_ranks", "count", "picks", "runs")

    def __init__(self, count: int, runs: list[list[Run]], picks: array[int] | None) -> None:
        self.count = count
        self.runs = runs
        self.picks = picks
        self._ranks: Sequence[int] = ()

    def place(self, at: int) -> tuple[ProduceRequestResult, int]:
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

    def unsplit(self) -> list[list[Run]]:
        """The runs of each partition, those of a batch that was split in its place."""
        for group, runs in enumerate(self.runs):
            if any(run[0].outcome is Outcome.SPLIT for run in runs):
                # another list: a walk that goes on may be in the old one
                self.runs[group] = [part for run in runs for part in _unsplit(*run)]
        return self.runs

    def first_failed(self) -> tuple[int, ProduceRequestResult] | None:
        """The place of the first record that failed, and its result."""
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


def _place_of(picks: Sequence[int], group: int, rank: int) -> int:
    """Where the record with that rank in its group is."""
    return next(islice((at for at, pick in enumerate(picks) if pick == group), rank, None))


def _unsplit(result: ProduceRequestResult, first: int, count: int) -> Iterator[Run]:
    """The runs that stand for one: of a batch that was split, the parts that have its records now."""
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

    def add_one(self, result: ProduceRequestResult, index: int) -> None:
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
        told = vars(error)  # not by assignment: an error of the caller's may refuse that, as a frozen dataclass does
        told["__notes__"] = [*told.get("__notes__", ()), f"{call}: {self._count} records were queued before this."]
        told["queued"] = self

    @staticmethod
    def of(error: BaseException) -> Deliveries:
        """What `send_many` or `send_columns` had queued when it raised `error`; these records are sent. Empty if it did not raise it.

        A time-out that cancelled it (`asyncio.timeout`) is looked through to the cancellation. An error that was pickled has a copy of
        them: what was known by then. Its acknowledged records have their metadata; awaiting one that was pending raises ProducerClosed.
        """
        seen: BaseException | None = error
        while seen is not None:
            queued = vars(seen).get("queued")
            if isinstance(queued, Sequence) and hasattr(queued, "first_failure"):  # a RecordingProducer has deliveries of its own
                return cast("Deliveries", queued)
            seen = seen.__cause__ or seen.__context__
        return Deliveries()

    def __copy__(self) -> Deliveries:
        """Itself: a copied error tells of the same records."""
        return self

    def __deepcopy__(self, memo: object) -> Deliveries:
        """As `__copy__`."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """What is known of the records now: their producer, and what becomes of the pending ones, stay in this process."""
        blocks = [(block.count, [[_state(*run) for run in runs] for runs in block.unsplit()], block.picks) for block in self._blocks]
        return _restored, (blocks,)

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

    def _walk(self, each: Callable[[ProduceRequestResult, int, int], Iterable[T]]) -> Iterator[T]:
        return chain.from_iterable(block.walk(each) for block in self._blocks)

    # As a whole

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        return self._metadata().__await__()

    async def _metadata(self) -> list[RecordMetadata]:
        await self.wait()
        return list(self._walk(_metadata))

    async def wait(self) -> FlushSummary:
        """Until every record has ended; raises for none of them. Whoever waits here has looked at their failures."""
        runs = self._runs()
        for result, _, _ in runs:
            result.look()
        for run in runs:
            await _ended(run)
        return self.summary()

    def summary(self) -> FlushSummary:
        """How many are acknowledged, failed and pending, now."""
        counts = dict.fromkeys(Outcome, 0)
        for result, _, count in self._runs():
            counts[result.outcome] += count
        return FlushSummary(counts[Outcome.ACKNOWLEDGED] + counts[Outcome.DONE], counts[Outcome.FAILED], counts[Outcome.PENDING])

    def done(self) -> bool:
        """Whether every record has ended."""
        return not any(result.outcome is Outcome.PENDING for result, _, _ in self._runs())

    def failures(self) -> Iterator[tuple[int, DeliveryError]]:
        """Index and error of each record that has failed by now, in order."""
        if self.first_failure() is not None:
            for index, error in enumerate(self._walk(_errors)):
                if error is not None:
                    yield index, error

    def first_failure(self) -> tuple[int, DeliveryError] | None:
        """Index and error of the first record that has failed by now; None: none has. Asked of the batches, not of each record."""
        for start, block in zip(self._starts, self._blocks, strict=True):
            found = block.first_failed()
            if found is not None:
                at, result = found
                error = result.failure()
                assert error is not None
                return start + at, error
        return None

    def offsets(self) -> dict[int, tuple[int, int]]:
        """First and last offset of the records acknowledged by now, by partition. Asked of the batches, not of each record.

        Records of others may be between them. Without what has no offset that is known: with acks=0.
        """
        offsets: dict[int, tuple[int, int]] = {}
        for result, first, count in self._runs():
            if result.outcome in _WRITTEN and result.base_offset >= 0 and count:
                begin = result.base_offset + first
                before = offsets.get(result.partition, (begin, begin))
                offsets[result.partition] = min(before[0], begin), max(before[1], begin + count - 1)
        return offsets

    def _runs(self) -> list[Run]:
        """All runs, none of a batch that was split."""
        return [run for block in self._blocks for runs in block.unsplit() for run in runs]

    def __repr__(self) -> str:
        acknowledged, failed, pending = self.summary()
        return f"<Deliveries of {self._count} records: {acknowledged} acknowledged, {failed} failed, {pending} pending>"


def _state(result: ProduceRequestResult, first: int, count: int) -> RunState:
    return state_of(result, list(_metadata(result, first, count)) if result.outcome in _WRITTEN else (), count)


def _restored(blocks: Iterable[tuple[int, list[list[RunState]], array[int] | None]]) -> Deliveries:
    deliveries = Deliveries()
    for count, groups, picks in blocks:
        deliveries.add(count, [[[restored(state), 0, state.records] for state in states] for states in groups], picks)
    return deliveries


def _deliveries(result: ProduceRequestResult, first: int, count: int) -> Iterator[Delivery]:
    return (make_delivery(result, index) for index in range(first, first + count))


def _metadata(result: ProduceRequestResult, first: int, count: int) -> Iterator[RecordMetadata]:
    """What `Delivery.result` gives for each record, or raises in its place."""
    if REASON:
        # plain Python: column by column, a quarter faster than record by record
        return result.get_many(first, count)
    # compiled: a delivery makes its record's metadata in a sixth of the time that `tuple.__new__` takes
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
