"""Tests of `tests.tools.chaos.history`: it reads the programs' lines back, also those of killed programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.simulation.history import End, Fate

from .history import read_copied, read_sent

if TYPE_CHECKING:
    import pathlib


def line(name: str, timestamp: int = 5_000, **facts: object) -> dict[str, object]:
    return {"timestamp": timestamp, "name": name, **facts}


def success(value: int, partition: int, offset: int, **facts: object) -> dict[str, object]:
    place = {"topic": "t", "partition": partition, "offset": offset}
    return line("producer_send_success", key=None, value=str(value), queued=4_000, **place, **facts)


def error(value: int, **facts: object) -> dict[str, object]:
    why = {
        "exception": "DeliveryError",
        "message": "it expired",
        "persisted": "maybe",
        "cause": "None",
        "history": "queued",
    }
    return line(
        "producer_send_error",
        key=None,
        value=str(value),
        queued=4_000,
        topic="t",
        partition=1,
        **why,
        **facts,
    )


def written(path: pathlib.Path, lines: list[dict[str, object]]) -> list[pathlib.Path]:
    """Write lines with a torn line at both ends, as killed programs leave them; half of the lines are in another file."""
    half = len(lines) // 2
    return [
        _written(path.with_suffix(f".{number}"), some)
        for number, some in enumerate((lines[:half], lines[half:]))
    ]


def _written(path: pathlib.Path, lines: list[dict[str, object]]) -> pathlib.Path:
    path.write_text(
        '{"timestamp": 1, "na\n\n' + "\n".join(map(json.dumps, lines)) + '\n{"times',
        encoding="utf-8",
    )
    return path


def test_what_was_sent(tmp_path: pathlib.Path) -> None:
    """The history has records by number, in any order of their ends. A record without a line has no end."""
    refused = line(
        "producer_send_refused",
        topic="t",
        value="3",
        exception="MetadataTimeout",
        message="not known",
    )
    lines = [
        line("startup_complete"),
        success(1, 2, 9),
        error(0),
        refused,
        success(4, 0, 7),
        line("tool_data", sent=5, acked=2, failed=2),
    ]
    told = read_sent(written(tmp_path / "lines", lines), "t")
    sent = told.history.sent
    assert [one.ends for one in sent] == [
        [End(5.0, 1, -1, "DeliveryError", "maybe")],
        [End(5.0, 2, 9)],
        [],
        [],
        [End(5.0, 0, 7)],
    ]
    assert [one.queued_at for one in sent] == [4.0, 4.0, None, None, 4.0]
    assert [one.refused for one in sent] == ["", "", "", "MetadataTimeout", ""]
    assert len(told.failures) == 2
    assert told.totals[0]["sent"] == 5


def test_what_was_copied(tmp_path: pathlib.Path) -> None:
    """Attempts have numbers in the order of transactions. In a transaction without an end, records without a line are doubtful."""
    lines = [
        line("transaction_begun", transaction="a", records=2),
        success(7, 0, 0, transaction="a", attempt=0),
        success(8, 0, 1, transaction="a", attempt=1),
        line("transaction_ended", transaction="a", outcome="committed", queued=2),
        line("transaction_begun", transaction="b", records=2),
        error(9, transaction="b", attempt=0),
        line("transaction_ended", transaction="b", outcome="aborted", queued=1),
        line("transaction_begun", transaction="c", records=2),
        success(9, 0, 5, transaction="c", attempt=0),
    ]
    told = read_copied(written(tmp_path / "lines", lines), "t")
    assert [one.fate for one in told.history.transactions] == [
        Fate.COMMITTED,
        Fate.ABORTED,
        Fate.UNKNOWN,
    ]
    assert (told.bases, told.sizes) == ({"a": 0, "b": 2, "c": 4}, {"a": 2, "b": 2, "c": 2})
    assert [one.is_acknowledged for one in told.history.sent] == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]
    assert [bool(one.refused) for one in told.history.sent] == [
        False,
        False,
        False,
        True,
        False,
        True,
    ]
    assert [one.is_doubtful for one in told.history.sent] == [
        False,
        False,
        False,
        False,
        False,
        True,
    ]
