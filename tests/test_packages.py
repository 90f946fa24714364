"""Tests of docs/topics/packages.md and NOTICE: where each package of the card is used, and its licence."""

from __future__ import annotations

import ast
import pathlib
import re
import tomllib
from importlib import metadata

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "aioproducer"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "docs/topics/packages.md").read_text(encoding="utf-8")
CARD = ("anyio", "crc32c", "lz4", "zstandard", "uvloop", "pytest-asyncio")
# A row of the first table: the name, the files, the licence.
ROWS = {
    row[1]: (set(re.findall(r"`((?:\w+/)+\w+\.py)`", row[2])), row[3])
    for row in re.finditer(r"^\| \[(.+?)\].*?\|.*?\|(.*?)\|.*\| (.+) \|$", PAGE, re.MULTILINE)
}


def imported_by(path: pathlib.Path) -> set[str]:
    """Return the packages that a module imports, anywhere in it; at least those of the card."""
    text = path.read_text(encoding="utf-8")
    names: set[str] = set()
    if not any(name.replace("-", "_") in text for name in CARD):  # most modules, which need not be parsed
        return names
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_the_page_names_the_files_that_import_each_package() -> None:
    """All of them, and no file that does not. uvloop is imported nowhere."""
    users: dict[str, set[str]] = {name: set() for name in CARD}
    for path in PACKAGE.rglob("*.py"):
        imported = imported_by(path)
        for name in CARD:
            if name.replace("-", "_") in imported:
                users[name].add(path.relative_to(PACKAGE).as_posix())
    assert {name: files for name, (files, _) in ROWS.items()} == users


@pytest.mark.parametrize("name", CARD)
def test_the_licences_are_those_of_the_packages(name: str) -> None:
    """As the installed package states it; NOTICE has the same words."""
    licence = ROWS[name][1]
    stated = metadata.metadata(name)
    said = " ".join(
        [stated.get("License-Expression") or "", *stated.get_all("Classifier", []), (stated.get("License") or "").split("\n")[0]]
    )
    # A classifier has the name of the licence in full.
    said = said.replace("Apache Software License", "Apache-2.0")
    assert [word for word in licence.split(" or ") if word not in said] == []
    assert f"{name} ({licence})" in (ROOT / "NOTICE").read_text(encoding="utf-8")


def test_the_page_says_what_is_installed() -> None:
    """The required packages are `always` installed; each extra that users install has its packages in the second table."""
    required = {re.split(r"[>=]", line)[0] for line in PROJECT["dependencies"]}
    assert {name for name in CARD if re.search(rf"^\| \[{name}\]\S+ \| always \|", PAGE, re.MULTILINE)} == required
    extras = PROJECT["optional-dependencies"]
    told = dict(re.findall(r"^\| `(\w+)` \| ([\w, -]+) \|", PAGE, re.MULTILINE))
    of_users = extras.keys() - {"uvloop", "demo", "peers", "unit", "test", "lint"}
    assert told == {name: ", ".join(re.split(r"[>=]", line)[0] for line in extras[name]) for name in of_users}
