"""Runs experiments, and shows what came of them.

    python -m tests.tools.experiments [metadata breaker adaptive ...] [--quick] [--json PATH] [--page]

`--page` writes the table and its words into the experiment's page in docs/topics, between its two marks, and the picture beside it.
Exit status 1 when something that had to be shown was not.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .result import Result

DOCS: Final = Path(__file__).parents[3] / "docs/topics"
PAGES: Final = {"metadata": "metadata.md", "breaker": "breaker.md", "adaptive": "partitioning.md", "drain": "drain.md"}
"""The module of an experiment, and the page that it is shown on."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.experiments", description="The special systems, each on and off.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none is given: {', '.join(PAGES)}")
    parser.add_argument("--quick", action="store_true", help="smaller and shorter: whether it runs, not what it shows")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all rows there")
    parser.add_argument("--page", action="store_true", help="write the tables and pictures into docs/topics")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.names if name not in PAGES]:
        parser.error(f"no experiment is called {', '.join(unknown)}; there are {', '.join(PAGES)}")
    return chosen


def said(value: Any) -> str:
    """Return a value as table text."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = Table(title=name, title_justify="left")
    for number, heading in enumerate(rows[0]):
        shown.add_column(heading, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*map(said, row.values()))
    return shown


def markdown(name: str, result: Result) -> str:
    """Return the table, its text, and the picture as Markdown."""
    heads = list(result.rows[0])
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *([said(value) for value in row.values()] for row in result.rows)]
    shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    bars = "\n".join(f"- {words}: {'shown' if is_met else '**not shown**'}" for words, is_met in result.bars.items())
    return "\n\n".join(filter(None, (shown, result.text, bars, f"![{name}]({name}.png)")))


def write_page(name: str, result: Result) -> None:
    """Write the result between the marks of its page."""
    page = DOCS / PAGES[name]
    begin, end = f"<!-- written by: nox -s experiments -- {name} --page -->", "<!-- end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    if not found:
        raise SystemExit(f"{page} has no line {begin!r} for it")
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{markdown(name, result)}\n\n{end}{after}", encoding="utf-8")
    result.draw(DOCS / f"{name}.png")


def main() -> int:
    chosen, console = arguments(), Console(highlight=False)
    console.width = max(console.width, 150)  # a log has no width of its own
    results: dict[str, Result] = {}
    for name in chosen.names or PAGES:
        results[name] = result = asyncio.run(importlib.import_module(f"tests.tools.experiments.{name}").run(chosen.quick))
        console.print(table(name, result.rows))
        console.print(result.text, markup=False)
        for words, is_met in result.bars.items():
            console.print(f"[{'green' if is_met else 'bold red'}]{'shown' if is_met else 'NOT SHOWN'}[/]: {words}")
        if chosen.page:
            write_page(name, result)
    if chosen.json:
        told = {name: {"rows": [dict(row) for row in one.rows], "bars": dict(one.bars)} for name, one in results.items()}
        chosen.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0 if all(all(one.bars.values()) for one in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
