"""Tests of the experiments' page, and of Java's rule that one experiment uses instead of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tools.experiments import __main__ as report
from tests.tools.experiments.metadata import JavasRule
from tests.tools.experiments.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def result(draw: Callable[[Path], object]) -> Result:
    rows = [
        {"client": "ours", "rate": 12_345.6, "share": 0.12345, "count": 9_876},
        {"client": "theirs", "rate": 1.0, "share": 0.5, "count": "-"},
    ]
    return Result(rows=rows, text="What it says.", draw=lambda path: draw(path) and None, bars={"a bar": True, "another": False})


def test_a_page_gets_what_was_found_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page gets the result between its marks, and repeated writes keep the other text."""
    monkeypatch.setattr(report, "DOCS", tmp_path)
    page = tmp_path / report.PAGES["metadata"]
    page.write_text("# Metadata\n\n<!-- written by: nox -s experiments -- metadata --page -->\nold\n<!-- end -->\n\nmore\n")
    drawn: list[Path] = []
    for _ in range(2):
        report.write_page("metadata", result(drawn.append))
        lines = page.read_text().splitlines()
        assert (lines[0], lines[-1]) == ("# Metadata", "more")
        assert "old" not in lines
        assert "| ours | 12,346 | 0.123 | 9,876 |" in lines
        assert "| theirs | 1 | 0.5 | - |" in lines
        assert "- a bar: shown" in lines
        assert "- another: **not shown**" in lines
        assert lines.count("What it says.") == 1
    assert drawn == [tmp_path / "metadata.png"] * 2


def test_a_page_without_marks_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without marks stays unchanged, and the error names the missing mark."""
    monkeypatch.setattr(report, "DOCS", tmp_path)
    (tmp_path / report.PAGES["metadata"]).write_text("# Metadata\n")
    with pytest.raises(SystemExit, match="has no line"):
        report.write_page("metadata", result(print))
    assert (tmp_path / report.PAGES["metadata"]).read_text() == "# Metadata\n"


@pytest.mark.parametrize("name", report.PAGES)
def test_each_page_has_its_marks(name: str) -> None:
    """Each experiment's page in docs/topics has its marks."""
    text = (report.DOCS / report.PAGES[name]).read_text(encoding="utf-8")
    assert text.count(f"<!-- written by: nox -s experiments -- {name} --page -->") == 1
    assert "<!-- end -->" in text


def test_javas_rule() -> None:
    """Java's rule requests new topics alone, and all topics when one is old or has changed."""

    def is_needed(_topic: str) -> bool:
        return True

    rule = JavasRule(300.0)
    rule.answered(0.0)
    for number in range(30):
        rule.told(f"t{number}", 0.0 if number < 29 else 200.0)
    rule.want("new")
    new = rule.next_new(299.0)
    assert new is not None
    assert new.topics == ["new"]
    rule.ended(new, is_answered=True)
    assert rule.next_other(299.0, is_needed) is None
    assert rule.due_at() == 300.0
    everything = rule.next_other(300.0, is_needed)
    assert everything is not None
    assert len(everything.topics) == 30
    rule.ended(everything, is_answered=True)
    rule.request_update(["t3"])
    assert rule.due_at() == 0.0
    changed = rule.next_other(1.0, is_needed)
    assert changed is not None
    assert len(changed.topics) == 30
