"""Handles CreatePartitions 0-3: adds partitions to topics; `validate_only` adds none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.counting import counted
from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.create_topics import assign, check_replicas
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster

__all__ = ["HANDLER"]

_MESSAGE: Final = "CreatePartitions.response"


def _targets(_cluster: FakeCluster, request: Any) -> list[Target]:
    return [Target(wanted.name) for wanted in request.topics]


def _answer(call: Call) -> None:
    results = []
    for wanted in call.request.topics:
        answer = message(f"{_MESSAGE}.results", name=wanted.name)
        try:
            _grow(call, wanted)
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    call.reply(message(_MESSAGE, results=results))


def _grow(call: Call, wanted: Any) -> None:
    """Add partitions to one topic.

    Raises:
        BrokerError: the reason for a refusal.
    """
    code = call.code(Target(wanted.name))
    if code:
        raise broker_error(code)
    topic = call.cluster.topics.named(wanted.name)
    if topic is None:
        raise broker_error("UNKNOWN_TOPIC_OR_PARTITION", "there is no such topic")
    there = len(topic.partitions)
    if wanted.count <= there:
        raise broker_error(
            "INVALID_PARTITIONS", f"the topic has {counted(there, 'partition')}; their number only grows, to {wanted.count} it cannot"
        )
    assignments = wanted.assignments
    if assignments is not None:
        if len(assignments) != wanted.count - there:
            raise broker_error("INVALID_REPLICA_ASSIGNMENT", f"{len(assignments)} assignments for {wanted.count - there} new partitions")
        for assigned in assignments:
            check_replicas(call.cluster, assigned.broker_ids)
    if call.request.validate_only:
        return
    call.cluster.add_partitions(wanted.name, wanted.count)
    for partition, assigned in zip(topic.partitions[there:], assignments or (), strict=False):
        assign(partition, assigned.broker_ids)


HANDLER: Final = Handler(ApiKey.CREATE_PARTITIONS, (0, 3), _targets, _answer)
