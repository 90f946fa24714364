"""The checker: each thing that can be wrong with a history, in the smallest history that has it, and its sound twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aioproducer.errors import Persisted
from aioproducer.model import FailedRecord
from aioproducer.records.reader import Record
from aioproducer.testing.record_batches import ControlType, end_marker
from tests.simulation.checker import Logged, Promise, check, read_log
from tests.simulation.history import (
    End,
    Fate,
    HandedOut,
    History,
    Sent,
    Transaction,
    value_of,
)

WHERE = ("t", 0)
STRICT = Promise(
    keeps=True, is_once=True, is_ordered=True, is_ordered_when_acknowledged=True, lifetime=10.0
)
LOOSE = Promise(
    keeps=False, is_once=False, is_ordered=False, is_ordered_when_acknowledged=False, lifetime=10.0
)


def sent(number: int, *ends: End, **fields: Any) -> Sent:
    made = Sent(number, "t", None, number, number, called_at=0.0, queued_at=1.0)
    made.ends.extend(ends)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def ok(offset: int) -> End:
    return End(2.0, 0, offset)


FAILED = End(2.0, 0, -1, "DeliveryError", "no")
MAYBE = End(2.0, 0, -1, "DeliveryError", "maybe")


def log(*numbers: int | None, **flags: bool) -> list[Logged]:
    return [Logged(offset, number, **flags) for offset, number in enumerate(numbers)]


def handed(each: Sent, *, attempts: int = 1, **changed: Any) -> HandedOut:
    """Return what `on_failed` gets of a failed record, but for what is `changed`."""
    end = each.ends[0] if each.ends else MAYBE
    record = FailedRecord(
        "t",
        value_of(each.number, each.size),
        each.key,
        end.partition,
        0,
        (),
        Persisted(end.persisted),
    )
    return HandedOut(record._replace(**changed), attempts)


def judged(
    records: list[Sent], logged: list[Logged], promise: Promise = STRICT, **more: Any
) -> list[str]:
    history = History(lambda: 0.0)
    history.sent = records
    history.transactions = more.get("transactions", [])
    history.handed_out = more.get(
        "handed_out", [handed(each) for each in records if each.ends and each.ends[0].error]
    )
    return check(history, {WHERE: logged, ("t", 1): []}, promise, more.get("committed"))


@pytest.mark.parametrize(
    ("records", "logged", "word"),
    [
        ([sent(0, ok(0))], log(), "lost"),
        ([sent(0, ok(1))], log(0), "misplaced"),
        ([sent(0, ok(0), partition=1)], log(0), "misplaced"),
        ([sent(0, ok(0)), sent(1, ok(1))], log(1, 0), "misplaced"),
        ([sent(0, ok(0))], log(0, 0), "duplicated"),
        ([sent(0, ok(-1)), sent(1, ok(-1))], log(1, 0), "reordered"),
        ([sent(0, MAYBE), sent(1, ok(0))], log(1, 0), "reordered"),
        ([sent(0, FAILED)], log(0), "written though certainly not"),
        ([sent(0, queued_at=None, refused="SendTimeout")], log(0), "written though refused"),
        ([sent(0)], log(0), "never ended"),
        ([sent(0, queued_at=None)], log(), "never ended"),
        ([sent(0, ok(0), ok(0))], log(0), "ended twice"),
        ([sent(0, End(11.5, 0, 0))], log(0), "too late"),
        ([], log(None), "foreign"),
        ([], log(7), "foreign"),
    ],
)
def test_what_is_wrong_is_said(records: list[Sent], logged: list[Logged], word: str) -> None:
    violations = judged(records, logged)
    assert any(violation.startswith(word) for violation in violations)


@pytest.mark.parametrize(
    ("records", "logged"),
    [
        ([sent(0, ok(0)), sent(1, ok(1))], log(0, 1)),
        ([sent(0, MAYBE), sent(1, ok(0))], log(1)),
        ([sent(0, MAYBE), sent(1, ok(1))], log(0, 1)),
        ([sent(0, FAILED), sent(1, ok(0))], log(1)),
        (
            [sent(0, ok(-1))],
            log(0),
        ),  # acknowledged as a duplicate, and the broker has forgotten where it is
        ([sent(0, queued_at=None, refused="CancelledError")], log()),
    ],
)
def test_what_is_sound_is_not_blamed(records: list[Sent], logged: list[Logged]) -> None:
    assert judged(records, logged) == []


def test_only_what_is_promised_is_judged() -> None:
    """A plain producer may write twice and out of order, and lose what one broker alone acknowledged."""
    assert judged([sent(0, ok(0)), sent(1, ok(0)), sent(2, ok(1))], log(2, 1, 1), LOOSE) == []
    acknowledged = replace(LOOSE, is_ordered_when_acknowledged=True)
    assert judged([sent(0, MAYBE), sent(1, ok(0))], log(1, 0, 1), acknowledged) == []
    assert judged([sent(0, ok(1)), sent(1, ok(0))], log(1, 0), acknowledged)[0].startswith(
        "reordered"
    )


def test_records_of_send_many_have_the_places_of_their_call() -> None:
    """Records that were sent meanwhile may be logged before or behind those of the call. Records sent after it may not be logged before
    them.
    """
    many = [sent(0, ok(-1), first=1, last=3), sent(1, ok(-1), first=1, last=3)]
    meanwhile, after = sent(2, ok(-1), first=2, last=2), sent(3, ok(-1), first=4, last=4)
    for order in ((0, 1, 2, 3), (2, 0, 1, 3), (0, 2, 1, 3)):
        assert judged([*many, meanwhile, after], log(*order)) == []
    assert judged([*many, meanwhile, after], log(0, 3, 1, 2))[0].startswith("reordered")


# --- what `on_failed` gets


DROPPED = End(2.0, 0, -1, "DeliveryError", "no", is_dropped=True)
CANCELLED = End(2.0, -1, -1, "cancelled", "maybe")
REFUSED = {"queued_at": None, "refused": "SendTimeout"}


@pytest.mark.parametrize(
    ("record", "logged", "handed_out", "word"),
    [
        (sent(0, FAILED), [], [{}], None),
        (sent(0, FAILED, size=3, key=b"k"), [], [{}], None),
        (sent(0, MAYBE), [0], [{}], None),
        (sent(0, MAYBE), [], [{}], None),
        (sent(0, DROPPED), [], [], None),
        (sent(0, CANCELLED, is_doubtful=True), [0], [], None),
        (sent(0, CANCELLED, is_doubtful=True), [], [{"partition": 1}], None),
        (sent(0, FAILED), [], [], "0 times"),
        (sent(0, FAILED), [], [{}, {}], "2 times"),
        (sent(0, DROPPED), [], [{}], "1 times"),
        (sent(0, ok(0)), [0], [{}], "which was acknowledged"),
        (sent(0, **REFUSED), [], [{}], "which was not queued (SendTimeout)"),
        (sent(0, FAILED, size=3), [], [{"value": b"000000"}], "with the bytes of"),
        (sent(0, FAILED, key=b"k"), [], [{"key": None}], "with the bytes of"),
        (sent(0, FAILED), [], [{"headers": (("a", None),)}], "with the bytes of"),
        (sent(0, FAILED), [], [{"topic": "u"}], "with the bytes of"),
        (sent(0, FAILED), [], [{"partition": 1}], "and its delivery ended with"),
        (sent(0, FAILED), [], [{"persisted": Persisted.MAYBE}], "and its delivery ended with"),
        (
            sent(0, CANCELLED, is_doubtful=True),
            [0],
            [{"persisted": Persisted.NO}],
            "persisted=no, and is in the log",
        ),
        (sent(0, MAYBE), [], [{"attempts": 0}], "was never sent"),
        (sent(0, ok(0)), [0], [{"value": b"none"}], "is no record of this run"),
    ],
)
def test_what_is_handed_out(
    record: Sent, logged: list[int], handed_out: list[dict[str, Any]], word: str | None
) -> None:
    """Each failed record once, with its own bytes and the truth about the log; no acknowledged one, and none that was not queued."""
    violations = judged(
        [record], log(*logged), handed_out=[handed(record, **changed) for changed in handed_out]
    )
    assert [violation.startswith("handed out") for violation in violations] == [True] * len(
        violations
    )
    assert (word is None and not violations) or any(
        str(word) in violation for violation in violations
    )


# --- transactions


def transaction(fate: Fate, *records: Sent, offset: int | None = None) -> Transaction:
    made = Transaction(0, list(records), offset=offset, has_offset=offset is not None)
    made.fate = fate
    return made


UNSEEN = {"is_visible": False}
OPEN = {"is_visible": False, "is_open": True}


@pytest.mark.parametrize(
    ("fate", "logged", "word"),
    [
        (Fate.ABORTED, log(0, 1), "aborted yet visible"),
        (Fate.COMMITTED, log(0, 1, **UNSEEN), "torn"),
        (Fate.COMMITTED, [*log(0), Logged(1, 1, **UNSEEN)], "torn"),
        (Fate.UNKNOWN, [*log(0), Logged(1, 1, **UNSEEN)], "torn"),
        (Fate.UNKNOWN, log(0, 1, **OPEN), "undecided"),
        (Fate.COMMITTED, log(0, 1), None),
        (Fate.ABORTED, log(0, 1, **UNSEEN), None),
        (Fate.UNKNOWN, log(0, 1), None),
        (Fate.UNKNOWN, log(0, 1, **UNSEEN), None),
    ],
)
def test_transactions_are_all_or_nothing(
    fate: Fate, logged: list[Logged], word: str | None
) -> None:
    records = [sent(0, ok(0)), sent(1, ok(1))]
    violations = judged(records, logged, transactions=[transaction(fate, *records)])
    assert [violation.partition(":")[0] for violation in violations] == ([word] if word else [])


@pytest.mark.parametrize(
    ("fate", "committed", "is_sound"),
    [
        (Fate.COMMITTED, 0, True),
        (Fate.COMMITTED, None, False),
        (Fate.ABORTED, None, True),
        (Fate.ABORTED, 0, False),
        (Fate.UNKNOWN, 0, True),
        (Fate.UNKNOWN, None, True),
    ],
)
def test_offsets_share_the_fate_of_their_transaction(
    fate: Fate, committed: int | None, is_sound: bool
) -> None:
    assert (
        judged([], [], transactions=[transaction(fate, offset=0)], committed=committed) == []
    ) is is_sound


# --- logs


def batch(
    number: int,
    *,
    offset: int,
    producer_id: int = -1,
    is_transactional: bool = False,
    marker: ControlType | None = None,
) -> Any:
    """Return a fake batch with the attributes that `read_log` reads."""
    key, value = (None, value_of(number, 0)) if marker is None else end_marker(marker, 0)
    record = Record(offset, 0, key, value, ())

    class Fake:
        is_control = marker is not None

        def records(self) -> list[Record]:
            return [record]

        check = records

    made: Any = Fake()
    made.producer_id, made.is_transactional = producer_id, is_transactional
    return made


def test_visibility_is_read_from_the_markers() -> None:
    """One log has batches of two producers, and one commits, the other aborts. A third producer's transaction stays open."""
    batches = [
        batch(0, offset=0, producer_id=1, is_transactional=True),
        batch(1, offset=1, producer_id=2, is_transactional=True),
        batch(2, offset=2),
        batch(0, offset=3, producer_id=1, marker=ControlType.COMMIT),
        batch(0, offset=4, producer_id=2, marker=ControlType.ABORT),
        batch(3, offset=5, producer_id=3, is_transactional=True),
    ]
    assert [(logged.number, logged.is_visible, logged.is_open) for logged in read_log(batches)] == [
        (0, True, False),
        (1, False, False),
        (2, True, False),
        (3, False, True),
    ]
