"""The metadata task: asks for new topics at once, for stale ones after a pause, and for all when they are old.

1. A topic that a send waits for is asked for at once, together with those of the same loop turn (MET-02).
2. An answer that did not help (an error, no leader) is followed by a pause that grows, so that a leaderless partition costs a few
   requests a second, not thousands.
3. A large answer is decoded in slices between loop turns: it never holds the loop.

Knows nothing of records; what an answer changes is its owner's business.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aioproducer.core.metadata import ClusterView
from aioproducer.errors import BootstrapFailed, KafkaError, ProtocolError
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.core.backoff import Backoff
    from aioproducer.core.metadata import TopicView
    from aioproducer.net.cluster import Cluster
    from aioproducer.net.connection import Answer

__all__ = ["Refresher"]

_SLICE: Final = 0.001  # seconds of decoding between two loop turns
_SMALL: Final = 16_384  # bytes of an answer that is decoded at once


class Refresher:
    """Keeps the cluster view; tells `on_topic` of each topic that was asked for or has changed.

    Args:
        topics: the topics that are produced to or waited for; others are not asked for again.
        on_topic: called with the topic as told, after the view and the nodes are updated.
    """

    def __init__(
        self,
        cluster: Cluster,
        backoff: Backoff,
        *,
        max_age: float,
        request_timeout: float,
        chance: Callable[[], float],
        topics: Callable[[], Iterable[str]],
        on_topic: Callable[[TopicView], None],
    ) -> None:
        self.view = ClusterView()
        self._cluster = cluster
        self._backoff = backoff
        self._max_age = max_age
        self._request_timeout = request_timeout
        self._chance = chance
        self._topics = topics
        self._on_topic = on_topic
        self._new: dict[str, None] = {}
        self._stale: dict[str, None] = {}
        self._in_vain = 0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def want(self, topic: str) -> None:
        """A send waits for this topic: ask at once."""
        self._new[topic] = None
        self._wake.set()

    def urge(self, topics: Iterable[str]) -> None:
        """What is known of these topics is stale: ask soon, after the pause if the last answers did not help."""
        self._stale.update(dict.fromkeys(topics))
        self._wake.set()

    async def bootstrap(self, timeout: float) -> None:
        """The first answer of any broker.

        Raises:
            BootstrapFailed: none within `timeout` seconds; the text names every address and its reason.
        """
        reasons: dict[str, KafkaError] = {}
        try:
            async with asyncio.timeout(timeout):
                failures = 0
                while not await self._ask([], reasons):
                    failures += 1
                    await asyncio.sleep(self._backoff.after(failures, self._chance()))
        except TimeoutError:
            told = "; ".join(f"{where}: {error}" for where, error in reasons.items()) or "no answer"
            raise BootstrapFailed(
                f"no broker could be reached within {timeout:g} s. {told}. Check bootstrap_servers and that Kafka runs there."
            ) from None

    async def run(self) -> None:
        """The task."""
        fetched_at = self._loop.time()
        while True:
            if not self._new:
                await self._pause(fetched_at)
            needed = set(self._topics())
            self._stale = {name: None for name in self._stale if name in needed}
            aged = self._loop.time() >= fetched_at + self._max_age
            wanted = list(dict.fromkeys((*self._new, *self._stale, *(needed if aged else ()))))
            if not wanted and not aged:
                continue
            self._new.clear()
            self._stale.clear()
            if await self._ask(wanted, {}):
                fetched_at = self._loop.time() if aged else fetched_at
            else:
                self._in_vain += 1
                self._stale.update(dict.fromkeys(wanted))

    async def _pause(self, fetched_at: float) -> None:
        """Until a new topic is wanted, the pause before a stale one is over, or all are old."""
        now = self._loop.time()
        until = fetched_at + self._max_age
        if self._stale:
            until = min(until, now + (self._backoff.after(self._in_vain, self._chance()) if self._in_vain else 0))
        while not self._new and (left := until - self._loop.time()) > 0:
            had_stale = bool(self._stale)
            self._wake.clear()
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                return
            if self._stale and not had_stale:
                until = min(until, self._loop.time() + (self._backoff.after(self._in_vain, self._chance()) if self._in_vain else 0))

    async def _ask(self, topics: list[str], reasons: dict[str, KafkaError]) -> bool:
        """One answer from whoever gives one; False if nobody does."""

        def request(_version: int) -> Any:
            asked = [message("Metadata.request.topics", name=topic) for topic in topics]
            return message("Metadata.request", topics=asked, allow_auto_topic_creation=True)

        for node in self._cluster.candidates():
            try:
                answer = await node.call(ApiKey.METADATA, request, timeout=self._request_timeout)
                decoded = await self._decode(answer)
            except KafkaError as error:
                reasons[node.where] = error
                continue
            if decoded.brokers:
                self._take(decoded, topics)
                return True
            reasons[node.where] = ProtocolError("it knows no brokers yet")
        return False

    async def _decode(self, answer: Answer) -> Any:
        if len(answer.frame) < _SMALL:
            return answer.decode()
        steps = answer.decode_in_steps()
        until = self._loop.time() + _SLICE
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            if self._loop.time() >= until:
                await asyncio.sleep(0)
                until = self._loop.time() + _SLICE

    def _take(self, decoded: Any, asked: list[str]) -> None:
        merged = self.view.merge(decoded)
        self.view = merged.view
        self._cluster.update(merged.view.brokers)
        told = {topic.name: topic for topic in merged.changed}
        for name in asked:
            if name in merged.view.topics:
                told.setdefault(name, merged.view.topics[name])
        unsettled = [topic.name for topic in told.values() if topic.may_settle]
        unsettled += [name for name in asked if name not in told]  # the answer left it out, or named no broker that can be reached
        self._in_vain = self._in_vain + 1 if unsettled else 0
        self._stale.update(dict.fromkeys(name for name in unsettled if name in asked))
        for topic in told.values():
            self._on_topic(topic)
