"""The requests of an administrator: topics, partitions and options."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import NO_ID, answers
from aioproducer.testing.topics import is_legal_name
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioproducer.testing.call import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.topics import Partition, Topic


DYNAMIC: Final = 1  # Kafka's ConfigSource: set on the topic
DEFAULT: Final = 5  # Kafka's ConfigSource: not set anywhere
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7  # Kafka's ConfigType

# Kafka's TopicConfig and LogConfig
DEFAULTS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "cleanup.policy": (_LIST, "delete"),
        "compression.gzip.level": (_INT, "-1"),
        "compression.lz4.level": (_INT, "9"),
        "compression.type": (_STRING, "producer"),
        "compression.zstd.level": (_INT, "3"),
        "delete.retention.ms": (_LONG, "86400000"),
        "file.delete.delay.ms": (_LONG, "60000"),
        "flush.messages": (_LONG, "9223372036854775807"),
        "flush.ms": (_LONG, "9223372036854775807"),
        "follower.replication.throttled.replicas": (_LIST, ""),
        "index.interval.bytes": (_INT, "4096"),
        "leader.replication.throttled.replicas": (_LIST, ""),
        "local.retention.bytes": (_LONG, "-2"),
        "local.retention.ms": (_LONG, "-2"),
        "max.compaction.lag.ms": (_LONG, "9223372036854775807"),
        "max.message.bytes": (_INT, "1048588"),
        "message.timestamp.after.max.ms": (_LONG, "3600000"),
        "message.timestamp.before.max.ms": (_LONG, "9223372036854775807"),
        "message.timestamp.type": (_STRING, "CreateTime"),
        "min.cleanable.dirty.ratio": (_DOUBLE, "0.5"),
        "min.compaction.lag.ms": (_LONG, "0"),
        "min.insync.replicas": (_INT, "1"),
        "preallocate": (_BOOLEAN, "false"),
        "remote.log.copy.disable": (_BOOLEAN, "false"),
        "remote.log.delete.on.disable": (_BOOLEAN, "false"),
        "remote.storage.enable": (_BOOLEAN, "false"),
        "retention.bytes": (_LONG, "-1"),
        "retention.ms": (_LONG, "604800000"),
        "segment.bytes": (_INT, "1073741824"),
        "segment.index.bytes": (_INT, "10485760"),
        "segment.jitter.ms": (_LONG, "0"),
        "segment.ms": (_LONG, "604800000"),
        "unclean.leader.election.enable": (_BOOLEAN, "false"),
    }
)


class Option(NamedTuple):
    """Holds one option's current value. `source` and `kind` are Kafka's numbers."""

    name: str
    value: str
    source: int
    kind: int


def options(topic: Topic) -> list[Option]:
    """Return all options of a topic, sorted by name."""
    names = sorted({*DEFAULTS, *topic.config})
    return [_option(topic.config, name) for name in names]


def _option(config: Mapping[str, str], name: str) -> Option:
    kind, default = DEFAULTS.get(name, (_STRING, ""))
    return Option(name, config.get(name, default), DYNAMIC if name in config else DEFAULT, kind)


# --- CreateTopics


def _topic_targets(_cluster: FakeCluster, request: Any) -> list[Target]:
    return [Target(wanted.name) for wanted in request.topics]


@answers(ApiKey.CREATE_TOPICS, (2, 7), _topic_targets)
def create_topics(call: Call) -> None:
    """Versions 2-7: creates or refuses each topic on its own; `validate_only` creates none.

    As in Kafka: -1 partitions or replicas mean the cluster's defaults; a topic that is named twice is not created, and answered once.
    Deviations: every topic exists on every broker at once. `FakeCluster` ignores the number of replicas and assigns its usual ones, unless
    the request assigns replicas by hand.
    """
    names = Counter(wanted.name for wanted in call.request.topics)
    topics = []
    for wanted in {wanted.name: wanted for wanted in call.request.topics}.values():
        answer = message("CreateTopics.response.topics", name=wanted.name, configs=None)
        try:
            if names[wanted.name] > 1:
                raise broker_error("INVALID_REQUEST", "Duplicate topic name.")
            _create(call, wanted, answer)
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        topics.append(answer)
    call.reply(message("CreateTopics.response", topics=topics))


def _create(call: Call, wanted: Any, answer: Any) -> None:
    """Create one topic.

    Raises:
        BrokerError: the reason for a refusal.
    """
    cluster = call.cluster
    call.check_scripted(Target(wanted.name))
    _check(cluster, wanted)
    count = len(wanted.assignments) or (
        cluster.default_partitions if wanted.num_partitions == -1 else wanted.num_partitions
    )
    try:
        cluster.create_topic(
            wanted.name,
            count,
            {config.name: config.value for config in wanted.configs if config.value is not None},
        )
    # a wrong configuration: the other arguments were checked before
    except ValueError as error:
        raise broker_error("INVALID_CONFIG", str(error)) from error
    topic = cluster.topics.existing(wanted.name)
    for assigned in wanted.assignments:
        _assign(topic.partitions[assigned.partition_index], assigned.broker_ids)
    _describe(topic, answer)
    # create and delete in one step, so that the same checks apply
    if call.request.validate_only:
        cluster.delete_topic(wanted.name)


def _check(cluster: FakeCluster, wanted: Any) -> None:
    if not is_legal_name(wanted.name):
        raise broker_error(
            "INVALID_TOPIC_EXCEPTION",
            f"{wanted.name!r} is no name of a topic: up to 249 of a-z A-Z 0-9 . _ -",
        )
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
        raise broker_error(
            "INVALID_REQUEST", "partitions and replicas are assigned by hand, or counted, not both"
        )
    if sorted(assigned.partition_index for assigned in wanted.assignments) != list(
        range(len(wanted.assignments))
    ):
        raise broker_error("INVALID_REPLICA_ASSIGNMENT", "partitions are to be numbered from 0 on")
    for assigned in wanted.assignments:
        _check_replicas(cluster, assigned.broker_ids)


def _check_counts(cluster: FakeCluster, wanted: Any) -> None:
    if wanted.num_partitions != -1 and wanted.num_partitions < 1:
        raise broker_error(
            "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."
        )
    if wanted.replication_factor != -1 and not 1 <= wanted.replication_factor <= len(
        cluster.brokers
    ):
        raise broker_error(
            "INVALID_REPLICATION_FACTOR",
            f"a replication factor of {wanted.replication_factor}, and {len(cluster.brokers)} for the number of brokers",
        )


def _check_replicas(cluster: FakeCluster, brokers: Sequence[int]) -> None:
    """Check an assignment of replicas.

    Raises:
        BrokerError: INVALID_REPLICA_ASSIGNMENT for no broker, an unknown one, or one twice.
    """
    if (
        not brokers
        or len(set(brokers)) < len(brokers)
        or not cluster.brokers.keys() >= set(brokers)
    ):
        raise broker_error(
            "INVALID_REPLICA_ASSIGNMENT",
            f"{list(brokers)} are not different brokers out of {sorted(cluster.brokers)}",
        )


def _assign(partition: Partition, brokers: Sequence[int]) -> None:
    """Assign brokers to a new partition; the first one leads it."""
    partition.replicas, partition.leader = tuple(brokers), brokers[0]


def _describe(topic: Topic, answer: Any) -> None:
    answer.topic_id = topic.topic_id
    answer.num_partitions = len(topic.partitions)
    answer.replication_factor = len(topic.partitions[0].replicas)
    answer.configs = [
        message(
            "CreateTopics.response.topics.configs",
            name=option.name,
            value=option.value,
            config_source=option.source,
        )
        for option in options(topic)
    ]


# --- CreatePartitions


@answers(ApiKey.CREATE_PARTITIONS, (0, 3), _topic_targets)
def create_partitions(call: Call) -> None:
    """Versions 0-3: adds partitions to topics; `validate_only` adds none."""
    results = []
    for wanted in call.request.topics:
        answer = message("CreatePartitions.response.results", name=wanted.name)
        try:
            _grow(call, wanted)
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    call.reply(message("CreatePartitions.response", results=results))


def _grow(call: Call, wanted: Any) -> None:
    """Add partitions to one topic.

    Raises:
        BrokerError: the reason for a refusal.
    """
    call.check_scripted(Target(wanted.name))
    topic = call.cluster.topics.named(wanted.name)
    if topic is None:
        raise broker_error("UNKNOWN_TOPIC_OR_PARTITION", "there is no such topic")
    there = len(topic.partitions)
    if wanted.count <= there:
        raise broker_error(
            "INVALID_PARTITIONS",
            f"the number of partitions only grows, from {there} to {wanted.count} it cannot",
        )
    assignments = wanted.assignments
    if assignments is not None:
        if len(assignments) != wanted.count - there:
            raise broker_error(
                "INVALID_REPLICA_ASSIGNMENT",
                f"{len(assignments)} assignments for {wanted.count - there} new partitions",
            )
        for assigned in assignments:
            _check_replicas(call.cluster, assigned.broker_ids)
    if call.request.validate_only:
        return
    call.cluster.add_partitions(wanted.name, wanted.count)
    for partition, assigned in zip(topic.partitions[there:], assignments or (), strict=False):
        _assign(partition, assigned.broker_ids)


# --- DeleteTopics


def _asked(cluster: FakeCluster, request: Any) -> Iterator[tuple[str | None, bytes, Topic | None]]:
    """Yield the requested name and id of each topic, and the topic."""
    for name in request.topic_names:
        yield name, NO_ID, cluster.topics.named(name)
    for asked in request.topics:
        if asked.name is None:
            yield None, asked.topic_id, cluster.topics.identified(asked.topic_id)
        else:
            yield asked.name, NO_ID, cluster.topics.named(asked.name)


def _deleted_targets(cluster: FakeCluster, request: Any) -> list[Target]:
    return [Target(topic.name if topic else name) for name, _, topic in _asked(cluster, request)]


@answers(ApiKey.DELETE_TOPICS, (1, 6), _deleted_targets)
def delete_topics(call: Call) -> None:
    """Versions 1-6: by name, from version 6 on by id too.

    Deviation: a topic disappears on every broker at once.
    """
    responses = []
    for name, topic_id, topic in _asked(call.cluster, call.request):
        error = broker_error(call.code(Target(topic.name if topic else name)))
        if not error.code and topic is None:
            error = broker_error(
                "UNKNOWN_TOPIC_ID" if name is None else "UNKNOWN_TOPIC_OR_PARTITION",
                "there is no such topic",
            )
        if topic is not None:
            name, topic_id = topic.name, topic.topic_id
            if not error.code:
                call.cluster.delete_topic(name)
        responses.append(
            message(
                "DeleteTopics.response.responses",
                name=name,
                topic_id=topic_id,
                error_code=error.code,
                error_message=error.message,
            )
        )
    call.reply(message("DeleteTopics.response", responses=responses))


# --- DescribeConfigs


_TOPIC, _BROKER = 2, 4  # Kafka's ConfigResource
_STATIC: Final = 4


def _config_target(resource: Any) -> Target:
    return Target(resource.resource_name if resource.resource_type == _TOPIC else None)


def _config_targets(_cluster: FakeCluster, request: Any) -> list[Target]:
    return [_config_target(resource) for resource in request.resources]


@answers(ApiKey.DESCRIBE_CONFIGS, (1, 4), _config_targets)
def describe_configs(call: Call) -> None:
    """Versions 1-4: returns the options of topics, and a few of brokers.

    Deviations: no synonyms and no documentation; of a broker's options only those that the fake knows.
    """
    results = []
    for resource in call.request.resources:
        kind, name = resource.resource_type, resource.resource_name
        answer = message("DescribeConfigs.response.results", resource_type=kind, resource_name=name)
        try:
            call.check_scripted(_config_target(resource))
            answer.configs = [
                _config(kind, option)
                for option in _options_of(call, kind, name)
                if _is_config_asked(resource, option)
            ]
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    call.reply(message("DescribeConfigs.response", results=results))


def _options_of(call: Call, kind: int, name: str) -> list[Option]:
    if kind == _TOPIC:
        topic = call.cluster.topics.named(name)
        if topic is None:
            raise broker_error("UNKNOWN_TOPIC_OR_PARTITION", "there is no such topic")
        return options(topic)
    if kind == _BROKER and name in {"", str(call.broker.node_id)}:
        cluster = call.cluster
        return [
            Option(
                "auto.create.topics.enable", str(cluster.auto_create).lower(), _STATIC, _BOOLEAN
            ),
            Option("broker.id", str(call.broker.node_id), _STATIC, _INT),
            Option("num.partitions", str(cluster.default_partitions), _STATIC, _INT),
        ]
    raise broker_error(
        "INVALID_REQUEST",
        f"there is no resource {name!r} of type {kind} here; topics are 2, this broker is 4",
    )


def _is_config_asked(resource: Any, option: Option) -> bool:
    return not resource.configuration_keys or option.name in resource.configuration_keys


def _config(kind: int, option: Option) -> Any:
    return message(
        "DescribeConfigs.response.results.configs",
        name=option.name,
        value=option.value,
        read_only=kind == _BROKER,
        config_source=option.source,
        config_type=option.kind,
    )
