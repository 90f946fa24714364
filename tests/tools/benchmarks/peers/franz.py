"""Runs franz-go, where Go is installed: builds its program once, from `franz-go/`, and runs it for each task."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Final

from tests.tools.benchmarks.processes import ROOT, RunFailed, output
from tests.tools.benchmarks.task import Task, Told
from tests.tools.benchmarks.workloads import text_values

WAYS: Final = ("stream", "mixed", "single", "herd", "paced", "tasks")
SOURCE: Final = pathlib.Path(__file__).parent / "franz-go"
BUILD_SECONDS: Final = 300
_WORDS: Final = 400


async def run(task: Task) -> Told:
    """Run one process. RunFailed: it failed, or cannot be built."""
    program = await asyncio.to_thread(built)
    values = [value.decode() for value in text_values(task.value_bytes)] if task.text else []
    return Told.from_json(await output(json.dumps(dataclasses.asdict(task) | {"values": values}), program))


@functools.cache
def built() -> str:
    """Return the program's path. RunFailed: Go is missing, or cannot build the program; the text is Go's."""
    go = shutil.which("go")
    if go is None:
        raise RunFailed("no Go here")
    program = str(ROOT / ".nox" / "franz") if (ROOT / ".nox").is_dir() else f"{tempfile.mkdtemp(prefix='aioproducer-franz-')}/franz"
    command = (go, "build", "-buildvcs=false", "-o", program, ".")
    try:
        done = subprocess.run(
            command, cwd=SOURCE, env=os.environ | {"GOWORK": "off"}, capture_output=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"go build took longer than {BUILD_SECONDS} s") from None
    if done.returncode:
        raise RunFailed(f"go build failed: {done.stderr.decode(errors='replace')[-_WORDS:].strip()}")
    return program


def why_not() -> str:
    """Return why franz-go must be left out, or an empty text."""
    try:
        built()
    except RunFailed as error:
        return str(error)
    return ""
