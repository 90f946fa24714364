"""Tests of `aioproducer.core.produce_exchange`: what an answer says of each batch."""

from __future__ import annotations

import pytest

from aioproducer.core import produce_exchange
from aioproducer.core.partition_queues import PartitionQueue, TopicRouting
from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.wire.schema import codec, message


def asked(*partitions: int) -> produce_exchange.Asked:
    """A batch of two records for each partition of topic t."""
    routing = TopicRouting("t", bytes(16))
    batches = [
        ProducerBatch(PartitionQueue(routing, partition, 1, None), 1, None, None, credit=0, expires_at=1.0) for partition in partitions
    ]
    for batch in batches:
        batch.count = 2
    return {("t", batch.queue.partition): batch for batch in batches}


def answer(**partition: object) -> object:
    one = message("Produce.response.topics.partitions", index=0, **partition)
    return message("Produce.response", topics=[message("Produce.response.topics", name="t", partitions=[one])])


@pytest.mark.parametrize("offset", [-1, 0, 17])
def test_an_error_with_an_offset(offset: int) -> None:
    """A leader that appended, and then lost the partition, gives the offset with the error (Kafka's DelayedProduce)."""
    (told,) = produce_exchange.read(asked(0), answer(error_code=6, base_offset=offset)).values()
    assert isinstance(told.error, BrokerError)
    assert (told.error.name, told.base_offset) == ("NOT_LEADER_OR_FOLLOWER", offset)


def test_an_acknowledgement() -> None:
    """Its offset, and the broker's time where it stamps."""
    (told,) = produce_exchange.read(asked(0), answer(base_offset=5, log_append_time_ms=9)).values()
    assert told == produce_exchange.PartitionResponse(None, 5, 9)


def test_what_an_answer_leaves_out() -> None:
    """A partition that the answer leaves out ends with a ProtocolError. The other partitions have their results (SEN-07)."""
    first, second = produce_exchange.read(asked(0, 1), answer(base_offset=5)).values()
    assert first.error is None
    assert isinstance(second.error, ProtocolError)


def received(*indexes: int, topic: str = "t", version: int = 12) -> tuple[int, bytes, int]:
    """The version, the frame and the offset of an answer that acknowledges those partitions of a topic, each at ten times its number."""
    partitions = [message("Produce.response.topics.partitions", index=index, base_offset=10 * index) for index in indexes]
    model = message("Produce.response", topics=[message("Produce.response.topics", name=topic, partitions=partitions)])
    return version, b"".join(codec("Produce.response", version).encode(model)), 0


def test_the_usual_answer_acknowledges_each_batch() -> None:
    """In whichever order the broker names the partitions."""
    batches = asked(0, 1, 2)
    told = produce_exchange.read_usual(batches, *received(2, 0, 1))
    assert told == {batch: produce_exchange.PartitionResponse(None, 10 * partition) for (_, partition), batch in batches.items()}


@pytest.mark.parametrize(
    "answered",
    [
        received(0, 1, 3),
        received(0, 1),
        received(0, 1, 1),
        received(0, 1, 2, 2),
        received(0, 1, 2, topic="u"),
        received(0, 1, 2, version=8),
    ],
    ids=["another partition", "one is left out", "one twice for another", "one twice", "another topic", "an old version"],
)
def test_an_answer_that_is_not_of_just_these_batches(answered: tuple[int, bytes, int]) -> None:
    """It is left to the schema, and to `read`, which says what is wrong with it."""
    assert produce_exchange.read_usual(asked(0, 1, 2), *answered) is None
