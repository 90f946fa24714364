"""Decides what a task and a driver of an exactly-once batch do next. All functions are pure; `exactly_once` does the I/O.

The rules rest on three facts:

1. Only the driver that holds the lock writes a decision, and a transaction is committed only if a decision names it.
2. The answer to a commit is final: the transaction was committed, or it was ended before and the mark says how.
3. A task that has a producer id has fenced all earlier attempts of the task, so its mark is final.

| the ledger has, before batch N | what it means | the driver |
|---|---|---|
| no decision, or one of an earlier batch | nothing of N is committed | decides what the tasks prepared |
| a decision of N, every transaction committed | N is done | aborts what the tasks prepared |
| a decision of N, no transaction committed | nothing of N is committed | decides what the tasks prepared |
| a decision of N, some committed | N is half done | decides for the others, if the replay is the same; else it refuses |
| a decision of a later batch | another driver is ahead | refuses |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.errors import KafkaError
from aioproducer.model import counted

from .ledger import Decision, Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from aioproducer.model import PreparedTransaction

    from .ledger import Mark

__all__ = [
    "AnotherDriver",
    "CheckpointTooOld",
    "HalfCommitted",
    "Lost",
    "Standing",
    "TaskReport",
    "TaskState",
    "Verdict",
    "decided_entry",
    "has_rows",
    "is_committed",
    "is_entry_committed",
    "judge",
    "lost",
    "not_decided",
    "standing",
    "unsettled",
]


class CheckpointTooOld(KafkaError):
    """Reports a batch that is older than the latest one in Kafka: the checkpoint was restored from an older copy."""


class HalfCommitted(KafkaError):
    """Reports a batch of which some tasks are committed, and whose replay cannot be told to give the rows of the others."""


class Lost(KafkaError):
    """Reports decided transactions that were ended before they could be committed. The next run of the query writes their rows again."""


class AnotherDriver(KafkaError):
    """Reports that another driver writes with the same name."""


class TaskState(enum.StrEnum):
    """Holds the states in which a task ends."""

    SENT = "sent"
    PREPARED = "prepared"
    SKIPPED = "skipped"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Holds what a task tells the driver.

    Attributes:
        state: `sent`: at least once; `prepared`: the transaction waits for the decision; `skipped`: the rows were committed before, and only
            counted; `empty`: there was no row.
        task: the number of the task.
        rows, bytes, checksum: of all rows of the task.
        name: of the query or the batch write.
        prepared: the transaction.
        saw_decision: whether there was a decision of this batch when the task began.
    """

    state: TaskState
    task: int
    rows: int = 0
    bytes: int = 0
    checksum: int = 0
    name: str = ""
    prepared: PreparedTransaction | None = None
    saw_decision: bool = False


# A task


def decided_entry(name: str, decision: Decision | None, batch: int, task: int) -> Entry | None:
    """Return the transaction that a task commits before anything else, because an earlier run decided so; None: there is none.

    Raises:
        CheckpointTooOld: a later batch was decided.
    """
    if decision is None or decision.batch < batch:
        return None
    if decision.batch > batch:
        raise _too_old(name, batch, decision.batch)
    return decision.entry(task)


def is_committed(name: str, mark: Mark | None, batch: int) -> bool:
    """Return whether a task has committed the batch before. Its mark must be final: no transaction of the task is open.

    Raises:
        CheckpointTooOld: the task has committed a later batch.
    """
    if mark is not None and mark.batch > batch:
        raise _too_old(name, batch, mark.batch)
    return mark is not None and mark.batch == batch


def is_entry_committed(name: str, mark: Mark | None, batch: int, entry: Entry) -> bool:
    """Return whether the rows of a decided transaction are committed, although the coordinator refuses to commit it.

    A mark of the batch is not enough: a driver that stood still may find the mark of a later decision, which spread the rows otherwise.

    Raises:
        CheckpointTooOld: the task has committed a later batch.
    """
    return is_committed(name, mark, batch) and mark is not None and mark[1:] == entry[1:]


def _too_old(name: str, batch: int, latest: int) -> CheckpointTooOld:
    return CheckpointTooOld(
        f"the ledger of {name!r} is at batch {latest}, and Spark runs batch {batch}: the checkpoint is older than what is in Kafka. Go on with "
        "the newest checkpoint. To write the rows of the batches in between again, start with another transactionalIdPrefix"
    )


# The driver


def has_rows(reports: Iterable[TaskReport]) -> bool:
    """Return whether there may be something to commit: a task had rows, or an earlier run decided the batch."""
    return any(report.state is not TaskState.EMPTY or report.saw_decision for report in reports)


class Standing(enum.StrEnum):
    """Holds how much of a batch is committed, before its driver decides."""

    UNDECIDED = "not decided"
    UNDONE = "decided, nothing committed"
    HALF = "decided, some committed"
    DONE = "decided, all committed"
    PAST = "a later batch is decided"


class Verdict(NamedTuple):
    """Holds what a driver does.

    Attributes:
        decision: what it writes to the ledger; None: nothing.
        commits: the tasks whose transactions it commits after that.
        aborts: the transactions that it aborts.
    """

    decision: Decision | None
    commits: tuple[int, ...]
    aborts: tuple[PreparedTransaction, ...]


def unsettled(decision: Decision | None, batch: int, reports: Iterable[TaskReport]) -> list[int]:
    """Return the tasks of an earlier decision of the batch whose transactions the driver must try to commit, before it judges.

    A skipped task was committed. One that prepared a transaction is asked for too: if this driver is the older one, its tasks did not see
    the decision.
    """
    if decision is None or decision.batch != batch:
        return []
    settled = {report.task for report in reports if report.state is TaskState.SKIPPED}
    return [
        task
        for task, entry in enumerate(decision.entries)
        if entry is not None and task not in settled
    ]


def standing(decision: Decision | None, batch: int, committed: Collection[int]) -> Standing:
    """Return how much of the batch is committed. `committed` has the decided tasks that are."""
    if decision is None or decision.batch < batch:
        return Standing.UNDECIDED
    if decision.batch > batch:
        return Standing.PAST
    are_committed = {
        task in committed for task, entry in enumerate(decision.entries) if entry is not None
    }
    if are_committed == {True, False}:
        return Standing.HALF
    return Standing.DONE if True in are_committed else Standing.UNDONE


def judge(
    name: str,
    decision: Decision | None,
    batch: int,
    reports: Sequence[TaskReport],
    committed: Collection[int],
) -> Verdict:
    """Return what the driver does with the reports of all tasks.

    Args:
        name: of the query; errors name it.
        decision: the latest one, read while the driver holds the lock.
        batch: the batch.
        reports: one of each task, in order.
        committed: the decided tasks that are committed: the skipped ones, and those that the driver found so.

    Raises:
        AnotherDriver: a later batch was decided.
        HalfCommitted: the batch is half done, and the replay is not the same.
    """
    now = standing(decision, batch, committed)
    if now is Standing.PAST and decision is not None:
        raise AnotherDriver(
            f"batch {batch} of {name!r} is over: another driver with the same checkpoint has decided batch {decision.batch}"
        )
    if now is Standing.DONE:
        return Verdict(None, (), not_decided(decision, batch, reports))
    if now is Standing.HALF and decision is not None:
        return _complete(name, decision, reports, committed)
    return _decide(name, batch, reports)


def _decide(name: str, batch: int, reports: Sequence[TaskReport]) -> Verdict:
    """Return the verdict for a batch of which nothing is committed."""
    if orphans := [report.task for report in reports if report.state is TaskState.SKIPPED]:
        raise HalfCommitted(
            f"batch {batch} of {name!r}: {_tasks(orphans)} committed it, and its decision is gone from consumer group '{name}-driver'. Whether "
            "the other tasks committed it cannot be told. Look into the topic, then go on with another transactionalIdPrefix"
        )
    prepared = {report.task: report for report in reports if report.prepared is not None}
    if not prepared:
        return Verdict(None, (), ())
    entries = tuple(_entry(prepared.get(task)) for task in range(len(reports)))
    return Verdict(Decision(batch, entries), tuple(prepared), ())


def _complete(
    name: str, decision: Decision, reports: Sequence[TaskReport], committed: Collection[int]
) -> Verdict:
    """Return the verdict for the tasks of a half committed batch that are not committed."""
    missing = [
        task
        for task, entry in enumerate(decision.entries)
        if entry is not None and task not in committed
    ]
    if difference := _difference(decision, reports, missing):
        raise HalfCommitted(
            f"batch {decision.batch} of {name!r} was half committed when its driver died: the transactions of {_tasks(missing)} of "
            f"{len(decision.entries)} timed out or were aborted. {difference}. Nothing was written, and nothing is lost or doubled so far"
        )
    entries = tuple(
        _entry(reports[task]) if task in missing else entry
        for task, entry in enumerate(decision.entries)
    )
    done = Decision(decision.batch, entries)
    return Verdict(done, tuple(missing), not_decided(done, decision.batch, reports))


def _difference(decision: Decision, reports: Sequence[TaskReport], missing: Collection[int]) -> str:
    """Return in which way a replay is not the same as the run that was decided; "": in none that can be seen."""
    tasks = len(decision.entries)
    if len(reports) != tasks:
        return (
            f"This run has {counted(len(reports), 'task')}, so that their rows cannot be told from those that are committed: run it with {tasks} once "
            "(spark.sql.shuffle.partitions, coalesce or repartition as in the run before)"
        )
    for report, entry in zip(reports, decision.entries, strict=True):
        before = (0, 0, 0) if entry is None else (entry.rows, entry.bytes, entry.checksum)
        now = (report.rows, report.bytes, report.checksum)
        if report.task not in missing and before != now:
            return (
                f"Task {report.task} had {_rows(*before)}, and has {_rows(*now)} now, so the rows of the others are not the same either: run "
                "the query with the same source, plan and settings as before. If it cannot give the same rows again, compare the topic with "
                "the source, and go on from a new checkpoint"
            )
        if report.task in missing and report.prepared is None:
            return f"Task {report.task} had {_rows(*before)}, and has none now: run the query with the same source, plan and settings as before"
    return ""


def not_decided(
    decision: Decision | None, batch: int, reports: Iterable[TaskReport | None]
) -> tuple[PreparedTransaction, ...]:
    """Return the prepared transactions that the decision does not name: only these may be aborted."""
    decided = set()
    if decision is not None and decision.batch == batch:
        decided = {entry.prepared for entry in decision.entries if entry is not None}
    prepared = [
        report.prepared for report in reports if report is not None and report.prepared is not None
    ]
    return tuple(one for one in prepared if one not in decided)


def lost(name: str, batch: int, refusals: Mapping[int, str], timeout_ms: float) -> Lost:
    """Return the error for decided transactions that the coordinator refused to commit. `refusals` has Kafka's error of each task."""
    answers = ", ".join(sorted(set(refusals.values())))
    return Lost(
        f"batch {batch} of {name!r}: the transactions of {_tasks(sorted(refusals))} were ended before they could be committed ({answers}). Run "
        "the query again: it writes their rows once more, if the source gives them again. If batches take longer than "
        f"kafka.transaction.timeout.ms={timeout_ms:.15g}, raise transaction.timeout.ms or make them shorter. If spark.speculation is on, set it "
        "to false: a late copy of a task aborts the transaction of the first"
    )


def _entry(report: TaskReport | None) -> Entry | None:
    if report is None or report.prepared is None:
        return None
    return Entry(report.prepared, report.rows, report.bytes, report.checksum)


def _rows(rows: int, size: int, checksum: int) -> str:
    return (
        f"{counted(rows, 'row')} with {counted(size, 'byte')} (checksum {checksum:016x})"
        if rows
        else "no rows"
    )


def _tasks(tasks: Sequence[int]) -> str:
    """Return a text that names tasks, the first few of many."""
    shown = ", ".join(map(str, tasks[:20])) + (
        f" and {len(tasks) - 20} more" if len(tasks) > 20 else ""
    )
    return f"task {shown}" if len(tasks) == 1 else f"tasks {shown}"
