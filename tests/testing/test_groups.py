"""Tests of the fake's consumer groups: the classic protocol, question by question. Real consumers: test_fake_peers.py."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest
from group_members import GROUP, REBALANCE_MS, SESSION_MS, Consumer, fetched, named, offsets_of
from jumping import jumping, until

from aioproducer.errors import ConnectionLost
from aioproducer.testing import FakeCluster
from aioproducer.testing.groups import State
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message


class Stage:
    """A cluster in memory, and consumers that are hung up on at its end."""

    def __init__(self, **options: Any) -> None:
        self.cluster = FakeCluster(memory=True, **options)
        self._consumers: list[Consumer] = []

    async def __aenter__(self) -> Self:
        await self.cluster.__aenter__()
        self.cluster.create_topic("orders", 2)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for consumer in self._consumers:
            consumer.client.close()
        await self.cluster.__aexit__(*exc_info)

    def consumer(self, **options: Any) -> Consumer:
        made = Consumer(self.cluster.bootstrap_servers, self.cluster.network, **options)
        self._consumers.append(made)
        return made

    async def two(self) -> tuple[Consumer, Consumer]:
        """Two members of a stable group; the first leads it."""
        first, second = self.consumer(), self.consumer()
        await first.enter()
        entering = asyncio.create_task(second.enter())
        await self.rebalancing()
        assert await first.heartbeat() == "REBALANCE_IN_PROGRESS"
        await first.enter()
        await entering
        return first, second

    async def rebalancing(self) -> None:
        """Wait until the group waits for its members."""
        await until(lambda: self.state is State.PREPARING_REBALANCE)

    @property
    def state(self) -> State:
        return self.cluster.groups[GROUP].state


# --- joining and leaving


@jumping
async def test_an_id_is_told_first() -> None:
    """From JoinGroup 4 on: the first answer has an id and nothing else; before, the first answer is the place in the group."""
    async with Stage() as stage:
        old, new = stage.consumer(version=3), stage.consumer(version=4)
        assert (await old.join_once()).error_code == 0
        promised = await new.join_once()
        assert (named(promised.error_code), promised.generation_id, bool(promised.member_id)) == (
            "MEMBER_ID_REQUIRED",
            -1,
            True,
        )


@jumping
async def test_a_leader_that_joins_again_rebalances() -> None:
    """So does a member with other topics; a follower that has nothing new does not."""
    async with Stage() as stage:
        first, second = await stage.two()
        joining = asyncio.create_task(first.join())
        await stage.rebalancing()
        assert await second.heartbeat() == "REBALANCE_IN_PROGRESS"
        await second.join()
        assert {member.member_id for member in (await joining).members} == {
            first.member_id,
            second.member_id,
        }
        assert first.generation == 3


@jumping
async def test_leaving_by_instance_id_alone_and_in_old_versions() -> None:
    """An administrator does the one, consumers before 2.4 the other."""
    async with Stage() as stage:
        static, old = stage.consumer(instance="one"), stage.consumer(version=3)
        await static.enter()
        static.member_id = ""
        assert (await static.leave(), stage.state) == ("", State.EMPTY)
        await old.enter()
        answer = await old.client.ask(
            ApiKey.LEAVE_GROUP, version=2, group_id=GROUP, member_id=old.member_id
        )
        assert (answer.error_code, stage.state) == (0, State.EMPTY)


@jumping
async def test_the_protocol_that_most_like_best() -> None:
    """The group takes the protocol with the most votes, among the protocols that all members know."""
    async with Stage() as stage:
        consumers = [
            stage.consumer(protocols=names)
            for names in ("sticky range robin", "range robin", "robin range")
        ]
        await consumers[0].enter()
        joining = [asyncio.create_task(consumer.join()) for consumer in consumers[1:]]
        await stage.rebalancing()
        await until(lambda: len(stage.cluster.groups[GROUP].members) == 3)
        joining.append(asyncio.create_task(consumers[0].join()))
        assert {(await joined).protocol_name for joined in joining} == {"range"}


@jumping
async def test_an_assignment_comes_with_the_leader() -> None:
    """A member that syncs before the leader waits for the assignment. A rebalance ends the waiting."""
    async with Stage() as stage:
        first, second = stage.consumer(), stage.consumer()
        await first.enter()
        joining = asyncio.create_task(second.join())
        await stage.rebalancing()
        await first.join()
        await joining
        waiting = asyncio.create_task(second.sync())
        await stage.cluster.seen("SyncGroup", 2)
        assert not waiting.done()
        assert await first.commit(1) == "REBALANCE_IN_PROGRESS"
        assert await first.leave() == ""
        assert named((await waiting).error_code) == "REBALANCE_IN_PROGRESS"


# --- time


@jumping
async def test_who_does_not_join_in_time_is_out() -> None:
    """The longest rebalance time-out of its members is how long a group waits."""
    async with Stage() as stage:
        first, second = stage.consumer(), stage.consumer()
        await first.join(rebalance_timeout_ms=REBALANCE_MS // 3)
        await first.sync()
        started = asyncio.get_running_loop().time()
        joining = asyncio.create_task(second.join())
        await stage.rebalancing()
        while not joining.done():  # the first lives, but does not join
            await asyncio.sleep(5)
            await first.heartbeat()
        assert asyncio.get_running_loop().time() - started == pytest.approx(
            REBALANCE_MS / 1000, abs=5
        )
        assert [member.member_id for member in (await joining).members] == [second.member_id]
        assert await first.heartbeat() == "UNKNOWN_MEMBER_ID"


@jumping
async def test_who_is_silent_is_out() -> None:
    """After its session time-out. A heartbeat, a commit or a question that waits is no silence."""
    async with Stage() as stage:
        first, second = await stage.two()
        for _ in range(4):
            await asyncio.sleep(SESSION_MS / 1000 / 2)
            assert await first.commit(1) == ""
        assert list(stage.cluster.groups[GROUP].members) == [first.member_id]
        joining = asyncio.create_task(second.join_once())
        assert named((await joining).error_code) == "UNKNOWN_MEMBER_ID"


@jumping
async def test_a_waiting_member_is_not_silent() -> None:
    """It waits for the others far longer than its session time-out."""
    async with Stage() as stage:
        first, second = stage.consumer(), stage.consumer()
        await first.enter()
        joining = asyncio.create_task(second.join())
        for _ in range(10):
            await asyncio.sleep(SESSION_MS / 1000 / 2)
            assert await first.heartbeat() == "REBALANCE_IN_PROGRESS"
        await first.join()
        assert (await joining).generation_id == 2


@jumping
async def test_an_id_that_nobody_joins_with_is_forgotten() -> None:
    """A rebalance waits for it until its session time-out, or until it says that it leaves."""
    async with Stage() as stage:
        first, second, third = (stage.consumer() for _ in range(3))
        await first.enter()
        await second.join_once()
        await third.join_once()
        started = asyncio.get_running_loop().time()
        assert await third.leave() == ""
        assert (await first.join()).generation_id == 2
        assert asyncio.get_running_loop().time() - started == pytest.approx(
            SESSION_MS / 1000, abs=0.1
        )
        assert named((await second.join_once()).error_code) == "UNKNOWN_MEMBER_ID"


@jumping
async def test_a_rebalance_goes_on_when_the_last_that_is_missing_leaves() -> None:
    """Be it a member, or one that was told an id and never joined."""
    async with Stage() as stage:
        first, second, third = (stage.consumer() for _ in range(3))
        await first.enter()
        await second.join_once()
        await third.join_once()
        joining = asyncio.create_task(second.join_once())
        await stage.rebalancing()
        started = asyncio.get_running_loop().time()
        assert (await first.leave(), joining.done()) == ("", False)
        assert await third.leave() == ""
        assert (await joining).leader == second.member_id
        assert asyncio.get_running_loop().time() == started


@jumping
async def test_a_lost_connection_stops_no_rebalance() -> None:
    """The coordinator does not notice it: the member counts as joined, until it is silent for too long."""
    async with Stage() as stage:
        first, second = stage.consumer(), stage.consumer()
        await first.enter()
        joining = asyncio.create_task(second.join())
        await stage.rebalancing()
        second.client.close()
        with pytest.raises(ConnectionLost):
            await joining
        assert len((await first.join()).members) == 2
        await asyncio.sleep(SESSION_MS / 2000)
        await first.heartbeat()
        await asyncio.sleep(SESSION_MS / 1500)
        assert await first.heartbeat() == "REBALANCE_IN_PROGRESS"
        assert len((await first.join()).members) == 1


@jumping
async def test_a_stopped_cluster_leaves_no_timer() -> None:
    """Sessions, rebalances, promised ids: nothing of them runs on."""
    async with Stage() as stage:
        first, second, third = (stage.consumer() for _ in range(3))
        await first.enter()
        await third.join_once()
        joining = asyncio.create_task(second.join())
        await stage.rebalancing()
    with pytest.raises(ConnectionLost):
        await joining
    loop = asyncio.get_running_loop()
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


# --- static members


@jumping
async def test_a_static_member_takes_its_place_again() -> None:
    """A static member gets a new id. The group fences every request under the old id."""
    async with Stage() as stage:
        before, after = stage.consumer(instance="one"), stage.consumer(instance="one")
        await before.enter()
        joined = await after.join()
        assert [(member.member_id, member.group_instance_id) for member in joined.members] == [
            (after.member_id, "one")
        ]
        assert after.member_id != before.member_id
        fenced = [
            named((await before.join_once()).error_code),
            named((await before.sync()).error_code),
            await before.heartbeat(),
            await before.commit(1),
            await before.leave(),
        ]
        assert fenced == ["FENCED_INSTANCE_ID"] * 5
        assert named((await after.sync({after.member_id: b"all"})).error_code) == ""


# --- refusals


@pytest.mark.parametrize("question", ["sync", "heartbeat", "commit"])
@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"member_id": "stranger"}, "UNKNOWN_MEMBER_ID"),
        ({"group_instance_id": "stranger"}, "UNKNOWN_MEMBER_ID"),
        ({"generation": 1}, "ILLEGAL_GENERATION"),
        ({"generation": 3}, "ILLEGAL_GENERATION"),
    ],
)
@jumping
async def test_who_is_no_member(question: str, fields: dict[str, Any], refusal: str) -> None:
    """A stranger, or a member of another generation."""
    fields = dict(fields)
    if "generation" in fields:
        fields["generation_id_or_member_epoch" if question == "commit" else "generation_id"] = (
            fields.pop("generation")
        )
    async with Stage() as stage:
        first, _ = await stage.two()
        if question == "sync":
            told = named((await first.sync(**fields)).error_code)
        elif question == "heartbeat":
            told = await first.heartbeat(**fields)
        else:
            told = await first.commit(1, **fields)
        assert told == refusal
        assert stage.cluster.committed(GROUP) == {}


@jumping
async def test_others_than_the_coordinator_refuse() -> None:
    """Every request of a group; FindCoordinator leads to the right one, also when that is gone."""
    async with Stage(brokers=2) as stage:
        consumer = stage.consumer()
        await consumer.enter()
        await consumer.client.metadata()
        told = [
            named(
                (
                    await consumer.client.ask(
                        ApiKey.JOIN_GROUP, node=2, group_id=GROUP, session_timeout_ms=SESSION_MS
                    )
                ).error_code
            ),
            await consumer.heartbeat(node=2),
            named((await consumer.sync(node=2)).error_code),
            await consumer.leave(node=2),
            await consumer.commit(1, node=2),
            named((await fetched(consumer, node=2)).error_code),
        ]
        assert told == ["NOT_COORDINATOR"] * 6
        await stage.cluster.brokers[1].stop()
        found = await consumer.client.ask(ApiKey.FIND_COORDINATOR, node=2, coordinator_keys=[GROUP])
        assert found.coordinators[0].node_id == 2
        assert await consumer.heartbeat(node=2) == ""


@pytest.mark.parametrize("version", [3, 4])
@jumping
async def test_a_coordinator_that_moved(version: int) -> None:
    """The old one refuses, FindCoordinator tells the new one, and the group goes on there; other groups stay."""
    async with Stage(brokers=2) as stage:
        consumer = stage.consumer()
        await consumer.enter()
        await consumer.client.metadata()
        stage.cluster.move_coordinator(GROUP, to=2)
        assert await consumer.heartbeat(node=1) == "NOT_COORDINATOR"
        assert await consumer.heartbeat(node=2) == ""
        for group, node in ((GROUP, 2), ("others", 1)):
            found = await consumer.client.ask(
                ApiKey.FIND_COORDINATOR, version=version, key=group, coordinator_keys=[group]
            )
            assert (found.node_id if version < 4 else found.coordinators[0].node_id) == node


@pytest.mark.parametrize(
    "question", ["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"]
)
@jumping
async def test_scripted_errors(question: str) -> None:
    """Each request of a group can be made to fail."""
    async with Stage() as stage:
        consumer = stage.consumer()
        await consumer.enter()
        stage.cluster.fail(question, "COORDINATOR_LOAD_IN_PROGRESS")
        asked = {
            "JoinGroup": consumer.join,
            "SyncGroup": consumer.sync,
            "Heartbeat": consumer.heartbeat,
            "LeaveGroup": consumer.leave,
            "OffsetCommit": lambda: consumer.commit(1),
            "OffsetFetch": lambda: fetched(consumer),
        }
        answer = await asked[question]()
        assert (
            answer if isinstance(answer, str) else named(answer.error_code)
        ) == "COORDINATOR_LOAD_IN_PROGRESS"
        stage.cluster.assert_all_fired()


# --- offsets


@jumping
async def test_offsets_by_topic_id() -> None:
    """From version 10 on; an id that no topic has is told as such."""
    async with Stage() as stage:
        consumer = stage.consumer()
        known = stage.cluster.topics.existing("orders").topic_id
        path = "OffsetCommit.request.topics"
        topics = [
            message(
                path,
                topic_id=topic_id,
                partitions=[message(f"{path}.partitions", partition_index=0, committed_offset=3)],
            )
            for topic_id in (known, b"x" * 16)
        ]
        answer = await consumer.client.ask(
            ApiKey.OFFSET_COMMIT, version=10, group_id=GROUP, topics=topics
        )
        assert [named(topic.partitions[0].error_code) for topic in answer.topics] == [
            "",
            "UNKNOWN_TOPIC_ID",
        ]
        path = "OffsetFetch.request.groups"
        wanted = [
            message(f"{path}.topics", topic_id=topic_id, partition_indexes=[0])
            for topic_id in (known, b"x" * 16)
        ]
        groups = [message(path, group_id=GROUP, topics=wanted)]
        found, unknown = (
            (await consumer.client.ask(ApiKey.OFFSET_FETCH, version=10, groups=groups))
            .groups[0]
            .topics
        )
        assert (found.topic_id, found.partitions[0].committed_offset) == (known, 3)
        assert named(unknown.partitions[0].error_code) == "UNKNOWN_TOPIC_ID"


@jumping
async def test_offsets_go_with_their_topic() -> None:
    """A topic of the same name that is made later has none; one partition's commit can be made to fail."""
    async with Stage() as stage:
        consumer = stage.consumer()
        await consumer.commit(1)
        stage.cluster.delete_topic("orders")
        stage.cluster.create_topic("orders", 2)
        assert offsets_of(await fetched(consumer, topics={"orders": [0]})) == {
            ("orders", 0): (-1, -1, "")
        }
        assert (offsets_of(await fetched(consumer)), stage.cluster.committed(GROUP)) == ({}, {})
        stage.cluster.fail(
            "OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", topic="orders", partition=1
        )
        assert await consumer.commit(1, partition=1) == "TOPIC_AUTHORIZATION_FAILED"
