"""Tests of the ledger's names and texts: what is written is read back whole, and nothing else is taken for it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.model import Position, PreparedTransaction
from aioproducer.spark.ledger import (
    MAX_METADATA_BYTES,
    Decision,
    Entry,
    LedgerError,
    Mark,
    QueryName,
    TornDecision,
    decode_decision,
    decode_mark,
    decode_parts,
    encode_decision,
    encode_mark,
)

NAME = QueryName("spark-q")


def entry(
    task: int,
    *,
    producer_id: int = 7,
    epoch: int = 3,
    version: int = 2,
    rows: int = 10,
    size: int = 1000,
    checksum: int = 5,
) -> Entry:
    return Entry(
        PreparedTransaction(NAME.transactional_id(task), producer_id, epoch, version),
        rows,
        size,
        checksum,
    )


def many(tasks: int, *, batch: int = 4, epoch: int = 3) -> Decision:
    """A decision with numbers as large as a long life makes them."""
    return Decision(
        batch,
        tuple(
            entry(
                task, producer_id=2**40 + task, epoch=epoch, size=2**32, checksum=2**64 - 1 - task
            )
            for task in range(tasks)
        ),
    )


number = st.integers(0, 2**63 - 1)
entries = st.none() | st.builds(
    lambda producer_id, epoch, version, rows, size, checksum: (producer_id, epoch, version, rows, size, checksum),
    number, st.integers(0, 2**15 - 1), st.sampled_from([1, 2]), number, number, st.integers(0, 2**64 - 1),
)  # fmt: skip
decisions = st.builds(
    lambda batch, found: Decision(
        batch,
        tuple(
            one
            and entry(
                task,
                producer_id=one[0],
                epoch=one[1],
                version=one[2],
                rows=one[3],
                size=one[4],
                checksum=one[5],
            )
            for task, one in enumerate(found)
        ),
    ),
    st.integers(0, 2**62),
    st.lists(entries, min_size=1, max_size=300),
)


@settings(max_examples=150, deadline=None)
@given(decision=decisions)
def test_a_decision_is_read_back(decision: Decision) -> None:
    """Any numbers, any tasks: equal, in texts that a broker takes."""
    positions = encode_decision(decision)
    assert decode_parts("group", positions[0]) == len(positions)
    assert decode_decision(NAME, positions) == decision
    assert all(len(position.cursor.encode()) <= MAX_METADATA_BYTES for position in positions)
    assert {position.number for position in positions} == {decision.batch + 1}


@pytest.mark.parametrize(("tasks", "groups"), [(1, 1), (90, 1), (140, 2), (10_000, 100)])
def test_a_decision_of_many_tasks_is_a_chain(tasks: int, groups: int) -> None:
    positions = encode_decision(many(tasks))
    assert len(positions) <= groups
    assert decode_decision(NAME, positions) == many(tasks)


def test_a_usual_entry_is_small() -> None:
    """140 tasks of usual numbers need one group: this is what most batches write."""
    usual = Decision(
        9,
        tuple(
            entry(
                task, producer_id=20_000 + task, rows=10_000, size=1_000_000, checksum=2**63 + task
            )
            for task in range(140)
        ),
    )
    assert len(encode_decision(usual)) == 1


@settings(max_examples=50, deadline=None)
@given(rows=number, size=number, checksum=st.integers(0, 2**64 - 1), batch=st.integers(0, 2**62))
def test_a_mark_is_read_back(rows: int, size: int, checksum: int, batch: int) -> None:
    mark = Mark(batch, rows, size, checksum)
    assert encode_mark(mark).number == batch + 1
    assert decode_mark("group", encode_mark(mark)) == mark


def test_a_chain_that_is_cut_is_torn() -> None:
    """Each way to have less than all of it, and parts that stand in another's place."""
    whole = encode_decision(many(300))
    assert len(whole) == 3
    for cut in (
        whole[:1],
        whole[:2],
        [*whole[:2], None],
        [whole[0], None, whole[2]],
        [None, *whole[1:]],
        [whole[0], whole[2], whole[1]],
    ):
        with pytest.raises(TornDecision):
            decode_decision(NAME, cut)


@pytest.mark.parametrize(
    "other", [many(300, batch=3), many(300, epoch=4), many(200)], ids=["batch", "epochs", "length"]
)
def test_parts_of_two_decisions_are_torn(other: Decision) -> None:
    """Also of two decisions of one batch with as many groups: a driver decides anew what timed out."""
    first, second = encode_decision(many(300)), encode_decision(other)
    for chosen in itertools.product((0, 1), repeat=3):
        if 0 < sum(chosen) < 3:
            with pytest.raises(TornDecision):
                decode_decision(
                    NAME,
                    [
                        (second[at] if at < len(second) else None) if new else first[at]
                        for at, new in enumerate(chosen)
                    ],
                )


FOREIGN = [
    Position(5, ""),
    Position(5, "d1 "),
    Position(5, "d1 \x7f\x7f"),
    Position(5, "d1 é"),
    Position(5, "d1 ~~~~~~~~~~"),
    Position(5, "d2 00000"),
    Position(0, encode_decision(many(1))[0].cursor),
    encode_mark(Mark(4, 1, 2, 3)),
    Position(5, '{"page": 7}'),
]


@pytest.mark.parametrize("position", FOREIGN)
def test_what_is_no_decision_is_refused(position: Position) -> None:
    """The error names the group, the text and what to do."""
    with pytest.raises(
        LedgerError,
        match=r"consumer group 'g' has offset .*which is no decision of a batch.*transactionalIdPrefix",
    ):
        decode_parts("g", position)
    with pytest.raises(LedgerError, match="'spark-q-driver'"):
        decode_decision(NAME, [position])


@pytest.mark.parametrize(
    "position",
    [
        Position(5),
        Position(5, "m1 1 2"),
        Position(5, "m1 1 2 x"),
        Position(5, "m2 1 2 3"),
        Position(0, "m1 1 2 3"),
        encode_decision(many(1))[0],
    ],
)
def test_what_is_no_mark_is_refused(position: Position) -> None:
    """A decision of another write must not look like a committed task."""
    with pytest.raises(
        LedgerError, match=r"consumer group 'g' has offset .*which is no mark of a task"
    ):
        decode_mark("g", position)


def test_a_long_foreign_text_is_shortened() -> None:
    with pytest.raises(LedgerError) as raised:
        decode_mark("g", Position(1, "x" * 4000))
    assert len(str(raised.value)) < 400


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_text_is_refused(data: st.DataObject) -> None:
    """One character changed: an error of the ledger, never another decision."""
    decision = many(3)
    (position,) = encode_decision(decision)
    at = data.draw(st.integers(0, len(position.cursor) - 1))
    text = (
        position.cursor[:at]
        + data.draw(st.characters(min_codepoint=33, max_codepoint=126))
        + position.cursor[at + 1 :]
    )
    try:
        assert decode_decision(NAME, [Position(position.number, text)]) == decision
    except LedgerError:
        assert text != position.cursor


def test_a_decision_of_a_newer_release_is_refused() -> None:
    """More bytes than this release reads, with a right checksum."""
    import base64
    import zlib

    from aioproducer.spark.ledger import _varint

    for packed in (
        b"\x01\x00\x00",
        b"\x02\x00",
        b"\x01\x02\x07",
        b"\xff" * 12,
        b"\x01" + b"\xff" * 12,
    ):
        text = base64.b85encode(
            _varint(0) + _varint(1) + zlib.crc32(packed).to_bytes(4) + packed
        ).decode()
        with pytest.raises(LedgerError, match="of a version that this release does not know"):
            decode_decision(NAME, [Position(5, "d1 " + text)])


def test_no_two_names_share_an_id_or_a_group() -> None:
    """Names that continue one another, as `orders` and `orders-1` do: what one writes is never what the other reads."""
    names = ["q", "q-1", "q-1-1", "q-driver", "q-driver-1", "q-driver.1", "q-1-driver"]
    owners: dict[str, tuple[str, str]] = {}
    for text in names:
        name = QueryName(text)
        made = {("mark", name.mark_group(task)) for task in range(3)}
        made |= {("decision", name.decision_group(part)) for part in range(3)}
        for kind, group in made:
            assert owners.setdefault(group, (text, kind)) == (text, kind)
    ids = [name.transactional_id(task) for name in map(QueryName, names) for task in range(3)] + [
        QueryName(text).driver_id() for text in names
    ]
    assert len(set(ids)) == len(ids)
    assert NAME.decision_group() == NAME.driver_id() == "spark-q-driver"
