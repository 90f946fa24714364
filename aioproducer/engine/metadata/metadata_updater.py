"""The metadata task: asks what is due (`core.metadata.metadata_schedule` says what), and takes what answers tell.

1. A topic that a send waits for is asked for at once, together with those of the same loop turn (MET-02), on a connection that no other
   question is under way on, if there is one.
2. Between an answer and the next question about what is not new there is a pause, and it grows while answers do not help (an error, no
   leader, nothing new: MET-06), so that a leaderless partition costs a few requests a second, not thousands.
3. Who is asked is the cluster's choice. Nobody is waited for long while others can be asked. When no known broker can be reached, or
   none has answered for a while, or a broker says so, it begins again at the bootstrap addresses (KIP-899, KIP-1102).
4. A large answer is decoded and taken in slices between loop turns, also a single large topic: it never holds the loop. Of answers about
   new topics one at a time is taken, beside one about others. A hint about a topic that is being taken waits until it is.

Knows nothing of records; what an answer changes is its owner's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aioproducer.core.incremental import STRIDE
from aioproducer.core.metadata.cluster_metadata import ClusterMetadata
from aioproducer.core.metadata.metadata_schedule import Question
from aioproducer.core.metadata.topic_expiry import shrink
from aioproducer.errors import BootstrapFailed, BrokerError, ConnectionLost, KafkaError, ProtocolError, broker_error
from aioproducer.net.broker_node import Standing
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine, Iterable

    from aioproducer.core.backoff import Backoff
    from aioproducer.core.incremental import Steps
    from aioproducer.core.metadata.cluster_metadata import Broker, TopicView
    from aioproducer.core.metadata.metadata_schedule import MetadataSchedule
    from aioproducer.net.broker_node import BrokerNode
    from aioproducer.net.cluster import Cluster
    from aioproducer.net.connection import Answer

__all__ = ["MetadataUpdater"]

T = TypeVar("T")
_log = logging.getLogger(__name__)
_SLICE: Final = 0.001  # seconds of decoding and taking between two loop turns
_SMALL: Final = 16_384  # bytes of an answer that is decoded at once
_PATIENCE: Final = 1.0  # seconds for a connection before another broker is asked; it goes on being made
_FIRST_WITH_AUTO_CREATION: Final = 4  # before it, a request could not forbid it
_FIRST_WITH_MUTING: Final = 6  # before it, brokers waited themselves (KIP-219)
_FIRST_WITH_EPOCHS: Final = 9  # that can be trusted (KAFKA-9212)
_REBOOTSTRAP_REQUIRED: Final = 129


class MetadataUpdater:
    """Keeps the cluster view; tells `on_topic` of each topic that was asked for or has changed.

    Args:
        rule: what to ask for, and when.
        recovery_time: seconds without an answer after which it begins again at the bootstrap addresses.
        auto_create: whether brokers may create topics that are asked for.
        spawn: starts a task that the producer's supervisor owns.
        topics: the topics that are produced to or waited for.
        is_needed: whether a topic is one of those; others are not remembered.
        on_topic: called with the topic as told, after the view and the nodes are updated; what it has to do is done in its steps.
        on_leader: called with a topic and the number of its one partition that has another leader, which a hint told.

    Attributes:
        view: what is known.
        trouble: why the latest question had no answer; None: it had one.
        answered_at: when one had, in the loop's time.
    """

    def __init__(
        self,
        cluster: Cluster,
        backoff: Backoff,
        rule: MetadataSchedule,
        *,
        request_timeout: float,
        recovery_time: float,
        auto_create: bool,
        chance: Callable[[], float],
        spawn: Callable[[Coroutine[None, None, None], str], object],
        topics: Callable[[], Iterable[str]],
        is_needed: Callable[[str], bool],
        on_topic: Callable[[TopicView], Steps[None]],
        on_leader: Callable[[TopicView, int], None],
    ) -> None:
        self.view = ClusterMetadata()
        self.trouble: KafkaError | None = None
        self._cluster = cluster
        self._backoff = backoff
        self._rule = rule
        self._request_timeout = request_timeout
        self._recovery_time = recovery_time
        self._auto_create = auto_create
        self._chance = chance
        self._spawn = spawn
        self._topics = topics
        self._is_needed = is_needed
        self._on_topic = on_topic
        self._on_leader = on_leader
        self._in_vain = 0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_refreshing = False
        self._one_new = asyncio.Lock()  # answers about new topics are taken one after another
        self._asked: dict[BrokerNode, int] = {}  # questions under way
        self._not_before = 0.0
        self._slice_ends = 0.0
        self._taking: dict[str, list[tuple[Any, ...]]] = {}  # topics that are being taken, and hints about them
        rule.answered(self._loop.time())
        self._failing_since: float | None = None
        self.answered_at = self._loop.time()

    def want(self, topic: str) -> None:
        """A send waits for this topic: ask at once."""
        self._rule.want(topic)
        self._wake.set()

    def urge(self, topics: Iterable[str]) -> None:
        """What is known of these topics is stale: ask soon, after the pause since the last answer."""
        self._rule.urge(sorted(topics))
        self._wake.set()

    def is_asked(self, topic: str) -> bool:
        """Whether an answer about it is waited for, or being taken."""
        return self._rule.is_asked(topic)

    def forget(self, topic: str) -> None:
        """Nobody uses it any more."""
        self.view.topics.pop(topic, None)
        self._rule.forget(topic)

    def shrink(self) -> None:
        """Many topics were forgotten."""
        shrink(self.view.topics)
        self._rule.shrink()

    def hint(self, topic: str, partition: int, leader: int, epoch: int, endpoints: Iterable[Any] = ()) -> bool:
        """A Produce answer told who leads a partition by now (KIP-951).

        Args:
            topic: its name.
            partition: its number.
            leader: the broker's id.
            epoch: of its election.
            endpoints: the answer's `node_endpoints`.

        Returns:
            Whether that is news that can be followed: the view, the nodes and the topic's owner know it then, and nobody needs to be asked.
        """
        if topic in self._taking:
            self._taking[topic].append((topic, partition, leader, epoch, endpoints))
            return True
        told = self.view.take_leader(topic, partition, leader, epoch, endpoints)
        if told is None:
            return False
        self._cluster.update(self.view.brokers)
        self._on_leader(told, partition)
        return True

    def meet(self, broker: Broker) -> bool:
        """An answer named a broker: it can be asked from now on. False: its address cannot be dialled."""
        is_usable = self.view.take_broker(broker)
        self._cluster.update(self.view.brokers)
        return is_usable

    async def bootstrap(self, timeout: float | None) -> None:
        """The first answer of any broker, however long that takes if `timeout` is None.

        Raises:
            BootstrapFailed: none within `timeout` seconds; the text names every address and its reason.
        """
        reasons: dict[str, KafkaError] = {}
        share = max((timeout or math.inf) / len(self._cluster.bootstrap), _PATIENCE)  # a silent address does not take the others' time
        try:
            async with asyncio.timeout(timeout):
                while not await self._ask(Question([]), reasons, timeout=share):
                    self._failed()
                    await asyncio.sleep(self._not_before - self._loop.time())
        except TimeoutError:
            told = "; ".join(_reason(node, reasons) for node in self._cluster.bootstrap)
            raise BootstrapFailed(
                f"no broker could be reached within {timeout:g} s. {told}. Check bootstrap_servers and that Kafka runs there."
            ) from None

    async def run(self) -> None:
        """The task."""
        while True:
            now = self._loop.time()
            while (question := self._rule.next_new(now)) is not None:
                self._spawn(self._answered(question), "metadata of new topics")
            if not self._is_refreshing and now >= self._not_before and (question := self._rule.next_other(now)) is not None:
                self._is_refreshing = True
                self._spawn(self._answered(question), "metadata refresh")
            await self._pause(now)

    async def _pause(self, now: float) -> None:
        """Until something is wanted, urged or answered, or what is not new is due."""
        until = math.inf if self._is_refreshing else max(self._rule.due_at(), self._not_before)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until if now < until < math.inf else None):  # what is due and was not asked for is under way
                await self._wake.wait()
        self._wake.clear()

    async def _answered(self, question: Question) -> None:
        """A task: one question, until its answer is taken."""
        is_answered = False
        try:
            is_answered = await self._ask(question, {})
            if not is_answered:
                self._failed()
        finally:
            self._is_refreshing &= question.is_new
            self._rule.ended(question, is_answered=is_answered)
            self._wake.set()

    def _failed(self) -> None:
        """Nobody answered."""
        now = self._loop.time()
        self._rest(in_vain=True)
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._recovery_time and self.view.brokers:
            self._rebootstrap()

    def _rebootstrap(self) -> bool:
        if not self._cluster.rebootstrap():
            return False
        self._failing_since = None
        self.urge(self._topics())
        return True

    def _rest(self, *, in_vain: bool) -> None:
        """The next question about what is not new waits."""
        self._in_vain = self._in_vain + 1 if in_vain else 0
        self._not_before = self._loop.time() + self._backoff.after(max(self._in_vain, 1), self._chance())

    # One question

    async def _ask(self, question: Question, reasons: dict[str, KafkaError], timeout: float = math.inf) -> bool:
        """One answer from whoever gives one; False if nobody does."""
        timeout = min(timeout, self._request_timeout)
        tried: set[BrokerNode] = set()
        is_anew = False
        while (node := self._candidate(tried, is_new=question.is_new)) is not None:
            tried.add(node)
            try:
                version, decoded = await self._told_by(node, question, timeout)
            except KafkaError as error:
                reasons[node.where] = self.trouble = error
                if isinstance(error, BrokerError) and error.code == _REBOOTSTRAP_REQUIRED and not is_anew:
                    is_anew = self._rebootstrap()
                continue
            self.trouble = self._failing_since = None
            self.answered_at = self._loop.time()
            self._rule.answered(self.answered_at)
            async with self._one_new if question.is_new else contextlib.nullcontext():
                await self._take(version, decoded, question)
            return True
        return False

    async def _told_by(self, node: BrokerNode, question: Question, timeout: float) -> tuple[int, Any]:
        """The version of a node's answer, and what it says; its brokers are taken."""
        self._asked[node] = self._asked.get(node, 0) + 1
        try:
            answer = await node.call(ApiKey.METADATA, partial(self._request, question.topics), timeout=timeout, patience=_PATIENCE)
        finally:
            self._asked[node] -= 1
            if not self._asked[node]:
                del self._asked[node]
        async with self._one_new if question.is_new else contextlib.nullcontext():
            decoded = await self._decode(node, answer)
        if answer.version >= _FIRST_WITH_MUTING:
            node.throttle(decoded.throttle_time_ms)
        self._check(node, decoded)
        return answer.version, decoded

    def _candidate(self, tried: Container[BrokerNode], *, is_new: bool) -> BrokerNode | None:
        """Whom to ask next: about new topics, rather a broker whose other lane stands than one that has yet to answer something else."""
        nodes = [node for node in self._cluster.candidates() if node not in tried]
        free = (node for node in nodes if node not in self._asked and node.standing <= Standing.ALIVE) if is_new else ()
        return next(iter((*free, *nodes)), None)

    def _request(self, topics: list[str], version: int) -> Any:
        if not self._auto_create and version < _FIRST_WITH_AUTO_CREATION:
            raise ProtocolError("a broker this old creates every topic that it is asked for: allow_auto_create_topics must be true")
        asked = [message("Metadata.request.topics", name=topic) for topic in topics]
        return message("Metadata.request", topics=asked, allow_auto_topic_creation=self._auto_create)

    async def _decode(self, node: BrokerNode, answer: Answer) -> Any:
        try:
            if len(answer.frame) < _SMALL:
                return answer.decode()
            self._begin_slice()
            return await self.slices(answer.decode_in_steps())
        except ProtocolError as error:
            node.control.distrust(error)
            raise

    def _begin_slice(self) -> None:
        self._slice_ends = self._loop.time() + _SLICE

    async def _breathe(self) -> None:
        """Let others run if this slice is over."""
        if self._loop.time() >= self._slice_ends:
            await asyncio.sleep(0)
            self._begin_slice()

    async def slices(self, steps: Steps[T]) -> T:
        """All of it, a slice in each turn of the loop."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                value: T = end.value
                return value
            await self._breathe()

    def _check(self, node: BrokerNode, decoded: Any) -> None:
        """Take the answer's brokers, or raise why it is none."""
        if decoded.error_code:
            raise broker_error(decoded.error_code)
        if not self.view.is_of(decoded.cluster_id):
            change = f"{node.where} belongs to cluster {decoded.cluster_id!r}, not {self.view.cluster_id!r}"
            if node.broker.node_id >= 0:  # its address is another cluster's by now: what bootstrap_servers name decides
                raise ConnectionLost(change)
            _log.warning("%s: producing goes on there", change)
            self.urge(self._topics())
        if not self.view.take_cluster(decoded):
            raise ProtocolError("it knows no brokers yet")
        self._cluster.update(self.view.brokers)

    async def _take(self, version: int, decoded: Any, question: Question) -> None:
        """Take the answer's topics one by one, and let go of each: to free them all at once would hold the loop."""
        wanted = dict.fromkeys(question.topics)
        told: set[str] = set()
        unsettled: dict[str, None] = {}
        self._begin_slice()
        topics, decoded.topics = deque(decoded.topics), ()
        while topics:
            each = topics.popleft()
            if each.name in wanted:  # of others it may tell another question at the same time
                told |= await self._take_topic(each, unsettled, has_epochs=version >= _FIRST_WITH_EPOCHS)
            while each.partitions:
                del each.partitions[-STRIDE:]
                await self._breathe()  # also after a topic that is as it was: that took as long to see
        for name in filterfalse(told.__contains__, wanted):
            await self._leave_out(name, unsettled)
        if not question.is_new:
            self._rest(in_vain=bool(unsettled) or (bool(question.urged) and not told.intersection(question.urged)))
        elif unsettled and self._loop.time() >= self._not_before:
            self._rest(in_vain=True)
        self._rule.urge(unsettled)

    async def _take_topic(self, each: Any, unsettled: dict[str, None], *, has_epochs: bool) -> set[str]:
        """Its name, unless it is told nothing new of."""
        self._taking[each.name] = []
        topic = await self.slices(self.view.taking(each, has_epochs=has_epochs))
        if topic is not None:
            await self._tell(topic, unsettled)
        self._end_taking(each.name)
        return {topic.name} if topic is not None else set()

    async def _leave_out(self, name: str, unsettled: dict[str, None]) -> None:
        """The answer tells nothing new of a topic that was asked for: it is as it was."""
        if name in self.view.topics:
            self._taking[name] = []
            await self._tell(self.view.topics[name], unsettled)
            self._end_taking(name)
            await self._breathe()
        else:
            unsettled[name] = None

    async def _tell(self, topic: TopicView, unsettled: dict[str, None]) -> None:
        """Its owner takes it over. What stays unknown, or nobody needs by now, is not remembered."""
        if await self.slices(topic.may_settle()):
            unsettled[topic.name] = None
        await self.slices(self._on_topic(topic))
        if topic.error is None and self._is_needed(topic.name):
            self._rule.told(topic.name, self._loop.time())
        else:
            self.forget(topic.name)

    def _end_taking(self, name: str) -> None:
        for hint in self._taking.pop(name):
            if not self.hint(*hint):
                self.urge([name])


def _reason(node: BrokerNode, reasons: dict[str, KafkaError]) -> str:
    """Why a bootstrap address gave no metadata."""
    told = str(node.control.last_error or reasons.get(node.where) or "no answer yet")
    return told if told.startswith(node.where) else f"{node.where}: {told}"
