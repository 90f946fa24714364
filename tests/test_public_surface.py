"""Tests that the package's public names, parameters and defaults are those of tests/public_surface.txt."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from importlib.util import find_spec

import pytest

WRITTEN = pathlib.Path(__file__).with_name("public_surface.txt")
ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.skipif(find_spec("pyspark") is None, reason="aioproducer.spark needs pyspark")
def test_the_public_surface_is_what_is_written() -> None:
    """The file lists the plain build, which has readable signatures. Both builds have the same (tests/contract)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.public_surface"],
        cwd=ROOT,
        env={**os.environ, "AIOPRODUCER_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == WRITTEN.read_text(encoding="utf-8").splitlines()
