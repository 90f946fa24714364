"""Produce 0-13: one batch a partition, or before version 3 a message set, checked and appended.

As in Kafka: acks=0 has no answer, and a failed one closes the connection; a partition's error stops no other; from version 10 on,
NOT_LEADER_OR_FOLLOWER names the leader (KIP-951); from 13 on, topics come by id.
Deviation: neither producer ids nor transactions are offered, and a batch that has one is refused as INVALID_RECORD; the same
partition twice in one request closes the connection; acks=all asks no replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.model import Compression
from aioproducer.testing.handlers import places
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.log import message_set, only_batch
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.faults import Rule, Target
    from aioproducer.testing.handlers.places import Place
    from aioproducer.testing.log import Appended

__all__ = ["HANDLER"]

_BY_ID: Final = 13
_FIRST_WITH_BATCHES: Final = 3
_WITH_ZSTD: Final = 7
_NOT_LEADER: Final = broker_error("NOT_LEADER_OR_FOLLOWER").code
_MESSAGE: Final = "Produce.response"
_NO_ID: Final = bytes(16)


def _places(cluster: FakeCluster, topic: Any) -> Iterator[tuple[Any, Place]]:
    by_id = topic.topic_id != _NO_ID
    for asked in topic.partitions:
        yield asked, places.find(cluster, topic.name, topic.topic_id, asked.index, by_id=by_id)


def _targets(cluster: FakeCluster, request: Any) -> list[Target]:
    return [place.target for topic in request.topics for _, place in _places(cluster, topic)]


def _answer(call: Call) -> None:
    request = call.request
    asked = [(topic.name, topic.topic_id, partition.index) for topic in request.topics for partition in topic.partitions]
    if len(set(asked)) != len(asked):
        call.connection.violate("a Produce request names a partition twice")
        return
    refusal = _refusal(request)
    topics = []
    leaders: set[int] = set()
    for topic in request.topics:
        answers = [_partition(call, place, partition, refusal) for partition, place in _places(call.cluster, topic)]
        leaders.update(answer.current_leader.leader_id for answer in answers)
        topics.append(message(f"{_MESSAGE}.topics", name=topic.name, topic_id=topic.topic_id, partitions=answers))
    if request.acks == 0:
        if any(answer.error_code for topic in topics for answer in topic.partitions):
            call.connection.close()  # the one way to tell such a client to look at metadata again
        else:
            call.reply(None)
        return
    call.reply(message(_MESSAGE, topics=topics, node_endpoints=places.endpoints(call.cluster, _MESSAGE, leaders)))


def _refusal(request: Any) -> BrokerError | None:
    """Why nothing of a request is taken, if nothing is."""
    if request.acks not in {-1, 0, 1}:
        return broker_error("INVALID_REQUIRED_ACKS", f"acks is -1, 0 or 1, not {request.acks}")
    if request.transactional_id is not None:
        return broker_error("INVALID_TXN_STATE", "this fake offers no transactions")
    return None


def _partition(call: Call, place: Place, asked: Any, refusal: BrokerError | None) -> Any:
    answer = message(f"{_MESSAGE}.topics.partitions", index=asked.index, base_offset=-1)
    rule = call.verdict.errors.get(place.target)
    try:
        if refusal is not None:
            raise refusal
        if rule is None or rule.appends:
            appended = _append(call, place, asked.records)
            answer.base_offset, answer.log_append_time_ms = appended
            answer.log_start_offset = place.partition.log.start_offset if place.partition else -1
    except BrokerError as error:
        answer.error_code = error.code
        answer.error_message = error.message
    if rule is not None and not answer.error_code:
        _script(answer, rule, place)
    if answer.error_code == _NOT_LEADER and rule is None:  # versions below 10 have no field for it
        places.name_leader(answer, place.partition)
    return answer


def _script(answer: Any, rule: Rule, place: Place) -> None:
    """Answer what a test wants answered."""
    answer.error_code = rule.code
    answer.error_message = rule.message
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    answer.record_errors = [
        message(f"{_MESSAGE}.topics.partitions.record_errors", batch_index=index, batch_index_error_message=what)
        for index, what in rule.record_errors.items()
    ]
    if rule.leader is not None:
        places.name_leader(answer, place.partition)
        is_news = answer.current_leader.leader_id != rule.leader  # of an election that nobody else has heard of
        answer.current_leader.leader_id = rule.leader
        answer.current_leader.leader_epoch += is_news


def _append(call: Call, place: Place, records: Any) -> Appended:
    partition = places.led(place, call.broker, by_id=call.version >= _BY_ID)
    if call.version < _FIRST_WITH_BATCHES:
        return partition.log.append(message_set(records), leader_epoch=partition.leader_epoch, now_ms=call.cluster.now_ms())
    batch = only_batch(records)
    if batch.compression is Compression.ZSTD and call.version < _WITH_ZSTD:
        raise broker_error("UNSUPPORTED_COMPRESSION_TYPE", f"Produce requests with version {call.version} are not allowed to use ZStandard")
    return partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=call.cluster.now_ms())


HANDLER: Final = Handler(ApiKey.PRODUCE, (0, 13), _targets, _answer)
