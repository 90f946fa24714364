"""Tells a cancellation of the current task from a CancelledError of something that the task awaits."""

from __future__ import annotations

import asyncio

__all__ = ["is_cancelled"]


def is_cancelled() -> bool:
    """Return whether the current task was cancelled. If it was not, a CancelledError in it is that of something that it awaits.

    The user's coroutines raise such an error when they await a task or a future that other code cancelled: it is their failure.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
