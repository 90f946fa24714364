"""The task that forgets idle topics, with every bit of state that hangs on them (`metadata_max_idle_ms`, KIP-526).

A topic that is asked for, waited for, or has a batch on its way is in use, however long ago that was sent. Who sends to it later finds a
topic that was never known. Knows nothing of what the others keep of a topic: each is told to forget it.
"""

from __future__ import annotations

from asyncio import get_running_loop, sleep
from typing import TYPE_CHECKING

from aioproducer.core.topic_updates import forgetting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioproducer.core.incremental import Steps
    from aioproducer.core.metadata.topic_expiry import TopicExpiry
    from aioproducer.core.partition_queues import PartitionQueues
    from aioproducer.core.topic_routing import TopicRouting

__all__ = ["TopicExpiryTask"]


class TopicExpiryTask:
    """Forgets.

    Args:
        rule: which topics are idle, and when.
        slices: carries steps out, a slice in each turn of the loop.
        is_in_use: whether a topic is asked or waited for.
        forget: told of each topic that is gone, in the step in which it is.
        shrink: called when tables of topics are mostly empty.
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
        """The task."""
        while True:
            now = self._loop.time()
            when = self._rule.next_look(now)
            await sleep(when - now)
            for routing in self._rule.idle(max(self._loop.time(), when)):
                await self._look_at(routing)
                del routing  # the last one would be held until the next look

    async def _look_at(self, routing: TopicRouting) -> None:
        """Forget it, or look again later."""
        if not await self._slices(forgetting(self._partition_queues, routing, self._is_in_use, self._forget)):
            self._rule.put_off(routing.topic, self._loop.time())
        elif self._rule.forgot():
            for each in self._shrink:
                each()
