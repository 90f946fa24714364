"""Members of consumer groups, made by hand: every question of the classic protocol, right or wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.errors import broker_error
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "readers"
SESSION_MS, REBALANCE_MS = 10_000, 60_000


def named(code: int) -> str:
    return broker_error(code).name if code else ""


class Consumer:
    """One member, on a connection of its own: a question that waits holds up no other's."""

    def __init__(
        self,
        servers: str,
        dialer: Any = None,
        *,
        group: str = GROUP,
        version: int = 9,
        instance: str | None = None,
        protocols: str = "range",
    ) -> None:
        self.client = WireClient(servers, dialer=dialer, timeout=10_000)
        self.group = group
        self.version = version
        self.instance = instance
        self.protocols = protocols.split()
        self.member_id = ""
        self.generation = -1
        self.protocol = ""

    async def join_once(self, **fields: Any) -> Any:
        protocols = [
            message("JoinGroup.request.protocols", name=name, metadata=name.encode())
            for name in self.protocols
        ]
        asked: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        answer = await self.client.ask(
            ApiKey.JOIN_GROUP, version=self.version, **{**asked, **fields}
        )
        self.member_id = answer.member_id or self.member_id
        if not answer.error_code:
            self.generation, self.protocol = answer.generation_id, answer.protocol_name
        return answer

    async def join(self, **fields: Any) -> Any:
        answer = await self.join_once(**fields)
        if named(answer.error_code) == "MEMBER_ID_REQUIRED":
            answer = await self.join_once(**fields)
        return answer

    async def sync(self, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> Any:
        brought = [
            message("SyncGroup.request.assignments", member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ]
        asked = {
            **self._who(),
            "protocol_type": "consumer",
            "protocol_name": self.protocol,
            "assignments": brought,
        }
        return await self.client.ask(ApiKey.SYNC_GROUP, **{**asked, **fields})

    async def enter(self) -> None:
        """Join and sync. If this member leads, it assigns each member that member's own id."""
        joined = await self.join()
        assert not joined.error_code
        synced = await self.sync(
            {member.member_id: member.member_id.encode() for member in joined.members}
        )
        assert (named(synced.error_code), synced.assignment) == ("", self.member_id.encode())

    async def heartbeat(self, **fields: Any) -> str:
        return named(
            (await self.client.ask(ApiKey.HEARTBEAT, **{**self._who(), **fields})).error_code
        )

    async def leave(self, **fields: Any) -> str:
        members = [
            message(
                "LeaveGroup.request.members",
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
        ]
        answer = await self.client.ask(
            ApiKey.LEAVE_GROUP, **{"group_id": self.group, "members": members, **fields}
        )
        return named(answer.error_code or answer.members[0].error_code)

    async def commit(
        self,
        offset: int,
        *,
        topic: str = "orders",
        partition: int = 0,
        metadata: str | None = "",
        **fields: Any,
    ) -> str:
        path = "OffsetCommit.request.topics"
        asked = message(
            f"{path}.partitions",
            partition_index=partition,
            committed_offset=offset,
            committed_metadata=metadata,
        )
        who = self._who()
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        topics = [message(path, name=topic, partitions=[asked])]
        answer = await self.client.ask(
            ApiKey.OFFSET_COMMIT, **{"version": 9, **who, "topics": topics, **fields}
        )
        return named(answer.topics[0].partitions[0].error_code)

    def _who(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }


async def fetched(
    consumer: Consumer,
    version: int = 9,
    *,
    topics: dict[str, list[int]] | None = None,
    **fields: Any,
) -> Any:
    """One group's part of an OffsetFetch answer: error code and topics."""
    if version >= 8:
        path = "OffsetFetch.request.groups"
        asked = (
            None
            if topics is None
            else [
                message(f"{path}.topics", name=name, partition_indexes=ids)
                for name, ids in topics.items()
            ]
        )
        groups = [message(path, group_id=consumer.group, topics=asked)]
        return (
            await consumer.client.ask(ApiKey.OFFSET_FETCH, version=version, groups=groups, **fields)
        ).groups[0]
    wanted = (
        None
        if topics is None
        else [
            message("OffsetFetch.request.topics", name=name, partition_indexes=i)
            for name, i in topics.items()
        ]
    )
    return await consumer.client.ask(
        ApiKey.OFFSET_FETCH, version=version, group_id=consumer.group, topics=wanted, **fields
    )


def offsets_of(answer: Any) -> dict[tuple[str, int], tuple[int, int, str]]:
    return {
        (topic.name, partition.partition_index): (
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
        )
        for topic in answer.topics
        for partition in topic.partitions
    }
