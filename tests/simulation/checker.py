"""Checks a history against the logs, as Jepsen's Kafka test does: returns the violations, without side effects.

It finds records that are lost, misplaced, duplicated, reordered, written though certainly not, never ended or ended twice. It finds
transactions that are aborted yet visible, torn or undecided, and records that `on_failed` got wrongly, or did not get. It checks only what
the settings promise (`Promise`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.testing.record_batches import ControlType, control_type
from tests.simulation.history import Fate, number_of, value_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from aioproducer.model import FailedRecord
    from aioproducer.testing.record_batches import RecordBatch
    from tests.simulation.history import HandedOut, History, Sent, Transaction

__all__ = ["Logged", "Promise", "check", "read_log"]

_PARTITION: Final = "{0[0]}-{0[1]}"


@dataclass(frozen=True, slots=True)
class Promise:
    """Holds the guarantees of a run's settings.

    Attributes:
        keeps: acknowledged records are in the log.
        is_once: no record is in a log twice.
        is_ordered: all records of a partition's log are in call order.
        is_ordered_when_acknowledged: the acknowledged records are in call order, by their first offset in the log.
        lifetime: seconds within which each delivery ends.
        is_placed: records are in the partitions that they were sent to; False if a breaker's policy may choose others.
    """

    keeps: bool
    is_once: bool
    is_ordered: bool
    is_ordered_when_acknowledged: bool
    lifetime: float
    is_placed: bool = True


class Logged(NamedTuple):
    """Holds a record of a log.

    `is_visible`: a consumer with read_committed sees it; `is_open`: its transaction has not ended.
    """

    offset: int
    number: int | None
    is_visible: bool = True
    is_open: bool = False


def read_log(batches: Iterable[RecordBatch]) -> list[Logged]:
    """Return the records of a partition, marked as visible or not for a consumer with read_committed."""
    logged: list[Logged] = []
    ongoing: dict[int, list[int]] = {}
    for batch in batches:
        if batch.is_control:
            is_commit = control_type(batch.records()[0]) is ControlType.COMMIT
            for place in ongoing.pop(batch.producer_id, ()):
                logged[place] = logged[place]._replace(is_visible=is_commit, is_open=False)
            continue
        for record in batch.check():
            if batch.is_transactional:
                ongoing.setdefault(batch.producer_id, []).append(len(logged))
            is_open = batch.is_transactional
            logged.append(Logged(record.offset, number_of(record.value), not is_open, is_open))
    return logged


def check(
    history: History,
    logs: Mapping[tuple[str, int], Sequence[Logged]],
    promise: Promise,
    committed: int | None = None,
) -> list[str]:
    """Return the violations, one sentence each; empty: none. `committed`: the offset of the transactions' group."""
    return [
        *history.overdue,
        *_ends(history.sent, promise),
        *_lost(history.sent, logs, promise),
        *_written(history.sent, logs, promise),
        *_order(history.sent, logs, promise),
        *_undecided(logs),
        *_transactions(history.transactions, logs),
        *_offsets(history.transactions, committed),
        *_handed_out(history.sent, history.handed_out, logs),
        *(_kept_back(history.sent, history.handed_out) if history.has_on_failed else ()),
    ]


def _ends(sent: Iterable[Sent], promise: Promise) -> Iterator[str]:
    for each in sent:
        if each.queued_at is None:
            if not each.refused:
                yield f"never ended: the send of {each} neither returned nor raised"
            continue
        if not each.ends:
            yield f"never ended: {each} was queued, and its delivery has not ended"
        elif len(each.ends) > 1:
            yield f"ended twice: {each}: {each.ends}"
        elif each.ends[0].at - each.queued_at > promise.lifetime:
            yield f"too late: {each} ended {each.ends[0].at - each.queued_at:.3f} s after it was queued, beyond {promise.lifetime:.3f} s"


def _lost(
    sent: Iterable[Sent], logs: Mapping[tuple[str, int], Sequence[Logged]], promise: Promise
) -> Iterator[str]:
    places = {key: {logged.offset: logged.number for logged in log} for key, log in logs.items()}
    present: dict[tuple[str, int], set[int | None]] = {
        key: {logged.number for logged in log} for key, log in logs.items()
    }
    for each in sent:
        if not each.is_acknowledged:
            continue
        where = each.topic, each.ends[0].partition
        if promise.is_placed and each.partition not in {None, where[1]}:
            yield f"misplaced: {each} was acknowledged in partition {where[1]}"
        if promise.keeps:
            yield from _missing(each, where, places.get(where, {}), present.get(where, set()))


def _missing(
    each: Sent,
    where: tuple[str, int],
    places: Mapping[int, int | None],
    present: Container[int | None],
) -> Iterator[str]:
    """Yield a violation if an acknowledged record is not at its offset; `places` are the partition's records by offset."""
    offset = each.ends[0].offset
    there = places.get(offset)
    if each.number not in present:
        yield f"lost: {each} was acknowledged at offset {offset} of {_PARTITION.format(where)}, and is not in its log"
    elif offset >= 0 and there != each.number:
        yield f"misplaced: {each} was acknowledged at offset {offset} of {_PARTITION.format(where)}, where record {there} is"


def _written(
    sent: Sequence[Sent], logs: Mapping[tuple[str, int], Sequence[Logged]], promise: Promise
) -> Iterator[str]:
    times: Counter[int] = Counter()
    for where, log in logs.items():
        for logged in log:
            number = logged.number
            if number is None or number >= len(sent):
                yield f"foreign: offset {logged.offset} of {_PARTITION.format(where)} is no record of this run"
                continue
            times[number] += 1
            yield from _unwanted(sent[number], where, logged.offset, promise)
    if promise.is_once:
        for number, count in times.items():
            if count > 1:
                yield f"duplicated: {sent[number]} is in the log {count} times"


def _unwanted(each: Sent, where: tuple[str, int], offset: int, promise: Promise) -> Iterator[str]:
    """Yield a violation if a record must not be in this log."""
    if each.topic != where[0] or (promise.is_placed and each.partition not in {None, where[1]}):
        yield f"misplaced: {each} is in {_PARTITION.format(where)}"
    if each.refused and not each.is_doubtful:
        yield f"written though refused: {each} was not queued ({each.refused}), and is in {_PARTITION.format(where)}"
    elif each.ends and each.ends[0].persisted == "no":
        yield f"written though certainly not: {each} failed with persisted=no, and is at {offset} of {_PARTITION.format(where)}"


def _order(
    sent: Sequence[Sent], logs: Mapping[tuple[str, int], Sequence[Logged]], promise: Promise
) -> Iterator[str]:
    if not promise.is_ordered and not promise.is_ordered_when_acknowledged:
        return
    for where, log in logs.items():
        latest = -1
        newest: Sent | None = None
        for each, offset in _first_places(sent, log):
            if not promise.is_ordered and not each.is_acknowledged:
                continue
            if each.last < latest:
                yield f"reordered: {each} was sent before {newest}, and is behind it in {_PARTITION.format(where)}, at {offset}"
            if each.first > latest:
                latest, newest = each.first, each


def _first_places(sent: Sequence[Sent], log: Iterable[Logged]) -> Iterator[tuple[Sent, int]]:
    """Yield the records of this run in a log, each with its first offset."""
    seen: set[int] = set()
    for logged in log:
        number = logged.number
        if number is None or number >= len(sent) or number in seen:
            continue
        seen.add(number)
        yield sent[number], logged.offset


def _offsets(transactions: Sequence[Transaction], committed: int | None) -> Iterator[str]:
    """Check the group's offset: it is that of the last committed transaction, or of a later one of unknown fate."""
    expected = max(
        (each.number for each in transactions if each.fate is Fate.COMMITTED and each.has_offset),
        default=None,
    )
    after = -1 if expected is None else expected
    may_be = {
        each.number
        for each in transactions
        if each.offset is not None and each.fate in {Fate.COMMITTED, Fate.UNKNOWN}
    }
    if committed != expected and (committed not in may_be or committed < after):
        yield f"offsets: the group has {committed}, and the last transaction that committed one has {expected}"


def _undecided(logs: Mapping[tuple[str, int], Sequence[Logged]]) -> Iterator[str]:
    for where, log in logs.items():
        left = [logged.offset for logged in log if logged.is_open]
        if left:
            yield f"undecided: offsets {left} of {_PARTITION.format(where)} belong to a transaction that never ended"


def _transactions(
    transactions: Iterable[Transaction], logs: Mapping[tuple[str, int], Sequence[Logged]]
) -> Iterator[str]:
    visible = {logged.number for log in logs.values() for logged in log if logged.is_visible}
    for transaction in transactions:
        yield from _torn(transaction, visible)


def _torn(transaction: Transaction, visible: Container[int | None]) -> Iterator[str]:
    """Yield a violation if the visibility of a transaction's records contradicts its fate."""
    seen = [each for each in transaction.records if each.number in visible]
    if transaction.fate is Fate.ABORTED and seen:
        yield f"aborted yet visible: {seen[0]} of transaction {transaction.number}"
    queued = [
        each for each in transaction.records if each.queued_at is not None and not each.is_doubtful
    ]
    missing = [each for each in queued if each.number not in visible]
    if not missing:
        return
    if transaction.fate is Fate.COMMITTED:
        yield f"torn: transaction {transaction.number} was committed, and {missing[0]} is not visible"
    elif seen:
        yield f"torn: of transaction {transaction.number}, {seen[0]} is visible and {missing[0]} is not"


def _handed_out(
    sent: Sequence[Sent],
    handed_out: Iterable[HandedOut],
    logs: Mapping[tuple[str, int], Sequence[Logged]],
) -> Iterator[str]:
    """Check each record that `on_failed` got: it failed, it has its own bytes, and its `persisted` is true."""
    written = {logged.number for log in logs.values() for logged in log}
    for handed in handed_out:
        record = handed.record
        number = number_of(record.value)
        if number is None or number >= len(sent):
            yield f"handed out: {record} is no record of this run"
            continue
        each = sent[number]
        own = each.topic, value_of(number, each.size), each.key, ()
        if own != (record.topic, record.value, record.key, record.headers):
            yield f"handed out: {each}, with the bytes of {record}"
        yield from _untrue(each, handed, is_written=number in written)
        yield from _wrongly(each, record)


def _untrue(each: Sent, handed: HandedOut, *, is_written: bool) -> Iterator[str]:
    """Yield a violation if `persisted` is not true: `no` of a record in the log, `maybe` of one that was never sent."""
    persisted = handed.record.persisted
    if persisted == "no" and is_written:
        yield f"handed out: {each} with persisted=no, and is in the log"
    if persisted != "no" and not handed.attempts:
        yield f"handed out: {each} with persisted={persisted}, and was never sent"


def _wrongly(each: Sent, record: FailedRecord) -> Iterator[str]:
    """Yield a violation if the outcome that the user got of a record is another one than that which `on_failed` got."""
    if each.is_acknowledged:
        yield f"handed out: {each}, which was acknowledged"
    elif each.refused and not each.is_doubtful:
        yield f"handed out: {each}, which was not queued ({each.refused})"
    elif (
        each.ends
        and not each.is_doubtful
        and (each.ends[0].partition, each.ends[0].persisted) != (record.partition, record.persisted)
    ):
        yield f"handed out: {each} as {record}, and its delivery ended with {each.ends[0]}"


def _kept_back(sent: Iterable[Sent], handed_out: Iterable[HandedOut]) -> Iterator[str]:
    """Check that `on_failed` got each failed record once, but for those that were dropped with their transaction."""
    times = Counter(number_of(handed.record.value) for handed in handed_out)
    for each in sent:
        if times[each.number] > 1:
            yield f"handed out: {each}, {times[each.number]} times"
        has_failed = bool(each.ends) and not each.is_acknowledged and not each.is_doubtful
        if has_failed and times[each.number] != (not each.ends[0].is_dropped):
            yield f"handed out: {each}, {times[each.number]} times, and its delivery ended with {each.ends[0]}"
