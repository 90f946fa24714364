"""Runs a program under callgrind, and returns the instructions between its marks.

Functions of CPython that no other code calls switch counting on and off: those of `@`, `@=` and unary `+` (marks.py). CPython exports
them, so callgrind finds them in every build of it. Each has one option alone, as callgrind 3.19 confuses the options of a function with
two.

This module fixes the causes of counts that differ from run to run: the hashes of strings, and lazy binding. The resolver of lazy binding
also returns in a manner in which callgrind loses its position.

One cause is left, and it differs from tree to tree: CPython caches attributes of classes in one table of 4,096 places, by the number of
the class and the address of the name. Two attributes of one place that a program uses in turn cost 500 instructions a record, a tenth of
a record's cost. A layout makes some classes first, so that the numbers of all later ones, and the places, are others.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from tests.tools.gate.marks import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["CALIBRATING", "INSTALL", "LAYOUTS", "Crashed", "counted", "found", "parts_of"]

INSTALL: Final = "valgrind is missing: apt-get install valgrind"
HERE: Final = pathlib.Path(__file__).parent
FIXED: Final = {"PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"}
OPTIONS: Final = (
    "--tool=callgrind",
    "--toggle-collect=PyNumber_MatrixMultiply",
    "--toggle-collect=PyNumber_InPlaceMatrixMultiply",
    "--dump-before=PyNumber_Positive",
)
_OUT: Final = "out"
_SAID: Final = 2000  # characters of its last words
_CLEAR: Final = 10  # at least so many times more instructions with counting on
LAYOUTS: Final = (0, 7, 31)
"""Classes that the program makes first. The later layouts are for counts of the first that look too high."""
CALIBRATING: Final = 2  # the calibration's marks come first
_PART: Final = re.compile(r"^part: (\d+)$", re.MULTILINE)
_TOTALS: Final = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class Crashed(Exception):
    """The program or valgrind failed; the text holds the end of its output."""


def found() -> str | None:
    """Return the path of valgrind."""
    return shutil.which("valgrind")


def parts_of(outputs: Iterable[str]) -> list[int]:
    """Return the instructions of each mark, from callgrind's files in any order, without the calibration's marks.

    Raises:
        Crashed: a part is missing, or the marks do not work.
    """
    parts: dict[int, int] = {}
    for text in outputs:
        part, totals = _PART.search(text), _TOTALS.search(text)
        if part is None or totals is None:
            raise Crashed(f"callgrind wrote no part and totals: {text[:200]!r}")
        parts[int(part[1])] = int(totals[1])
    if sorted(parts) != [*range(1, len(parts) + 1)] or len(parts) <= CALIBRATING:
        raise Crashed(f"callgrind's parts are {sorted(parts)}")
    before, steps, uncounted, *rest = [parts[number] for number in sorted(parts)]
    if before or not 0 < uncounted * _CLEAR < steps:
        raise Crashed(
            f"the marks do not work: {before} before the first, {steps} for steps that count, {uncounted} for those that do not"
        )
    return rest


def counted(
    program: Sequence[str], folder: pathlib.Path, environment: Mapping[str, str], layout: int = 0
) -> tuple[list[int], list[str]]:
    """Run a Python program with `folder` as its PYTHONPATH. Returns the instructions of each mark, and the program's output lines.

    Raises:
        Crashed: the program or valgrind failed.
    """
    with tempfile.TemporaryDirectory(prefix="callgrind-") as name:
        out = pathlib.Path(name)
        done = subprocess.run(
            (
                "valgrind",
                *OPTIONS,
                f"--callgrind-out-file={out / _OUT}",
                sys.executable,
                "-P",
                *program,
            ),
            cwd=out,
            env={
                **os.environ,
                **FIXED,
                "PYTHONPATH": f"{folder}{os.pathsep}{HERE}",
                LAYOUT: str(layout),
                **environment,
            },
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise Crashed(f"exit status {done.returncode}: {done.stderr[-_SAID:]}")
        return parts_of(path.read_text() for path in out.glob(f"{_OUT}*")), done.stdout.splitlines()
