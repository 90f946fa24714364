"""Schedules the drains of the Sender: at the next event-loop iteration, and when a connection changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.engine.append.chosen_build import FastPath
    from aioproducer.engine.append.loop_budget import LoopBudget
    from aioproducer.engine.tasks.guarded_loop import GuardedLoop
    from aioproducer.net.broker_node import BrokerNode

__all__ = ["DrainSchedule"]


class Drains(Protocol):
    """Drains ready batches: the Sender."""

    def on_turn(self) -> None:
        """Drain for all brokers, in the event-loop iteration that was scheduled."""

    def on_node(self, node: BrokerNode) -> None:
        """Drain for a broker whose connections changed."""


class DrainSchedule:
    """Holds whether a drain is scheduled. The parts that schedule drains are made before the Sender, which needs them.

    Args:
        fast_path: the fast path of `send`, which asks for the time once in each drain interval.
        loop_budget: bounds what sends append in a drain interval.
        now_ms: returns the time for a record's timestamp.
        check: raises the error of a call from another event loop.

    Attributes:
        fast_path, loop_budget: as given.
        is_due: a drain is scheduled.
    """

    __slots__ = ("_check", "_drains", "_loop", "_now_ms", "_running", "_since", "fast_path", "is_due", "loop_budget")
    _drains: Drains

    def __init__(
        self, loop: GuardedLoop, fast_path: FastPath, loop_budget: LoopBudget, now_ms: Callable[[], int], check: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._running = asyncio.get_running_loop()
        self.fast_path: FastPath = fast_path
        self._now_ms = now_ms
        self._check = check
        self._since = 0.0
        self.loop_budget: LoopBudget = loop_budget
        self.is_due: bool = False

    def drain_by(self, drains: Drains) -> None:
        """Have `drains` called from now on."""
        self._drains = drains

    def tick(self) -> int:
        """Schedule a drain at the first send of an event-loop iteration. Returns the time of that iteration in ms.

        Raises:
            ProducerClosed: another event loop runs in this thread, or none: `fast_path.here` may be the thread alone.
        """
        try:
            is_here = asyncio.get_running_loop() is self._running
        except RuntimeError:
            is_here = False
        if not is_here:
            self._check()
        self.turn()
        now_ms = self.fast_path.turn_ms = self._now_ms()
        return now_ms

    def turn(self) -> None:
        """Schedule a drain for the next event-loop iteration, which also serves the pending sends."""
        if not self.is_due:
            self.is_due = True
            self._since = self._loop.time()
            self._loop.call_soon(self._drains.on_turn)

    def put_off(self, now: float) -> None:
        """Put the drain of this event-loop iteration off until the next one."""
        self._since = now
        self._loop.call_soon(self._drains.on_turn)

    def begin(self, now: float) -> float:
        """Begin a drain interval. Returns the time at which this drain was scheduled."""
        self.is_due = False
        self.fast_path.turn_ms = 0
        self.loop_budget.new(now)
        return self._since

    def on_node(self, node: BrokerNode) -> None:
        """Drain for a broker whose connections changed."""
        self._drains.on_node(node)
