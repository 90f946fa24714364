"""Handles CreateTopics 2-7: creates or refuses each topic on its own; `validate_only` creates none.

As in Kafka: -1 partitions or replicas mean the cluster's defaults; a topic that is named twice is not created, and answered once.
Deviations: every topic exists on every broker at once. `FakeCluster` ignores the number of replicas and assigns its usual ones, unless
the request assigns replicas by hand.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from aioproducer.counting import counted
from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.handlers.topic_configs import DEFAULTS, options
from aioproducer.testing.topics import is_legal_name
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.topics import Partition, Topic

__all__ = ["HANDLER", "assign", "check_replicas"]

_MESSAGE: Final = "CreateTopics.response"


def _targets(_cluster: FakeCluster, request: Any) -> list[Target]:
    return [Target(wanted.name) for wanted in request.topics]


def _answer(call: Call) -> None:
    names = Counter(wanted.name for wanted in call.request.topics)
    topics = []
    for wanted in {wanted.name: wanted for wanted in call.request.topics}.values():
        answer = message(f"{_MESSAGE}.topics", name=wanted.name, configs=None)
        try:
            if names[wanted.name] > 1:
                raise broker_error("INVALID_REQUEST", "Duplicate topic name.")
            _create(call, wanted, answer)
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        topics.append(answer)
    call.reply(message(_MESSAGE, topics=topics))


def _create(call: Call, wanted: Any, answer: Any) -> None:
    """Create one topic.

    Raises:
        BrokerError: the reason for a refusal.
    """
    cluster = call.cluster
    code = call.code(Target(wanted.name))
    if code:
        raise broker_error(code)
    _check(cluster, wanted)
    count = len(wanted.assignments) or (cluster.default_partitions if wanted.num_partitions == -1 else wanted.num_partitions)
    try:
        cluster.create_topic(wanted.name, count, {config.name: config.value for config in wanted.configs if config.value is not None})
    # a wrong configuration: the other arguments were checked before
    except ValueError as error:
        raise broker_error("INVALID_CONFIG", str(error)) from error
    topic = cluster.topics.existing(wanted.name)
    for assigned in wanted.assignments:
        assign(topic.partitions[assigned.partition_index], assigned.broker_ids)
    _describe(topic, answer)
    # create and delete in one step, so that the same checks apply
    if call.request.validate_only:
        cluster.delete_topic(wanted.name)


def _check(cluster: FakeCluster, wanted: Any) -> None:
    if not is_legal_name(wanted.name):
        raise broker_error("INVALID_TOPIC_EXCEPTION", f"{wanted.name!r} is no name of a topic: up to 249 of a-z A-Z 0-9 . _ -")
    if cluster.topics.named(wanted.name) is not None:
        raise broker_error("TOPIC_ALREADY_EXISTS", f"Topic '{wanted.name}' already exists.")
    unknown = sorted(config.name for config in wanted.configs if config.name not in DEFAULTS)
    if unknown:
        raise broker_error("INVALID_CONFIG", f"Unknown topic config name: {unknown[0]}")
    if wanted.assignments:
        _check_assignments(cluster, wanted)
    else:
        _check_counts(cluster, wanted)


def _check_assignments(cluster: FakeCluster, wanted: Any) -> None:
    if (wanted.num_partitions, wanted.replication_factor) != (-1, -1):
        raise broker_error("INVALID_REQUEST", "partitions and replicas are assigned by hand, or counted, not both")
    if sorted(assigned.partition_index for assigned in wanted.assignments) != list(range(len(wanted.assignments))):
        raise broker_error("INVALID_REPLICA_ASSIGNMENT", "partitions are to be numbered from 0 on")
    for assigned in wanted.assignments:
        check_replicas(cluster, assigned.broker_ids)


def _check_counts(cluster: FakeCluster, wanted: Any) -> None:
    if wanted.num_partitions != -1 and wanted.num_partitions < 1:
        raise broker_error("INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value.")
    if wanted.replication_factor != -1 and not 1 <= wanted.replication_factor <= len(cluster.brokers):
        raise broker_error(
            "INVALID_REPLICATION_FACTOR", f"{counted(wanted.replication_factor, 'replica')} on {counted(len(cluster.brokers), 'broker')}"
        )


def check_replicas(cluster: FakeCluster, brokers: Sequence[int]) -> None:
    """Check an assignment of replicas.

    Raises:
        BrokerError: INVALID_REPLICA_ASSIGNMENT for no broker, an unknown one, or one twice.
    """
    if not brokers or len(set(brokers)) < len(brokers) or not cluster.brokers.keys() >= set(brokers):
        raise broker_error("INVALID_REPLICA_ASSIGNMENT", f"{list(brokers)} are not different brokers out of {sorted(cluster.brokers)}")


def assign(partition: Partition, brokers: Sequence[int]) -> None:
    """Assign brokers to a new partition; the first one leads it."""
    partition.replicas, partition.leader = tuple(brokers), brokers[0]


def _describe(topic: Topic, answer: Any) -> None:
    answer.topic_id = topic.topic_id
    answer.num_partitions = len(topic.partitions)
    answer.replication_factor = len(topic.partitions[0].replicas)
    answer.configs = [
        message(f"{_MESSAGE}.topics.configs", name=option.name, value=option.value, config_source=option.source)
        for option in options(topic)
    ]


HANDLER: Final = Handler(ApiKey.CREATE_TOPICS, (2, 7), _targets, _answer)
