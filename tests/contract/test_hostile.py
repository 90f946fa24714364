"""Hostile callers get an error, not a crash, and damage no other record: on both builds, each case in a process."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from builds import BUILDS

from tests.contract import hostile

HERE = pathlib.Path(__file__)
SECONDS = 300


@pytest.mark.parametrize(
    "build", [pytest.param(one.id, id=one.id, marks=one.marks) for one in BUILDS]
)
@pytest.mark.parametrize("case", hostile.CASES)
def test_it_survives(build: str, case: str) -> None:
    """Run one case of hostile.py."""
    paths = (HERE.parents[2], HERE.parents[1] / "support", os.environ.get("PYTHONPATH", ""))
    ended = subprocess.run(
        [sys.executable, str(HERE.with_name("hostile.py")), build, case],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONHASHSEED": "0"},
    )
    assert (ended.returncode, ended.stdout) == (0, "survived\n"), ended.stderr[-3_000:]
