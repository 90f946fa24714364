"""Makes docs/topics/faults.md from the rows and their results."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
from typing import TYPE_CHECKING, NamedTuple

from .row import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PAGE", "Line", "page"]

PAGE = pathlib.Path(__file__).parents[3] / "docs/topics/faults.md"
_LONGEST = 110  # characters of a reason
_SURVIVES = "yes"
_NOT_ASKED = "-"
_HEAD = """# Faults and clients

Each row is one thing that can go wrong between a producer and Kafka. A program scripts it on a fake cluster
(`aioproducer.testing.FakeCluster`) and lets a producer send. **yes**: everything that must hold held. **no**: these rules did not hold.
**-**: the client did not play the row, because the row is about code, options or internals that only aioproducer has. **real**, **suites**,
**tests**: the row is about real nodes, about all tests at once, or about internals that other tests show. The named tests show it, for
aioproducer alone, and the counts below leave it out.

These rules must hold in every row, beside its own line:

- Each delivery ends, and ends once. An acknowledged record is in the log at its offset.
- Unless the row says otherwise, no record is in the log twice, and the log has the records in the order in which they were sent.
- Each call of a transaction succeeds unless the row says that it fails. A reader of committed records sees all acknowledged records of a
  committed transaction, and none of another transaction.
- For aioproducer alone: a delivery ends within `delivery_timeout_ms` and a second. A record that failed with `persisted=no` is not in the
  log. Errors have the kind and the words of the row. No task, byte of memory or connection is left. The brokers could read every request.

All three clients run with idempotence (`enable_idempotence=True`, in confluent-kafka's words `enable.idempotence`) and acks=all, except in
rows that say *without idempotence*. Other options have their defaults, so aioproducer has five batches of a partition in flight. Rows 64 to
76, and those that say so, have a `transactional_id`; *version 1* and *2* are the cluster's `transaction.version`. The two other clients, in
the versions named here, speak the first version of that protocol to either cluster. The rows use aioproducer's names of options, and each
client gets those that it has. aiokafka has one time-out for a request and a record: it gets the longer one, and its calls of transactions
are cancelled after `max_block_ms`.

aioproducer runs in virtual time on memory streams, as in `tests/tools/faults/test_rows.py` and `tests/tools/faults/test_coded.py`. The other
clients run in real time, on sockets, in processes of their own. They get two seconds more where a row limits a time, and 20 seconds where
it does not. Numbers are those of the project's list of faults.

Rows 92 to 119 are about TLS and SASL. The cluster's listeners have what the row says, and are right otherwise. Each client gets the
authority, and logs in as alice by SCRAM-SHA-256 unless the row says otherwise. aiokafka takes an `ssl.SSLContext`; it has no
re-authentication (KIP-368), so brokers cut its connections when a session ends. confluent-kafka has no start of its own: a request for the
cluster's metadata takes its place, and ends after `max_block_ms`. The time and the text of a failed start are judged for aioproducer alone,
the number of connections for all clients. No error of any client may show a secret, and no client that asks for TLS may log in without it.

This page is written by `python -m tests.tools.faults`; do not edit it.
"""


class Line(NamedTuple):
    """Holds one line of the table.

    Attributes:
        results: by client, the rules that did not hold; a client that is missing did not play the row.
        shown: where ours is shown, if not by this run.
    """

    number: int
    name: str
    case: str
    expected: str
    results: Mapping[str, Sequence[str]]
    shown: str = ""

    @property
    def title(self) -> str:
        """Return the title as the page shows it."""
        return f"{self.name}: {self.case}" if self.case else self.name


def page(lines: Sequence[Line], kept: str = "") -> str:
    """Return the whole page.

    Args:
        lines: the results of a run.
        kept: a former page, from which the lines of all other numbers are taken as they stand.
    """
    numbers = {line.number for line in lines}
    rows = [(number, row) for number, row in _rows_of(kept) if number not in numbers]
    rows = sorted([*rows, *((line.number, _row(line)) for line in lines)], key=lambda row: row[0])
    heads = [_head(client) for client in CLIENTS]
    table = [f"| # | fault | must hold | {' | '.join(heads)} |", f"|---|---|---|{'---|' * len(CLIENTS)}", *(row for _, row in rows)]
    totals = [_total([_cells(row)[place] for _, row in rows], client) for place, client in enumerate(CLIENTS)]
    return "\n".join([_HEAD, *table, "", "In all: " + "; ".join(totals) + ".", ""])


def _rows_of(text: str) -> list[tuple[int, str]]:
    return [(int(row.split("|")[1]), row) for row in text.splitlines() if re.match(r"\| \d+ \|", row)]


def _row(line: Line) -> str:
    cells = [_cell(line.results.get(client)) for client in CLIENTS]
    cells[0] = line.shown or cells[0]
    return f"| {line.number} | {_plain(line.title)} | {_plain(line.expected)} | {' | '.join(cells)} |"


def _cells(row: str) -> list[str]:
    """Return the cells of the clients; no text within a cell has a |."""
    return [cell.strip() for cell in row.strip("|").split("|")][-len(CLIENTS) :]


def _head(client: str) -> str:
    return client if client == "aioproducer" else f"{client} {importlib.metadata.version(client)}"


def _cell(complaints: Sequence[str] | None) -> str:
    if complaints is None:
        return _NOT_ASKED
    return f"no: {_cut(_plain(complaints[0]))}" if complaints else _SURVIVES


def _cut(text: str) -> str:
    """Return the text, cut at the end of a word if it is too long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(' ')[0]} ..."


def _total(cells: Sequence[str], client: str) -> str:
    survived = cells.count(_SURVIVES)
    return f"{client} survives {survived} of {survived + sum(cell.startswith('no:') for cell in cells)}"


def _plain(text: str) -> str:
    """Return the text without the parts that differ from run to run or would break the table."""
    text = re.sub(r"<[^<>]*( at 0x\w+)[^<>]*>", "...", text)
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", "the broker", text)
    text = re.sub(r"\[\('127\.0\.0\.1', \d+[^\]]*\]", "the broker", text)
    return " ".join(text.replace("|", "/").split())
