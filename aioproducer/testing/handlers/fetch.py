"""Handles Fetch 4-17: returns batches as they were appended, by topic name and, from version 13 on, by id.

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

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.handlers import places
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.handlers.places import Place

__all__ = ["HANDLER"]

_BY_ID: Final = 13
_READ_COMMITTED: Final = 1
_NOT_LEADER: Final = broker_error("NOT_LEADER_OR_FOLLOWER").code
_NO_SESSION: Final = broker_error(70).code  # FETCH_SESSION_ID_NOT_FOUND
_MESSAGE: Final = "Fetch.response"


def _places(cluster: FakeCluster, topic: Any) -> Iterator[tuple[Any, Place]]:
    for asked in topic.partitions:
        yield asked, places.find(cluster, topic.topic, asked.partition, topic.topic_id)


def _answer(call: Call) -> None:
    request = call.request
    if request.session_id:
        call.reply(message(_MESSAGE, error_code=_NO_SESSION))
        return
    logs = [place.partition.log for topic in request.topics for _, place in _places(call.cluster, topic) if place.partition is not None]

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
        answers = []
        for asked, place in _places(call.cluster, topic):
            answer = _partition(call, place, asked, room - size)
            size += sum(map(len, answer.records))
            is_due = is_due or bool(answer.error_code)
            leaders.add(answer.current_leader.leader_id)
            answers.append(answer)
        responses.append(message(f"{_MESSAGE}.responses", topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
    endpoints = places.endpoints(call.cluster, _MESSAGE, leaders)
    return message(_MESSAGE, responses=responses, node_endpoints=endpoints), is_due or size >= call.request.min_bytes


def _partition(call: Call, place: Place, asked: Any, room: int) -> Any:
    answer = message(f"{_MESSAGE}.responses.partitions", partition_index=asked.partition, high_watermark=-1, records=())
    code = call.code(place.target)
    if code:
        answer.error_code = code
        return answer
    try:
        partition = places.led(place, call.broker, by_id=call.version >= _BY_ID, epoch=asked.current_leader_epoch)
        log = partition.log
        answer.high_watermark = log.end_offset
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.start_offset
        answer.aborted_transactions = ()
        is_committed = call.request.isolation_level == _READ_COMMITTED
        if room > 0:
            below = log.last_stable_offset if is_committed else None
            answer.records = log.read(asked.fetch_offset, min(room, asked.partition_max_bytes), below=below)
        if is_committed and answer.records:
            answer.aborted_transactions = [
                message(f"{_MESSAGE}.responses.partitions.aborted_transactions", producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.producers.aborted_within(asked.fetch_offset, log.last_stable_offset)
            ]
    except BrokerError as error:
        answer.error_code = error.code
        if error.code == _NOT_LEADER:
            places.name_leader(answer, place.partition)
    return answer


HANDLER: Final = Handler(ApiKey.FETCH, (4, 17), partial(places.targets, name="topic", index="partition"), _answer)
