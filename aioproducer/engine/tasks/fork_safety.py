"""Holds the producers that run when their process forks: a child must not use its parent's connections and loop.

1. A forked child shares sockets and the selector's epoll with its parent. A producer in the child therefore does no I/O at all. Its
   calls raise, and each of its sockets is replaced in the child's own table of files (`net.transport.disown`).
2. The objects of the parent's loop stay referenced in the child. A loop or a uvloop transport closes itself when the garbage collector
   frees it. It would thereby remove the parent's files from the shared epoll.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Final, Protocol

__all__ = ["FORKED", "forget", "watch"]

FORKED: Final = "the producer belongs to the process that was forked from; make one here"


class _Forked(Protocol):
    def forget_fork(self) -> None:
        """Stop using the parent's connections and loop. Called in the child."""


_live: weakref.WeakSet[_Forked] = weakref.WeakSet()
# The producers of the parent process, and of the parent's own parent.
_inherited: list[_Forked] = []


def watch(producer: _Forked) -> None:
    """Add a producer that runs from now on."""
    _live.add(producer)


def forget(producer: _Forked) -> None:
    """Remove a producer that has ended, or that never ran."""
    _live.discard(producer)


def _after_fork() -> None:
    inherited = tuple(_live)
    if not inherited:
        return
    _live.clear()
    if not _inherited:
        atexit.register(_keep)
    _inherited.extend(inherited)
    for producer in inherited:
        producer.forget_fork()


def _keep() -> None:
    """Add a reference to each inherited producer that is never released: the interpreter would collect them at its end."""
    # An interpreter that is not CPython, or that has no ctypes, raises one of these.
    with contextlib.suppress(ImportError, AttributeError):
        import ctypes

        for producer in _inherited:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(producer))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
