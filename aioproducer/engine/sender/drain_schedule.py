"""Schedules the drains of the Sender: at the next event-loop iteration, and when a connection changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
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

    Attributes:
        loop_budget: as given.
        is_due: a drain is scheduled.
    """

    __slots__ = ("_drains", "_fast_path", "_loop", "_since", "is_due", "loop_budget")
    _drains: Drains

    def __init__(self, loop: GuardedLoop, fast_path: FastPath, loop_budget: LoopBudget) -> None:
        self._loop = loop
        self._fast_path = fast_path
        self._since = 0.0
        self.loop_budget: LoopBudget = loop_budget
        self.is_due: bool = False

    def drain_by(self, drains: Drains) -> None:
        """Have `drains` called from now on."""
        self._drains = drains

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
        self._fast_path.turn_ms = 0
        self.loop_budget.new(now)
        return self._since

    def on_node(self, node: BrokerNode) -> None:
        """Drain for a broker whose connections changed."""
        self._drains.on_node(node)
