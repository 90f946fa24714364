"""Runs the unit tests on extensions that are built with AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.tools.sanitize [pytest's arguments]

It copies the tree into a temporary folder, and builds all extensions of setup.py there, so that the first mistake ends the process. Every process of the tests writes its report into a
folder, so that a report counts even if no test checks that process's status. Exit status 1: there is a report, or a test failed; 3: the
sanitizers cannot run here, and the output says why.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from tests.tools.gate import trees

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = pathlib.Path(__file__).parents[2]
FLAGS: Final = (
    "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1"
)
LIBRARIES: Final = ("libasan.so", "libubsan.so")
INSTALL: Final = "apt-get install gcc (it brings libasan and libubsan)"
PASSED, FAILED, NOT_CHECKED = 0, 1, 3
TESTS: Final = (
    *("-m", "not integration and not slow and not spark", "-p", "no:cacheprovider"),
    *("--ignore=tests/spark", "--ignore=tests/test_examples.py"),
    *("-o", "faulthandler_timeout=1800"),  # everything is several times slower
    "--deselect=tests/engine/metadata/test_metadata_updater.py::test_a_large_answer_never_holds_the_loop",  # it allows 5 ms of CPU
    "--deselect=tests/tools/faults/test_coded.py::test_row_50_",  # these, 10 ms
)

NO_MEMORY: Final = "WARNING: AddressSanitizer failed to allocate"


class Missing(Exception):
    """A required tool is missing; the text says how to get it."""


def libraries() -> list[str]:
    """Return the sanitizers' own libraries, as gcc finds them.

    Raises:
        Missing: gcc, or one of the libraries, is missing.
    """
    gcc = shutil.which("gcc")
    if gcc is None:
        raise Missing(f"there is no gcc: {INSTALL}")
    found = [_said(gcc, f"-print-file-name={name}") for name in LIBRARIES]
    for path in found:
        if not pathlib.Path(
            path
        ).is_absolute():  # gcc prints the name again if it does not find the library
            raise Missing(f"there is no {path}: {INSTALL}")
    return [str(pathlib.Path(path).resolve()) for path in found]


def _said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def environment(
    folder: pathlib.Path, kept: pathlib.Path, preloaded: Sequence[str]
) -> dict[str, str]:
    """Return the environment for Python, which is not built with sanitizers, and its children. They write reports into `kept`.

    PYTHONMALLOC: AddressSanitizer does not see blocks of Python's own allocator. detect_leaks: memory that an interpreter keeps until its
    end is no leak; `nox -s leaks` finds leaks. libubsan ignores log_path beside libasan, so every Python sets it as it starts.
    """
    return {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{kept / 'start'}",
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(preloaded),
        "ASAN_OPTIONS": f"detect_leaks=0:halt_on_error=1:allocator_may_return_null=1:log_path={kept / 'address'}",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "AIOPRODUCER_PURE": "",
        "AIOPRODUCER_REQUIRE_EXT": "1",
    }


def suite(
    folder: pathlib.Path, preloaded: Sequence[str], arguments: Sequence[str]
) -> tuple[int, list[str]]:
    """Run a folder's tests. Returns pytest's exit status, and the reports of all processes."""
    with tempfile.TemporaryDirectory(prefix="reports-") as name:
        kept = pathlib.Path(name)
        (kept / "start").mkdir()
        told = [
            f"ctypes.CDLL({one!r}).__sanitizer_set_report_path({os.fsencode(kept / 'undefined')!r})"
            for one in preloaded[1:]
        ]
        (kept / "start/sitecustomize.py").write_text("\n".join(["import ctypes", *told]))
        command = (sys.executable, "-m", "pytest", *arguments)
        done = subprocess.run(
            command, cwd=folder, env=environment(folder, kept, preloaded), check=False
        )
        return done.returncode, list(
            filter(None, (_report(path) for path in sorted(kept.iterdir()) if path.is_file()))
        )


def _report(path: pathlib.Path) -> str:
    """Return the errors of a report. A refused allocation of terabytes, which ends in a MemoryError, is no error."""
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    return "".join(line for line in lines if NO_MEMORY not in line)


def built(folder: pathlib.Path) -> list[str]:
    """Build a folder's extensions with sanitizers. Returns their names."""
    previous = os.environ.get("CC")
    os.environ["CC"] = "gcc"  # the compiler that the libraries belong to
    try:
        return sorted(path.name for path in trees.build(folder, FLAGS))
    finally:
        os.environ.pop("CC") if previous is None else os.environ.__setitem__("CC", previous)


def main(words: Sequence[str]) -> int:
    try:
        preloaded = libraries()
        with tempfile.TemporaryDirectory(prefix="sanitize-") as name:
            folder = pathlib.Path(name).resolve()
            trees.copy(ROOT, folder)
            print("built with sanitizers:", *built(folder), flush=True)
            status, reports = suite(folder, preloaded, (*TESTS, *words))
    except (Missing, trees.NoBase, trees.NoBuild) as reason:
        print(f"NOT CHECKED: {reason}")
        return NOT_CHECKED
    except trees.BuildFailed as error:
        print(f"FAILED: it does not build: {error}")
        return FAILED
    for report in reports:
        print(report)
    print(f"sanitize: {len(reports)} reports, pytest's exit status {status}")
    return FAILED if reports or status else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
