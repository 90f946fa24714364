"""Strikes three Kafka nodes for some minutes, and looks for every record.

    python -m tests.tools.chaos [--minutes 20] [--only FAULT] [--seed N] [--no-copy] [--options JSON]

Exit status 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import shutil
import sys
import tempfile
import time

from .faults import FAULTS
from .run import chaos

_WORDS = 20
"""So many complaints are printed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.chaos", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="no new fault after that (default: %(default)g)"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=FAULTS,
        metavar="FAULT",
        help=f"may be given several times: {', '.join(FAULTS)}",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of the order of faults and their pauses (default: %(default)s)",
    )
    parser.add_argument("--no-copy", action="store_true", help="without transactions")
    parser.add_argument(
        "--options",
        default="{}",
        help="of the producers, as JSON: such as those with which records are lost or doubled",
    )
    chosen = parser.parse_args()
    start = time.monotonic()

    def tell(text: str) -> None:
        seconds = int(time.monotonic() - start)
        print(f"{seconds // 60:3}:{seconds % 60:02} {text}", flush=True)

    folder = pathlib.Path(tempfile.mkdtemp(prefix="aioproducer-chaos-"))
    names = chosen.only or list(FAULTS)
    report = asyncio.run(
        chaos(
            names,
            folder,
            minutes=chosen.minutes,
            seed=chosen.seed,
            is_copying=not chosen.no_copy,
            options=chosen.options,
            tell=tell,
        )
    )
    for name, figures in report.figures.items():
        print(f"{name}: {', '.join(f'{count:,} {what}' for what, count in figures.items())}")
    print(*report.complaints[:_WORDS], sep="\n")
    if report.complaints:
        print(f"something is wrong; what the programs told is in {folder}")
        return 1
    shutil.rmtree(folder)
    print("nothing is wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
