"""The fake against the real thing: the same questions to both, and the same answers; what differs is listed with its reason."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from group_members import Consumer, fetched, named, offsets_of
from transaction_stories import STORIES as TRANSACTION_STORIES
from transaction_stories import timed_out, zombies
from transactional import Hand

from aioproducer.errors import broker_error
from aioproducer.testing import FakeCluster, KafkaServer
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message
from tests.support.kafka_security import set_feature
from tests.testing.test_admin import NOT_GROWN, NOT_MADE, growth, new_topic, resource
from tests.testing.test_strictness import REFUSED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aioproducer.testing.kafka_server import ServerThread

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

ELSEWHERE = "it takes a second broker, or a leader that moved"
DIFFERENT = {  # of what is refused
    "a wrong leader": ELSEWHERE,
    "a fetch from another leader": ELSEWHERE,
    "a fetch with a stale epoch": ELSEWHERE,
    "offsets from another leader": ELSEWHERE,
    "offsets with a stale epoch": ELSEWHERE,
    "an epoch's end from another leader": ELSEWHERE,
    "an epoch's end with a stale epoch": ELSEWHERE,
    "a commit to who does not coordinate": ELSEWHERE,
    "a transaction at who does not coordinate": ELSEWHERE,
    "no records": "Kafka 4.3 never answers null records",
    "a batch cut off": "Kafka looks at whole batches only, and finds none: INVALID_RECORD",
    "a batch cut off in its header": "likewise",
    "a batch that says it is longer": "likewise",
    "an unknown magic": "Kafka answers CORRUPT_MESSAGE",
    "LogAppendTime of a client": "Kafka 4.3 takes it",
    "a commit of a stranger": "Kafka says GROUP_ID_NOT_FOUND of a group that never was",
}


class World:
    """One of the two, with a topic and groups of this test's own."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.client = WireClient(servers)
        self._consumers: list[Consumer] = []
        self.name = f"t{uuid.uuid4().hex}"

    def consumer(self, group: str = "g", **options: Any) -> Consumer:
        made = Consumer(self.servers, group=f"{self.name}-{group}", **options)
        self._consumers.append(made)
        return made

    async def ready(self) -> None:
        """Until groups and transactions are coordinated."""
        await self.client.create_topic(self.name, 2, {"max.message.bytes": 1000})
        asking = self.consumer("ready")
        async with asyncio.timeout(30):
            while await asking.heartbeat(member_id="nobody") != "UNKNOWN_MEMBER_ID":
                await self.client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=["any"])
                await asyncio.sleep(0.05)
        assert not await Hand(self.client, self.name, "ready").init()

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.client.close()
        self.client.close()


async def joining(world: World) -> AsyncIterator[object]:
    """One member's life in each version of JoinGroup."""
    for version in range(10):
        consumer = world.consumer(f"v{version}", version=version)
        joined = await consumer.join()
        yield (
            joined.error_code,
            joined.generation_id,
            joined.leader == consumer.member_id,
            joined.protocol_type,
            joined.protocol_name,
        )
        yield (
            [
                (member.member_id == consumer.member_id, member.metadata)
                for member in joined.members
            ],
            joined.skip_assignment,
        )
        synced = await consumer.sync({consumer.member_id: b"all"})
        yield synced.error_code, synced.assignment, synced.protocol_type, synced.protocol_name
        yield (
            await consumer.heartbeat(),
            await consumer.leave(),
            await consumer.heartbeat(),
            await consumer.leave(),
        )


async def refused_members(world: World) -> AsyncIterator[object]:
    """The broker refuses a consumer that may not join, and requests of a consumer that is no member."""
    first = world.consumer()
    for fields in (
        {"group_id": ""},
        {"session_timeout_ms": 5_999},
        {"session_timeout_ms": 1_800_001},
        {"member_id": "stranger"},
        {"protocol_type": ""},
        {"protocols": []},
    ):
        yield named((await world.consumer().join(**fields)).error_code)
    await first.enter()
    for fields in (
        {"protocol_type": "connect"},
        {"protocols": [message("JoinGroup.request.protocols", name="other")]},
    ):
        yield named((await world.consumer().join(**fields)).error_code)
    for fields in (
        {"member_id": "stranger"},
        {"group_instance_id": "stranger"},
        {"generation_id": 0},
        {"generation_id": 2},
    ):
        renamed = {
            "generation_id_or_member_epoch" if name == "generation_id" else name: value
            for name, value in fields.items()
        }
        yield (
            await first.heartbeat(**fields),
            named((await first.sync(**fields)).error_code),
            await first.commit(1, topic=world.name, **renamed),
        )
    for fields in (
        {"protocol_name": "other"},
        {"protocol_name": None},
        {"protocol_type": "connect"},
        {"protocol_type": None},
    ):
        yield named((await first.sync(**fields)).error_code)
    yield await first.leave(members=[message("LeaveGroup.request.members", member_id="stranger")])
    yield await first.heartbeat()


async def rebalancing(world: World) -> AsyncIterator[object]:
    """Two members come and go."""
    first, second = world.consumer(), world.consumer()
    await first.enter()
    entering = asyncio.create_task(second.enter())
    while (heard := await first.heartbeat()) == "":
        await asyncio.sleep(0.02)
    yield heard, await first.commit(1, topic=world.name)
    await first.enter()
    await entering
    again = await second.join()
    yield (
        first.generation,
        second.generation,
        again.generation_id,
        again.leader == first.member_id,
        len(again.members),
    )
    yield await world.consumer().commit(9, topic=world.name)
    yield await first.leave(), await second.heartbeat(), named((await second.sync()).error_code)
    joined = await second.join()
    yield (
        joined.generation_id,
        joined.leader == second.member_id,
        await second.commit(1, topic=world.name),
        await second.heartbeat(),
    )


async def fencing(world: World) -> AsyncIterator[object]:
    """A static member's place is taken by the next one of its name."""
    before, after = world.consumer(instance="one"), world.consumer(instance="one")
    await before.enter()
    joined = await after.join()
    yield joined.error_code, after.member_id != before.member_id
    yield named((await before.join_once()).error_code), named((await before.sync()).error_code)
    yield await before.heartbeat(), await before.commit(1, topic=world.name), await before.leave()
    after.member_id = ""
    yield await after.leave()


async def offsets(world: World) -> AsyncIterator[object]:
    """A consumer that is no member commits offsets and fetches them in every version."""
    consumer = world.consumer()
    fields: dict[str, Any]
    for fields in (
        {},
        {"topic": "nothing"},
        {"partition": 2},
        {"metadata": "x" * 4097},
        {"metadata": None},
        {"metadata": "note", "partition": 1},
    ):
        yield await consumer.commit(5, **{"topic": world.name, **fields})
    for version in range(1, 10):
        asked = {world.name: [0, 1], "nothing": [0]}
        yield sorted(
            (name == world.name, *rest)
            for (name, *_), *rest in offsets_of(
                await fetched(consumer, version, topics=asked)
            ).items()
        )
        if version >= 2:
            yield sorted(offsets_of(await fetched(consumer, version)).values())
    for version in range(2, 10):
        yield await consumer.commit(version, topic=world.name, version=version)
    yield sorted(offsets_of(await fetched(consumer)).values())


async def administration(world: World) -> AsyncIterator[object]:
    """Topics that are not made, or do not grow; options of those that are there."""
    renamed = {"orders": world.name, "fresh": f"{world.name}-fresh"}
    await world.client.create_topic(f"{world.name}-orders", 2)
    for topics, _ in NOT_MADE:
        asked = [_renamed(topic, renamed) for topic in topics]
        answer = await world.client.ask(ApiKey.CREATE_TOPICS, topics=asked, validate_only=True)
        yield [named(topic.error_code) for topic in answer.topics]
    for topic, _ in NOT_GROWN:
        answer = await world.client.ask(
            ApiKey.CREATE_PARTITIONS,
            timeout_ms=9000,
            topics=[_renamed(topic, renamed)],
            validate_only=True,
        )
        yield [named(result.error_code) for result in answer.results]
    keys: list[str] | None
    for keys in (None, [], ["retention.ms", "max.message.bytes", "no.such.option"]):
        (told,) = (
            await world.client.ask(
                ApiKey.DESCRIBE_CONFIGS, resources=[resource(2, world.name, keys)]
            )
        ).results
        options = {
            one.name: (
                one.value,
                one.config_type,
                one.config_source,
                one.read_only,
                one.is_sensitive,
            )
            for one in told.configs
        }
        for name in (
            "segment.index.bytes",
            "min.insync.replicas",
        ):  # the real cluster has these set
            options.pop(name, None)
        yield told.error_code, options
    for kind, name in ((2, "nothing"), (4, "77"), (9, "x")):
        (told,) = (
            await world.client.ask(ApiKey.DESCRIBE_CONFIGS, resources=[resource(kind, name)])
        ).results
        yield named(told.error_code)
    for count, name in ((3, world.name), (2, "nothing")):
        (grown,) = (
            await world.client.ask(
                ApiKey.CREATE_PARTITIONS, timeout_ms=9000, topics=[growth(name, count)]
            )
        ).results
        yield named(grown.error_code)
    for validate_only in (True, False):
        asked = [new_topic(f"{world.name}-made", -1, -1)]
        (made,) = (
            await world.client.ask(ApiKey.CREATE_TOPICS, topics=asked, validate_only=validate_only)
        ).topics
        yield (
            made.error_code,
            made.num_partitions,
            made.replication_factor,
            len(made.configs),
            made.topic_id != bytes(16),
        )
    names = [f"{world.name}-made", "nothing"]
    gone = await world.client.ask(
        ApiKey.DELETE_TOPICS, timeout_ms=9000, version=5, topic_names=names
    )
    yield sorted((topic.name != "nothing", named(topic.error_code)) for topic in gone.responses)
    ids = [message("DeleteTopics.request.topics", name=None, topic_id=b"x" * 16)]
    yield [
        (topic.name, named(topic.error_code))
        for topic in (
            await world.client.ask(ApiKey.DELETE_TOPICS, timeout_ms=9000, topics=ids)
        ).responses
    ]


def _renamed(topic: Any, names: dict[str, str]) -> Any:
    """A copy of a request's topic, by a name that this test has to itself."""
    fields = {name: getattr(topic, name) for name in topic.__slots__}
    return type(topic)(**{**fields, "name": names.get(topic.name, topic.name)})


STORIES = (
    joining,
    refused_members,
    rebalancing,
    fencing,
    offsets,
    administration,
    *TRANSACTION_STORIES,
)


async def told(servers: str, story: Callable[[World], AsyncIterator[object]]) -> list[object]:
    world = World(servers)
    try:
        await world.ready()
        return [chapter async for chapter in story(world)]
    finally:
        world.close()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_both_tell_the_same_story(
    kafka_server: ServerThread, story: Callable[[World], AsyncIterator[object]]
) -> None:
    """Chapter by chapter."""
    async with FakeCluster() as cluster:
        assert await told(cluster.bootstrap_servers, story) == await told(
            kafka_server.bootstrap_servers, story
        )


async def test_both_change_the_version_of_transactions_in_mid_life() -> None:
    """Both brokers follow the level of `transaction.version`, at 1 and then at 2."""
    async with (
        KafkaServer(features={"transaction.version": 1}) as kafka,
        FakeCluster(transaction_version=1) as cluster,
    ):
        for story in (zombies, timed_out):
            assert await told(cluster.bootstrap_servers, story) == await told(
                kafka.bootstrap_servers, story
            )
        cluster.transaction_version = 2
        await set_feature(kafka, "transaction.version", 2)
        assert await told(cluster.bootstrap_servers, zombies) == await told(
            kafka.bootstrap_servers, zombies
        )


async def test_both_refuse_the_same(kafka_server: ServerThread) -> None:
    """Both brokers answer the refused requests with the same error, except in the listed cases."""
    assert DIFFERENT.keys() <= REFUSED.keys()
    world = World(kafka_server.bootstrap_servers)
    try:
        await world.ready()
        (
            await world.client.ask(
                ApiKey.DELETE_TOPICS, timeout_ms=9000, version=5, topic_names=["orders"]
            )
        )
        await world.client.create_topic("orders", 2, {"max.message.bytes": 1000})
        await world.client.metadata()
        for case, (ask, refusal) in REFUSED.items():
            if case not in DIFFERENT:
                answered = broker_error((await ask(world.client)).error_code)
                assert (case, answered.code) == (case, broker_error(refusal).code)
    finally:
        await world.client.ask(
            ApiKey.DELETE_TOPICS, timeout_ms=9000, version=5, topic_names=["orders"]
        )
        world.close()
