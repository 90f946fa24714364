"""Strikes three Kafka nodes for some minutes, and looks for every record.

    python -m tests.tools.chaos [--minutes 20] [--only FAULT] [--seed N] [--no-copy] [--json PATH] [--lines FOLDER]

Exit status 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import shutil
import sys
import tempfile
import time

from rich.console import Console

from .faults import FAULTS
from .report import tables
from .run import Chosen, chaos
from .stage import Settings

_WORDS = 20
"""So many complaints are printed."""


def arguments() -> argparse.Namespace:
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.chaos", description="Kill, stop and cut off real nodes, and look for every record."
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="no new fault after that (default: %(default)g)")
    parser.add_argument("--only", action="append", choices=names, metavar="FAULT", help=f"may be given several times: {', '.join(names)}")
    parser.add_argument("--seed", type=int, default=1, help="of the order of faults and their pauses (default: %(default)s)")
    parser.add_argument("--kafka", default=Settings.version, metavar="VERSION", help="of the nodes (default: %(default)s)")
    parser.add_argument(
        "--transactions", type=int, default=Settings.transactions, metavar="LEVEL", help="transaction.version to begin with"
    )
    parser.add_argument("--throughput", type=int, default=Settings.throughput, help="records a second (default: %(default)s)")
    parser.add_argument("--options", default=Settings.options, help="of the producers, as JSON")
    parser.add_argument("--no-copy", action="store_true", help="without transactions")
    parser.add_argument("--json", type=pathlib.Path, metavar="PATH", help="write all figures there")
    parser.add_argument("--lines", type=pathlib.Path, metavar="FOLDER", help="keep what the programs told there")
    return parser.parse_args()


def main() -> int:
    chosen, console = arguments(), Console(highlight=False)
    console.width = max(console.width, 140)  # a log has no width of its own
    start = time.monotonic()

    def tell(text: str) -> None:
        seconds = int(time.monotonic() - start)
        console.print(f"{seconds // 60:3}:{seconds % 60:02} {text}")

    folder = chosen.lines or pathlib.Path(tempfile.mkdtemp(prefix="aioproducer-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    faults = [fault for fault in FAULTS if not chosen.only or fault.name in chosen.only]
    settings = Settings(chosen.kafka, chosen.transactions, chosen.throughput, chosen.options, is_copying=not chosen.no_copy)
    report = asyncio.run(chaos(Chosen(chosen.minutes, faults, chosen.seed, settings=settings), folder, tell))
    console.print(report.command)
    for table in tables(report):
        console.print(table)
    for complaint in list(report.complaints())[:_WORDS]:
        console.print(complaint, markup=False)
    if chosen.json:
        chosen.json.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    if report.is_clean:
        if not chosen.lines:
            shutil.rmtree(folder)
        console.print("nothing is wrong")
        return 0
    console.print(f"[bold red]something is wrong[/]; what the programs told is in {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
