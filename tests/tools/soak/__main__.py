"""Soaks a producer: sends to a real Kafka while its connections are cut, and looks whether anything grows.

    python -m tests.tools.soak [--minutes 30] [--rate 50000] [--seed 1]

Exit status 1 when something grew, was lost or failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from .judge import judged, slope
from .run import Chosen, soak

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .run import Soaked


def arguments(words: Sequence[str] | None) -> Chosen:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.soak",
        description="Send while connections are cut; nothing may grow.",
    )
    parser.add_argument(
        "--minutes", type=float, default=Chosen.minutes, help="of sending (default: %(default)g)"
    )
    parser.add_argument(
        "--rate", type=float, default=Chosen.rate, help="records a second (default: %(default)g)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=Chosen.seed,
        help="of the moments and kinds of the cuts (default: %(default)s)",
    )
    parser.add_argument("--options", default=Chosen.options, help="of the producer, as JSON")
    chosen = parser.parse_args(words)
    # a short run has as many samples as a long one needs
    every = min(Chosen.every, chosen.minutes * 60 / 20)
    return Chosen(
        minutes=chosen.minutes,
        rate=chosen.rate,
        seed=chosen.seed,
        every=every,
        options=chosen.options,
    )


def progress(soaked: Soaked) -> str:
    """Return the line for the last sample; its rate is that since the sample before."""
    now = soaked.samples[-1]
    seconds, acked = (
        (soaked.samples[-2].at, soaked.samples[-2].acked) if len(soaked.samples) > 1 else (0.0, 0)
    )
    rate = (now.acked - acked) / max(now.at - seconds, 1e-9)
    minutes, rest = divmod(int(now.at), 60)
    held = f"{now.rss / 2**20:7.1f} MiB  {now.tasks:3} tasks  {now.sockets:3} sockets"
    return f"{minutes:3}:{rest:02}  {rate:9,.0f} records/s  {held}  {soaked.cuts:4} cuts  {now.failed} failed"


def main(words: Sequence[str] | None = None) -> int:
    chosen = arguments(words)
    soaked = asyncio.run(soak(chosen, lambda one: print(progress(one), flush=True)))
    last, kept = soaked.samples[-1], judged(soaked.samples)
    print(
        f"{last.acked:,} records acknowledged in {last.at:.0f} s, {last.acked / last.at:,.0f} a second; {soaked.cuts} cuts"
    )
    if len(kept) > 1:
        hour = slope(kept, lambda sample: sample.rss) * 3600 / 2**20
        print(
            f"memory behind the warm-up: {min(one.rss for one in kept) / 2**20:.1f} to {max(one.rss for one in kept) / 2**20:.1f} MiB, {hour:+.1f} MiB an hour"
        )
    for one in soaked.wrong or ():
        print(f"WRONG {one}")
    print(f"soak: {len(soaked.wrong or ())} things are wrong" if soaked.wrong else "soak: clean")
    return 1 if soaked.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
