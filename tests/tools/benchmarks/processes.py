"""A client's process: what it is told, what it prints, how it fails. Knows no client."""

from __future__ import annotations

import asyncio
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]
WORDS = 200
"""Characters that a failed client may say."""
RAISED = re.compile(r"^[\w.]+(Error|Exception|Failed|Timeout)\b")


class RunFailed(Exception):
    """A client's process failed, or took too long; in words for a reader."""


async def output(told: str, *command: str, env: dict[str, str] | None = None, cwd: pathlib.Path = ROOT) -> bytes:
    """What a process prints that is `told` something. RunFailed: its status is not 0. Cancelled, it is killed."""
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
    """What a process died of: the last exception that it named, within a group or not, or else its last line."""
    lines = [line.strip(" |+-^") for line in complaints.decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if RAISED.match(line)), next(filter(None, reversed(lines)), ""))[:WORDS]
