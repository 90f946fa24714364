"""Compares the instructions of a record in this tree with those in the tree that it goes into. No other process disturbs that count.

    python -m tests.tools.gate [--base COMMIT] [--limit 1.03]

Both trees are copied into a temporary folder and built there, and the same workloads (workloads.py) run on both under callgrind, on a
cluster in memory whose own work is not counted: once as compiled, once with AIOPRODUCER_PURE=1; a build that is beyond the limit twice more,
in other layouts of memory (callgrind.py). Exit status 1: a workload costs more than 3 % more in a build, or a tree does not build or run. Exit status 3: something could not be compared here; the lines `NOT CHECKED` say what
and why. Exit status 0: all was compared, and is within the limit.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from tests.tools.gate import callgrind, trees, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = pathlib.Path(__file__).parents[3]
WORKLOADS: Final = str(pathlib.Path(__file__).with_name("workloads.py"))
RECORDS: Final = ("5000", "200")
"""Of each workload, and of those with a request for each record or for ten."""
BUILDS: Final[Mapping[str, Mapping[str, str]]] = {
    "pure": {"AIOPRODUCER_PURE": "1", "AIOPRODUCER_REQUIRE_EXT": ""},
    "compiled": {"AIOPRODUCER_PURE": "", "AIOPRODUCER_REQUIRE_EXT": "1"},
}
"""What chooses them, whatever this process was started with."""
PASSED, BEYOND, NOT_CHECKED = 0, 1, 3


def costs(folder: pathlib.Path, build: str, layout: int) -> dict[str, float]:
    """Instructions for each record, by workload.

    Raises:
        Crashed: the program, or it ran another tree or build than it was to.
    """
    counts, lines = callgrind.counted((WORKLOADS, *RECORDS), folder, BUILDS[build], layout)
    *marks, ran = map(json.loads, lines[callgrind.CALIBRATING :])
    wanted = {"tree": str(folder), "is_compiled": build == "compiled"}
    if ran != wanted or len(marks) != len(counts):
        raise callgrind.Crashed(
            f"it ran {ran} and {len(marks)} workloads with {len(counts)} counts, not {wanted}"
        )
    return {
        name: instructions / records
        for (name, records), instructions in zip(marks, counts, strict=True)
    }


def compared(
    folders: Sequence[pathlib.Path], builds: Sequence[str], limit: float
) -> list[verdict.Row]:
    """Both trees in each of the builds, as many at a time as there are processors.

    A build with a row beyond the limit is counted again with the next layout, and the smaller count of each tree holds.
    """
    smallest: dict[str, list[dict[str, float]]] = {build: [{}, {}] for build in builds}
    found: dict[str, list[verdict.Row]] = {}
    again = list(builds)
    for layout in callgrind.LAYOUTS:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            running = {
                build: [pool.submit(costs, folder, build, layout) for folder in folders]
                for build in again
            }
        for build in again:
            counts = [one.result() for one in running[build]]
            smallest[build] = [
                verdict.smaller(new, old) for new, old in zip(counts, smallest[build], strict=True)
            ]
            found[build] = verdict.rows(build, *smallest[build], limit)
        again = [build for build in again if any(row.is_beyond for row in found[build])]
    return [row for build in builds for row in found[build]]


def builds_of(before: pathlib.Path, after: pathlib.Path) -> tuple[list[str], list[str]]:
    """Which builds both trees have here; and what is to be said of the others.

    Raises:
        BuildFailed: this tree's own.
    """
    try:
        trees.build(after)
    except trees.NoBuild as reason:
        return ["pure"], [] if not (after / "setup.py").exists() else [
            f"the compiled build: {reason}"
        ]
    try:
        trees.build(before)
    except trees.NoBuild as reason:
        return ["pure"], [f"the compiled build: the base has {reason}"]
    except trees.BuildFailed as error:
        return ["pure"], [f"the compiled build: the base does not build: {error}"]
    return ["pure", "compiled"], []


def gate(base: str | None, limit: float) -> int:
    """The exit status."""
    if callgrind.found() is None:
        return not_checked([callgrind.INSTALL])
    with tempfile.TemporaryDirectory(prefix="gate-") as name:
        before, after = (pathlib.Path(name).resolve() / tree for tree in ("before", "after"))
        try:
            commit = trees.base_of(ROOT, base)
            trees.extract(ROOT, commit, before)
            trees.copy(ROOT, after)
        except trees.NoBase as reason:
            return not_checked([f"nothing to compare with: {reason}"])
        print(f"before: {commit[:12]}; after: {ROOT}", flush=True)
        try:
            builds, missing = builds_of(before, after)
            found = compared((before, after), builds, limit)
        except (trees.BuildFailed, callgrind.Crashed) as error:
            print(f"FAILED: {error}")
            return BEYOND
    print(*verdict.table(found), sep="\n")
    beyond = [row for row in found if row.is_beyond]
    print(
        f"gate: {len(found) - len(beyond)} of {len(found)} within {limit:.2f} x ({', '.join(builds)})"
    )
    return BEYOND if beyond else not_checked(missing)


def not_checked(reasons: Sequence[str]) -> int:
    """Say what was not; the exit status."""
    for reason in reasons:
        print(f"NOT CHECKED: {reason}")
    return NOT_CHECKED if reasons else PASSED


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.gate", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument(
        "--base",
        metavar="COMMIT",
        help="compare with this one (default: the merge base with main; on main, what tests/tools/gate/base names)",
    )
    parser.add_argument(
        "--limit", type=float, default=verdict.LIMIT, help="of the ratio (default: %(default)s)"
    )
    chosen = parser.parse_args(words)
    return gate(chosen.base, chosen.limit)


if __name__ == "__main__":
    sys.exit(main())
