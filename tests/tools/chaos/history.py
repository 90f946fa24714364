"""Reads the lines of the programs under chaos into a history that the simulation's checker judges.

A record of the program that sends has its value as its number. A copied record has a number for each attempt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests.simulation.history import End, Fate, History, Sent, Transaction

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable, Iterator

__all__ = ["Told", "read_copied", "read_sent"]

Line: TypeAlias = "dict[str, Any]"
_FATES: Final = {"committed": Fate.COMMITTED, "aborted": Fate.ABORTED}


@dataclass
class Told:
    """Holds a history, and the other facts from the lines.

    Attributes:
        bases: the number of each transaction's first record, by the transaction's name.
        sizes: the intended number of records of each transaction.
        failures: the lines about records that failed.
        totals: the counts of each `tool_data`; a program that was killed has none.
    """

    history: History = field(default_factory=lambda: History(lambda: 0.0, has_on_failed=False))
    bases: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    totals: list[Line] = field(default_factory=list)


def read_sent(files: Iterable[pathlib.Path], topic: str) -> Told:
    """Read the lines of a program that sends values which are the numbers of their calls."""
    told = Told()
    for line in _lines(files):
        if line["name"] == "tool_data":
            told.totals.append(line)
        elif line["name"].startswith("producer_send_"):
            number = int(line["value"])
            _add(told.history, topic, number + 1)
            _end(told, told.history.sent[number], line)
    return told


def read_copied(files: Iterable[pathlib.Path], topic: str) -> Told:
    """Read the lines of a program that copies. A record is doubtful if the program was killed before it wrote the record's end."""
    told = Told()
    transactions: dict[str, Transaction] = {}
    for line in _lines(files):
        name = line.get("transaction", "")
        match line["name"]:
            case "tool_data":
                told.totals.append(line)
            case "transaction_begun":
                transactions[name] = _begun(told, topic, name, line["records"])
            case "transaction_ended":
                transactions[name].fate = _FATES[line["outcome"]]
                for one in transactions[name].records[line["queued"] :]:
                    one.refused = "it was aborted before"
            case "producer_send_success" | "producer_send_error":
                _end(told, transactions[name].records[line["attempt"]], line)
    for transaction in transactions.values():
        if transaction.fate is Fate.OPEN:
            _forget(transaction)
    return told


def _begun(told: Told, topic: str, name: str, records: int) -> Transaction:
    first = len(told.history.sent)
    transaction = Transaction(len(told.history.transactions))
    told.history.transactions.append(transaction)
    told.bases[name], told.sizes[name] = first, records
    _add(told.history, topic, first + records)
    transaction.records = told.history.sent[first:]
    for one in transaction.records:
        one.transaction = transaction
    return transaction


def _add(history: History, topic: str, count: int) -> None:
    """Extend the history to `count` records."""
    history.sent.extend(
        Sent(number, topic, None, number, number, 0.0) for number in range(len(history.sent), count)
    )


def _end(told: Told, sent: Sent, line: Line) -> None:
    at = line["timestamp"] / 1000
    if line["name"] == "producer_send_refused":
        sent.refused = line["exception"]
        told.failures.append(f"{sent}: not queued: {line['exception']}: {line['message']}")
        return
    sent.queued_at = line["queued"] / 1000
    if line["name"] == "producer_send_success":
        sent.ends.append(End(at, line["partition"], line["offset"]))
    else:
        sent.ends.append(End(at, line["partition"], -1, line["exception"], line["persisted"]))
        told.failures.append(f"{sent}: {line['message']}\n{line['cause']}\n{line['history']}")


def _forget(transaction: Transaction) -> None:
    """Mark records without a line as unknown: their program was killed, or replaced its producer."""
    transaction.fate = Fate.UNKNOWN
    for one in transaction.records:
        if not one.ends:
            one.refused, one.is_doubtful = "nobody was left to tell", True


def _lines(files: Iterable[pathlib.Path]) -> Iterator[Line]:
    """Yield the complete lines."""
    for path in files:
        with path.open(encoding="utf-8") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                if isinstance(line, dict) and "name" in line:
                    yield line
