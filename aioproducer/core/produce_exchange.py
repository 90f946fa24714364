"""Encodes batches as a Produce request, and reads the response for each batch from the answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aioproducer.errors import BrokerError, ProtocolError, TransportError, broker_error
from aioproducer.named_tuples import NamedTuple
from aioproducer.wire import usual_produce
from aioproducer.wire.schema import codec, message_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.interfaces import Buffer
    from aioproducer.model import Acks

__all__ = [
    "FIRST_WITH_THROTTLE",
    "FIRST_WITH_TOPIC_IDS",
    "FIRST_WITH_ZSTD",
    "Asked",
    "LeaderHint",
    "PartitionResponse",
    "asked",
    "encode",
    "hints",
    "read",
    "read_usual",
]

_log = logging.getLogger(__name__)

# The first version with a throttle time that the client must observe itself (KIP-219). With an older one, the broker has waited already.
FIRST_WITH_THROTTLE: Final = 6
FIRST_WITH_ZSTD: Final = 7
FIRST_WITH_TOPIC_IDS: Final = usual_produce.FIRST_WITH_TOPIC_IDS

# The batches by topic and partition. A topic is its id or its name, as in that version of the request.
Asked: TypeAlias = "dict[tuple[str | bytes, int], ProducerBatch]"


class PartitionResponse(NamedTuple):
    """Holds a broker's response for one batch.

    Attributes:
        error: None if the batch was written.
        base_offset: of the batch. With an error it shows that the broker appended the batch first.
        refused: of a refused batch, the indexes of the invalid records, each with the broker's message for it (KIP-467).
    """

    error: BrokerError | TransportError | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    refused: Mapping[int, str | None] = {}


_LEFT_OUT: Final = PartitionResponse()


class LeaderHint(NamedTuple):
    """Holds a partition's new leader, as an error response named it (KIP-951); `endpoints` have the brokers' addresses."""

    topic: str
    partition: int
    leader: int
    epoch: int
    endpoints: Sequence[Any]


def asked(batches: Iterable[ProducerBatch], version: int) -> Asked:
    """Return the batches by the topic and partition in the request: metadata may change while it is in flight (SEN-06)."""
    if version >= FIRST_WITH_TOPIC_IDS:
        return {(batch.queue.routing.topic_id, batch.queue.partition): batch for batch in batches}
    return {(batch.queue.topic, batch.queue.partition): batch for batch in batches}


def encode(batches: Asked, version: int, acks: Acks, timeout_ms: int, transactional_id: str | None = None) -> list[Buffer]:
    """Encode one Produce request of `batches`. Returns its buffers."""
    if version < usual_produce.FIRST:
        return codec("Produce.request", version).encode(_request(batches.values(), acks, timeout_ms, transactional_id))
    topics: dict[str | bytes, list[tuple[int, bytes, Buffer]]] = {}
    for (topic, partition), batch in batches.items():
        assert batch.header is not None
        assert batch.payload is not None
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = []
        partitions.append((partition, batch.header, batch.payload))
    return usual_produce.encode(version, acks, timeout_ms, transactional_id, topics)


def _request(batches: Iterable[ProducerBatch], acks: Acks, timeout_ms: int, transactional_id: str | None) -> Any:
    partition_of = message_type("Produce.request.topics.partitions")
    topics: dict[str, Any] = {}
    for batch in batches:
        queue = batch.queue
        topic = topics.get(queue.topic)
        if topic is None:
            topic = message_type("Produce.request.topics")(name=queue.topic, topic_id=queue.routing.topic_id, partitions=[])
            topics[queue.topic] = topic
        topic.partitions.append(partition_of(queue.partition, (batch.header, batch.payload)))
    make = message_type("Produce.request")
    return make(transactional_id=transactional_id, acks=int(acks), timeout_ms=timeout_ms, topics=list(topics.values()))


def read_usual(batches: Asked, version: int, frame: bytes, offset: int) -> dict[ProducerBatch, PartitionResponse] | None:
    """Read an answer that acknowledges exactly these batches and has nothing else. Returns None for any other answer, for `read`.

    The answer begins at `offset` of the frame.
    """
    if version < usual_produce.FIRST:
        return None
    acknowledged = usual_produce.read(version, frame, offset)
    if acknowledged is None:
        return None
    responses = {}
    for topic, partition, base_offset, appended_ms in acknowledged:
        batch = batches.get((topic, partition))
        if batch is None or batch in responses:
            return None
        responses[batch] = PartitionResponse(None, base_offset, appended_ms)
    return responses if len(responses) == len(batches) else None


def read(batches: Asked, answer: Any) -> dict[ProducerBatch, PartitionResponse]:
    """Return the response of a decoded answer for each batch.

    A batch that the answer leaves out gets a ProtocolError. Partitions that are not in the request are ignored (SEN-07).
    """
    responses: dict[ProducerBatch, PartitionResponse] = dict.fromkeys(batches.values(), _LEFT_OUT)
    strangers = 0
    for place, partition in _partitions(answer):
        batch = batches.get(place)
        if batch is None or responses[batch] is not _LEFT_OUT:
            strangers += 1
        elif partition.error_code:
            responses[batch] = _refusal(partition, batch.count)
        else:
            responses[batch] = PartitionResponse(None, partition.base_offset, partition.log_append_time_ms)
    if strangers:
        _log.warning("A broker answered for %d partitions that nothing was sent to", strangers)
    for batch, outcome in responses.items():
        if outcome is _LEFT_OUT:
            responses[batch] = PartitionResponse(ProtocolError(f"the answer left out {batch.queue.topic}-{batch.queue.partition}"))
    return responses


def _partitions(answer: Any) -> Iterator[tuple[tuple[str | bytes, int], Any]]:
    for topic in answer.topics:
        for partition in topic.partitions:
            yield (topic.name or topic.topic_id, partition.index), partition


def _refusal(partition: Any, count: int) -> PartitionResponse:
    named = {each.batch_index: each.batch_index_error_message for each in partition.record_errors if 0 <= each.batch_index < count}
    error = broker_error(partition.error_code, partition.error_message)
    return PartitionResponse(error, partition.base_offset, partition.log_append_time_ms, named)


def hints(batches: Asked, answer: Any) -> dict[ProducerBatch, LeaderHint]:
    """Return the new leaders that error responses name, for partitions of the request."""
    found = {}
    for place, partition in _partitions(answer):
        if not partition.error_code:
            continue
        leader = partition.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0 and place in batches:
            batch = batches[place]
            found[batch] = LeaderHint(batch.queue.topic, place[1], leader.leader_id, leader.leader_epoch, answer.node_endpoints)
    return found
