"""The page is of these rows; what is known not to hold of ours is what it says."""

from __future__ import annotations

import re

import pytest

from .coded import Coded, coded_rows
from .page import PAGE, Line, page
from .row import CLIENTS, Row, rows

# what the issue asks for; 7 and 33 as far as they hold without idempotence
WANTED = {*range(1, 26), 27, 28, *range(31, 37), 38, 39, 40, 42, *range(44, 52), *range(77, 91)}


def test_every_row_is_there() -> None:
    """As data or as a function."""
    assert {row.number for row in rows()} | {coded.number for coded in coded_rows()} == WANTED


def test_rows_of_a_number_have_one_name() -> None:
    """And differ by their case."""
    entries = [(row.number, row.name, row.case) for row in rows()] + [(coded.number, coded.name, coded.case) for coded in coded_rows()]
    assert len({(number, name) for number, name, _ in entries}) == len(WANTED)
    assert len(set(entries)) == len(entries)


def test_the_page_names_every_row() -> None:
    """Its lines are those of the rows, with what each must hold; ours fails where the rows say so, and nowhere else."""
    lines = {
        (int(number), title, expected): ours
        for number, title, expected, ours in re.findall(
            r"^\| (\d+) \| (.*?) \| (.*?) \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    entries: list[Row | Coded] = [*rows(), *coded_rows()]
    wanted = {(entry.number, f"{entry.name}: {entry.case}" if entry.case else entry.name, entry.expected): entry.known for entry in entries}
    assert set(lines) == set(wanted)
    assert {key for key, ours in lines.items() if ours.startswith("no")} == {key for key, known in wanted.items() if known}


def test_a_line_of_each_kind() -> None:
    """Survived, not survived, not asked; nothing in it breaks the table or differs from run to run."""
    results = {CLIENTS[0]: [], CLIENTS[1]: ["lost | <X at 0x7f00> at 127.0.0.1:5555\nor [('127.0.0.1', 7, <A>)]", "more"]}
    made = page([Line(7, "a name", "a case", "must hold", results)])
    assert "| 7 | a name: a case | must hold | yes | no: lost / ... at the broker or the broker | - |" in made
    assert f"{CLIENTS[0]} survives 1 of 1; {CLIENTS[1]} survives 0 of 1; {CLIENTS[2]} survives 0 of 0." in made


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.file)
def test_file_names_begin_with_their_number(row: Row) -> None:
    """So that a row is found."""
    assert int(row.file.split("-")[0]) == row.number
