"""Writes the tables of `transactions.md` beside it, of `aioproducer/core/transactions/transaction_errors.py`: `python docs/topics/make_transactions.py`."""

from __future__ import annotations

import pathlib
import re

from aioproducer.core.transactions.transaction_errors import COURSES, REST, Course, Rpc

PAGE = pathlib.Path(__file__).with_name("transactions.md")
BEGIN = "<!-- Made by docs/topics/make_transactions.py of aioproducer/core/transactions/transaction_errors.py: change it there. -->"
END = "<!-- end -->"
WORDS = {
    Course.QUICK: "again, soon",
    Course.RETRY: "again",
    Course.LOOKUP: "look up, again",
    Course.RESET: "no id",
    Course.ABORTABLE: "abortable",
    Course.RENEW: "abortable*",
    Course.FATAL: "fatal",
    Course.UNEXPECTED: "fatal",
}
ORDER = (
    Rpc.FIND_COORDINATOR,
    Rpc.INIT,
    Rpc.ADD_PARTITIONS,
    Rpc.ADD_OFFSETS,
    Rpc.COMMIT_OFFSETS,
    Rpc.COMMIT,
    Rpc.ABORT,
    Rpc.PRODUCE,
)


def table() -> str:
    """The table of errors: one row each, a column for each request."""
    names = dict.fromkeys(name for rpc in ORDER for name in COURSES[rpc])
    rows = [("error", *(rpc.value for rpc in ORDER)), ("---",) * (len(ORDER) + 1)]
    rows += [(f"`{name}`", *(_cell(rpc, name) for rpc in ORDER)) for name in sorted(names)]
    rows.append(("any other", *(WORDS[REST.get(rpc, Course.UNEXPECTED)] for rpc in ORDER)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(rpc: Rpc, name: str) -> str:
    course = COURSES[rpc].get(name)
    return "" if course is None else WORDS[course]


def page() -> str:
    """The whole page, its table made anew."""
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(
        rf"{re.escape(BEGIN)}.*?{re.escape(END)}",
        lambda _: f"{BEGIN}\n\n{table()}\n{END}",
        text,
        flags=re.DOTALL,
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
