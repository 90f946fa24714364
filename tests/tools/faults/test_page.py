"""The page is of these rows; what is known not to hold of ours is what it says."""

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

WANTED = set(range(1, 92))  # those of security are not among them
NOXFILE = pathlib.Path(__file__).parents[3] / "noxfile.py"


def entries() -> list[Row | Coded | Elsewhere]:
    return [*rows(), *coded_rows(), *ELSEWHERE]


def _known(entry: Row | Coded | Elsewhere) -> str:
    return "" if isinstance(entry, Elsewhere) else entry.known


def test_every_row_is_there() -> None:
    """As data, as a function, or by naming what shows it."""
    assert {entry.number for entry in entries()} == WANTED


def test_rows_of_a_number_have_one_name() -> None:
    """And differ by their case."""
    names = [(entry.number, entry.name, entry.case) for entry in entries()]
    assert len({(number, name) for number, name, _ in names}) == len(WANTED)
    assert len(set(names)) == len(names)


def test_what_is_shown_elsewhere_is_there() -> None:
    """Faults of that number that the chaos run knows, and sessions that nox knows."""
    told = {(fault.name, number) for fault in FAULTS for number in fault.rows}
    assert {(fault, entry.number) for entry in ELSEWHERE for fault in entry.faults} <= told
    functions = {node.name for node in ast.parse(NOXFILE.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}
    assert {session for entry in ELSEWHERE for session in entry.sessions} <= functions


def test_the_page_names_every_row() -> None:
    """Its lines are those of the rows, with what each must hold; ours fails where the rows say so, and nowhere else."""
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
    """Survived, not survived, not asked, shown elsewhere; nothing in it breaks the table or differs from run to run."""
    results = {CLIENTS[0]: [], CLIENTS[1]: ["lost | <X at 0x7f00> at 127.0.0.1:5555\nor [('127.0.0.1', 7, <A>)]", "more"]}
    made = page([Line(7, "a name", "a case", "must hold", results), Line(8, "another", "", "too", {}, "real: there")])
    assert "| 7 | a name: a case | must hold | yes | no: lost / ... at the broker or the broker | - |" in made
    assert "| 8 | another | too | real: there | - | - |" in made
    assert f"{CLIENTS[0]} survives 1 of 1; {CLIENTS[1]} survives 0 of 1; {CLIENTS[2]} survives 0 of 0." in made


def test_a_long_reason_is_cut() -> None:
    """At the end of a word, so that no half of one is left."""
    made = page([Line(7, "a name", "", "must hold", {CLIENTS[0]: ["word " * 30]})])
    assert f"| no: {'word ' * 22}... |" in made


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.file)
def test_file_names_begin_with_their_number(row: Row) -> None:
    """So that a row is found."""
    assert int(row.file.split("-")[0]) == row.number
