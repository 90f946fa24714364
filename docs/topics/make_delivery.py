"""Writes the tables of errors into `delivery.md` beside it, of `aioproducer/core/produce_errors.py`: `python docs/topics/make_delivery.py`."""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING, Final

from aioproducer.core.produce_errors import Action, Standing, Verdict, judge
from aioproducer.errors import ConnectionLost, broker_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGE = pathlib.Path(__file__).with_name("delivery.md")
BEGIN, END = (
    "<!-- Made by docs/topics/make_delivery.py of aioproducer/core/produce_errors.py: change it there. -->\n",
    "<!-- end -->\n",
)

WORDS: Final = {
    Action.COMPLETE: "counts as acknowledged, without an offset",
    Action.RETRY: "is sent again",
    Action.AWAIT: "is sent again after those",
    Action.RENUMBER: "is sent again, in a new epoch",
    Action.NEW_ID: "is sent again, under a new producer id",
    Action.SPLIT: "is cut, and its parts are sent; one record alone fails",
    Action.EXCLUDE: "is sent again without the records that the broker named, which fail, each with its words; if it named none, all fail",
    Action.FAIL: "fails",
}
CERTAIN, OFFSET_TELLS, UNCERTAIN = (
    "is not in the log",
    "may be in the log if the answer has an offset (its append came first)",
    "may be in the log",
)
MOST: Final = 1_000  # above all of Kafka's error codes
FAILS_AT_ONCE: Final = (Action.FAIL, False, CERTAIN)


def tables() -> str:
    """Both tables."""
    every = (broker_error(code).name for code in range(-1, MOST))
    names = [name for name in every if name != "UNKNOWN_ERROR_CODE"]
    plain = [name for name in names if len(set(_verdicts(name))) == 1]
    grid = [(f"`{name}`", *_of_numbers(name)) for name in names if name not in plain]
    head = (
        "error",
        "idempotence off",
        "on; not in the log",
        "on; may be in the log",
        "on; earlier batches have not ended",
        "in a transaction",
    )
    return "\n".join(
        [
            BEGIN,
            _table(
                (
                    "a produce request ends with",
                    "then its batch",
                    "metadata is fetched",
                    "that attempt",
                ),
                _of_all(plain),
            ),
            "The action after an error about the batch's number (its sequence, epoch or producer id) depends on the batch. Such an answer is certain:\n",
            _table(head, grid),
            END,
        ]
    )


def _of_all(names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Errors that every batch meets alike, those with the same verdict in one row; what fails at once comes last."""
    lost = judge(ConnectionLost(""))
    yield (
        "no answer: the connection was lost, or `request_timeout_ms` is over",
        *_row((lost.action, lost.refresh, UNCERTAIN)),
    )
    rows: dict[tuple[Action, bool, str], list[str]] = {}
    for name in names:
        verdict = judge(broker_error(name), records=2, named=1)
        appended = judge(broker_error(name), records=2, named=1, appended=True)
        fate = UNCERTAIN if verdict.uncertain else OFFSET_TELLS if appended.uncertain else CERTAIN
        rows.setdefault((verdict.action, verdict.refresh, fate), []).append(f"`{name}`")
    last = rows.pop(FAILS_AT_ONCE)
    for row, alike in rows.items():
        yield (", ".join(alike), *_row(row))
    yield (", ".join(last) + ", and codes that are not known", *_row(FAILS_AT_ONCE))


def _row(row: tuple[Action, bool, str]) -> tuple[str, str, str]:
    action, refresh, fate = row
    return (WORDS[action], "yes" if refresh else "", fate)


def _of_numbers(name: str) -> list[str]:
    cells = [WORDS[judge(broker_error(name), stands=stands).action] for stands in Standing]
    numbered = [stands for stands in Standing if stands is not Standing.PLAIN]
    others = {judge(broker_error(name), stands=stands).action for stands in numbered}
    kept = {
        judge(broker_error(name), stands=stands, transactional=True).action for stands in numbered
    }
    return [*cells, "the same" if kept == others else "fails instead of a new epoch or id"]


def _verdicts(name: str) -> list[Verdict]:
    return [
        judge(broker_error(name), stands=stands, transactional=kind)
        for stands in Standing
        for kind in (False, True)
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page(text: str) -> str:
    """The page with the tables as they are now."""
    return re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: tables(), text, count=1, flags=re.DOTALL
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
