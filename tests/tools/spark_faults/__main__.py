"""Runs cases by name, and counts what a committed reader gets.

    python -m tests.tools.spark_faults [CASE ...] [--all] [--seed NUMBER]

Without names: every case of the sink, by default exactly once. Exit status 1 when a case was not right.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.tools.spark_faults.cases import CASES, MERGED, case_named
from tests.tools.spark_faults.report import line, sums
from tests.tools.spark_faults.run import CaseRun
from tests.tools.spark_faults.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.tools.spark_faults.case import Case, Result


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.spark_faults",
        description="Kill a streaming query, and count its rows.",
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join((*CASES, MERGED.name)))
    parser.add_argument(
        "--all",
        action="store_true",
        help="Spark's own sink and at_least_once as well, if no cases are named",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="NUMBER",
        help="other kills at random, and other poisoned rows",
    )
    chosen = parser.parse_args(words)
    unknown = [name for name in chosen.cases if name not in CASES and name != MERGED.name]
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}")
    return chosen


def chosen_cases(chosen: argparse.Namespace) -> list[Case]:
    """Return the cases, with those of one Kafka beside each other."""
    named = [case_named(name) for name in chosen.cases]
    cases = named or [case for case in CASES.values() if chosen.all or case.promises_once]
    return sorted((case.seeded(chosen.seed) for case in cases), key=lambda case: case.kafka)


async def run_all(cases: Sequence[Case], folder: Path, tell: Callable[[str], None]) -> list[Result]:
    results = []
    async with Stage() as stage:
        for case in cases:
            await stage.set_for(case)
            place = folder / case.name
            place.mkdir()
            result = await CaseRun(case, stage, place, tell).run()
            results.append(result)
            tell(line(result))
            for complaint in result.complaints:
                tell(f"  {complaint}")
            for error, times in Counter(result.errors).most_common():
                tell(f"  {times} x {error}")
    return results


def main(words: Sequence[str]) -> int:
    # in each way that it is ended: processes that it started end with it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    chosen = arguments(words)
    start = time.monotonic()

    def tell(text: str) -> None:
        seconds = int(time.monotonic() - start)
        print(f"{seconds // 60:3}:{seconds % 60:02} {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="spark-faults-", ignore_cleanup_errors=True) as made:
        results = asyncio.run(run_all(chosen_cases(chosen), Path(made).resolve(), tell))
    print(*sums(results), sep="\n")
    return 0 if all(result.is_right for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
