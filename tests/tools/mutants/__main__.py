"""Make each listed mutant, run its tests, and see them fail.

    python -m tests.tools.mutants [NAME ...] [--jobs 2]
    python -m tests.tools.mutants --share 3/26                # every 26th, from number 3; CI chooses the share by the commit
    python -m tests.tools.mutants --simulated [NAME ...]      # bugs that the simulation must find instead

A mutant lives in a copy of the package; the tree is not touched. Exit status 1 when one survives: then a test is missing, or what it
changes means nothing. Knows nothing of what a mutant means.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import Progress

from aioproducer.build import compiled_from
from tests.tools.mutants.listed import MUTANTS
from tests.tools.mutants.security import SECURITY
from tests.tools.mutants.simulated import SIMULATED
from tests.tools.mutants.sink import SINK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.tools.mutants.listed import Mutant

ROOT: Final = pathlib.Path(__file__).parents[3]
PACKAGE: Final = ROOT / "aioproducer"
SHARED: Final = ("tests", "examples", "docs", "pyproject.toml", "README.md", "noxfile.py")
SECONDS: Final = 600
"""Of one mutant's tests; a mutant that makes them hang is noticed as well."""


async def is_killed(mutant: Mutant) -> tuple[bool, str]:
    """Whether a test failed; and the last line that pytest said."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = pathlib.Path(name)
        # A compiled module that was made of this source does not hold the mutant, and refuses to be imported beside it.
        left_out = ("*.so",) if PACKAGE / mutant.file in compiled_from(PACKAGE) else ()
        shutil.copytree(PACKAGE, folder / "aioproducer", ignore=shutil.ignore_patterns("__pycache__", *left_out))
        for shared in SHARED:
            (folder / shared).symlink_to(ROOT / shared)
        changed = folder / "aioproducer" / mutant.file
        changed.write_text(mutant.applied(changed.read_text()))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *mutant.words(),
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "AIOPRODUCER_REQUIRE_EXT": "", "CI": ""},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            return mutant.is_noticed(None, ""), "it hangs"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    said = output.decode(errors="replace").strip()
    return mutant.is_noticed(process.returncode, said), mutant.last_word(said)


async def run(mutants: Sequence[Mutant], jobs: int, console: Console) -> list[Mutant]:
    """Those that survived."""
    survivors: list[Mutant] = []
    slots = asyncio.Semaphore(jobs)
    with Progress(console=console) as progress:
        task = progress.add_task("mutants", total=len(mutants))

        async def judge(mutant: Mutant) -> None:
            async with slots:
                killed, said = await is_killed(mutant)
            progress.advance(task)
            if not killed:
                survivors.append(mutant)
            console.print(f"{'killed  ' if killed else 'SURVIVED'} {mutant.name}: {mutant.file}: {said}", soft_wrap=True)

        await asyncio.gather(*[judge(mutant) for mutant in mutants])
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (default: %(default)s)")
    parser.add_argument("--share", metavar="I/N", default="0/1", help="only every Nth, from the Ith; 0 is the first")
    parser.add_argument("--simulated", action="store_true", help="those that the simulation must find")
    chosen, console = parser.parse_args(), Console(highlight=False)
    listed: Sequence[Mutant] = SIMULATED if chosen.simulated else (*MUTANTS, *SECURITY, *SINK)
    first, every = map(int, chosen.share.split("/"))
    mutants = [mutant for mutant in listed[first::every] if not chosen.names or mutant.name in chosen.names]
    survivors = asyncio.run(run(mutants, chosen.jobs, console))
    console.print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
