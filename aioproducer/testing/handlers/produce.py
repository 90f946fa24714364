"""Produce: checks and appends one batch per partition, or before version 3 a message set."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.model import Compression
from aioproducer.records.record_batch import TRANSACTIONAL
from aioproducer.testing.handlers.handler import (
    Place,
    answers,
    endpoints,
    find,
    led,
    name_leader,
    targets,
    verified,
)
from aioproducer.testing.log import message_set, only_batch
from aioproducer.testing.transactions import Holder
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.call import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.faults import Rule
    from aioproducer.testing.log import Appended, PartitionLog
    from aioproducer.testing.record_batches import RecordBatch


_ALL: Final = -1
_BY_ID: Final = 13
_FIRST_WITH_BATCHES: Final = 3
_WITH_ZSTD: Final = 7
_MAGIC: Final = 2
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22  # the lower byte of the attributes
_WITH_ABORTABLE: Final = 11
_ADDS: Final = 12
_NOT_LEADER: Final = broker_error("NOT_LEADER_OR_FOLLOWER").code


def _places(cluster: FakeCluster, topic: Any) -> Iterator[tuple[Any, Place]]:
    for asked in topic.partitions:
        yield asked, find(cluster, topic.name, asked.index, topic.topic_id)


@answers(ApiKey.PRODUCE, (0, 13), partial(targets, index="index"))
def produce(call: Call) -> None:
    """Versions 0-13: checks and appends one batch per partition, or before version 3 a message set.

    Details as in Kafka:

    - acks=0 has no answer; a failed request with acks=0 closes the connection.
    - A partition's error stops no other partition.
    - From version 10 on, NOT_LEADER_OR_FOLLOWER names the leader (KIP-951). From version 13 on, topics are named by id.
    - A denied `Write` to a topic is answered with TOPIC_AUTHORIZATION_FAILED and no text, whether the topic exists or not; a denied `Write` to the
      transactional id with TRANSACTIONAL_ID_AUTHORIZATION_FAILED for each partition.
    - The first batch of a transaction is verified with its coordinator. Up to version 11 the producer has to add the partition there
      before (AddPartitionsToTxn). From version 12 on the request adds the partition itself (KIP-890).

    Deviations:

    - A request that names a partition twice closes the connection.
    - acks=all asks no replica.
    - CONCURRENT_TRANSACTIONS is answered at once, where Kafka itself retries for 100 ms.
    - Transactions are verified in every release, where Kafka did not before 3.6.
    """
    request = call.request
    if _names_twice(request):
        call.connection.violate("a Produce request names a partition twice")
        return
    refusal = _refusal(call)
    topics = []
    leaders: set[int] = set()
    for topic in request.topics:
        partitions = [
            _partition(call, place, partition, refusal)
            for partition, place in _places(call.cluster, topic)
        ]
        leaders.update(answer.current_leader.leader_id for answer in partitions)
        topics.append(
            message(
                "Produce.response.topics",
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=partitions,
            )
        )
    if request.acks == 0:
        if any(answer.error_code for topic in topics for answer in topic.partitions):
            # a closed connection is the only signal that makes such a client refresh its metadata
            call.connection.close()
        else:
            call.reply(None)
        return
    call.reply(
        message(
            "Produce.response",
            topics=topics,
            node_endpoints=endpoints(call.cluster, "Produce.response", leaders),
        )
    )


def _names_twice(request: Any) -> bool:
    """Return whether a request names a partition more than once."""
    asked = [
        (topic.name, topic.topic_id, partition.index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return len(set(asked)) != len(asked)


def _refusal(call: Call) -> BrokerError | None:
    """Return the error that refuses the whole request, or None."""
    request = call.request
    if request.acks not in {-1, 0, 1}:
        return broker_error("INVALID_REQUIRED_ACKS", f"acks is -1, 0 or 1, not {request.acks}")
    sent = (partition.records or b"" for topic in request.topics for partition in topic.partitions)
    if any(map(_is_transactional, sent)):
        if request.transactional_id is None:
            return broker_error(
                "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
                "transactional records without a transactional id",
            )
        if not call.may("Write", "transactional_id", request.transactional_id):
            return broker_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    return None


def _is_transactional(records: Buffer) -> bool:
    """Return whether the first batch belongs to a transaction. Reads its bytes alone, as no check has run yet."""
    return (
        len(records) > _ATTRIBUTES_AT
        and records[_MAGIC_AT] == _MAGIC
        and bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL)
    )


def _partition(call: Call, place: Place, asked: Any, refusal: BrokerError | None) -> Any:
    answer = message("Produce.response.topics.partitions", index=asked.index, base_offset=-1)
    rule = call.verdict.errors.get(place.target)
    try:
        if refusal is not None:
            raise refusal
        call.check_may("Write", "topic", place.target.topic)
        if rule is None or rule.appends:
            _take(answer, call, place, asked.records)
    except BrokerError as error:
        answer.error_code = error.code
        answer.error_message = error.message
    _follow(answer, call, place, rule)
    return answer


def _take(answer: Any, call: Call, place: Place, records: Any) -> None:
    """Append the records, and write their offset into the answer."""
    answer.base_offset, answer.log_append_time_ms = _append(call, place, records)
    answer.log_start_offset = place.partition.log.start_offset if place.partition else -1


def _follow(answer: Any, call: Call, place: Place, rule: Rule | None) -> None:
    """Finish an answer: apply a scripted error, schedule the replication of acks=all, or name the new leader."""
    if rule is not None and not answer.error_code:
        _script(answer, rule, place)
    if not answer.error_code and call.request.acks == _ALL and place.partition is not None:
        log = place.partition.log
        call.when_answered(partial(_acknowledge, answer, log, log.end_offset, log.truncations))
    # versions below 10 have no field for the leader
    if answer.error_code == _NOT_LEADER and rule is None:
        name_leader(answer, place.partition)


def _acknowledge(answer: Any, log: PartitionLog, end_offset: int, truncations: int) -> None:
    """Mark the records as replicated. After a truncation answer NOT_LEADER_OR_FOLLOWER instead, as Kafka's DelayedProduce does."""
    if log.truncations == truncations:
        log.replicate(end_offset)
    else:
        answer.error_code = _NOT_LEADER


def _script(answer: Any, rule: Rule, place: Place) -> None:
    """Write a test's scripted error into an answer."""
    answer.error_code = rule.code
    answer.error_message = rule.message
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    answer.record_errors = [
        message(
            "Produce.response.topics.partitions.record_errors",
            batch_index=index,
            batch_index_error_message=what,
        )
        for index, what in rule.record_errors.items()
    ]
    if rule.leader is not None:
        name_leader(answer, place.partition)
        # the test names another leader than the cluster does: a new election, with a higher epoch
        is_news = answer.current_leader.leader_id != rule.leader
        answer.current_leader.leader_id = rule.leader
        answer.current_leader.leader_epoch += is_news


def _append(call: Call, place: Place, records: Any) -> Appended:
    partition = led(place, call.broker, by_id=call.version >= _BY_ID)
    if call.version < _FIRST_WITH_BATCHES:
        return partition.log.append(
            message_set(records), leader_epoch=partition.leader_epoch, now_ms=call.cluster.now_ms()
        )
    batch = only_batch(records)
    if batch.compression is Compression.ZSTD and call.version < _WITH_ZSTD:
        raise broker_error(
            "UNSUPPORTED_COMPRESSION_TYPE",
            f"Produce requests with version {call.version} are not allowed to use ZStandard",
        )
    is_verified = (
        batch.is_transactional
        and call.request.transactional_id is not None
        and _verify(call, place, batch)
    )
    return partition.log.append(
        batch,
        leader_epoch=partition.leader_epoch,
        now_ms=call.cluster.now_ms(),
        is_verified=is_verified,
    )


def _verify(call: Call, place: Place, batch: RecordBatch) -> bool:
    """Return whether the batch's transaction was verified (Kafka's ReplicaManager.handleProduceAppend).

    True means that the coordinator was asked, and has the partition in the transaction. False means that no verification is needed.

    Raises:
        BrokerError: the coordinator's answer, or NOT_ENOUGH_REPLICAS if it was not able to verify.
    """
    if place.topic is None or place.partition is None or batch.producer_id < 0:
        return False
    adds = call.version >= _ADDS
    if not place.partition.log.producers.must_verify(batch, bumps_epochs=adds):
        return False
    holder = Holder(batch.producer_id, batch.producer_epoch)
    touched = (place.topic.topic_id, place.partition.index)
    try:
        verified(call, holder, touched, adds=adds, knows_abortable=call.version >= _WITH_ABORTABLE)
    except BrokerError as error:
        if error.name == "COORDINATOR_NOT_AVAILABLE" or (
            error.name == "CONCURRENT_TRANSACTIONS" and not adds
        ):
            told = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
            raise broker_error("NOT_ENOUGH_REPLICAS", told) from error
        raise
    return True
