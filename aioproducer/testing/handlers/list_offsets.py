"""Handles ListOffsets 1-9: first and next offset, first at or after a time, offset of the highest time (KIP-734).

With `isolation_level` 1 (read_committed) the next offset is the last stable one, and no offset from there on is returned.
Deviation: there is no tiered storage, so the local log's first offset is the log's, and the last tiered one is -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError
from aioproducer.testing.handlers import places
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.log import Stamped
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.log import PartitionLog

__all__ = ["HANDLER"]

_LATEST: Final = -1
_READ_COMMITTED: Final = 1
_EARLIEST: Final = frozenset({-2, -4})
_NEWEST: Final = -3
_MESSAGE: Final = "ListOffsets.response"


def _answer(call: Call) -> None:
    topics = [
        message(f"{_MESSAGE}.topics", name=topic.name, partitions=[_partition(call, topic.name, asked) for asked in topic.partitions])
        for topic in call.request.topics
    ]
    call.reply(message(_MESSAGE, topics=topics))


def _partition(call: Call, name: str, asked: Any) -> Any:
    place = places.find(call.cluster, name, asked.partition_index)
    answer = message(f"{_MESSAGE}.topics.partitions", partition_index=asked.partition_index, timestamp=-1, offset=-1)
    answer.error_code = call.code(place.target)
    if answer.error_code:
        return answer
    try:
        partition = places.led(place, call.broker, by_id=False, epoch=asked.current_leader_epoch)
    except BrokerError as error:
        answer.error_code = error.code
        return answer
    answer.leader_epoch = partition.leader_epoch
    end = partition.log.last_stable_offset if call.request.isolation_level == _READ_COMMITTED else partition.log.end_offset
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


HANDLER: Final = Handler(ApiKey.LIST_OFFSETS, (1, 9), places.targets, _answer)
