"""Tests that the package's public names, parameters, types and defaults are those of tests/public_surface.txt, which griffe wrote."""

from __future__ import annotations

import pathlib
import re

import pytest

import aioproducer
from tests.tools.public_surface import MODULES, ROOT, lines, loaded

WRITTEN = pathlib.Path(__file__).with_name("public_surface.txt")
SOURCE = """
from typing import NamedTuple
__all__ = ["Kind", "Point", "call"]
class Base:
    def inherited(self, one: int) -> None: ...
    def _private(self) -> None: ...
class Kind(Base):
    limit: int = 3
    async def send(self, value: bytes, *, key: bytes | None = None) -> str: ...
class Point(NamedTuple):
    y: int
    x: int = 0
def call(n: int = 1) -> None: ...
def unnamed() -> None: ...
"""


def test_the_public_surface_is_what_is_written() -> None:
    """A difference is a change for users: `python -m tests.tools.public_surface > tests/public_surface.txt`, and a line in the changelog."""
    # installed, it is not in the tree
    package = pathlib.Path(aioproducer.__file__).parents[1]
    assert list(lines(loaded(package))) == WRITTEN.read_text(encoding="utf-8").splitlines()


def test_the_page_of_versions_names_the_public_modules() -> None:
    """docs/topics/versioning.md promises what is written down, and nothing else."""
    page = (ROOT / "docs/topics/versioning.md").read_text(encoding="utf-8")
    promised = page.partition("**Names**")[2].partition("; of each")[0]
    assert tuple(re.findall(r"`(aioproducer[\w.]*)`", promised)) == MODULES


def surface(folder: pathlib.Path, source: str) -> list[str]:
    """Return the surface of a package of this source."""
    (folder / "aioproducer").mkdir(parents=True)
    (folder / "aioproducer/__init__.py").write_text(source)
    return list(lines(loaded(folder), ["aioproducer"]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("one: int", "one: str"),
        ("limit: int = 3", "limit: int = 4"),
        ("async def send", "def send"),
        ("value: bytes, *", "*"),
        ("*, key", "key"),
        ("= None) -> str", ") -> str"),
        ("-> str", "-> bytes"),
        ("y: int\n    x: int = 0", "x: int = 0\n    y: int = 0"),
        ("n: int = 1", "n: int = 2"),
        ("Kind(Base)", "Kind"),
        ('"Point", ', ""),
    ],
)
def test_a_change_for_users_is_seen(tmp_path: pathlib.Path, before: str, after: str) -> None:
    """Of arguments, types, defaults, order, bases and names."""
    assert before in SOURCE
    assert surface(tmp_path / "before", SOURCE) != surface(tmp_path / "after", SOURCE.replace(before, after))


@pytest.mark.parametrize(("before", "after"), [("_private", "_other"), ("unnamed()", "unnamed(n: int)"), ("value: bytes", "value:  bytes")])
def test_what_is_not_public_is_not_seen(tmp_path: pathlib.Path, before: str, after: str) -> None:
    """Private members, names outside of `__all__`, and how the source is written."""
    assert before in SOURCE
    assert surface(tmp_path / "before", SOURCE) == surface(tmp_path / "after", SOURCE.replace(before, after))
