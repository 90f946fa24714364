"""The processes of a query: which there are, and how to end them all."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["end_session", "executors", "send_to_session", "workers"]

_DAEMON: Final = "pyspark.daemon"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


def workers(roots: Iterable[int]) -> list[psutil.Process]:
    """Return the Python workers below these processes: children of pyspark's daemon that are forks of it."""
    return [one for one in _below(roots) if _has(one, _DAEMON) and _has(_parent(one), _DAEMON)]


def executors(roots: Iterable[int]) -> list[psutil.Process]:
    """Return the executors' JVMs below these processes."""
    return [one for one in _below(roots) if _has(one, _EXECUTOR)]


def end_session(leader: int) -> None:
    """Kill every process of a session, with its leader's process id; a process may have left its parent, but not its session."""
    send_to_session(leader, signal.SIGKILL)


def send_to_session(leader: int, number: signal.Signals) -> None:
    """Send a signal to every process of a session."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                os.kill(pid, number)


def _below(roots: Iterable[int]) -> Iterator[psutil.Process]:
    for root in roots:
        with contextlib.suppress(psutil.Error):
            yield from psutil.Process(root).children(recursive=True)


def _has(process: psutil.Process | None, word: str) -> bool:
    try:
        return process is not None and any(word in argument for argument in process.cmdline())
    except psutil.Error:
        return False


def _parent(process: psutil.Process) -> psutil.Process | None:
    try:
        return process.parent()
    except psutil.Error:
        return None
