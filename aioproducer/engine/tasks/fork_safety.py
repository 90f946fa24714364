"""Closes the producers of a process in its forked children: connections and loop are the parent's.

A child that was forked in the loop's own thread could otherwise append to open batches, which the parent alone sends. Every other call checks
the process id.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from aioproducer.engine.runtime import Runtime

FORKED: Final = "the producer belongs to the process that was forked from; make one here"
_live: WeakSet[Runtime] = WeakSet()
# A loop, or a uvloop transport, that the child collects closes itself, and takes the parent's files out of the epoll that both share.
_inherited: list[Runtime] = []


def watch(runtime: Runtime) -> None:
    """Close this producer in each child that is forked from now on."""
    _live.add(runtime)


def _after_fork() -> None:
    for runtime in list(_live):
        runtime.forget_fork()
        _inherited.append(runtime)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
