"""The metadata task: sends the requests of `core.metadata.metadata_schedule` and applies the answers.

1. A topic that a send waits for is requested at once, together with the others of the same event-loop iteration (MET-02). The request
   uses a connection without another metadata request, if there is one.
2. Requests for topics that are not new are separated by a pause. The pause grows while answers do not help: an error, no leader, nothing
   new (MET-06). So a leaderless partition costs a few requests a second, not thousands.
3. The cluster chooses the broker. The task does not wait long for one broker while it can ask others. If no known broker can be reached,
   it starts over at the bootstrap addresses (KIP-899). It also does if none has answered for a while, or a broker asks for it (KIP-1102),
   or a known broker belongs to another cluster (KIP-1242). The bootstrap addresses alone decide on the cluster.
4. A large answer is decoded and applied in slices, one in each event-loop iteration, even within one large topic. So it never blocks the
   event loop. The answers about new topics are applied one at a time, beside one answer about other topics. A leader hint for a topic
   that is being applied waits until that is done.
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

from aioproducer.core.metadata.cluster_metadata import STRIDE
from aioproducer.core.metadata.metadata_schedule import Question, shrink
from aioproducer.core.topic_updates import forgetting
from aioproducer.errors import (
    AuthenticationFailed,
    BootstrapFailed,
    BrokerError,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    broker_error,
)
from aioproducer.net.cluster import Standing
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Sequence

    from aioproducer.core.metadata.cluster_metadata import Broker, ClusterMetadata, TopicView
    from aioproducer.core.metadata.metadata_schedule import MetadataSchedule
    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.metadata.topic_waiters import TopicWaiters
    from aioproducer.engine.wiring import EngineParts
    from aioproducer.net.cluster import BrokerNode, Cluster
    from aioproducer.net.connection import Answer

# A broker that starts, or that does not know a user yet, gets a second attempt, unless so many refuse in all.
_REFUSALS: Final = 2
_REFUSALS_IN_ALL: Final = 3


class BootstrapFailures:
    """Holds the latest failure of each bootstrap address.

    Args:
        nodes: the nodes of the bootstrap addresses.
    """

    def __init__(self, nodes: Sequence[BrokerNode]) -> None:
        self._nodes = nodes
        self._errors: dict[str, KafkaError] = {}

    def note(self, node: BrokerNode, error: KafkaError) -> None:
        """Note that a request to a node failed."""
        self._errors[node.where] = error

    @property
    def is_final(self) -> bool:
        """Return True if every address was tried, one was refused twice or three were refused, and none let this client in.

        The refusals are those of the connections: a request may have stopped to wait before its connection was refused. Also if no
        broker offers the request: none will later.
        """
        if all(_offers_none(self._errors.get(node.where)) for node in self._nodes):
            return True
        refusals = [node.control.refusals for node in self._nodes]
        return (
            (max(refusals) >= _REFUSALS or sum(refusals) >= _REFUSALS_IN_ALL)
            and all(node.control.failures or node.where in self._errors for node in self._nodes)
            and all(
                isinstance(error, (AuthenticationFailed, ConnectionLost))
                for error in self._errors.values()
            )
        )

    def refused(self) -> BootstrapFailed:
        """Return the error of a start that is refused; its cause is the refusal."""
        refused = max(self._nodes, key=lambda node: node.control.refusals)
        raised = BootstrapFailed(f"no broker let this client in. {self._told()}")
        raised.__cause__ = refused.control.last_error
        return raised

    def timed_out(self, timeout: float) -> BootstrapFailed:
        """Return the error of a start that took `timeout` seconds."""
        return BootstrapFailed(
            f"no broker could be reached within {round(timeout, 3):g} s. {self._told()}. Check bootstrap_servers and that Kafka runs there."
        )

    def _told(self) -> str:
        return "; ".join(map(self._reason, self._nodes))

    def _reason(self, node: BrokerNode) -> str:
        told = str(
            node.control.last_error
            or self._errors.get(node.where)
            or node.control.delay()
            or "no answer yet"
        )
        return told if told.startswith(node.where) else f"{node.where}: {told}"


_log = logging.getLogger(__name__)
_T = TypeVar("_T")
# Seconds of decoding and applying in one event-loop iteration.
_SLICE: Final = 0.001
# Bytes: a smaller answer is decoded at once.
_SMALL: Final = 16_384
# Seconds to wait for a connection before another broker is asked. The connection is still made.
_PATIENCE: Final = 1.0
# In older versions, a request cannot forbid the creation of topics.
_FIRST_WITH_AUTO_CREATION: Final = 4
# In older versions, the broker waits itself before it answers (KIP-219).
_FIRST_WITH_MUTING: Final = 6
# In older versions, the leader epochs are not reliable (KAFKA-9212).
_FIRST_WITH_EPOCHS: Final = 9
_REBOOTSTRAP_REQUIRED: Final = 129
# Brokers of one answer. Each gets a node, which takes 30 us, all in one step. Kafka's largest clusters have about a thousand.
_MOST_BROKERS: Final = 2_048
# Seconds between two warnings that the address of a known broker leads to another cluster. A balancer may lead to several clusters.
_BETWEEN: Final = 10.0


class _AnotherCluster(ConnectionLost):
    """Reports that the address of a known broker leads to another cluster.

    Attributes:
        is_news: whether it is the first report in `_BETWEEN` seconds.
    """

    is_news = False


def _offers_none(error: KafkaError | None) -> bool:
    return isinstance(error, BrokerError) and error.name == "UNSUPPORTED_VERSION"


def _wants_rebootstrap(error: KafkaError) -> bool:
    """Return whether an error shows that the known brokers are not to be asked any more."""
    if isinstance(error, BrokerError):
        return error.code == _REBOOTSTRAP_REQUIRED
    return isinstance(error, _AnotherCluster) and error.is_news


class MetadataUpdater:
    """Keeps the cluster metadata, and passes on each topic that was requested or has changed.

    Args:
        view: the known metadata.
        schedule: decides which topics to request, and when.
        wake: is set when `schedule` may have a request earlier than before.

    Attributes:
        view, schedule: as given.
        topics: applies the topics, and knows which are used; set after both are made. None: the brokers alone are of interest.
        answered_at: the loop's time of the latest answer.
    """

    def __init__(
        self,
        context: EngineContext,
        cluster: Cluster,
        view: ClusterMetadata,
        schedule: MetadataSchedule,
        wake: asyncio.Event,
    ) -> None:
        self.view = view
        self.schedule = schedule
        self.topics: TopicWaiters | None = None
        self._cluster = cluster
        self._config = context.config
        self._supervisor = context.supervisor
        self._backoff = context.backoff
        self._chance = context.chance
        self._in_vain = 0
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._is_refreshing = False
        # The answers about new topics are applied one after another.
        self._one_new = asyncio.Lock()
        # The number of requests in flight, by node.
        self._asked: dict[BrokerNode, int] = {}
        self._not_before = 0.0
        self._slice_ends = 0.0
        # The topics that are being applied, and the waiting leader hints for them.
        self._taking: dict[str, list[tuple[Any, ...]]] = {}
        schedule.answered(self._loop.time())
        self._failing_since: float | None = None
        # Until then, another cluster at a known broker's address is no news.
        self._quiet_until = 0.0
        self.answered_at: float = self._loop.time()

    def forget(self, topic: str) -> None:
        """Forget a topic that is no longer used."""
        self.view.forget(topic)
        self.schedule.forget(topic)

    def hint(
        self, topic: str, partition: int, leader: int, epoch: int, endpoints: Iterable[Any] = ()
    ) -> bool:
        """Apply the new leader of a partition that a Produce answer named (KIP-951).

        Args:
            topic: its name.
            partition: its number.
            leader: the broker's id.
            epoch: of its election.
            endpoints: the answer's `node_endpoints`.

        Returns:
            True if the leader is new and its address is known. Then the view, the nodes and `on_leader` have it, and no metadata request
            is needed. Also True if the hint waits until its topic has been applied.
        """
        if topic in self._taking:
            self._taking[topic].append((topic, partition, leader, epoch, endpoints))
            return True
        told = self.view.take_leader(topic, partition, leader, epoch, endpoints)
        if told is None:
            return False
        self._cluster.update(self.view.brokers)
        assert self.topics is not None
        self.topics.on_leader(told, partition)
        return True

    def add_coordinator(self, broker: Broker) -> bool:
        """Add a broker that an answer named, so that it can be asked. Returns False if its address is not usable."""
        is_usable = self.view.take_broker(broker)
        self._cluster.update(self.view.brokers)
        return is_usable

    async def bootstrap(self, timeout: float | None) -> None:
        """Wait for the first answer of any broker, at most `timeout` seconds; None: without a limit.

        Raises:
            BootstrapFailed: no broker answered within `timeout` seconds, or, with a limit, the brokers refuse this client, or it refuses
                them, or has no token for them; the text names every address and its reason.
            ConfigError: the files of the TLS options cannot be used. Without a limit, they are tried again at each dial.
        """
        failures = BootstrapFailures(self._cluster.bootstrap)
        # An address that does not answer does not use up the time of the others.
        share = max((timeout or math.inf) / len(self._cluster.bootstrap), _PATIENCE)
        try:
            async with asyncio.timeout(timeout):
                if timeout is not None:
                    await self._cluster.prepare()
                while not await self._ask(
                    Question([]), failures if timeout is not None else None, timeout=share
                ):
                    if timeout is not None and (failures.is_final or self._cluster.has_no_token):
                        raise failures.refused()
                    self._failed()
                    await asyncio.sleep(self._not_before - self._loop.time())
        except TimeoutError:
            assert timeout is not None
            raise failures.timed_out(timeout) from None

    async def run(self) -> None:
        """Send the requests that are due, each in a task of its own. The body of the metadata task."""
        while True:
            now = self._loop.time()
            while (question := self.schedule.next_new(now)) is not None:
                self._supervisor.spawn(self._answered(question), "metadata of new topics")
            if (
                not self._is_refreshing
                and now >= self._not_before
                and (question := self.schedule.next_other(now, self._is_needed)) is not None
            ):
                self._is_refreshing = True
                self._supervisor.spawn(self._answered(question), "metadata refresh")
            await self._pause(now)

    def _is_needed(self, topic: str) -> bool:
        return self.topics is not None and self.topics.is_needed(topic)

    async def _pause(self, now: float) -> None:
        """Wait until a request for topics or an answer wakes the task, or until the next request for topics that are not new is due."""
        until = math.inf if self._is_refreshing else max(self.schedule.due_at(), self._not_before)
        with contextlib.suppress(TimeoutError):
            # A topic that is due and was not requested is in another request already.
            async with asyncio.timeout_at(until if now < until < math.inf else None):
                await self._wake.wait()
        self._wake.clear()

    async def _answered(self, question: Question) -> None:
        """Send one request and apply its answer. The body of a task."""
        is_answered = False
        try:
            is_answered = await self._ask(question)
            if not is_answered:
                self._failed()
        finally:
            self._is_refreshing &= question.is_new
            self.schedule.ended(question, is_answered=is_answered)
            self._wake.set()

    def _failed(self) -> None:
        """Note that no broker answered, and start over at the bootstrap addresses after a while (`metadata_recovery_rebootstrap_trigger_ms`)."""
        now = self._loop.time()
        self._rest(in_vain=True)
        if self._failing_since is None:
            self._failing_since = now
        if (
            now - self._failing_since
            >= self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
            and self.view.brokers
        ):
            self._rebootstrap()

    def _rebootstrap(self) -> bool:
        if not self._cluster.rebootstrap():
            return False
        self._failing_since = None
        self._request_all()
        return True

    def _request_all(self) -> None:
        if self.topics is not None:
            self.schedule.request_update(sorted(self.topics.topics()))

    def _rest(self, *, in_vain: bool) -> None:
        """Delay the next request for topics that are not new. `in_vain`: the answer did not help, so the pause grows."""
        self._in_vain = self._in_vain + 1 if in_vain else 0
        self._not_before = self._loop.time() + self._backoff.after(
            max(self._in_vain, 1), self._chance()
        )

    # One request

    async def _ask(
        self,
        question: Question,
        failures: BootstrapFailures | None = None,
        timeout: float = math.inf,
    ) -> bool:
        """Ask one broker after the other until one answers, and apply the answer. Returns False if none answers, or `failures` is final."""
        timeout = min(timeout, self._config.request_timeout_ms / 1000)
        tried: set[BrokerNode] = set()
        is_anew = False
        while (node := self._candidate(tried, is_new=question.is_new)) is not None:
            tried.add(node)
            try:
                version, decoded = await self._told_by(node, question, timeout)
            except KafkaError as error:
                self.schedule.failed(error)
                if failures is not None:
                    failures.note(node, error)
                    if failures.is_final:
                        return False
                is_anew = is_anew or (_wants_rebootstrap(error) and self._rebootstrap())
                continue
            self._failing_since = None
            self.answered_at = self._loop.time()
            self.schedule.answered(self.answered_at)
            async with self._one_new if question.is_new else contextlib.nullcontext():
                await self._take(version, decoded, question)
            return True
        return False

    async def _told_by(
        self, node: BrokerNode, question: Question, timeout: float
    ) -> tuple[int, Any]:
        """Request metadata from a node and make nodes of the brokers of its answer. Returns the version and the decoded answer."""
        self._asked[node] = self._asked.get(node, 0) + 1
        try:
            answer = await node.call(
                ApiKey.METADATA,
                partial(self._request, question.topics),
                timeout=timeout,
                patience=_PATIENCE,
            )
        finally:
            self._asked[node] -= 1
            if not self._asked[node]:
                del self._asked[node]
        async with self._one_new if question.is_new else contextlib.nullcontext():
            decoded = await self._decode(node, answer)
        if answer.version >= _FIRST_WITH_MUTING:
            node.throttle(decoded.throttle_time_ms)
        self._check(node, decoded)
        self._cluster.update(self.view.brokers)
        return answer.version, decoded

    def _candidate(self, tried: Container[BrokerNode], *, is_new: bool) -> BrokerNode | None:
        """Return the next node to ask; None: all were tried.

        For new topics, a node with a usable connection and no metadata request in flight comes first.
        """
        nodes = [node for node in self._cluster.candidates() if node not in tried]
        free = (
            (node for node in nodes if node not in self._asked and node.standing <= Standing.ALIVE)
            if is_new
            else ()
        )
        return next(iter((*free, *nodes)), None)

    def _request(self, topics: list[str], version: int) -> Any:
        if not self._config.allow_auto_create_topics and version < _FIRST_WITH_AUTO_CREATION:
            raise ProtocolError(
                "a broker this old creates every topic that it is asked for: allow_auto_create_topics must be true"
            )
        asked = [message("Metadata.request.topics", name=topic) for topic in topics]
        return message(
            "Metadata.request",
            topics=asked,
            allow_auto_topic_creation=self._config.allow_auto_create_topics,
        )

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
        """Let other tasks run if this slice is over."""
        if self._loop.time() >= self._slice_ends:
            await asyncio.sleep(0)
            self._begin_slice()

    async def slices(self, steps: Generator[None, None, _T]) -> _T:
        """Run all steps, one slice in each event-loop iteration. Returns their result."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                value: _T = end.value
                return value
            await self._breathe()

    def _check(self, node: BrokerNode, decoded: Any) -> None:
        """Put the brokers of an answer into the view. Raises if the answer cannot be used: an error, another cluster, no brokers or too many."""
        if decoded.error_code:
            raise broker_error(decoded.error_code)
        if len(decoded.brokers) > _MOST_BROKERS:
            raise ProtocolError(
                f"{node.where} names {len(decoded.brokers)} brokers, and no more than {_MOST_BROKERS} are taken"
            )
        if not self.view.is_of(decoded.cluster_id):
            change = f"{node.where} belongs to cluster {decoded.cluster_id!r}, not {self.view.cluster_id!r}"
            if node.broker.node_id >= 0:
                another = _AnotherCluster(change)
                another.is_news = self._loop.time() >= self._quiet_until
                if another.is_news:
                    self._quiet_until = self._loop.time() + _BETWEEN
                    _log.warning("%s: its answer does not count", change)
                node.produce.distrust(another)
                node.control.distrust(another)
                raise another
            _log.warning("%s: producing goes on there", change)
            # The brokers there may have the ids and addresses of the known ones, whose connections are closed by this.
            self._cluster.update({})
            if self.topics is not None:
                self.topics.leave_cluster()
            self._request_all()
        if not self.view.take_cluster(decoded):
            raise ProtocolError("it knows no brokers yet")

    async def _take(self, version: int, decoded: Any, question: Question) -> None:
        """Apply the topics of an answer one by one, and free each: to free all of them at once would block the event loop."""
        wanted = dict.fromkeys(question.topics)
        told: set[str] = set()
        unsettled: dict[str, None] = {}
        self._begin_slice()
        topics, decoded.topics = deque(decoded.topics), ()
        while topics:
            each = topics.popleft()
            # Another answer may be changing the other topics at the same time.
            if each.name in wanted:
                self._taking[each.name] = []
                has_epochs, is_urged = version >= _FIRST_WITH_EPOCHS, each.name in question.urged
                topic = await self.slices(
                    self.view.taking(each, has_epochs=has_epochs, is_urged=is_urged)
                )
                if topic is not None:
                    told.add(topic.name)
                    await self._tell(topic, unsettled)
                self._end_taking(each.name)
            while each.partitions:
                del each.partitions[-STRIDE:]
                # Also after an unchanged topic: the comparison took as long.
                await self._breathe()
        for name in filterfalse(told.__contains__, wanted):
            # The answer leaves it out, or does not change it: its known metadata stays. One that is not known is requested again.
            if name in self.view.topics:
                self._taking[name] = []
                await self._tell(self.view.topics[name], unsettled)
                self._end_taking(name)
                await self._breathe()
            else:
                unsettled[name] = None
        if not question.is_new:
            self._rest(
                in_vain=bool(unsettled)
                or (bool(question.urged) and not told.intersection(question.urged))
            )
        elif unsettled and self._loop.time() >= self._not_before:
            self._rest(in_vain=True)
        self.schedule.request_update(unsettled)

    async def _tell(self, topic: TopicView, unsettled: dict[str, None]) -> None:
        """Pass a topic on. A topic that has an error, or is no longer needed, is forgotten."""
        assert self.topics is not None
        if await self.slices(topic.may_settle()):
            unsettled[topic.name] = None
        await self.slices(self.topics.on_topic(topic))
        if topic.error is None and self._is_needed(topic.name):
            self.schedule.told(topic.name, self._loop.time())
        else:
            self.forget(topic.name)

    def _end_taking(self, name: str) -> None:
        for hint in self._taking.pop(name):
            if not self.hint(*hint):
                self.schedule.request_update([name])


async def forget_idle_topics(parts: EngineParts) -> None:
    """Forget the topics that had no new batch for `metadata_max_idle_ms`, with all state of each (KIP-526). The body of a task.

    A topic is in use while a request asks for it, a send waits for it, or a batch of it has not ended. The age of that batch does not
    matter. For a later send, a forgotten topic is an unknown topic.
    """
    loop, rule = asyncio.get_running_loop(), parts.topic_expiry
    while True:
        now = loop.time()
        when = rule.next_look(now)
        await asyncio.sleep(when - now)
        for topic in rule.idle(max(loop.time(), when)):
            if not await _forget(parts, topic):
                rule.put_off(topic, loop.time())
            elif rule.forgot():
                shrink(parts.partition_queues.routings)
                shrink(parts.updater.view.topics)
                parts.updater.schedule.shrink()
                parts.instruments.metrics.shrink()
            await asyncio.sleep(0)


async def _forget(parts: EngineParts, topic: str) -> bool:
    """Forget an idle topic. Returns False if it is in use."""

    def is_in_use(topic: str) -> bool:
        return parts.updater.schedule.is_asked(topic) or parts.admission.topics.is_waited_for(topic)

    def forget(topic: str) -> None:
        parts.updater.forget(topic)
        parts.ratios.forget(topic)
        parts.appender.forget(topic)
        parts.validation.encodings.forget(topic)
        parts.instruments.forget_topic(topic)
        if parts.circuit_break_manager is not None:
            parts.circuit_break_manager.forget(topic)

    routings = parts.partition_queues.routings
    return await parts.updater.slices(
        forgetting(parts.partition_queues, routings[topic], is_in_use, forget)
    )
