"""Producers that run when their process forks: in the child, the parent's connections and loop are not its own to use.

1. A forked child shares sockets and the selector's epoll with its parent. A producer in the child therefore does no I/O at all: its
   calls raise, and each of its sockets is replaced in the child's own table of files (`net.transport.disown`).
2. Whatever belongs to the parent's loop stays referenced in the child. A loop or a uvloop transport that the collector finds closes itself,
   and so takes the parent's files out of the shared epoll.

Knows nothing of what a producer is.
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
        """Called in the child."""


_live: weakref.WeakSet[_Forked] = weakref.WeakSet()
_inherited: list[_Forked] = []  # of the parent, and of its own parent


def watch(producer: _Forked) -> None:
    """It runs from now on."""
    _live.add(producer)


def forget(producer: _Forked) -> None:
    """It has ended, or never ran."""
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
    """Give each of them a reference that is never taken back: the interpreter's end would collect them."""
    with contextlib.suppress(ImportError, AttributeError):  # not CPython, or without ctypes
        import ctypes  # noqa: PLC0415  (a child that ends by os._exit, as those of multiprocessing do, need not pay for it)

        for producer in _inherited:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(producer))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
