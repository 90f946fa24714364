"""Encodes batches as a Produce request, and reads the response for each batch from the answer.

Most bytes of a request, and of the usual answer to it, are the same each time. The prepared bytes are cut, once for each version, from the
output of the schema's codecs for a model message. So this module defines no field itself. The schema's codec reads an answer that is not
the usual one: an error, a throttle time, a new leader.

With the schema's codecs alone, these two messages take a tenth of the time of a request of six small batches.
"""

from __future__ import annotations

import logging
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aioproducer.errors import BrokerError, ProtocolError, TransportError, broker_error, printable
from aioproducer.model import counted
from aioproducer.wire.primitives import JOINED, read_uvarint, uvarint
from aioproducer.wire.schema import codec, message, message_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.interfaces import Buffer
    from aioproducer.model import Acks

_log = logging.getLogger(__name__)

# The first version with a throttle time that the client must observe itself (KIP-219). With an older one, the broker has waited already.
FIRST_WITH_THROTTLE: Final = 6
FIRST_WITH_ZSTD: Final = 7
# The first version with varint lengths, and with tagged fields at the end of each structure.
FIRST_FLEXIBLE: Final = 9
# The first version in which topics have ids instead of names (KIP-516).
FIRST_WITH_TOPIC_IDS: Final = 13
# Elements of an answer beyond those of its request: partitions that nothing was sent to, which are ignored.
_STRANGERS: Final = 1000

# The batches by topic and partition. A topic is its id or its name, as in that version of the request.
Asked: TypeAlias = "dict[tuple[str | bytes, int], ProducerBatch]"
# The answer for a batch that was written: topic and partition as in `Asked`, and the response.
Acknowledged: TypeAlias = "tuple[tuple[str | bytes, int], PartitionResponse]"


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
_NONE_REFUSED: Final = _LEFT_OUT.refused
_new_tuple: Final = tuple.__new__


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


def encode(
    batches: Asked, version: int, acks: Acks, timeout_ms: int, transactional_id: str | None = None
) -> list[Buffer]:
    """Encode one Produce request of `batches`. Returns its buffers."""
    if version < FIRST_FLEXIBLE:
        return codec("Produce.request", version).encode(
            _message(batches.values(), acks, timeout_ms, transactional_id)
        )
    topics: dict[str | bytes, list[tuple[int, bytes, Buffer]]] = {}
    for (topic, partition), batch in batches.items():
        header, payload = batch.header, batch.payload
        assert header is not None
        assert payload is not None
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = []
        partitions.append((partition, header, payload))
    return encode_topics(version, acks, timeout_ms, transactional_id, topics)


def _message(
    batches: Iterable[ProducerBatch], acks: Acks, timeout_ms: int, transactional_id: str | None
) -> Any:
    partition_of = message_type("Produce.request.topics.partitions")
    topics: dict[str, Any] = {}
    for batch in batches:
        queue = batch.queue
        topic = topics.get(queue.topic)
        if topic is None:
            topic = message_type("Produce.request.topics")(
                name=queue.topic, topic_id=queue.routing.topic_id, partitions=[]
            )
            topics[queue.topic] = topic
        topic.partitions.append(partition_of(queue.partition, (batch.header, batch.payload)))
    make = message_type("Produce.request")
    return make(
        transactional_id=transactional_id,
        acks=int(acks),
        timeout_ms=timeout_ms,
        topics=list(topics.values()),
    )


def read_usual(
    batches: Asked, version: int, frame: bytes, offset: int
) -> dict[ProducerBatch, PartitionResponse] | None:
    """Read an answer that acknowledges exactly these batches and has nothing else. Returns None for any other answer, for `read`.

    The answer begins at `offset` of the frame.
    """
    if version < FIRST_FLEXIBLE:
        return None
    acknowledged = read_acknowledged(version, frame, offset)
    if acknowledged is None or len(acknowledged) != len(batches):
        return None
    responses = dict(acknowledged)
    # With as many answers as batches, this also shows that no batch is answered twice.
    if responses.keys() != batches.keys():
        return None
    return {batch: responses[place] for place, batch in batches.items()}


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
            responses[batch] = PartitionResponse(
                None, partition.base_offset, partition.log_append_time_ms
            )
    if strangers:
        _log.warning(
            "A broker answered for %s that nothing was sent to", counted(strangers, "partition")
        )
    for batch, outcome in responses.items():
        if outcome is _LEFT_OUT:
            responses[batch] = PartitionResponse(
                ProtocolError(f"the answer left out {batch.queue.topic}-{batch.queue.partition}")
            )
    return responses


def most_elements(batches: Asked) -> int:
    """Return the most elements of an answer: for each batch a topic, a partition, an error for each record, and the address of a leader.

    An answer with more is not decoded: a MiB of errors of records takes 75 ms, and no batch has as many records.
    """
    return _STRANGERS + sum(3 + batch.count for batch in batches.values())


def _partitions(answer: Any) -> Iterator[tuple[tuple[str | bytes, int], Any]]:
    for topic in answer.topics:
        for partition in topic.partitions:
            yield (topic.name or topic.topic_id, partition.index), partition


def _refusal(partition: Any, count: int) -> PartitionResponse:
    named = {
        each.batch_index: printable(each.batch_index_error_message or "") or None
        for each in partition.record_errors
        if 0 <= each.batch_index < count
    }
    error = broker_error(partition.error_code, printable(partition.error_message or "") or None)
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
            found[batch] = LeaderHint(
                batch.queue.topic,
                place[1],
                leader.leader_id,
                leader.leader_epoch,
                answer.node_endpoints,
            )
    return found


# The prepared bytes

_ID_SIZE: Final = 16
_pack_index: Final = struct.Struct(">i").pack
# Partition, error, base offset, log append time, log start offset.
_PARTITION: Final = ">ihqqq"
# The variable values of the model, which has two topics; the first topic has two partitions.
_NAMES: Final = ("model topic", "another topic")
_IDS: Final = (b"a model topic id", b"another topic id")
_RECORDS: Final = (b"some records", b"other records", b"more records")
_NUMBERS: Final = tuple(
    (
        0x1BAD_CAF0 + at,
        0,
        0x0123_4567_89AB_CDE0 + at,
        0x1357_9BDF_0246_8AC0 + at,
        0x2468_ACE0_1357_9BD0 + at,
    )
    for at in range(3)
)
# Bytes of a count in the model.
_COUNTED: Final = 1


class _Bytes(NamedTuple):
    """Holds the constant bytes before all topics, after each partition, after each topic's partitions, and after all topics."""

    begin: bytes
    partition_end: bytes
    topic_end: bytes
    end: bytes


def encode_topics(
    version: int,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    topics: Mapping[str | bytes, Sequence[tuple[int, bytes, Buffer]]],
) -> list[Buffer]:
    """Encode a request by prepared bytes, to the same bytes as the schema's codec. Returns its buffers; a large payload is one of them, not copied.

    Args:
        version: the version of Produce, `FIRST_FLEXIBLE` or later.
        acks: the request's field.
        timeout_ms: the request's field.
        transactional_id: the request's field.
        topics: the partitions by topic name, or by topic id from version 13 on. A partition is its number, and its batch's header and
            payload.
    """
    begin, partition_end, topic_end, end = _prepared_request(
        version, acks, timeout_ms, transactional_id
    )
    buffers: list[Buffer] = []
    small: list[Buffer] = [begin, uvarint(len(topics) + 1)]
    for topic, partitions in topics.items():
        small += (_encoded(topic), uvarint(len(partitions) + 1))
        for index, header, payload in partitions:
            size = len(payload)
            small += (_pack_index(index), uvarint(len(header) + size + 1), header)
            if size < JOINED:
                small.append(payload)
            else:
                buffers += (b"".join(small), payload)
                small = []
            small.append(partition_end)
        small.append(topic_end)
    small.append(end)
    buffers.append(b"".join(small))
    return buffers


def read_acknowledged(version: int, frame: bytes, offset: int) -> list[Acknowledged] | None:
    """Read, by prepared bytes, an answer that begins at `offset` and ends with the frame.

    Returns the answer for each partition, or None if the answer is not the usual one.
    """
    (_, partition_end, topic_end, end), layout = _prepared_answer(version)
    has_ids = version >= FIRST_WITH_TOPIC_IDS
    told: list[Acknowledged] = []
    try:
        count, at = read_uvarint(frame, offset)
        for _ in range(count - 1):
            topic, at = (
                (frame[at : at + _ID_SIZE], at + _ID_SIZE) if has_ids else _read_name(frame, at)
            )
            partitions, at = read_uvarint(frame, at)
            stop = at + (partitions - 1) * layout.size
            if not partitions or not frame.startswith(topic_end, stop):
                return None
            for index, error, base_offset, appended_ms, _, rest in layout.iter_unpack(
                frame[at:stop]
            ):
                if error or rest != partition_end:
                    return None
                # The class's own __new__ is a Python function, and three times slower.
                told.append(
                    (
                        (topic, index),
                        _new_tuple(
                            PartitionResponse, (None, base_offset, appended_ms, _NONE_REFUSED)
                        ),
                    )
                )
            at = stop + len(topic_end)
    # the schema's codec raises the error for such an answer
    except (IndexError, UnicodeDecodeError, ProtocolError):
        return None
    return told if frame[at:] == end else None


def _read_name(frame: bytes, offset: int) -> tuple[str, int]:
    """Return the topic's name that begins at `offset`, and the offset after it.

    Raises:
        ProtocolError: the name is null.
        UnicodeDecodeError: the name is not UTF-8.
    """
    size, at = read_uvarint(frame, offset)
    if not size:
        raise ProtocolError("a topic without a name")
    end = at + size - 1
    return frame[at:end].decode(), end


def _encoded(topic: str | bytes) -> bytes:
    """Return the bytes of a topic's name or id in a message."""
    return topic if isinstance(topic, bytes) else _encoded_name(topic)


# cached, because each batch of a topic needs it
@lru_cache(maxsize=4096)
def _encoded_name(topic: str) -> bytes:
    name = topic.encode()
    return uvarint(len(name) + 1) + name


# one entry for each producer, because each transactional producer has an id of its own
@lru_cache(maxsize=1024)
def _prepared_request(
    version: int, acks: int, timeout_ms: int, transactional_id: str | None
) -> _Bytes:
    partitions = [
        message("Produce.request.topics.partitions", index=numbers[0], records=records)
        for numbers, records in zip(_NUMBERS, _RECORDS, strict=True)
    ]
    topics = _topics("Produce.request.topics", partitions)
    model = message(
        "Produce.request",
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topics=topics,
    )
    differing = [
        _pack_index(numbers[0]) + uvarint(len(records) + 1) + records
        for numbers, records in zip(_NUMBERS, _RECORDS, strict=True)
    ]
    return _cut(b"".join(codec("Produce.request", version).encode(model)), version, differing)


@lru_cache(maxsize=64)
def _prepared_answer(version: int) -> tuple[_Bytes, struct.Struct]:
    """Return the constant bytes of an answer, and the layout of one partition with the constant bytes after it."""
    names = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset")
    partitions = [
        message("Produce.response.topics.partitions", **dict(zip(names, numbers, strict=True)))
        for numbers in _NUMBERS
    ]
    model = message("Produce.response", topics=_topics("Produce.response.topics", partitions))
    differing = [struct.pack(_PARTITION, *numbers) for numbers in _NUMBERS]
    cut = _cut(b"".join(codec("Produce.response", version).encode(model)), version, differing)
    return cut, struct.Struct(f"{_PARTITION}{len(cut.partition_end)}s")


def _topics(name: str, partitions: list[Any]) -> list[Any]:
    """Return the topics of a model: the first has two partitions, the second has one."""
    parts = (partitions[:2], partitions[2:])
    return [
        message(name, name=_NAMES[at], topic_id=_IDS[at], partitions=parts[at]) for at in range(2)
    ]


def _cut(model: bytes, version: int, differing: Sequence[bytes]) -> _Bytes:
    """Return the constant bytes around a model's topics and partitions.

    The search runs from the end, because a transactional id, which comes first, may contain any of the values.
    """
    first, second = map(_encoded, _IDS if version >= FIRST_WITH_TOPIC_IDS else _NAMES)
    before, _, ends = model.rpartition(differing[2])
    before, _, _ = before.rpartition(second)
    before, _, behind_both = before.rpartition(differing[1])
    before, _, partition_end = before.rpartition(differing[0])
    begin = before.rpartition(first)[0][:-_COUNTED]
    topic_end = behind_both[len(partition_end) :]
    return _Bytes(begin, partition_end, topic_end, ends[len(behind_both) :])
