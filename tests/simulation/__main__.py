"""Simulates seeds, and prints the violations of each.

    python -m tests.simulation --seeds 1-1000 --jobs 2
    python -m tests.simulation --seed 42              # one, with its history

The exit status is 1 if any seed has violations; each such seed is printed with the one command that replays it.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from tests.simulation.campaign import Tally, run_seeds
from tests.simulation.plan import ALL_FAULTS, PROFILES
from tests.simulation.run import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_SHOWN: Final = 3  # most violations printed per seed
_SEEDS_SHOWN: Final = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        return _one(asked) if asked.seed is not None else _many(asked)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130


def _one(asked: argparse.Namespace) -> int:
    report = simulate(asked.seed, profile=asked.profile, faults=asked.faults)
    _write(
        *report.plan,
        *report.trace,
        f"faults: {report.fired}",
        f"at work: {report.worked}",
        f"digest: {report.digest}",
    )
    _write(*(f"WRONG: {violation}" for violation in report.violations))
    _write(f"{len(report.violations)} violations. {report.command}")
    return 1 if report.violations else 0


def _many(asked: argparse.Namespace) -> int:
    began = time.monotonic()
    tally = run_seeds(
        asked.seeds,
        profile=asked.profile,
        faults=asked.faults,
        jobs=asked.jobs,
        on_progress=_show,
        most=asked.most,
    )
    seconds = time.monotonic() - began
    for failing in tally.failing[:_SEEDS_SHOWN]:
        _write(
            f"seed {failing.seed}: {failing.command}",
            *(f"    {violation}" for violation in failing.violations[:_SHOWN]),
        )
    _write(*_table(tally), "")
    _write(
        f"{tally.seeds:,} seeds, {len(tally.failing)} with violations; {tally.records:,} records, {tally.acknowledged:,} acknowledged, "
        f"{tally.failed:,} failed; {tally.simulated / 3600:,.1f} hours simulated",
        *(
            [
                f"transactions: {', '.join(f'{count:,} {fate}' for fate, count in sorted(tally.fates.items()))}"
            ]
            if tally.fates
            else []
        ),
        f"{tally.seeds / seconds:,.0f} seeds/s, {tally.seeds / tally.cpu:,.0f} a second of processor time",
    )
    return 1 if tally.failing else 0


def _table(tally: Tally) -> list[str]:
    """Return a table of the shares of runs: by class of fault that happened, and by system of the producer that acted."""
    profiles = [profile for profile in PROFILES if tally.runs[profile]]
    lines: list[str] = []
    for title, rows in (
        ("runs in which it happened", tally.shares()),
        ("runs in which it was at work", tally.shares_at_work()),
    ):
        lines += ["", f"{title:28}" + "".join(f"{profile:>15}" for profile in profiles)]
        for kind, shares in rows:
            cells = (f"{shares[profile]:.1%}" if profile in shares else "-" for profile in profiles)
            lines.append(f"{kind:28}" + "".join(f"{cell:>15}" for cell in cells))
    return lines


def _show(tally: Tally) -> None:
    sys.stderr.write(f"\r{tally.seeds:,} seeds, {len(tally.failing)} with violations ")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=(__doc__ or "").split("\n", 1)[0]
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--seeds",
        type=_range,
        default=range(1, 1001),
        metavar="A-B",
        help="these (default: 1-1000)",
    )
    which.add_argument("--seed", type=int, metavar="N", help="this one, with its history")
    parser.add_argument(
        "--profile", choices=PROFILES, help="the kind of producer (default: drawn for each seed)"
    )
    parser.add_argument(
        "--faults",
        type=lambda text: text.split(","),
        metavar="A,B",
        help=f"only these: {', '.join(ALL_FAULTS)}",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes (default: %(default)s)"
    )
    parser.add_argument(
        "--most", type=int, metavar="N", help="end after so many seeds with violations"
    )
    return parser


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds: 1-1000") from None


def _write(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
