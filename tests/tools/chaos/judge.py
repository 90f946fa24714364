"""Compares histories with logs: by the simulation's checker, and by rules for real programs. Pure functions.

A program may be killed in the middle of a transaction: readers then see all records of that transaction, or none. A copy has every record
of its source once, in the order of the source, independent of the attempts' ends. Complaints are sentences that begin with their kind.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tests.simulation.checker import Logged, Promise, check
from tests.simulation.history import End, Fate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.simulation.history import History

    from .history import Told

__all__ = ["Read", "Reads", "judge_copied", "judge_sent", "since_rebirth"]

PROMISE: Final = Promise(
    keeps=True, is_once=True, is_ordered=True, is_ordered_when_acknowledged=True, lifetime=125.0
)
"""The promise of idempotence. The lifetime is the default `delivery_timeout_ms`, and some seconds for a busy machine."""


class Read(NamedTuple):
    """Holds a record as a consumer read it: `attempt`, from its header, is "transaction/place"."""

    offset: int
    value: int
    attempt: str = ""


Reads: TypeAlias = "Mapping[int, Sequence[Read]]"


def judge_sent(told: Told, topic: str, reads: Reads) -> list[str]:
    """Return the complaints about a topic in which each value is the number of its call."""
    logs = {
        (topic, partition): [Logged(one.offset, one.value) for one in records]
        for partition, records in reads.items()
    }
    return [*check(told.history, logs, PROMISE), *_unended(told)]


def judge_copied(
    told: Told, topic: str, source: Reads, everything: Reads, copied: Reads
) -> list[str]:
    """Return the complaints about a topic that transactions copied from `source`, partition by partition.

    `everything` is all its records, `copied` those that readers of committed records get.
    """
    seen = {(partition, one.offset) for partition, records in copied.items() for one in records}
    logs = {
        (topic, partition): [
            Logged(one.offset, _number(told, one.attempt), (partition, one.offset) in seen)
            for one in records
        ]
        for partition, records in everything.items()
    }
    return [
        *check(told.history, logs, PROMISE),
        *_torn(told, copied),
        *_unlike(source, copied),
        *_unended(told),
    ]


def since_rebirth(history: History) -> None:
    """Mark the acknowledged records of a deleted topic as possibly lost, after the topic was created again.

    In each partition the new topic begins where offsets, in the order of the acknowledgements, fall.
    """
    latest: dict[int, list[int]] = {}
    for number in sorted(
        (one.number for one in history.sent if one.is_acknowledged),
        key=lambda number: history.sent[number].ends[0].at,
    ):
        end = history.sent[number].ends[0]
        mine = latest.setdefault(end.partition, [])
        if mine and end.offset < history.sent[mine[-1]].ends[0].offset:
            for old in mine:
                history.sent[old].ends[0] = End(
                    end.at, end.partition, -1, "it went with the old topic", "maybe"
                )
            mine.clear()
        mine.append(number)


def _number(told: Told, attempt: str) -> int | None:
    """Return the record's number in the history; None: its transaction is not in the history."""
    name, _, place = attempt.partition("/")
    return (
        told.bases[name] + int(place)
        if name in told.bases and int(place) < told.sizes[name]
        else None
    )


def _unended(told: Told) -> Iterator[str]:
    for total in told.totals:
        if total["sent"] != total["acked"] + total["failed"]:
            yield f"never ended: {total['sent']} sent, {total['acked']} acknowledged, {total['failed']} failed"


def _torn(told: Told, copied: Reads) -> Iterator[str]:
    """Yield the transactions of which readers see only a part. Their program was killed, or replaced its producer."""
    visible = Counter(
        one.attempt.partition("/")[0] for records in copied.values() for one in records
    )
    for name, transaction in zip(told.bases, told.history.transactions, strict=True):
        if transaction.fate is Fate.UNKNOWN and visible[name] not in {0, told.sizes[name]}:
            yield f"torn: {visible[name]} of {told.sizes[name]} records of {name}, of whose end nobody told, are visible"


def _unlike(source: Reads, copied: Reads) -> Iterator[str]:
    """Yield the differences between a copy and its source. The check of the order ignores second copies."""
    for partition in sorted({*source, *copied}):
        places = {one.value: place for place, one in enumerate(source.get(partition, ()))}
        counts = Counter(one.value for one in copied.get(partition, ()))
        yield from (
            f"lost: record {value} of partition {partition} was not copied"
            for value in places
            if value not in counts
        )
        yield from (
            f"foreign: record {value} of partition {partition} is not in the source"
            for value in counts
            if value not in places
        )
        yield from (
            f"duplicated: record {value} of partition {partition} was copied {n} times"
            for value, n in counts.items()
            if n > 1
        )
        firsts = [
            value for value in counts if value in places
        ]  # a Counter keeps the order in which they came
        for before, after in pairwise(firsts):
            if places[after] < places[before]:
                yield f"reordered: record {after} of partition {partition} was copied behind record {before}"
