"""Handles AddPartitionsToTxn 0-3: adds partitions to a transaction of version 1, at its coordinator.

As in Kafka: the client needs `Write` on the transactional id and on each topic. If one partition is refused, the others get OPERATION_NOT_ATTEMPTED; before version 2, INVALID_PRODUCER_EPOCH replaces
PRODUCER_FENCED. Deviation: versions 4 and 5, which Kafka's brokers send each other, close the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers import places
from aioproducer.testing.handlers.coordinators import check_coordinates, told_fenced
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.transactions import Holder
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.handlers.places import Place

__all__ = ["HANDLER"]

_OF_CLIENTS: Final = 3
_WITH_FENCED: Final = 2
_UNKNOWN: Final = broker_error("UNKNOWN_TOPIC_OR_PARTITION").code
_DENIED: Final = broker_error("TOPIC_AUTHORIZATION_FAILED").code
_ID_DENIED: Final = broker_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED").code
_NOT_ATTEMPTED: Final = broker_error("OPERATION_NOT_ATTEMPTED").code
_MESSAGE: Final = "AddPartitionsToTxn.response"


def _places(cluster: FakeCluster, request: Any) -> Iterator[Place]:
    for topic in request.topics:
        for index in topic.partitions:
            yield places.find(cluster, topic.name, index)


def _targets(cluster: FakeCluster, request: Any) -> list[Target]:
    return [place.target for place in _places(cluster, request)]


def _answer(call: Call) -> None:
    if call.version > _OF_CLIENTS:
        call.connection.violate(f"AddPartitionsToTxn {call.version} is for brokers; clients ask up to {_OF_CLIENTS}")
        return
    codes = _codes(call, list(_places(call.cluster, call.request)))
    topics = []
    for topic in call.request.topics:
        results = [
            message(f"{_MESSAGE}.topics.partitions", partition_index=index, error_code=codes[Target(topic.name or None, index)])
            for index in topic.partitions
        ]
        topics.append(message(f"{_MESSAGE}.topics", name=topic.name, partitions=results))
    call.reply(message(_MESSAGE, topics=topics))


def _codes(call: Call, asked: list[Place]) -> dict[Target, int]:
    """Add the partitions if none of them is refused. Returns an error code, or 0, for each."""
    if not call.may("Write", "transactional_id", call.request.transactional_id):
        return {place.target: _ID_DENIED for place in asked}
    codes = {place.target: call.code(place.target) or _refusal(call, place) for place in asked}
    if any(codes.values()):
        return {target: code or _NOT_ATTEMPTED for target, code in codes.items()}
    return dict.fromkeys(codes, told_fenced(_add(call, asked), since=_WITH_FENCED, version=call.version))


def _refusal(call: Call, place: Place) -> int:
    """Return the error code of a partition that cannot be added, or 0."""
    if not call.may("Write", "topic", place.target.topic):
        return _DENIED
    return 0 if place.partition else _UNKNOWN


def _add(call: Call, asked: list[Place]) -> int:
    """Add all partitions. Returns an error code, or 0."""
    request = call.request
    touched = [(place.topic.topic_id, place.partition.index) for place in asked if place.topic and place.partition]
    try:
        check_coordinates(call, request.transactional_id)
        call.cluster.transactions.add(request.transactional_id, Holder(request.producer_id, request.producer_epoch), touched)
    except BrokerError as error:
        return error.code
    return 0


HANDLER: Final = Handler(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), _targets, _answer)
