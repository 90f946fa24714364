"""Tests of the decision tables, exhaustively: each state of the ledger, each mark, each answer, each report and each layout."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from aioproducer.model import PreparedTransaction
from aioproducer.spark.decisions import (
    AnotherDriver,
    CheckpointTooOld,
    HalfCommitted,
    Standing,
    TaskReport,
    TaskState,
    Verdict,
    decided_entry,
    is_committed,
    is_entry_committed,
    judge,
    lost,
    not_decided,
    standing,
    unsettled,
)
from aioproducer.spark.ledger import Decision, Entry, Mark

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 5
NAME = "spark-q"


def prepared(task: int, epoch: int) -> PreparedTransaction:
    return PreparedTransaction(f"{NAME}-{task}", 100 + task, epoch, 2)


def entry(task: int, epoch: int = 1) -> Entry:
    return Entry(prepared(task, epoch), 10 + task, 1000 + task, 7 + task)


def report(state: TaskState, task: int, **changed: int) -> TaskReport:
    """The report of a task that has the rows it always has. A prepared one has a newer epoch than `entry`."""
    if state is TaskState.EMPTY:
        return TaskReport(state, task, name=NAME)
    found = prepared(task, 2) if state is TaskState.PREPARED else None
    rows = {"rows": 10 + task, "bytes": 1000 + task, "checksum": 7 + task, **changed}
    return TaskReport(state, task, name=NAME, prepared=found, **rows)


# A task


@pytest.mark.parametrize("decided", [None, 0, BATCH - 1, BATCH, BATCH + 1, BATCH + 100])
@pytest.mark.parametrize("task", [0, 1, 2])
def test_what_a_task_commits_first(decided: int | None, task: int) -> None:
    """Only what a decision of its own batch names; after a later batch it refuses. Task 1 had no rows, and there was no task 2."""
    decision = None if decided is None else Decision(decided, (entry(0), None))
    if decided is not None and decided > BATCH:
        with pytest.raises(
            CheckpointTooOld,
            match=f"'{NAME}' is at batch {decided}, and Spark runs batch {BATCH}: the checkpoint is older",
        ):
            decided_entry(NAME, decision, BATCH, task)
        return
    expected = entry(0) if decided == BATCH and task == 0 else None
    assert decided_entry(NAME, decision, BATCH, task) == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [(None, False), (0, False), (BATCH - 1, False), (BATCH, True), (BATCH + 1, None)],
)
def test_what_a_mark_means(marked: int | None, expected: bool | None) -> None:
    """A mark of the batch: committed. One of a later batch: the checkpoint is too old, even if the decision names it."""
    mark = None if marked is None else Mark(marked, 1, 1, 1)
    if expected is None:
        with pytest.raises(CheckpointTooOld, match="Go on with the newest checkpoint"):
            is_committed(NAME, mark, BATCH)
    else:
        assert is_committed(NAME, mark, BATCH) is expected


@pytest.mark.parametrize("what", range(4))
def test_a_mark_of_other_rows_is_not_that_of_a_decided_transaction(what: int) -> None:
    """Rows, bytes and checksum, each alone; and the mark of an earlier batch."""
    same = Mark(BATCH, *entry(0)[1:])
    assert is_entry_committed(NAME, same, BATCH, entry(0))
    assert not is_entry_committed(
        NAME, Mark(*(one - (at == what) for at, one in enumerate(same))), BATCH, entry(0)
    )
    assert not is_entry_committed(NAME, None, BATCH, entry(0))


# The driver

STATES = (TaskState.PREPARED, TaskState.SKIPPED, TaskState.EMPTY)


def decisions() -> Iterator[Decision | None]:
    """No decision, and those of an earlier, the same and a later batch, of one to three tasks, each with an entry or without."""
    yield None
    for batch in (BATCH - 1, BATCH, BATCH + 1):
        for tasks in (1, 2, 3):
            for has_entry in itertools.product((True, False), repeat=tasks):
                if any(has_entry):
                    yield Decision(
                        batch,
                        tuple(entry(task) if has else None for task, has in enumerate(has_entry)),
                    )


def layouts() -> Iterator[list[TaskReport]]:
    """One to three tasks in every state."""
    for tasks in (1, 2, 3):
        for states in itertools.product(STATES, repeat=tasks):
            yield [report(state, task) for task, state in enumerate(states)]


def cases() -> Iterator[tuple[Decision | None, list[TaskReport], set[int]]]:
    """Every decision with every layout, and every set of answers that can belong to them."""
    for decision, reports in itertools.product(decisions(), layouts()):
        skipped = {one.task for one in reports if one.state is TaskState.SKIPPED}
        asked = unsettled(decision, BATCH, reports)
        for answers in itertools.product((True, False), repeat=len(asked)):
            yield (
                decision,
                reports,
                skipped | {task for task, is_done in zip(asked, answers, strict=True) if is_done},
            )


def expected(
    decision: Decision | None, reports: list[TaskReport], committed: set[int]
) -> Verdict | type[Exception]:
    """What a driver must do, said again and in other words than `judge` does."""
    if decision is not None and decision.batch > BATCH:
        return AnotherDriver
    tasks = {one.task: one for one in reports}
    fresh = {
        task: Entry(one.prepared, one.rows, one.bytes, one.checksum)
        for task, one in tasks.items()
        if one.prepared
    }
    decided = (
        {task: one for task, one in enumerate(decision.entries) if one}
        if decision is not None and decision.batch == BATCH
        else {}
    )
    done = {task for task in decided if task in committed}
    if not done:
        if any(one.state is TaskState.SKIPPED for one in reports):
            return HalfCommitted
        if not fresh:
            return Verdict(None, (), ())
        return Verdict(
            Decision(BATCH, tuple(fresh.get(task) for task in range(len(reports)))),
            tuple(fresh),
            (),
        )
    if done == decided.keys():
        return Verdict(None, (), tuple(one.prepared for one in fresh.values()))
    assert decision is not None
    same = len(reports) == len(decision.entries)
    for task in range(len(reports) if same else 0):
        if task in decided and task not in done:
            same = same and task in fresh
        elif task in decided:
            same = same and tasks[task].state is not TaskState.EMPTY
        else:
            same = same and tasks[task].state is TaskState.EMPTY
    if not same:
        return HalfCommitted
    missing = [task for task in decided if task not in done]
    entries = tuple(
        fresh[task] if task in missing else decided.get(task) for task in range(len(reports))
    )
    return Verdict(
        Decision(BATCH, entries),
        tuple(missing),
        tuple(fresh[task].prepared for task in fresh if task not in missing),
    )


def test_the_driver_exhaustively() -> None:
    """All decisions x reports x answers. In none is a transaction both committed and aborted, or a committed task written again."""
    seen: dict[str, int] = {}
    for decision, reports, committed in cases():
        want = expected(decision, reports, committed)
        if isinstance(want, type):
            with pytest.raises(want):
                judge(NAME, decision, BATCH, reports, committed)
            kind = want.__name__
        else:
            got = judge(NAME, decision, BATCH, reports, committed)
            assert got == want, (decision, reports, committed)
            kind = str(standing(decision, BATCH, committed))
            named = {one.prepared for one in got.decision.entries if one} if got.decision else set()
            assert not named & set(got.aborts)
        seen[kind] = seen.get(kind, 0) + 1
    assert seen.keys() == {
        "AnotherDriver",
        "HalfCommitted",
        Standing.UNDECIDED,
        Standing.UNDONE,
        Standing.HALF,
        Standing.DONE,
    }
    assert sum(seen.values()) == 1940


HALF = Decision(BATCH, (entry(0), entry(1), None))
CHANGES = [("rows", 9), ("bytes", 1), ("checksum", 1)]


def replay(**changed: int) -> list[TaskReport]:
    """Task 0 stands, task 1 is written again, task 2 has no rows."""
    return [
        report(TaskState.SKIPPED, 0, **changed),
        report(TaskState.PREPARED, 1),
        report(TaskState.EMPTY, 2),
    ]


@pytest.mark.parametrize(("what", "value"), CHANGES)
def test_a_replay_that_differs_is_refused(what: str, value: int) -> None:
    """Each of the three numbers alone. The text has both, and says what to do."""
    with pytest.raises(
        HalfCommitted,
        match=r"task 1 of 3 timed out .*Task 0 had 10 rows with 1000 bytes \(checksum 0+7\), and has .*new checkpoint",
    ):
        judge(NAME, HALF, BATCH, replay(**{what: value}), {0})


def test_another_number_of_tasks_is_refused_with_the_number_to_run() -> None:
    with pytest.raises(
        HalfCommitted,
        match=r"tasks 1, 2 of 3 timed out .*This run has 2 tasks, .*run it with 3 once",
    ):
        judge(NAME, Decision(BATCH, (entry(0), entry(1), entry(2))), BATCH, replay()[:2], {0})


def test_a_task_that_had_no_rows_may_not_have_some() -> None:
    reports = [*replay()[:2], report(TaskState.PREPARED, 2)]
    with pytest.raises(HalfCommitted, match="Task 2 had no rows, and has 12 rows"):
        judge(NAME, HALF, BATCH, reports, {0})


def test_a_lost_task_may_not_be_empty() -> None:
    reports = [replay()[0], report(TaskState.EMPTY, 1), replay()[2]]
    with pytest.raises(HalfCommitted, match=r"Task 1 had 11 rows .*and has none now"):
        judge(NAME, HALF, BATCH, reports, {0})


def test_a_mark_without_its_decision_is_refused() -> None:
    """The decision was forgotten or deleted: what the other tasks did cannot be told."""
    with pytest.raises(
        HalfCommitted,
        match=r"task 0 committed it, and its decision is gone from consumer group 'spark-q-driver'",
    ):
        judge(NAME, None, BATCH, replay(), {0})


def test_the_older_driver_keeps_what_the_newer_committed() -> None:
    """Its tasks prepared before the newer driver decided, with the same rows: what is committed keeps its entry, and theirs is aborted."""
    reports = [
        report(TaskState.PREPARED, 0),
        report(TaskState.PREPARED, 1),
        report(TaskState.EMPTY, 2),
    ]
    assert unsettled(HALF, BATCH, reports) == [0, 1]
    verdict = judge(NAME, HALF, BATCH, reports, {0})
    assert verdict.decision is not None
    assert verdict.decision.entries[0] == entry(0)
    assert (verdict.commits, verdict.aborts) == ((1,), (prepared(0, 2),))


@pytest.mark.parametrize("batch", [BATCH - 1, BATCH, BATCH + 1])
def test_only_what_is_not_decided_is_aborted(batch: int) -> None:
    """Both numbers of a transaction count: an older epoch of the same producer id is another transaction."""
    told = [
        report(TaskState.PREPARED, 0),
        None,
        report(TaskState.SKIPPED, 2),
        report(TaskState.PREPARED, 3),
    ]
    newest = Decision(batch, (entry(0, epoch=2), None, None, entry(3, epoch=1)))
    assert not_decided(newest, BATCH, told) == (
        (prepared(3, 2),) if batch == BATCH else (prepared(0, 2), prepared(3, 2))
    )
    assert not_decided(None, BATCH, told) == (prepared(0, 2), prepared(3, 2))


def test_lost_names_tasks_and_both_causes() -> None:
    text = str(
        lost(
            NAME,
            BATCH,
            dict.fromkeys(range(30), "PRODUCER_FENCED") | {4: "INVALID_TXN_STATE"},
            900_000,
        )
    )
    assert "tasks 0, 1, 2, " in text
    assert "19 and 10 more were ended" in text
    for words in (
        "(INVALID_TXN_STATE, PRODUCER_FENCED)",
        "transaction.timeout.ms=900000",
        "spark.speculation",
        "Run the query again",
    ):
        assert words in text
