"""The report's part of docs/topics/performance.md, between its two marks; what stands around it is written by hand.

Knows nothing of how figures are found or drawn.
"""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING, Final

from tests.benchmarks.peers.clients import WORDS
from tests.benchmarks.peers.plan import PARTS
from tests.benchmarks.peers.sheets import Sheet, bars, curve_sheets, settings, workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.peers.rounds import Found

PAGE: Final = pathlib.Path(__file__).parents[3] / "docs/topics/performance.md"
BEGIN: Final = "<!-- written by: nox -s peers -- --page -->"
END: Final = "<!-- end -->"


def picture(name: str) -> str:
    """The file of a part's picture, beside the page."""
    return f"peers-{name}.png"


def written(page: str, found: Found) -> str:
    """The page with what was found between its marks. ValueError: it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} has no lines {BEGIN!r} and {END!r} for it")
    return f"{before}{BEGIN}\n\n{markdown(found)}\n\n{END}{after}"


def markdown(found: Found) -> str:
    """All of it."""
    return "\n\n".join(part for part in _parts(found) if part)


def _parts(found: Found) -> Iterator[str]:
    yield _machine(found)
    for name in found.parts:
        yield from _curve(found, name) if PARTS[name].over else _workloads(found, name)


def _machine(found: Found) -> str:
    machine = found.machine
    left_out = "".join(f" {WORDS[client]} was left out: {why}." for client, why in found.left_out.items())
    unsound, measured = found.unsound(), sum(one.measure is not None for one in found.runs)
    sound = (
        f"In **{len(unsound)} of {measured:,} runs** the log had not just what was acknowledged: {', '.join(_names(found))}."
        if unsound
        else f"In each of the {measured:,} runs the log had grown by just what was sent, "
        "and its offsets were those that the client was told."
    )
    return (
        f"{found.date}: {machine['kafka']}, {machine['cpus']} cores for clients and broker together, {machine['platform']}, "
        f"CPython {machine['python']} on uvloop; {found.minutes:.0f} minutes. Each run is a fresh process; all clients take turns, "
        f"forwards in one round and backwards in the next: {found.rounds_run(is_promised=True)} rounds of workloads, "
        f"{found.rounds_run(is_promised=False)} of curves. A figure "
        f"is the median of its rounds (least-most). CPU is that of the client's whole process, all threads, user and system; memory its peak, "
        f"and what it grew by while it was measured. {sound}{left_out}\n\n    {found.command}"
    )


def _names(found: Found) -> list[str]:
    return sorted({f"{WORDS[one.client]} in `{one.case}` of {one.part}" for one in found.unsound()})


def _workloads(found: Found, name: str) -> Iterator[str]:
    part = PARTS[name]
    yield f"### {part.title}\n\n    nox -s peers -- --only {name}\n\n![{part.title}]({picture(name)})"
    yield table(bars(found, name), level=4)
    yield table(settings(found, name), level=0)
    for case in part.cases:
        if case.name in found.rounds_of(name):
            yield table(workload(found, name, case), level=4)


def _curve(found: Found, name: str) -> Iterator[str]:
    part = PARTS[name]
    yield f"### {part.title}\n\n{part.words}\n\n    nox -s peers -- --only {name}\n\n![{part.title}]({picture(name)})"
    for sheet in curve_sheets(found, name):
        yield table(sheet, level=0)


def table(sheet: Sheet, level: int) -> str:
    """A sheet as Markdown; `level`: of its heading, 0 for none but bold words over its first column."""
    heads = list(sheet.headings)
    lines = [
        heads,
        ["---", *["---" if sheet.is_text else "---:"] * (len(heads) - 1)],
        *([_cell(cell) for cell in row] for row in sheet.rows),
    ]
    title = f"{'#' * level} {sheet.title}" if level else f"**{sheet.title}**"
    shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join(filter(None, (title, f"{sheet.above}." if sheet.above else "", shown, sheet.below)))


def _cell(text: str) -> str:
    """On one line, and without what ends a cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
