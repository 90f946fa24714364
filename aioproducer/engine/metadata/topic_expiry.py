"""The task that forgets idle topics, with all state of each topic (`metadata_max_idle_ms`, KIP-526).

A topic is in use while a request asks for it, a send waits for it, or a batch of it has not ended. The age of that batch does not matter.
For a later send, a forgotten topic is an unknown topic.
"""

from __future__ import annotations

from asyncio import get_running_loop, sleep
from typing import TYPE_CHECKING

from aioproducer.core.topic_updates import forgetting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioproducer.core.incremental import Steps
    from aioproducer.core.metadata.metadata_schedule import TopicExpiry
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.topic_routing import TopicRouting

__all__ = ["TopicExpiryTask"]


class TopicExpiryTask:
    """Holds the parts that the task needs to forget topics.

    Args:
        rule: decides which topics are idle, and when to check them.
        slices: runs the steps, one slice in each event-loop iteration.
        is_in_use: whether a send waits for a topic, or for an answer about it.
        forget: called with each topic that is forgotten, in the step that removes it.
        shrink: called when the tables of topics are mostly empty.
    """

    def __init__(
        self,
        rule: TopicExpiry,
        partition_queues: PartitionQueues,
        *,
        slices: Callable[[Steps[bool]], Awaitable[bool]],
        is_in_use: Callable[[str], bool],
        forget: Sequence[Callable[[str], object]],
        shrink: Sequence[Callable[[], object]],
    ) -> None:
        self._rule = rule
        self._partition_queues = partition_queues
        self._slices = slices
        self._is_in_use = is_in_use
        self._forget = forget
        self._shrink = shrink
        self._loop = get_running_loop()

    async def run(self) -> None:
        """Check the topics when they may be idle, and forget the idle ones. The body of the task."""
        while True:
            now = self._loop.time()
            when = self._rule.next_look(now)
            await sleep(when - now)
            for routing in self._rule.idle(max(self._loop.time(), when)):
                await self._look_at(routing)
                # Otherwise the last one would stay referenced until the next check.
                del routing

    async def _look_at(self, routing: TopicRouting) -> None:
        """Forget an idle topic, or schedule another check of it."""
        if not await self._slices(forgetting(self._partition_queues, routing, self._is_in_use, self._forget)):
            self._rule.put_off(routing.topic, self._loop.time())
        elif self._rule.forgot():
            for each in self._shrink:
                each()
