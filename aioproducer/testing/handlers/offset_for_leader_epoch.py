"""Handles OffsetForLeaderEpoch 2-4: returns a leader epoch's end offset.

Consumers use it to notice a truncated log (KIP-101, KIP-320).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError
from aioproducer.testing.handlers import places
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.topics import Partition

__all__ = ["HANDLER"]

_MESSAGE: Final = "OffsetForLeaderEpoch.response"


def _answer(call: Call) -> None:
    topics = [
        message(f"{_MESSAGE}.topics", topic=topic.topic, partitions=[_partition(call, topic.topic, asked) for asked in topic.partitions])
        for topic in call.request.topics
    ]
    call.reply(message(_MESSAGE, topics=topics))


def _partition(call: Call, name: str, asked: Any) -> Any:
    place = places.find(call.cluster, name, asked.partition)
    answer = message(f"{_MESSAGE}.topics.partitions", partition=asked.partition, error_code=call.code(place.target))
    if answer.error_code:
        return answer
    try:
        partition = places.led(place, call.broker, by_id=False, epoch=asked.current_leader_epoch)
    except BrokerError as error:
        answer.error_code = error.code
    else:
        answer.leader_epoch, answer.end_offset = _end(partition, asked.leader_epoch)
    return answer


def _end(partition: Partition, wanted: int) -> tuple[int, int]:
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


HANDLER: Final = Handler(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), partial(places.targets, name="topic", index="partition"), _answer)
