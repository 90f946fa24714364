"""Run histories by seed, and tell which are wrong.

    python -m tests.tools.sink_histories --seeds 1-100000 [--on model|fake] [--most 5]
    python -m tests.tools.sink_histories --seeds 4711-4711 --tell

Exit status 1: a row is lost or doubled, or a batch does not end.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.tools.sink_histories.on_fake import run_on_fake
from tests.tools.sink_histories.on_model import run_on_model

_TOLD_EVERY = 10_000
RUNNERS = {"model": run_on_model, "fake": run_on_fake}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.sink_histories")
    parser.add_argument("--seeds", required=True, metavar="A-B", help="the first and the last")
    parser.add_argument(
        "--on",
        choices=sorted(RUNNERS),
        default="model",
        help="what they run on (default: %(default)s)",
    )
    parser.add_argument(
        "--most",
        type=int,
        default=5,
        metavar="N",
        help="end after so many wrong ones (default: %(default)s)",
    )
    parser.add_argument("--tell", action="store_true", help="print what happened, step by step")
    chosen = parser.parse_args()
    logging.getLogger("aioproducer").setLevel(logging.ERROR)
    first, last = map(int, chosen.seeds.split("-"))
    counts: Counter[str] = Counter()
    wrong, began, seed = 0, time.monotonic(), first
    for seed in range(first, last + 1):
        log: list[str] | None = [] if chosen.tell else None
        history = RUNNERS[chosen.on](seed, log)
        counts.update(history.counts)
        print(*(log or ()), sep="\n", end="\n" if log else "")
        if history.violations:
            wrong += 1
            print(
                f"seed {seed}: {history.plan if chosen.tell else ''}",
                *history.violations,
                sep="\n    ",
            )
        if (seed - first + 1) % _TOLD_EVERY == 0:
            print(f"{seed - first + 1:,} histories so far", file=sys.stderr)
        if wrong >= chosen.most:
            break
    seconds = time.monotonic() - began
    print(f"{seed - first + 1:,} histories in {seconds:.1f} s, {wrong} with violations")
    print(", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
