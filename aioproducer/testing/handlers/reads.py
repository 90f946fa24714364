"""The requests of consumers: records and offsets of logs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers.handler import (
    Place,
    answers,
    endpoints,
    find,
    led,
    name_leader,
    targets,
)
from aioproducer.testing.log import Stamped
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.call import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.log import PartitionLog
    from aioproducer.testing.topics import Partition


# --- Fetch


_BY_ID: Final = 13
_READ_COMMITTED: Final = 1
_NOT_LEADER: Final = broker_error("NOT_LEADER_OR_FOLLOWER").code
_NO_SESSION: Final = broker_error(70).code  # FETCH_SESSION_ID_NOT_FOUND


def _fetched_places(cluster: FakeCluster, topic: Any) -> Iterator[tuple[Any, Place]]:
    for asked in topic.partitions:
        yield asked, find(cluster, topic.topic, asked.partition, topic.topic_id)


@answers(ApiKey.FETCH, (4, 17), partial(targets, name="topic", index="partition"))
def fetch(call: Call) -> None:
    """Versions 4-17: returns batches as they were appended, by topic name and, from version 13 on, by id.

    As in Kafka:

    - With less than `min_bytes` to return, and no error, it waits up to `max_wait_ms` for more.
    - The first batch is returned at any size.
    - From version 12 on, NOT_LEADER_OR_FOLLOWER names the leader.
    - With `isolation_level` 1 (read_committed) it returns batches below the last stable offset, and lists the aborted transactions among them.

    Deviations:

    - There are no fetch sessions: clients get session 0, and continue with full fetches.
    - High watermark and end of the log are the same.
    - There is one log for all replicas, and only the leader returns it.
    """
    request = call.request
    if request.session_id:
        call.reply(message("Fetch.response", error_code=_NO_SESSION))
        return
    logs = [
        place.partition.log
        for topic in request.topics
        for _, place in _fetched_places(call.cluster, topic)
        if place.partition is not None
    ]

    def watch() -> None:
        response, is_due = _collect(call)
        if is_due:
            call.reply(response)

    def unwatch() -> None:
        for log in logs:
            log.watchers.discard(watch)

    response, is_due = _collect(call)
    if is_due or request.max_wait_ms <= 0:
        call.reply(response)
        return
    for log in logs:
        log.watchers.add(watch)
    call.wait(request.max_wait_ms / 1000, lambda: call.reply(_collect(call)[0]), unwatch)


def _collect(call: Call) -> tuple[Any, bool]:
    """Return the current answer, and whether it can be sent without a wait."""
    room = call.request.max_bytes
    size = 0
    is_due = False
    leaders: set[int] = set()
    responses = []
    for topic in call.request.topics:
        partitions = []
        for asked, place in _fetched_places(call.cluster, topic):
            answer = _fetched(call, place, asked, room - size)
            size += sum(map(len, answer.records))
            is_due = is_due or bool(answer.error_code)
            leaders.add(answer.current_leader.leader_id)
            partitions.append(answer)
        responses.append(
            message(
                "Fetch.response.responses",
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=partitions,
            )
        )
    response = message(
        "Fetch.response",
        responses=responses,
        node_endpoints=endpoints(call.cluster, "Fetch.response", leaders),
    )
    return response, is_due or size >= call.request.min_bytes


def _fetched(call: Call, place: Place, asked: Any, room: int) -> Any:
    answer = message(
        "Fetch.response.responses.partitions",
        partition_index=asked.partition,
        high_watermark=-1,
        records=(),
    )
    code = call.code(place.target)
    if code:
        answer.error_code = code
        return answer
    try:
        partition = led(
            place, call.broker, by_id=call.version >= _BY_ID, epoch=asked.current_leader_epoch
        )
        log = partition.log
        answer.high_watermark = log.end_offset
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.start_offset
        answer.aborted_transactions = ()
        is_committed = call.request.isolation_level == _READ_COMMITTED
        if room > 0:
            below = log.last_stable_offset if is_committed else None
            answer.records = log.read(
                asked.fetch_offset, min(room, asked.partition_max_bytes), below=below
            )
        if is_committed and answer.records:
            answer.aborted_transactions = [
                message(
                    "Fetch.response.responses.partitions.aborted_transactions",
                    producer_id=one.producer_id,
                    first_offset=one.first_offset,
                )
                for one in log.producers.aborted_within(asked.fetch_offset, log.last_stable_offset)
            ]
    except BrokerError as error:
        answer.error_code = error.code
        if error.code == _NOT_LEADER:
            name_leader(answer, place.partition)
    return answer


# --- ListOffsets


_LATEST: Final = -1
_EARLIEST: Final = frozenset({-2, -4})
_NEWEST: Final = -3


@answers(ApiKey.LIST_OFFSETS, (1, 9), targets)
def list_offsets(call: Call) -> None:
    """Versions 1-9: first and next offset, first at or after a time, offset of the highest time (KIP-734).

    With `isolation_level` 1 (read_committed) the next offset is the last stable one, and no offset from there on is returned.
    Deviation: there is no tiered storage, so the local log's first offset is the log's, and the last tiered one is -1.
    """
    topics = [
        message(
            "ListOffsets.response.topics",
            name=topic.name,
            partitions=[_listed(call, topic.name, asked) for asked in topic.partitions],
        )
        for topic in call.request.topics
    ]
    call.reply(message("ListOffsets.response", topics=topics))


def _listed(call: Call, name: str, asked: Any) -> Any:
    place = find(call.cluster, name, asked.partition_index)
    answer = message(
        "ListOffsets.response.topics.partitions",
        partition_index=asked.partition_index,
        timestamp=-1,
        offset=-1,
    )
    answer.error_code = call.code(place.target)
    if answer.error_code:
        return answer
    try:
        partition = led(place, call.broker, epoch=asked.current_leader_epoch)
    except BrokerError as error:
        answer.error_code = error.code
        return answer
    answer.leader_epoch = partition.leader_epoch
    end = (
        partition.log.last_stable_offset
        if call.request.isolation_level == _READ_COMMITTED
        else partition.log.end_offset
    )
    answer.timestamp, answer.offset = _stamped(partition.log, asked.timestamp, end)
    return answer


def _stamped(log: PartitionLog, timestamp_ms: int, end: int) -> Stamped:
    found: Stamped | None = None
    if timestamp_ms == _LATEST:
        return Stamped(-1, end)
    if timestamp_ms in _EARLIEST:
        return Stamped(-1, log.start_offset)
    if timestamp_ms == _NEWEST:
        found = log.newest()
    elif timestamp_ms >= 0:
        found = log.first_since(timestamp_ms)
    return found if found is not None and found.offset < end else Stamped(-1, -1)


# --- OffsetForLeaderEpoch


@answers(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), partial(targets, name="topic", index="partition"))
def offset_for_leader_epoch(call: Call) -> None:
    """Versions 2-4: returns a leader epoch's end offset.

    Consumers use it to notice a truncated log (KIP-101, KIP-320).
    """
    topics = [
        message(
            "OffsetForLeaderEpoch.response.topics",
            topic=topic.topic,
            partitions=[_epoch_end(call, topic.topic, asked) for asked in topic.partitions],
        )
        for topic in call.request.topics
    ]
    call.reply(message("OffsetForLeaderEpoch.response", topics=topics))


def _epoch_end(call: Call, name: str, asked: Any) -> Any:
    place = find(call.cluster, name, asked.partition)
    answer = message(
        "OffsetForLeaderEpoch.response.topics.partitions",
        partition=asked.partition,
        error_code=call.code(place.target),
    )
    if answer.error_code:
        return answer
    try:
        partition = led(place, call.broker, epoch=asked.current_leader_epoch)
    except BrokerError as error:
        answer.error_code = error.code
    else:
        answer.leader_epoch, answer.end_offset = _end_of(partition, asked.leader_epoch)
    return answer


def _end_of(partition: Partition, wanted: int) -> tuple[int, int]:
    """Return the newest epoch up to `wanted`, and the start offset of the next epoch (Kafka's LeaderEpochFileCache)."""
    starts: dict[int, int] = {}
    for batch in partition.log.batches():
        starts.setdefault(batch.leader_epoch, batch.base_offset)
    starts.setdefault(partition.leader_epoch, partition.log.end_offset)
    if wanted > partition.leader_epoch or wanted < 0:
        return -1, -1
    if wanted == partition.leader_epoch:
        return wanted, partition.log.end_offset
    end = min(start for epoch, start in starts.items() if epoch > wanted)
    return max((epoch for epoch in starts if epoch <= wanted), default=wanted), end
