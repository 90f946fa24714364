"""Runs a client's process: its input, its output and its failures."""

from __future__ import annotations

import asyncio
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]
WORDS = 200
"""The most characters of a failed client's reason."""
RAISED = re.compile(r"^[\w.]+(Error|Exception|Failed|Timeout)\b")


class RunFailed(Exception):
    """A client's process failed, or took too long; the text is for a reader."""


async def output(told: str, *command: str, env: dict[str, str] | None = None, cwd: pathlib.Path = ROOT) -> bytes:
    """Run a process with the input `told`. Returns its output. RunFailed: its status is not 0. Cancellation kills the process."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        printed, complaints = await process.communicate(told.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RunFailed(f"status {process.returncode}: {reason(complaints)}")
    return printed


def reason(complaints: bytes) -> str:
    """Return the cause of a process's failure: the last exception that it printed, within a group or not, or its last output line."""
    lines = [line.strip(" |+-^") for line in complaints.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if RAISED.match(line)), next(filter(None, reversed(lines)), ""))[:WORDS]
