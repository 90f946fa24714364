"""The report: ours beside every other client, on one real Kafka, all in turn.

    python -m tests.tools.benchmarks.peers [--quick] [--only workloads best size ...] [--rounds 7] [--json PATH] [--page]
    python -m tests.tools.benchmarks.peers --from PATH [--page]

About 80 minutes on two cores with 7 rounds, 35 with 3, three with `--quick`, whose figures say only that everything runs.
`--page` writes docs/topics/performance.md and its pictures; parts that were not measured stay as they are there. `--from` shows again, or
writes, what `--json` has kept.
Exit status 1 when a client failed, a run lost or doubled a record, or of several rounds a bar of `workloads` is not met.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime as dt
import os
import pathlib
import platform
import shlex
import sys
import time
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from tests.tools.benchmarks.peers.page import PAGE, picture, written
from tests.tools.benchmarks.peers.sheets import Sheet, bars, curve_sheets, found_verdicts, settings, workload

from aioproducer import jars
from tests.tools.benchmarks.peers import draw, franz
from tests.tools.benchmarks.peers.clients import FRANZ, WORDS
from tests.tools.benchmarks.peers.plan import PARTS
from tests.tools.benchmarks.peers.rounds import Bench, Found, Ran, merged, turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.tools.benchmarks.peers.plan import Part

QUICK_SCALE: Final = 0.1
KEPT: Final = "measure nothing: show what --json has kept; of several files, each case is of the last that has it"
DECIDES: Final = "workloads"
"""The part with the promised bars. The others show them, too, for comparison."""
WIDTH: Final = 170
"""Columns that the tables need."""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.benchmarks.peers", description="Ours and every other client on one real Kafka."
    )
    parser.add_argument("--rounds", type=int, default=7, help="of workloads; half as many of curves (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--clients", nargs="+", choices=WORDS, default=list(WORDS), metavar="NAME", help=", ".join(WORDS))
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="only these workloads, or points of curves")
    parser.add_argument("--scale", type=float, default=1.0, help="of each number of records (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one round, few records, two points of each curve: whether it runs")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write everything measured there")
    parser.add_argument("--from", nargs="+", type=pathlib.Path, metavar="PATH", dest="kept", help=KEPT)
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name} and its pictures")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.rounds, chosen.scale = 1, min(chosen.scale, QUICK_SCALE)
    return chosen


def parts_of(chosen: argparse.Namespace) -> dict[str, Part]:
    """Return the chosen parts. A quick run has two points of each curve."""
    parts: dict[str, Part] = {}
    for name in chosen.only:
        part = PARTS[name]
        cases = [case for case in part.cases if not chosen.cases or case.name in chosen.cases]
        if chosen.quick and part.over:
            cases = [cases[0], cases[len(cases) // 2]]
        cases = [dataclasses.replace(case, clients=[one for one in case.clients if one in chosen.clients]) for case in cases]
        if any(case.clients for case in cases):
            parts[name] = dataclasses.replace(part, cases=cases)
    return parts


def machine() -> dict[str, object]:
    return {
        "kafka": f"Kafka {jars.KAFKA_VERSION}",
        "cpus": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def measure(chosen: argparse.Namespace, console: Console) -> Found:
    """Run all rounds, and print each run's figures as it ends."""
    parts = parts_of(chosen)
    found = Found(
        command=shlex.join(["nox", "-s", "peers", "--", *_telling(sys.argv[1:])]),
        machine=machine(),
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        rounds=chosen.rounds,
        other_rounds=max(1, chosen.rounds // 2),
    )
    if any(FRANZ in part.clients for part in parts.values()) and (why := franz.why_not()):
        found.left_out[FRANZ] = why
        console.print(f"{WORDS[FRANZ]} is left out: {why}", markup=False)
    bench = Bench(found=found, scale=chosen.scale)
    total = sum(len(list(turns(bench.rounds_of(part), part.cases, found.left_out))) for part in parts.values())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(compact=True))
    start = time.monotonic()
    with Progress(*columns, console=console) as progress:
        shown = progress.add_task("a broker starts", total=total)

        def told(ran: Ran) -> None:
            progress.console.print(line(ran))
            progress.update(shown, advance=1, description=f"{ran.part} {ran.case}")
            found.minutes = (time.monotonic() - start) / 60
            if chosen.json:  # after each run, so that a late failure does not lose an hour of results
                chosen.json.write_text(found.to_json(), encoding="utf-8")

        bench.told = told
        asyncio.run(bench.run(parts))
    return found


def _telling(words: Sequence[str]) -> list[str]:
    """Return the arguments without those that only name output files."""
    kept, rest = [], iter(words)
    for word in rest:
        if word == "--json":
            next(rest, None)
        elif not word.startswith("--json="):
            kept.append(word)
    return kept


def line(ran: Ran) -> str:
    """Return a run's figures on one line."""
    where = f"{ran.part:10} round {ran.round} {ran.case:9} {ran.client:17}"
    if ran.measure is None:
        return f"{where} FAILED: {ran.failure}"
    one = ran.measure
    latency = f"   p50 {one.p50_ms:8.2f} ms" if one.p50_ms else ""
    return f"{where} {one.cpu_us:9.2f} us/record {one.rate / 1e3:9.1f} k/s{latency}{'' if one.is_sound else '   NOT SOUND'}"


def sheets(found: Found) -> Iterator[Sheet]:
    """Return all sheets, in the page's order."""
    for name in found.parts:
        if PARTS[name].over:
            yield from (dataclasses.replace(one, title=f"{PARTS[name].title}: {one.title}") for one in curve_sheets(found, name))
        else:
            yield bars(found, name)
            yield dataclasses.replace(settings(found, name), title=PARTS[name].title)
            yield from (workload(found, name, case) for case in PARTS[name].cases if case.name in found.rounds_of(name))


def table(sheet: Sheet) -> Table:
    shown = Table(title=sheet.title, title_justify="left", caption=sheet.above or sheet.below or None, caption_justify="left")
    for place, heading in enumerate(sheet.headings):
        shown.add_column(heading, justify="right" if place and not sheet.is_text else "left", overflow="fold")
    for row in sheet.rows:
        shown.add_row(*row)
    return shown


def write_page(found: Found) -> None:
    """Write the page's sections of the measured parts, and a picture for each."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    for name in found.parts:
        draw.draw(PAGE.parent / picture(name), found, name)


def status(found: Found) -> int:
    """Return 1 if a client failed, a run was not sound, or several rounds with the same settings for all clients do not meet a bar."""
    is_well = not found.unsound() and not any(one.failure for one in found.runs)
    decides = DECIDES in found.parts and found.rounds > 1
    return 0 if is_well and (not decides or all(verdict.is_met for verdict in found_verdicts(found, DECIDES))) else 1


def main() -> int:
    chosen, console = arguments(sys.argv[1:]), Console(highlight=False)
    console.width = max(console.width, WIDTH)  # a log has no width of its own
    kept = [Found.from_json(path.read_text(encoding="utf-8")) for path in chosen.kept or ()]
    found = merged(kept) if kept else measure(chosen, console)
    for sheet in sheets(found):
        console.print(table(sheet), markup=False)
    if kept and chosen.json:
        chosen.json.write_text(found.to_json(), encoding="utf-8")
    if chosen.page:
        write_page(found)
    return status(found)


if __name__ == "__main__":
    sys.exit(main())
