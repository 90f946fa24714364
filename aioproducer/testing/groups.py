"""Consumer groups of a fake cluster: members, generations, assignments and committed offsets (classic protocol).

A `Group` follows Kafka's GroupCoordinator. A rebalance waits for every member of the previous generation, at most for the longest of
their rebalance time-outs. The group removes a member that has not joined by then. The group also removes a member that is silent for
its session time-out. A member that waits for an answer does not count as silent.

Deviations: a new group does not wait for more members (`group.initial.rebalance.delay.ms` is 0). A static member that comes back
replaces its old entry and starts a rebalance. Groups and offsets do not expire.

The running loop's clock times everything here.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import broker_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Committed", "Group", "Groups", "Joined", "Member", "Pending", "State", "Synced", "Wish"]


class Committed(NamedTuple):
    """Holds a group's committed offset of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Pending:
    """Holds a group's offsets of open transactions, which count once those commit (Kafka's OffsetMetadataManager)."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[bytes, int], Committed]] = {}

    def __contains__(self, place: tuple[bytes, int]) -> bool:
        return any(place in offsets for offsets in self._by_producer.values())

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        for offsets in self._by_producer.values():
            yield from offsets

    def add(self, producer_id: int, place: tuple[bytes, int], offset: Committed) -> None:
        """Add an offset that a producer's transaction will commit."""
        self._by_producer.setdefault(producer_id, {})[place] = offset

    def take(self, producer_id: int) -> dict[tuple[bytes, int], Committed]:
        """Remove and return the offsets of a producer's transaction, which has ended."""
        return self._by_producer.pop(producer_id, {})


_SESSION_SECONDS: Final = (
    6.0,
    1800.0,
)  # Kafka's group.min.session.timeout.ms and group.max.session.timeout.ms


class State(Enum):
    """The states of a group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Wish(NamedTuple):
    """Holds the fields of a JoinGroup request.

    With `names_first`, the coordinator first answers with a member id, and the member joins again with it.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_seconds: float
    rebalance_seconds: float
    names_first: bool


class Joined(NamedTuple):
    """Holds the answer to a JoinGroup request.

    Only the leader's answer has `members`. With a `code`, every other field but `member_id` keeps its default.
    """

    member_id: str
    code: int = 0
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[Member, ...] = ()


class Synced(NamedTuple):
    """Holds the answer to a SyncGroup request."""

    code: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class Member:
    """Holds one member's state; `joining` and `syncing` are the callbacks that take the answers it waits for."""

    member_id: str
    instance_id: str | None
    protocols: Mapping[str, bytes] = field(default_factory=dict)
    session_seconds: float = 0.0
    rebalance_seconds: float = 0.0
    assignment: bytes = b""
    joining: Callable[[Joined], None] | None = None
    syncing: Callable[[Synced], None] | None = None
    silence: asyncio.TimerHandle | None = None

    def refuse(self, code: int) -> None:
        """Answer the member's waiting requests with an error code."""
        joining, self.joining = self.joining, None
        syncing, self.syncing = self.syncing, None
        if joining is not None:
            joining(Joined(self.member_id, code))
        if syncing is not None:
            syncing(Synced(code))

    def hush(self) -> None:
        """Cancel the member's session timer."""
        if self.silence is not None:
            self.silence.cancel()
            self.silence = None


class Group:
    """Holds one group's members and offsets. Methods raise BrokerError with the error that a coordinator answers.

    Attributes:
        generation: number of the current generation; each rebalance adds 1.
        offsets: committed offsets, by topic id and partition.
        pending: offsets of open transactions, which their commits add to `offsets`.
    """

    def __init__(self) -> None:
        self.state: State = State.EMPTY
        self.generation: int = 0
        self.members: dict[str, Member] = {}
        self.offsets: dict[tuple[bytes, int], Committed] = {}
        self.pending: Pending = Pending()
        self._protocol_type: str | None = None
        self._protocol: str | None = None
        self._leader = ""
        self._promised: dict[
            str, asyncio.TimerHandle
        ] = {}  # member ids given out and not joined with yet
        self._rebalance: asyncio.TimerHandle | None = None

    # --- requests of members

    def join(self, wish: Wish, reply: Callable[[Joined], None]) -> None:
        """Add or update a member; `reply` gets the answer once every member has joined.

        Raises:
            BrokerError: INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        self._check_wish(wish)
        member = self._admitted(wish)
        if member is None:
            reply(Joined(self._promise(wish), broker_error("MEMBER_ID_REQUIRED").code))
            return
        if self._is_current(member, wish):
            self._hear(member)
            reply(self._answer_to(member))
            return
        member.protocols, member.session_seconds, member.rebalance_seconds = (
            wish.protocols,
            wish.session_seconds,
            wish.rebalance_seconds,
        )
        member.joining = reply
        self._protocol_type = wish.protocol_type
        self._hear(member)
        self._prepare()

    def sync(
        self,
        member: Member,
        generation: int,
        assignments: Mapping[str, bytes],
        reply: Callable[[Synced], None],
    ) -> None:
        """Store the leader's assignments; `reply` gets the member's own assignment once they have come.

        Raises:
            BrokerError: ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        self.check_generation(generation)
        if self.state is State.PREPARING_REBALANCE:
            raise broker_error("REBALANCE_IN_PROGRESS")
        self._hear(member)
        member.syncing = reply
        if self.state is State.COMPLETING_REBALANCE and member.member_id == self._leader:
            self.state = State.STABLE
            for each in self.members.values():
                each.assignment = assignments.get(each.member_id, b"")
        if self.state is State.STABLE:
            for each in self.members.values():
                self._assign(each)

    def heartbeat(self, member: Member, generation: int) -> None:
        """Restart a member's session timer.

        Raises:
            BrokerError: ILLEGAL_GENERATION; REBALANCE_IN_PROGRESS, which asks the member to join again.
        """
        self.check_generation(generation)
        self._hear(member)
        if self.state is State.PREPARING_REBALANCE:
            raise broker_error("REBALANCE_IN_PROGRESS")

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Remove a member, or withdraw a member id that was given out.

        Raises:
            BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        promised = self._promised.pop(member_id, None)
        if promised is not None:
            promised.cancel()
            self._complete_if_all_joined()
        else:
            static = self._static(instance_id)
            self._remove(
                static
                if static is not None and not member_id
                else self.member(member_id, instance_id)
            )

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Check that offsets may be committed: by a current member, or without a generation while the group is empty.

        Raises:
            BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
        """
        if generation < 0 and self.state is State.EMPTY:
            return
        member = self.member(member_id, instance_id)
        self.check_generation(generation)
        if self.state is State.COMPLETING_REBALANCE:
            raise broker_error("REBALANCE_IN_PROGRESS")
        self._hear(member)

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Check that offsets may be committed within a transaction.

        As in Kafka's ClassicGroup.validateOffsetCommit, a request that names no member may commit while the group has members.

        Raises:
            BrokerError: as `check_commit`; ILLEGAL_GENERATION too for a generation of a group that did not exist.
        """
        if generation >= 0 and not (self.generation or self.members or self.offsets):
            raise broker_error("ILLEGAL_GENERATION", "there was no such group")
        if generation >= 0 or member_id or instance_id is not None:
            self.check_commit(member_id, instance_id, generation)
        elif self.state is State.COMPLETING_REBALANCE:
            raise broker_error("REBALANCE_IN_PROGRESS")

    def end_transaction(self, producer_id: int, *, is_abort: bool) -> None:
        """Commit the offsets of a transaction, or drop them with `is_abort`."""
        offsets = self.pending.take(producer_id)
        if not is_abort:
            self.offsets.update(offsets)

    # --- checks of the member that asks

    def member(self, member_id: str, instance_id: str | None = None) -> Member:
        """Return a member by its id.

        Raises:
            BrokerError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID, if another member has joined with this instance id.
        """
        static = self._static(instance_id)
        if static is not None and static.member_id != member_id:
            raise broker_error(
                "FENCED_INSTANCE_ID", "another member has joined with this group.instance.id"
            )
        if member_id not in self.members or (instance_id is not None and static is None):
            raise broker_error("UNKNOWN_MEMBER_ID")
        return self.members[member_id]

    def check_generation(self, generation: int) -> None:
        """Check that a request names the current generation.

        Raises:
            BrokerError: ILLEGAL_GENERATION.
        """
        if generation != self.generation:
            raise broker_error(
                "ILLEGAL_GENERATION", f"the group is in generation {self.generation}"
            )

    def check_protocol(self, protocol_type: str | None, protocol: str | None) -> None:
        """Check that a request names the group's protocol.

        Raises:
            BrokerError: INCONSISTENT_GROUP_PROTOCOL.
        """
        if (protocol_type, protocol) != (self._protocol_type, self._protocol):
            raise broker_error(
                "INCONSISTENT_GROUP_PROTOCOL",
                f"the group's protocol is {self._protocol} of {self._protocol_type}",
            )

    def close(self) -> None:
        """Cancel all timers."""
        for timer in (*self._promised.values(), *filter(None, [self._rebalance])):
            timer.cancel()
        for member in self.members.values():
            member.hush()

    def _static(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        return next(
            (member for member in self.members.values() if member.instance_id == instance_id), None
        )

    # --- joining

    def _check_wish(self, wish: Wish) -> None:
        least, most = _SESSION_SECONDS
        if not least <= wish.session_seconds <= most:
            raise broker_error(
                "INVALID_SESSION_TIMEOUT", f"the session time-out is from {least} to {most} s"
            )
        others = [member for member in self.members.values() if member.member_id != wish.member_id]
        common = set(wish.protocols).intersection(*(member.protocols for member in others))
        is_foreign = bool(others) and wish.protocol_type != self._protocol_type
        if not wish.protocol_type or not common or is_foreign:
            raise broker_error("INCONSISTENT_GROUP_PROTOCOL")

    def _admitted(self, wish: Wish) -> Member | None:
        """Return the member that joins, or None if it must get its id first."""
        static = self._static(wish.instance_id)
        if not wish.member_id:
            if static is not None:
                return self._replace(static, wish)
            return None if wish.names_first else self._add(_new_id(wish), wish.instance_id)
        promised = self._promised.pop(wish.member_id, None)
        if promised is not None:
            promised.cancel()
            return self._add(wish.member_id, wish.instance_id)
        return self.member(wish.member_id, wish.instance_id)

    def _add(self, member_id: str, instance_id: str | None) -> Member:
        self.members[member_id] = added = Member(member_id, instance_id)
        return added

    def _replace(self, old: Member, wish: Wish) -> Member:
        """Replace a static member that comes back under a new id. Requests with its old id are fenced."""
        del self.members[old.member_id]
        old.hush()
        old.refuse(broker_error("FENCED_INSTANCE_ID").code)
        return self._add(_new_id(wish), wish.instance_id)

    def _promise(self, wish: Wish) -> str:
        member_id = _new_id(wish)

        def forget() -> None:
            del self._promised[member_id]
            self._complete_if_all_joined()

        self._promised[member_id] = _later(wish.session_seconds, forget)
        return member_id

    def _is_current(self, member: Member, wish: Wish) -> bool:
        """Return True if a join changes nothing: the member lost the answer, or only asks for the state."""
        if self.state is State.STABLE and member.member_id == self._leader:
            # a leader asks for a rebalance by joining again
            return False
        return self.state in {State.STABLE, State.COMPLETING_REBALANCE} and dict(
            member.protocols
        ) == dict(wish.protocols)

    # --- rebalancing

    def _prepare(self) -> None:
        """Start a rebalance if none is under way. The rebalance waits for all members to join."""
        if self.state is not State.PREPARING_REBALANCE:
            self.state = State.PREPARING_REBALANCE
            for member in self.members.values():
                if member.syncing is not None:
                    member.refuse(broker_error("REBALANCE_IN_PROGRESS").code)
            longest = max(
                (member.rebalance_seconds for member in self.members.values()), default=0.0
            )
            self._rebalance = _later(longest, self._complete)
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        is_waiting = self._promised or any(
            member.joining is None for member in self.members.values()
        )
        if self.state is State.PREPARING_REBALANCE and not is_waiting:
            self._complete()

    def _complete(self) -> None:
        """Start the next generation with the members that have joined."""
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        for member in [member for member in self.members.values() if member.joining is None]:
            member.hush()
            del self.members[member.member_id]
        self.generation += 1
        if not self.members:
            self.state, self._protocol, self._leader = State.EMPTY, None, ""
            return
        self.state, self._protocol = State.COMPLETING_REBALANCE, self._elected()
        # the dict keeps insertion order: the leader remains the first member until it leaves
        self._leader = next(iter(self.members))
        answers = [(member.joining, self._answer_to(member)) for member in self.members.values()]
        for member in self.members.values():
            member.joining, member.assignment = None, b""
            self._hear(member)
        # last, as an answered member may send its next request at once
        for joining, answer in answers:
            if joining is not None:
                joining(answer)

    def _elected(self) -> str:
        """Return the protocol that most members prefer, out of the protocols that all members support."""
        first = next(iter(self.members.values())).protocols
        common = set(first).intersection(*(member.protocols for member in self.members.values()))
        votes = Counter(
            next(name for name in member.protocols if name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _answer_to(self, member: Member) -> Joined:
        is_leader = member.member_id == self._leader
        members = tuple(self.members.values()) if is_leader else ()
        return Joined(
            member.member_id,
            0,
            self.generation,
            self._protocol_type,
            self._protocol,
            self._leader,
            members,
        )

    def _assign(self, member: Member) -> None:
        syncing, member.syncing = member.syncing, None
        if syncing is not None:
            self._hear(member)
            syncing(Synced(0, self._protocol_type, self._protocol, member.assignment))

    # --- session time-outs

    def _hear(self, member: Member) -> None:
        member.hush()
        member.silence = _later(member.session_seconds, lambda: self._expire(member))

    def _expire(self, member: Member) -> None:
        if member.joining is None and member.syncing is None:
            self._remove(member)
        else:
            self._hear(member)

    def _remove(self, member: Member) -> None:
        del self.members[member.member_id]
        member.hush()
        member.refuse(broker_error("UNKNOWN_MEMBER_ID").code)
        self._prepare()


class Groups:
    """Holds all groups of a cluster, by group id. Looking up an unknown id creates an empty group."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def __getitem__(self, group_id: str) -> Group:
        return self._groups.setdefault(group_id, Group())

    def close(self) -> None:
        """Cancel all timers."""
        for group in self._groups.values():
            group.close()


def _new_id(wish: Wish) -> str:
    return f"{wish.client_id if wish.instance_id is None else wish.instance_id}-{uuid.uuid4()}"


def _later(seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, then)
