"""Topics made, grown, deleted and described over the wire: by three administrators, and question by question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from group_members import named
from peers import ADMINS

from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.usefixtures("forgotten_sockets"),
    # kafka-python forgets to close sockets: "Exception ignored in: <socket...", and from Python 3.14 on "while finalizing socket <socket..."
    pytest.mark.filterwarnings(
        "ignore:Exception ignored (in.|while finalizing socket) <socket.socket:pytest.PytestUnraisableExceptionWarning"
    ),
]


# --- administrators


@pytest.mark.parametrize("peer", ADMINS)
async def test_administrators_manage_topics(peer: str) -> None:
    """Each makes, lists, describes, grows and deletes a topic, and is told what it may not."""
    async with FakeCluster(brokers=2) as cluster:
        async with ADMINS[peer](cluster) as admin:
            assert await admin.create("orders", 2, {"retention.ms": "5000"}) == ""
            assert await admin.create("orders", 2, {}) == "TOPIC_ALREADY_EXISTS"
            assert await admin.create("a b", 1, {}) == "INVALID_TOPIC_EXCEPTION"
            assert await admin.create("wide", 1, {}, replicas=3) == "INVALID_REPLICATION_FACTOR"
            assert await admin.create("odd", 1, {"retention.msec": "1"}) == "INVALID_CONFIG"
            assert await admin.topics() == {"orders"}
            config = await admin.config("orders")
            assert (
                config["retention.ms"],
                config["max.message.bytes"],
                config["cleanup.policy"],
            ) == ("5000", "1048588", "delete")
            assert await admin.grow("orders", 5) == ""
            assert await admin.grow("orders", 5) == "INVALID_PARTITIONS"
            assert len(cluster.topics.existing("orders").partitions) == 5
            assert await admin.delete("orders") == ""
            assert await admin.delete("orders") == "UNKNOWN_TOPIC_OR_PARTITION"
            assert await admin.topics() == set()
        assert cluster.violations == []


# --- question by question


@pytest_asyncio.fixture
async def kafka(cluster: FakeCluster) -> AsyncIterator[WireClient]:
    """Asks the fake."""
    async with WireClient(cluster.bootstrap_servers, dialer=cluster.network) as client:
        yield client


def new_topic(name: str = "fresh", partitions: int = 1, replicas: int = 1, **fields: Any) -> Any:
    return message(
        "CreateTopics.request.topics",
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        **fields,
    )


def assigned(*replicas: tuple[int, ...]) -> list[Any]:
    """Partitions 0, 1, ... on these brokers."""
    path = "CreateTopics.request.topics.assignments"
    return [
        message(path, partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(replicas)
    ]


def config(name: str, value: str | None) -> Any:
    return message("CreateTopics.request.topics.configs", name=name, value=value)


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_in_every_version(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """From version 5 on the answer describes the topic, from 7 on it has its id; a validated topic is not made."""
    asked = new_topic(
        partitions=3,
        replicas=2,
        configs=[config("max.message.bytes", "99"), config("segment.ms", None)],
    )
    tried = await kafka.ask(
        ApiKey.CREATE_TOPICS, version=version, topics=[asked], validate_only=True
    )
    assert (tried.topics[0].error_code, cluster.topics.named("fresh")) == (0, None)
    (made,) = (await kafka.ask(ApiKey.CREATE_TOPICS, version=version, topics=[asked])).topics
    topic = cluster.topics.existing("fresh")
    assert (made.error_code, made.name, len(topic.partitions), topic.config) == (
        0,
        "fresh",
        3,
        {"max.message.bytes": "99"},
    )
    assert made.topic_id == (topic.topic_id if version >= 7 else bytes(16))
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 2)
        told = {one.name: (one.value, one.config_source) for one in made.configs}
        assert (told["max.message.bytes"], told["cleanup.policy"]) == (("99", 1), ("delete", 5))


async def test_defaults_and_assignments(cluster: FakeCluster, kafka: WireClient) -> None:
    """-1 is what the cluster has; partitions by hand are where they are put, the first broker leads."""
    cluster.default_partitions = 4
    by_hand = new_topic("placed", -1, -1, assignments=assigned((2,), (2, 1)))
    answer = await kafka.ask(ApiKey.CREATE_TOPICS, topics=[new_topic("plain", -1, -1), by_hand])
    assert [named(topic.error_code) for topic in answer.topics] == ["", ""]
    assert len(cluster.topics.existing("plain").partitions) == 4
    assert [
        (part.replicas, part.leader) for part in cluster.topics.existing("placed").partitions
    ] == [((2,), 2), ((2, 1), 2)]


NOT_MADE = [
    ([new_topic("a b")], "INVALID_TOPIC_EXCEPTION"),
    ([new_topic("x" * 250)], "INVALID_TOPIC_EXCEPTION"),
    ([new_topic("orders")], "TOPIC_ALREADY_EXISTS"),
    ([new_topic(), new_topic()], "INVALID_REQUEST"),
    ([new_topic(partitions=0)], "INVALID_PARTITIONS"),
    ([new_topic(partitions=-2)], "INVALID_PARTITIONS"),
    ([new_topic(replicas=0)], "INVALID_REPLICATION_FACTOR"),
    ([new_topic(replicas=3)], "INVALID_REPLICATION_FACTOR"),
    ([new_topic(configs=[config("no.such.option", "1")])], "INVALID_CONFIG"),
    ([new_topic(configs=[config("message.timestamp.type", "Yesterday")])], "INVALID_CONFIG"),
    ([new_topic(assignments=assigned((1,)))], "INVALID_REQUEST"),
    ([new_topic("fresh", -1, -1, assignments=assigned((1, 1)))], "INVALID_REPLICA_ASSIGNMENT"),
    ([new_topic("fresh", -1, -1, assignments=assigned((9,)))], "INVALID_REPLICA_ASSIGNMENT"),
    ([new_topic("fresh", -1, -1, assignments=assigned(()))], "INVALID_REPLICA_ASSIGNMENT"),
    (
        [new_topic("fresh", -1, -1, assignments=assigned((1,), (1,))[1:])],
        "INVALID_REPLICA_ASSIGNMENT",
    ),
]


@pytest.mark.parametrize(("topics", "refusal"), NOT_MADE)
async def test_topics_that_are_not_made(
    cluster: FakeCluster, kafka: WireClient, topics: list[Any], refusal: str
) -> None:
    """Each is told its reason in words too; another topic of the same request is made."""
    answer = await kafka.ask(ApiKey.CREATE_TOPICS, topics=[*topics, new_topic("other")])
    *refused, other = answer.topics
    assert {named(topic.error_code) for topic in refused} == {refusal}
    assert all(topic.error_message for topic in refused)
    assert (other.error_code, {topic.name for topic in cluster.topics}) == (0, {"orders", "other"})


@pytest.mark.parametrize("version", range(1, 7))
async def test_delete_in_every_version(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """The broker deletes the topic that exists and answers UNKNOWN_TOPIC_OR_PARTITION for the one that does not."""
    names = ["orders", "nothing"]
    asked: dict[str, Any] = {"topic_names": names}
    if version >= 6:
        asked = {"topics": [message("DeleteTopics.request.topics", name=name) for name in names]}
    answer = await kafka.ask(ApiKey.DELETE_TOPICS, version=version, **asked)
    told = [(topic.name, named(topic.error_code)) for topic in answer.responses]
    assert told == [("orders", ""), ("nothing", "UNKNOWN_TOPIC_OR_PARTITION")]
    assert list(cluster.topics) == []


async def test_delete_by_id(cluster: FakeCluster, kafka: WireClient) -> None:
    """From version 6 on; the answer names the topic that had the id."""
    known = cluster.topics.existing("orders").topic_id
    topics = [
        message("DeleteTopics.request.topics", name=None, topic_id=topic_id)
        for topic_id in (known, b"x" * 16)
    ]
    gone, unknown = (await kafka.ask(ApiKey.DELETE_TOPICS, topics=topics)).responses
    assert (gone.name, gone.topic_id, gone.error_code) == ("orders", known, 0)
    assert (unknown.name, unknown.topic_id, named(unknown.error_code)) == (
        None,
        b"x" * 16,
        "UNKNOWN_TOPIC_ID",
    )


def growth(name: str, count: int, assignments: list[tuple[int, ...]] | None = None) -> Any:
    path = "CreatePartitions.request.topics"
    placed = (
        None
        if assignments is None
        else [message(f"{path}.assignments", broker_ids=brokers) for brokers in assignments]
    )
    return message(path, name=name, count=count, assignments=placed)


@pytest.mark.parametrize("version", range(4))
async def test_grow_in_every_version(cluster: FakeCluster, kafka: WireClient, version: int) -> None:
    """To so many partitions, dealt or placed; validated, it does not."""
    for validate_only, count in ((True, 2), (False, 4)):
        asked = {"topics": [growth("orders", 4, [(2,), (2, 1)])], "validate_only": validate_only}
        answer = await kafka.ask(ApiKey.CREATE_PARTITIONS, version=version, **asked)
        assert (
            answer.results[0].error_code,
            len(cluster.topics.existing("orders").partitions),
        ) == (0, count)
    assert [part.replicas for part in cluster.topics.existing("orders").partitions[2:]] == [
        (2,),
        (2, 1),
    ]
    assert (
        await kafka.ask(ApiKey.CREATE_PARTITIONS, version=version, topics=[growth("orders", 5)])
    ).results[0].error_code == 0


NOT_GROWN = [
    (growth("nothing", 3), "UNKNOWN_TOPIC_OR_PARTITION"),
    (growth("orders", 2), "INVALID_PARTITIONS"),
    (growth("orders", 1), "INVALID_PARTITIONS"),
    (growth("orders", 4, [(1,)]), "INVALID_REPLICA_ASSIGNMENT"),
    (growth("orders", 3, [(9,)]), "INVALID_REPLICA_ASSIGNMENT"),
]


@pytest.mark.parametrize(("asked", "refusal"), NOT_GROWN)
async def test_topics_that_do_not_grow(
    cluster: FakeCluster, kafka: WireClient, asked: Any, refusal: str
) -> None:
    """The broker refuses the request, and the topic keeps its partitions."""
    (result,) = (await kafka.ask(ApiKey.CREATE_PARTITIONS, topics=[asked])).results
    assert (named(result.error_code), len(cluster.topics.existing("orders").partitions)) == (
        refusal,
        2,
    )


def resource(kind: int, name: str, keys: list[str] | None = None) -> Any:
    return message(
        "DescribeConfigs.request.resources",
        resource_type=kind,
        resource_name=name,
        configuration_keys=keys,
    )


@pytest.mark.parametrize("version", range(1, 5))
async def test_configs_in_every_version(
    cluster: FakeCluster, kafka: WireClient, version: int
) -> None:
    """The broker describes the configs of a topic and of itself: the ones that are asked for, or all."""
    cluster.create_topic("kept", config={"retention.ms": -1})
    asked = [
        resource(2, "kept", ["retention.ms", "segment.ms"]),
        resource(2, "kept"),
        resource(4, "1"),
        resource(2, "nothing"),
        resource(9, "x"),
    ]
    answer = await kafka.ask(ApiKey.DESCRIBE_CONFIGS, version=version, resources=asked)
    some, every, broker, nothing, other = answer.results
    assert [(one.name, one.value, one.config_source) for one in some.configs] == [
        ("retention.ms", "-1", 1),
        ("segment.ms", "604800000", 5),
    ]
    assert [one.config_type for one in some.configs] == ([5, 5] if version >= 3 else [0, 0])
    assert {one.name for one in every.configs} >= {
        "cleanup.policy",
        "max.message.bytes",
        "min.insync.replicas",
    }
    assert {one.name: one.value for one in broker.configs}["broker.id"] == "1"
    assert [named(one.error_code) for one in (nothing, other)] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_REQUEST",
    ]


@pytest.mark.parametrize(
    ("key", "fields", "part"),
    [
        (ApiKey.CREATE_TOPICS, {"topics": [new_topic()]}, "topics"),
        (
            ApiKey.DELETE_TOPICS,
            {"topics": [message("DeleteTopics.request.topics", name="fresh")]},
            "responses",
        ),
        (ApiKey.CREATE_PARTITIONS, {"topics": [growth("fresh", 9)]}, "results"),
        (ApiKey.DESCRIBE_CONFIGS, {"resources": [resource(2, "fresh")]}, "results"),
    ],
    ids=["create", "delete", "grow", "describe"],
)
async def test_scripted_errors(
    cluster: FakeCluster, kafka: WireClient, key: ApiKey, fields: dict[str, Any], part: str
) -> None:
    """The broker answers with the error that the test scripted for a topic."""
    api = {ApiKey.CREATE_TOPICS: "CreateTopics", ApiKey.DELETE_TOPICS: "DeleteTopics"}
    api |= {
        ApiKey.CREATE_PARTITIONS: "CreatePartitions",
        ApiKey.DESCRIBE_CONFIGS: "DescribeConfigs",
    }
    cluster.fail(api[key], "POLICY_VIOLATION", topic="fresh")
    answer = await kafka.ask(key, **fields)
    assert named(getattr(answer, part)[0].error_code) == "POLICY_VIOLATION"
    cluster.assert_all_fired()


# --- the ends of epochs


async def test_where_an_epoch_ended(cluster: FakeCluster, kafka: WireClient) -> None:
    """Epochs that wrote nothing are skipped; one that is not there yet has no end."""
    from fake_requests import batch, produce

    await produce(kafka, batch(b"a", b"b"))
    for _ in range(2):
        cluster.move_leader("orders", 0, to=1)
    await produce(kafka, batch(b"c"))
    cluster.move_leader("orders", 0, to=1)
    path = "OffsetForLeaderEpoch.request.topics"
    found = []
    for epoch in (0, 1, 2, 3, 4, -1):
        asked = message(
            path,
            topic="orders",
            partitions=[message(f"{path}.partitions", partition=0, leader_epoch=epoch)],
        )
        (partition,) = (
            (await kafka.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, topics=[asked])).topics[0].partitions
        )
        found.append((named(partition.error_code), partition.leader_epoch, partition.end_offset))
    assert found == [("", 0, 2), ("", 0, 2), ("", 2, 3), ("", 3, 3), ("", -1, -1), ("", -1, -1)]
