"""Runs the experiments, and shows what came of them.

    python -m tests.tools.experiments [metadata] [breaker] [--quick]

Exit status 1 when something that had to be shown was not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from . import breaker, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXPERIMENTS = {"metadata": metadata.run, "breaker": breaker.run}


def said(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if type(value) is int else str(value)


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = Table(title=name, title_justify="left")
    for number, heading in enumerate(rows[0]):
        shown.add_column(heading, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*map(said, row.values()))
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.experiments", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"all if none is given: {', '.join(EXPERIMENTS)}"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smaller and shorter: whether it runs, not what it shows",
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(EXPERIMENTS):
        parser.error(f"no experiment is called {', '.join(unknown)}")
    console = Console(highlight=False)
    console.width = max(console.width, 150)  # a log has no width of its own
    results = {}
    for name in chosen.names or EXPERIMENTS:
        results[name] = result = asyncio.run(EXPERIMENTS[name](quick=chosen.quick))
        console.print(table(name, result.rows))
        for words, is_met in result.bars.items():
            console.print(
                f"[{'green' if is_met else 'bold red'}]{'shown' if is_met else 'NOT SHOWN'}[/]: {words}"
            )
    return 0 if all(all(one.bars.values()) for one in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
