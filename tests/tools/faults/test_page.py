"""Tests of the page docs/topics/faults.md: it has these rows, and shows the known failures of ours."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

from tests.tools.chaos.faults import FAULTS

from .coded import Coded, coded_rows
from .elsewhere import ELSEWHERE, Elsewhere
from .page import PAGE, Line, page
from .row import CLIENTS, Row, rows

WANTED = set(range(1, 120))
TESTS = pathlib.Path(__file__).parents[2]
NOXFILE = TESTS.parent / "noxfile.py"


def entries() -> list[Row | Coded | Elsewhere]:
    return [*rows(), *coded_rows(), *ELSEWHERE]


def _known(entry: Row | Coded | Elsewhere) -> str:
    return "" if isinstance(entry, Elsewhere) else entry.known


def test_every_row_is_there() -> None:
    """Each number of the catalogue has a row: as data, as a function, or as the name of the test that shows it."""
    assert {entry.number for entry in entries()} == WANTED


def test_rows_of_a_number_have_one_name() -> None:
    """Rows of one number have one name, and their cases differ."""
    names = [(entry.number, entry.name, entry.case) for entry in entries()]
    assert len({(number, name) for number, name, _ in names}) == len(WANTED)
    assert len(set(names)) == len(names)


def test_what_is_shown_elsewhere_is_there() -> None:
    """The chaos run has a fault of each number that the page names, nox has each session, and each file has its tests."""
    told = {(fault.name, number) for fault in FAULTS for number in fault.rows}
    assert {(fault, entry.number) for entry in ELSEWHERE for fault in entry.faults} <= told
    assert {session for entry in ELSEWHERE for session in entry.sessions} <= functions_of(NOXFILE)
    for file, test in (test.split("::") for entry in ELSEWHERE for test in entry.tests):
        assert test in functions_of(TESTS / file)


def functions_of(path: pathlib.Path) -> set[str]:
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_the_page_names_every_row() -> None:
    """The page has a table line for each row, with its expected results. Ours fails only where the rows say so."""
    lines = {
        (int(number), title, expected): ours
        for number, title, expected, ours in re.findall(
            r"^\| (\d+) \| (.*?) \| (.*?) \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    wanted = {
        (entry.number, f"{entry.name}: {entry.case}" if entry.case else entry.name, entry.expected): _known(entry) for entry in entries()
    }
    assert set(lines) == set(wanted)
    assert {key for key, ours in lines.items() if ours.startswith("no")} == {key for key, known in wanted.items() if known}


def test_a_line_of_each_kind() -> None:
    """A line says survived, not survived, not asked, or shown elsewhere. No text breaks the table or differs from run to run."""
    results = {CLIENTS[0]: [], CLIENTS[1]: ["lost | <X at 0x7f00> at 127.0.0.1:5555\nor [('127.0.0.1', 7, <A>)]", "more"]}
    made = page([Line(7, "a name", "a case", "must hold", results), Line(8, "another", "", "too", {}, "real: there")])
    assert "| 7 | a name: a case | must hold | yes | no: lost / ... at the broker or the broker | - |" in made
    assert "| 8 | another | too | real: there | - | - |" in made
    assert f"{CLIENTS[0]} survives 1 of 1; {CLIENTS[1]} survives 0 of 1; {CLIENTS[2]} survives 0 of 0." in made


def test_a_part_of_the_page_is_made_anew() -> None:
    """The lines of other numbers stay as they are, and are counted; those of the numbers that ran are all replaced."""
    lost: dict[str, list[str]] = {CLIENTS[0]: [], CLIENTS[1]: ["lost"]}
    former = page([Line(1, "one", "", "holds", lost), Line(2, "two", "a", "holds", lost), Line(2, "two", "b", "holds", lost)])
    made = page([Line(2, "two", "c", "holds", {CLIENTS[0]: [], CLIENTS[1]: []}), Line(3, "three", "", "holds", lost)], former)
    rows = re.findall(r"^\| (\d+ \| .*?) \| holds \| (.*) \|$", made, re.MULTILINE)
    assert rows == [("1 | one", "yes | no: lost | -"), ("2 | two: c", "yes | yes | -"), ("3 | three", "yes | no: lost | -")]
    assert f"{CLIENTS[0]} survives 3 of 3; {CLIENTS[1]} survives 1 of 3; {CLIENTS[2]} survives 0 of 0." in made


def test_a_long_reason_is_cut() -> None:
    """The page cuts a long reason at the end of a word, so that no half of a word is left."""
    made = page([Line(7, "a name", "", "must hold", {CLIENTS[0]: ["word " * 30]})])
    assert f"| no: {'word ' * 22}... |" in made


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.file)
def test_file_names_begin_with_their_number(row: Row) -> None:
    """A row's file name begins with the row's number, so that a reader finds it."""
    assert int(row.file.split("-")[0]) == row.number
