"""Tests of `tests.tools.chaos.judge`: copies, killed programs and recreated topics."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.history import End, Fate, Sent, Transaction

from .history import Told
from .judge import Read, judge_copied, judge_sent, since_rebirth


def found(complaints: list[str]) -> dict[str, int]:
    return Counter(text.partition(":")[0] for text in complaints)


def sent(told: Told, *ends: End) -> list[Sent]:
    """Return a history with one more record for each end."""
    first = len(told.history.sent)
    records = [
        Sent(first + n, "t", None, first + n, first + n, 0.0, 1.0, ends=[end])
        for n, end in enumerate(ends)
    ]
    told.history.sent += records
    return records


def told_of_sent() -> Told:
    told = Told()
    sent(
        told, End(2.0, 0, 0), End(2.0, 1, 0), End(2.0, 0, 3), End(2.0, 0, -1, "DeliveryError", "no")
    )
    told.totals = [{"sent": 4, "acked": 3, "failed": 1}]
    return told


READS = {0: [Read(0, 0), Read(3, 2)], 1: [Read(0, 1)]}


def test_nothing_is_wrong_with_what_was_sent() -> None:
    """The judge has no complaint of a correct log. Missing offsets belong to markers."""
    assert found(judge_sent(told_of_sent(), "t", READS)) == {}


@pytest.mark.parametrize(
    ("reads", "complaints"),
    [
        pytest.param({**READS, 1: []}, {"lost": 1}, id="lost"),
        pytest.param({**READS, 1: [Read(1, 1)]}, {"misplaced": 1}, id="misplaced"),
        pytest.param({**READS, 1: [Read(0, 1), Read(1, 1)]}, {"duplicated": 1}, id="duplicated"),
        pytest.param(
            {**READS, 0: [Read(0, 0), Read(1, 2), Read(3, 2)]},
            {"duplicated": 1},
            id="duplicated before its place",
        ),
        pytest.param(
            {**READS, 0: [Read(0, 2), Read(3, 0)]}, {"misplaced": 2, "reordered": 1}, id="reordered"
        ),
        pytest.param(
            {**READS, 1: [*READS[1], Read(1, 3)]},
            {"written though certainly not": 1},
            id="written though certainly not",
        ),
        pytest.param({**READS, 1: [*READS[1], Read(1, 9)]}, {"foreign": 1}, id="foreign"),
    ],
)
def test_what_is_wrong_with_what_was_sent(
    reads: dict[int, list[Read]], complaints: dict[str, int]
) -> None:
    """The judge names each single error, and the errors that follow from it."""
    assert found(judge_sent(told_of_sent(), "t", reads)) == complaints


def test_deliveries_without_an_end() -> None:
    """The judge complains if the program's own counts do not agree."""
    told = told_of_sent()
    told.totals[0]["sent"] = 5
    assert found(judge_sent(told, "t", READS)) == {"never ended": 1}


def told_of_copied() -> Told:
    """Return a history: transaction a was committed, b aborted, and the program was killed before it wrote the end of c."""
    told = Told()
    for number, (name, fate, ends) in enumerate(
        [
            ("a", Fate.COMMITTED, [End(2.0, 0, 1), End(2.0, 0, 2)]),
            ("b", Fate.ABORTED, [End(3.0, 0, 4)]),
            ("c", Fate.UNKNOWN, [End(4.0, 0, 5), End(4.0, 1, -1, "nobody", "maybe")]),
        ]
    ):
        told.bases[name], told.sizes[name] = len(told.history.sent), len(ends)
        told.history.transactions.append(Transaction(number, sent(told, *ends), fate=fate))
    return told


SOURCE = {0: [Read(0, 10), Read(1, 11), Read(2, 12)], 1: [Read(0, 20)]}
COPY = {0: [Read(1, 10, "a/0"), Read(2, 11, "a/1"), Read(5, 12, "c/0")], 1: [Read(0, 20, "c/1")]}


ABORTED = Read(4, 12, "b/0")


def judged(copied: list[Read], everything: list[Read]) -> dict[str, int]:
    return found(
        judge_copied(told_of_copied(), "t", SOURCE, {**COPY, 0: everything}, {**COPY, 0: copied})
    )


def test_a_copy_that_is_right() -> None:
    """The judge accepts aborted records in the log that readers of committed records do not see."""
    assert judged(COPY[0], [*COPY[0][:2], ABORTED, COPY[0][2]]) == {}


@pytest.mark.parametrize(
    ("copied", "hidden", "complaints"),
    [
        pytest.param(
            COPY[0][:2],
            [ABORTED, COPY[0][2]],
            {"lost": 1, "torn": 2},
            id="a part of the one without an end",
        ),
        pytest.param(
            COPY[0][1:],
            [COPY[0][0], ABORTED],
            {"lost": 1, "torn": 1},
            id="a part of what was committed",
        ),
        pytest.param(
            [*COPY[0][:2], ABORTED, COPY[0][2]],
            [],
            {"aborted yet visible": 1, "duplicated": 1},
            id="aborted",
        ),
        pytest.param(
            [*COPY[0], Read(6, 12, "d/0")],
            [ABORTED],
            {"duplicated": 1, "foreign": 1},
            id="copied twice",
        ),
        pytest.param(
            [COPY[0][0], Read(2, 12, "c/0"), Read(5, 11, "a/1")],
            [ABORTED],
            {"misplaced": 2, "reordered": 3},
            id="reordered",
        ),
        pytest.param(
            [*COPY[0], Read(6, 30, "a/1")],
            [ABORTED],
            {"duplicated": 1, "foreign": 1},
            id="not in the source",
        ),
    ],
)
def test_what_is_wrong_with_a_copy(
    copied: list[Read], hidden: list[Read], complaints: dict[str, int]
) -> None:
    """The checker finds wrong attempts. The judge finds torn transactions of killed programs, and differences from the source."""
    assert judged(copied, sorted(copied + hidden)) == complaints


def test_a_topic_made_again() -> None:
    """Where a partition's offsets begin again, earlier acknowledged records may be gone. Those of another partition may not."""
    told = Told()
    sent(told, End(1.0, 0, 0), End(2.0, 0, 1), End(3.0, 1, 7), End(4.0, 0, 0), End(5.0, 0, 1))
    since_rebirth(told.history)
    assert [one.is_acknowledged for one in told.history.sent] == [False, False, True, True, True]
    assert found(judge_sent(told, "t", {0: [Read(0, 3), Read(1, 4)], 1: [Read(7, 2)]})) == {}
    assert found(judge_sent(told, "t", {0: [Read(0, 3)], 1: []})) == {"lost": 2}
