"""Producers that run when their process forks: in the child, the parent's connections and loop are not its own to use.

Knows nothing of what a producer is.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["forget", "watch"]


class _Forked(Protocol):
    def forget_fork(self) -> None:
        """Called in the child."""


_live: weakref.WeakSet[_Forked] = weakref.WeakSet()


def watch(producer: _Forked) -> None:
    """It runs from now on."""
    _live.add(producer)


def forget(producer: _Forked) -> None:
    """It has ended, or never ran."""
    _live.discard(producer)


def _after_fork() -> None:
    for producer in tuple(_live):
        producer.forget_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
