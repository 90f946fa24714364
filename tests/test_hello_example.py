"""`examples/hello.py` does what it says."""

from __future__ import annotations

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def test_hello_prints_where_its_records_are() -> None:
    """Both records of one key are in one partition, in the order of their calls; nothing warns, nothing is left open."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "examples/hello.py"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second, log = done.stdout.splitlines()
    assert first.endswith("has it at offset 0")
    assert second == first[:-1] + "1"
    assert log == "the log: [b'hello', b'again']"
