"""Asks coordinators for calls that wait for the answer: finds the coordinator, and tries again what passes.

The calls: committed offsets of a consumer group, among them the position of a job (OffsetFetch, KIP-447); offsets that are committed outside
transactions (OffsetCommit); the end of a prepared transaction (EndTxn); lists and descriptions of transactions (KIP-664).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.core.retries import Backoff
from aioproducer.core.transactions.transaction import Coordinator, Request
from aioproducer.core.transactions.transaction_errors import REMEDIES, Rpc
from aioproducer.engine.transactions import requests
from aioproducer.errors import (
    BrokerError,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    TransactionTimeout,
    TransportError,
    broker_error,
)
from aioproducer.model import (
    OffsetAndMetadata,
    Position,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    counted,
)
from aioproducer.offsets import POSITION_PARTITION
from aioproducer.wire.api import NAMES, ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from aioproducer.engine.context import EngineContext
    from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
    from aioproducer.model import ConsumerGroupMetadata, PreparedTransaction
    from aioproducer.net.cluster import BrokerNode, Cluster


# Seconds to wait for a connection.
_PATIENCE: Final = 3.0
# Keys of one request.
_MOST: Final = 100
# Coordinators that are remembered.
_MOST_KNOWN: Final = 16_384


T = TypeVar("T")
# After these errors, the coordinator is another one.
_MOVED: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
# Seconds of backoff: Kafka's value for CONCURRENT_TRANSACTIONS (TXN-11).
_QUICK: Final = 0.02
# In older versions, the broker waits itself before it answers (KIP-219). For the other requests there is no such version.
_FIRST_WITH_MUTING: Final = {ApiKey.OFFSET_COMMIT: 4, ApiKey.OFFSET_FETCH: 4, ApiKey.END_TXN: 1}
_HINT: Final = "Call it again."
_REMEDIES: Final = {
    **REMEDIES,
    **dict.fromkeys(
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
        "A newer producer has the transactional_id, or the transaction timed out.",
    ),
    "INVALID_TXN_STATE": "The transaction has ended the other way, or timed out.",
    **dict.fromkeys(
        ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH", "FENCED_INSTANCE_ID"),
        "The group has consumers: stop them, or give the ConsumerGroupMetadata that one of them has now.",
    ),
}


class Exchange(NamedTuple, Generic[T]):
    """Holds a request and the reader of its answer.

    Attributes:
        key: the request's API key.
        body: makes the request's message for a version.
        read: returns the content of a decoded answer of a version, or raises its BrokerError.
        newest: the newest version that may be used; None: any.
    """

    key: ApiKey
    body: Callable[[int], Any]
    read: Callable[[int, Any], T]
    newest: int | None = None


class CoordinatorCalls:
    """Makes the calls of one client to coordinators. A call sends its own requests, and its cancellation ends them.

    An error that passes is tried again until `max_block_ms`: a lost connection or answer, a coordinator that has moved or loads, and each
    error that Kafka calls retriable. Any other error is raised at once, and its request is never sent again.

    The coordinators that are looked up in one event-loop iteration share a request (KIP-699), so that hundreds of transactions can be ended
    at once. A look-up goes on after the cancellation of a call that waits for it: others may wait for it, too.

    Args:
        updater: adds the address of a coordinator to the cluster.
    """

    def __init__(self, context: EngineContext, cluster: Cluster, updater: MetadataUpdater) -> None:
        self._max_block = context.config.max_block_ms / 1000
        self._request_timeout = context.config.request_timeout_ms / 1000
        self._backoff = context.backoff
        self._quick = Backoff(min(_QUICK, context.backoff.first), context.backoff.first)
        self._chance = context.chance
        self._supervisor = context.supervisor
        self._cluster = cluster
        self._updater = updater
        self._loop = asyncio.get_running_loop()
        self._open: set[asyncio.Timeout] = set()
        self._end: Callable[[], Exception] | None = None
        # The node ids of coordinators.
        self._known: dict[Coordinator, int] = {}
        # The keys of the next look-up, by key type; and all keys that are looked up.
        self._next: dict[int, list[Coordinator]] = {}
        self._found: dict[Coordinator, asyncio.Future[BrokerNode]] = {}

    async def ask(self, at: Coordinator, exchange: Exchange[T], call: str) -> T:
        """Send a request to a coordinator until it is answered. Returns the content of the answer.

        Args:
            at: the coordinator.
            exchange: the request.
            call: names the caller, and what it is about, in errors.

        Raises:
            BrokerError: the request is refused, and would be refused again.
            TransactionTimeout: there was no answer within `max_block_ms`.
        """
        return (await self.ask_each([at], lambda _keys: exchange, call))[0]

    async def repeat(self, attempt: Callable[[], Awaitable[T]], call: str) -> T:
        """Make attempts until one succeeds. Returns its result. Raises: as `ask`."""
        trouble: KafkaError | None = None
        failures = 0
        scope = asyncio.timeout(self._max_block)
        try:
            async with scope:
                self._open.add(scope)
                while self._end is None:
                    try:
                        return await attempt()
                    except (TransportError, BrokerError) as error:
                        if isinstance(error, BrokerError) and not error.retriable:
                            raise
                        trouble = error
                    failures += 1
                    await asyncio.sleep(self._pause(trouble, failures))
        except TimeoutError:
            if self._end is None:
                why = f": {trouble}" if trouble is not None else ": no answer yet"
                text = f"{call} did not end within max_block_ms={self._max_block * 1000:.15g}{why}"
                raise TransactionTimeout(text, _HINT) from trouble
        finally:
            self._open.discard(scope)
        assert self._end is not None
        raise self._end()

    def _pause(self, trouble: KafkaError, failures: int) -> float:
        is_quick = isinstance(trouble, BrokerError) and trouble.name == "CONCURRENT_TRANSACTIONS"
        return (self._quick if is_quick else self._backoff).after(failures, self._chance())

    async def ask_each(
        self,
        coordinators: Iterable[Coordinator],
        exchange: Callable[[list[Coordinator]], Exchange[T]],
        call: str,
    ) -> list[T]:
        """Send a request to each of the brokers that coordinate some keys, until all have answered. Returns the contents of the answers.

        Args:
            coordinators: the keys.
            exchange: makes the request of one broker, for its keys.
            call: names the caller in errors.

        Raises: as `ask`.
        """
        wanted = list(coordinators)
        return await self.repeat(lambda: self._ask_each(wanted, exchange), call)

    async def _ask_each(
        self, coordinators: list[Coordinator], exchange: Callable[[list[Coordinator]], Exchange[T]]
    ) -> list[T]:
        together: dict[BrokerNode, list[Coordinator]] = {}
        try:
            # All look-ups begin before the first is waited for: they share a request.
            found = {
                at: self._cluster.node(self._known.get(at, -1)) or self._look_up(at)
                for at in coordinators
            }
            for at, node in found.items():
                together.setdefault(
                    await asyncio.shield(node) if isinstance(node, asyncio.Future) else node, []
                ).append(at)
            return [
                await self.send(
                    node,
                    exchange(keys),
                    str(keys[0]) if len(keys) == 1 else counted(len(keys), "transactional_id"),
                )
                for node, keys in together.items()
            ]
        except (TransportError, BrokerError) as error:
            # They cannot be reached, or are no longer coordinators.
            if isinstance(error, TransportError) or error.name in _MOVED:
                for at in coordinators:
                    self._known.pop(at, None)
            raise

    def _look_up(self, at: Coordinator) -> asyncio.Future[BrokerNode]:
        if at not in self._found:
            self._found[at] = self._loop.create_future()
            keys = self._next.setdefault(at.key_type, [])
            keys.append(at)
            if (
                len(keys) == 1
                and self._supervisor.spawn(
                    self._look_up_all(at.key_type, keys), "look-up of coordinators"
                )
                is None
            ):
                del self._next[at.key_type]
                return self._end_look_up(at, ConnectionLost("no broker can be asked"))
        return self._found[at]

    async def _look_up_all(self, key_type: int, keys: list[Coordinator]) -> None:
        """Look up the keys of one event-loop iteration. The body of a task."""
        trouble: KafkaError = ConnectionLost("the look-up of coordinators was ended")
        left = keys
        try:
            await asyncio.sleep(0)
            self._next.pop(key_type, None)
            while left:
                left = await self._look_up_some(key_type, left)
        except (TransportError, BrokerError) as error:
            trouble = error
        finally:
            if self._next.get(key_type) is keys:
                del self._next[key_type]
            for at in left:
                if at in self._found:
                    self._end_look_up(at, trouble)

    async def _look_up_some(self, key_type: int, keys: list[Coordinator]) -> list[Coordinator]:
        """Ask a broker for as many keys as one request has. Returns the keys that are left."""
        node = await self._cluster.reach(_PATIENCE)
        asked = [at.key for at in islice(keys, _MOST)]
        answer = await node.call(
            ApiKey.FIND_COORDINATOR,
            lambda version: requests.find_coordinators(key_type, asked, version),
            timeout=self._request_timeout,
            patience=_PATIENCE,
        )
        decoded = node.decode(answer)
        several = len(asked) if answer.version >= requests.FIRST_WITH_MANY else 1
        for at in keys[:several]:
            response = requests.read(Request(Rpc.FIND_COORDINATOR, at), answer.version, decoded)
            if response.mute_ms > 0:
                node.throttle(response.mute_ms)
            self._end_look_up(at, self._coordinator(at, response))
        return keys[several:]

    def _coordinator(
        self, at: Coordinator, response: requests.TransactionResponse
    ) -> BrokerNode | KafkaError:
        """Return the node that an answer names, or why there is none."""
        if response.coordinator is None:
            return _refusal(next(iter(response.errors.values())), Rpc.FIND_COORDINATOR, str(at))
        broker = Broker(*response.coordinator)
        node = self._cluster.node(broker.node_id) if self._updater.add_coordinator(broker) else None
        if node is None:
            return ConnectionLost(
                f"broker {broker.node_id}, the coordinator of {at.key!r}, has no usable address"
            )
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[at] = broker.node_id
        return node

    def _end_look_up(
        self, at: Coordinator, outcome: BrokerNode | KafkaError
    ) -> asyncio.Future[BrokerNode]:
        future = self._found.pop(at)
        if isinstance(outcome, KafkaError):
            future.set_exception(outcome)
            # The calls that wait for it may have been cancelled.
            future.exception()
        else:
            future.set_result(outcome)
        return future

    async def send(self, node: BrokerNode, exchange: Exchange[T], about: str) -> T:
        """Send a request to a node once. Returns the content of the answer. `about`: the resource, for errors.

        Raises:
            TransportError: there was no answer.
            BrokerError: the answer is an error, or the broker does not know the request.
        """
        answer = await node.call(
            exchange.key,
            exchange.body,
            timeout=self._request_timeout,
            patience=_PATIENCE,
            newest=exchange.newest,
        )
        decoded = node.decode(answer)
        if decoded.throttle_time_ms > 0 and answer.version >= _FIRST_WITH_MUTING.get(
            exchange.key, 0
        ):
            node.throttle(decoded.throttle_time_ms)
        try:
            return exchange.read(answer.version, decoded)
        except BrokerError as error:
            raise _refusal(error, NAMES[exchange.key], about) from None

    def close(self, error: Callable[[], Exception]) -> None:
        """End the waiting calls, and each later one, with `error`, because the client ends."""
        self._end = error
        now = self._loop.time()
        for scope in self._open:
            # A scope whose time is over is ending by itself.
            with contextlib.suppress(RuntimeError):
                scope.reschedule(now)


def _refusal(error: BrokerError, request: str, about: str) -> BrokerError:
    """Return an error that names the request that was refused, its resource, and the remedy if there is one."""
    told = f"{request} for {about} was refused" + (f": {error.message}" if error.message else "")
    remedy = _REMEDIES.get(error.name)
    return BrokerError(error.error, f"{told}. {remedy}" if remedy else told)


# The OffsetFetch version that can ask for all topics.
_FIRST_OF_ALL: Final = 2
# The OffsetFetch version that can leave out offsets of open transactions (KIP-447).
_FIRST_STABLE: Final = 7
# The OffsetFetch version with several groups.
_FIRST_WITH_GROUPS: Final = 8
# From version 10 on, OffsetFetch and OffsetCommit name topics by id.
_NEWEST: Final = 9


async def committed_offset(
    calls: CoordinatorCalls, group_id: str, topic: str, call: str, *, is_stable: bool = True
) -> Position | None:
    """Return the committed offset of partition 0 of a topic, and its metadata; None: the group has committed none.

    The arguments and the errors are those of `committed_offsets`.
    """
    found = (await committed_offsets(calls, group_id, call, topic, is_stable=is_stable)).get(
        TopicPartition(topic, POSITION_PARTITION)
    )
    return None if found is None else Position(found.offset, found.metadata)


async def committed_offsets(
    calls: CoordinatorCalls,
    group_id: str,
    call: str,
    topic: str | None = None,
    *,
    is_stable: bool = True,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all offsets that a group has committed, but for topics that may not be described.

    Args:
        calls: sends the request.
        group_id: the group.
        call: names the caller in errors.
        topic: the topic of which partition 0 alone is asked for; None: all partitions of all topics are.
        is_stable: wait while an open transaction holds one of the offsets.

    Raises:
        BrokerError: the broker refuses the request, and would refuse it again.
        TransactionTimeout: there was no answer within `max_block_ms`, or an offset is part of an open transaction.
    """
    exchange = Exchange(
        ApiKey.OFFSET_FETCH,
        lambda version: _request(version, group_id, topic, is_stable=is_stable),
        lambda version, answer: _read(version, answer, topic),
        _NEWEST,
    )
    return await calls.ask(Coordinator(0, group_id), exchange, f"{call} of {group_id!r}")


def _request(version: int, group_id: str, topic: str | None, *, is_stable: bool) -> Any:
    if is_stable and version < _FIRST_STABLE:
        raise broker_error(
            "UNSUPPORTED_VERSION",
            "the broker is older than Kafka 2.5 and shows offsets of open transactions",
        )
    if topic is None and version < _FIRST_OF_ALL:
        raise broker_error(
            "UNSUPPORTED_VERSION",
            "the broker is older than Kafka 0.10.2 and shows offsets of named topics only",
        )
    path = (
        "OffsetFetch.request.groups.topics"
        if version >= _FIRST_WITH_GROUPS
        else "OffsetFetch.request.topics"
    )
    topics = (
        None
        if topic is None
        else [message(path, name=topic, partition_indexes=[POSITION_PARTITION])]
    )
    groups = (
        [message("OffsetFetch.request.groups", group_id=group_id, topics=topics)]
        if version >= _FIRST_WITH_GROUPS
        else []
    )
    return message(
        "OffsetFetch.request",
        group_id=group_id,
        topics=topics,
        groups=groups,
        require_stable=is_stable,
    )


def _read(version: int, answer: Any, topic: str | None) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets in an answer, or raise its error.

    Args:
        version: of the answer.
        answer: the answer.
        topic: that was asked for; None: all were.
    """
    group = _group(version, answer)
    found = {
        TopicPartition(each.name, partition.partition_index): partition
        for each in group.topics
        for partition in each.partitions
    }
    if topic is not None:
        key = TopicPartition(topic, POSITION_PARTITION)
        if key not in found:
            raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the partition out")
        found = {key: found[key]}
    for at, partition in found.items():
        if partition.error_code:
            raise broker_error(partition.error_code, f"{at.topic}-{at.partition}")
    return {
        at: OffsetAndMetadata(one.committed_offset, one.metadata or "")
        for at, one in found.items()
        if one.committed_offset >= 0
    }


def _group(version: int, answer: Any) -> Any:
    """Return the part of an answer about the group, or raise its error."""
    group = next(iter(answer.groups), None) if version >= _FIRST_WITH_GROUPS else answer
    if group is None:
        raise broker_error("COORDINATOR_NOT_AVAILABLE", "the answer leaves the group out")
    if group.error_code:
        raise broker_error(group.error_code)
    return group


_PATH: Final = "OffsetCommit.request.topics"


async def commit_offsets(
    calls: CoordinatorCalls,
    group: ConsumerGroupMetadata,
    offsets: Mapping[tuple[str, int], OffsetAndMetadata],
) -> None:
    """Commit the offsets of a group.

    Raises:
        BrokerError: the coordinator refuses an offset, and would refuse it again. Other offsets may be committed.
        TransactionTimeout: there was no answer within `max_block_ms`. The offsets may be committed.
    """
    body = _commit_request(group, offsets)
    exchange = Exchange(
        ApiKey.OFFSET_COMMIT,
        lambda _version: body,
        lambda _version, answer: _check(offsets, answer),
        _NEWEST,
    )
    await calls.ask(
        Coordinator(0, group.group_id), exchange, f"commit_offsets() of {group.group_id!r}"
    )


def _commit_request(
    group: ConsumerGroupMetadata, offsets: Mapping[tuple[str, int], OffsetAndMetadata]
) -> Any:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), each in offsets.items():
        asked = message(
            f"{_PATH}.partitions",
            partition_index=partition,
            committed_offset=each.offset,
            committed_leader_epoch=each.leader_epoch,
            committed_metadata=each.metadata,
        )
        topics.setdefault(topic, []).append(asked)
    return message(
        "OffsetCommit.request",
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            message(_PATH, name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def _check(offsets: Mapping[tuple[str, int], OffsetAndMetadata], answer: Any) -> None:
    codes = {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
    _raise_first(
        _error(codes.get((topic, partition)), f"{topic}-{partition}")
        for topic, partition in offsets
    )


def _raise_first(errors: Iterable[BrokerError | None]) -> None:
    """Raise one of the errors, if there are any: one that would come again, before one that passes."""
    error = min(filter(None, errors), key=lambda error: error.retriable, default=None)
    if error is not None:
        raise error


def _error(code: int | None, where: str) -> BrokerError | None:
    if code is None:
        return broker_error("COORDINATOR_NOT_AVAILABLE", f"the answer leaves {where} out")
    return broker_error(code, where) if code else None


async def end_transaction(
    calls: CoordinatorCalls, prepared: PreparedTransaction, *, is_commit: bool
) -> None:
    """Commit or abort a prepared transaction; once more, if it has ended so.

    Raises:
        BrokerError: the coordinator refuses, and would refuse again.
        TransactionTimeout: there was no answer within `max_block_ms`. The transaction may have ended.
    """
    at = Coordinator(1, prepared.transactional_id)
    newest = requests.newest(Request(Rpc.COMMIT if is_commit else Rpc.ABORT, at), prepared.version)
    body = message(
        "EndTxn.request",
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.epoch,
        committed=is_commit,
    )
    call = f"{'commit' if is_commit else 'abort'}() of {prepared.transactional_id!r}"
    await calls.ask(at, Exchange(ApiKey.END_TXN, lambda _version: body, _read_end, newest), call)


def _read_end(_version: int, answer: Any) -> None:
    """Raise the error of an answer, if it has one."""
    if answer.error_code:
        raise broker_error(answer.error_code)


_MAX_PATTERN_BYTES: Final = 2**15 - 1
_UNKNOWN: Final = "TRANSACTIONAL_ID_NOT_FOUND"


async def list_transactions(
    calls: CoordinatorCalls, nodes: Callable[[], Awaitable[Sequence[BrokerNode]]], prefix: str
) -> list[TransactionListing]:
    """Return the transactional ids that begin with `prefix`, by id: each broker lists those that it coordinates.

    Args:
        calls: sends the requests.
        nodes: returns the nodes of all brokers, as the cluster names them now.
        prefix: of the ids.

    Raises:
        BrokerError: a broker refuses the request, or is older than Kafka 3.0.
        TransactionTimeout: not every broker answered within `max_block_ms`.
    """
    return await calls.repeat(partial(_list, calls, nodes, prefix), "list_transactions()")


async def _list(
    calls: CoordinatorCalls, nodes: Callable[[], Awaitable[Sequence[BrokerNode]]], prefix: str
) -> list[TransactionListing]:
    pattern = f"{re.escape(prefix)}.*" if prefix else None
    # A broker below version 2 ignores the pattern, and no broker reads a longer text.
    if pattern is not None and len(pattern.encode()) > _MAX_PATTERN_BYTES:
        pattern = None
    body = message("ListTransactions.request", transactional_id_pattern=pattern)
    exchange = Exchange(ApiKey.LIST_TRANSACTIONS, lambda _version: body, _read_list)
    # By id: while a coordinator moves, two brokers may list the same one.
    found = {
        one.transactional_id: one
        for node in await nodes()
        for one in await calls.send(node, exchange, node.where)
    }
    return [found[name] for name in sorted(found) if name.startswith(prefix)]


def _read_list(_version: int, answer: Any) -> list[TransactionListing]:
    if answer.error_code:
        raise broker_error(answer.error_code)
    return [
        TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
        for each in answer.transaction_states
    ]


async def describe_transactions(
    calls: CoordinatorCalls, transactional_ids: Iterable[str]
) -> list[TransactionDescription]:
    """Return the descriptions of transactional ids, in their order. Those that no coordinator knows are left out.

    Raises:
        BrokerError: a coordinator refuses the request, or is older than Kafka 3.0.
        TransactionTimeout: not every coordinator answered within `max_block_ms`.
    """
    names = list(dict.fromkeys(transactional_ids))
    answers = await calls.ask_each(
        [Coordinator(1, name) for name in names], _describing, "describe_transactions()"
    )
    found = {one.transactional_id: one for answer in answers for one in answer}
    return [found[name] for name in names if name in found]


def _describing(coordinators: list[Coordinator]) -> Exchange[list[TransactionDescription]]:
    names = [at.key for at in coordinators]
    body = message("DescribeTransactions.request", transactional_ids=names)
    return Exchange(
        ApiKey.DESCRIBE_TRANSACTIONS,
        lambda _version: body,
        lambda _version, answer: _read_descriptions(names, answer),
    )


def _read_descriptions(names: list[str], answer: Any) -> list[TransactionDescription]:
    told = {each.transactional_id: each for each in answer.transaction_states}
    errors = [_error(told[name].error_code if name in told else None, name) for name in names]
    _raise_first(error for error in errors if error is not None and error.name != _UNKNOWN)
    return [_description(told[name]) for name in names if not told[name].error_code]


def _time(at_ms: int) -> datetime:
    """Return a time of an answer. Raises ProtocolError for one that no calendar has, far from all times that a clock may tell."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ProtocolError(f"a transaction began {at_ms} ms after 1970") from error


def _description(each: Any) -> TransactionDescription:
    started_ms = each.transaction_start_time_ms
    return TransactionDescription(
        each.transactional_id,
        each.producer_id,
        each.producer_epoch,
        each.transaction_state,
        _time(started_ms) if started_ms >= 0 else None,
        each.transaction_timeout_ms,
        tuple(
            TopicPartition(topic.topic, partition)
            for topic in each.topics
            for partition in sorted(topic.partitions)
        ),
    )
