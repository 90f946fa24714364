"""Writes the report's part of docs/topics/performance.md, between its two marks. Other text is by hand."""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING, Final

from tests.tools.benchmarks.peers.clients import WORDS
from tests.tools.benchmarks.peers.plan import PARTS
from tests.tools.benchmarks.peers.sheets import Sheet, bars, curve_sheets, settings, workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.tools.benchmarks.peers.rounds import Found, Ran

PAGE: Final = pathlib.Path(__file__).parents[4] / "docs/topics/performance.md"
BEGIN: Final = "<!-- written by: nox -s peers -- --page -->"
END: Final = "<!-- end -->"


def picture(name: str) -> str:
    """Return the file of a part's picture, beside the page."""
    return f"peers-{name}.png"


def written(page: str, found: Found) -> str:
    """Return the page with the results between its marks. A part that was not measured keeps its text. ValueError: no marks."""
    before, begin, rest = page.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} has no lines {BEGIN!r} and {END!r} for it")
    return f"{before}{BEGIN}\n\n{markdown(found, kept=sections(old))}\n\n{END}{after}"


def sections(text: str) -> dict[str, str]:
    """Return the text between the marks, by the title of its part."""
    _, *rest = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    return {title: f"### {title}\n\n" + body.strip("\n") for title, body in zip(rest[::2], rest[1::2], strict=True)}


def markdown(found: Found, kept: Mapping[str, str]) -> str:
    """Return the whole text between the marks, in the plan's order."""
    of_parts = (_section(found, name) if name in found.parts else kept.get(part.title, "") for name, part in PARTS.items())
    return "\n\n".join(filter(None, (HOW, *of_parts)))


HOW: Final = (
    "Each run is a fresh process; all clients take turns, forwards in one round and backwards in the next. A figure is the median of its "
    "rounds (least-most). CPU is that of the client's whole process, all threads, user and system; memory its peak, and what it grew by while "
    "it was measured. A run is sound where the log had grown by just what was sent, and its offsets were those that the client was told."
)


def _section(found: Found, name: str) -> str:
    part = PARTS[name]
    head = (f"### {part.title}", part.words, f"![{part.title}]({picture(name)})", _measured(found, name))
    return "\n\n".join(filter(None, (*head, *(_curve(found, name) if part.over else _workloads(found, name)))))


def _measured(found: Found, name: str) -> str:
    """Return the sentence with date, machine and command, and whether each run was sound."""
    machine = found.machine
    left_out = "".join(f" {WORDS[client]} was left out: {why}." for client, why in found.left_out.items())
    unsound = [one for one in found.unsound() if one.part == name]
    measured = sum(one.measure is not None for one in found.runs if one.part == name)
    sound = (
        f"**{len(unsound)} of {measured:,} runs are not sound**: {', '.join(_names(unsound))}."
        if unsound
        else f"All {measured:,} runs are sound."
    )
    return (
        f"{found.date}: {machine['kafka']}, {machine['cpus']} cores for clients and broker together, {machine['platform']}, "
        f"CPython {machine['python']} on uvloop; {found.rounds_run(name)} rounds. {sound}{left_out}\n\n    {found.command}"
    )


def _names(runs: Sequence[Ran]) -> list[str]:
    return sorted({f"{WORDS[one.client]} in `{one.case}`" for one in runs})


def _workloads(found: Found, name: str) -> Iterator[str]:
    yield table(bars(found, name), level=4)
    yield table(settings(found, name), level=0)
    for case in PARTS[name].cases:
        if case.name in found.rounds_of(name):
            yield table(workload(found, name, case), level=4)


def _curve(found: Found, name: str) -> Iterator[str]:
    for sheet in curve_sheets(found, name):
        yield table(sheet, level=0)


def table(sheet: Sheet, level: int) -> str:
    """Return a sheet as Markdown. `level` is that of its heading; 0: bold words over its first column instead of a heading."""
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
    """Return the text on one line, without characters that end a table cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")
