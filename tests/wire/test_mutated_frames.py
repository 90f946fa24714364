"""200,000 mutated frames: each is taken or refused, at once and without memory."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from wire_samples import EVERY_CODEC

COUNT = 200_000


def test_mutated_frames_are_taken_or_refused_quickly() -> None:
    """Only ProtocolError or a message, no frame over 20 ms of CPU time, and less than 8 MB that the process grows by."""
    program = pathlib.Path(__file__).parents[1] / "support/mutated_frames.py"
    run = subprocess.run(
        [sys.executable, program, str(COUNT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["codecs"] == len(EVERY_CODEC)
    assert sum(told["outcomes"].values()) == COUNT
    assert told["outcomes"]["refused"] > COUNT // 2
    assert told["outcomes"]["taken"] > COUNT // 20
    assert told["slowest_ms"] < 20
    assert told["grown"] < 8_000_000
