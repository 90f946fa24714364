"""The table of timed faults: how each kind is drawn, and how it is applied to a fake cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from aioproducer.testing.cluster import FakeCluster
    from tests.simulation.world import World

__all__ = ["FAULTS", "SECURITY_FAULTS", "TOKEN_FAULTS", "Fault"]

Draw: TypeAlias = "Callable[[random.Random, Mapping[str, int], int], tuple[Any, ...]]"
Do: TypeAlias = "Callable[..., Coroutine[Any, Any, None] | None]"
_EVERY: Final = frozenset({"plain", "idempotent", "transactional"})
_NUMBERED: Final = frozenset({"idempotent", "transactional"})
_TRANSACTIONAL: Final = frozenset({"transactional"})


class Fault(NamedTuple):
    """Holds one fault of a run: time in seconds, kind and arguments."""

    at: float
    kind: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.kind}{self.args}"


class _Kind(NamedTuple):
    """Describes a kind of fault: how to draw its arguments, how to apply it, and the profiles that have it."""

    args: Draw
    do: Do
    profiles: frozenset[str] = _EVERY

    def draw(
        self, rng: random.Random, name: str, at: float, topics: Mapping[str, int], brokers: int
    ) -> Fault:
        """Draw one fault of this kind."""
        return Fault(at, name, self.args(rng, topics, brokers))


# --- draws


def _partition(rng: random.Random, topics: Mapping[str, int]) -> tuple[str, int]:
    topic = rng.choice(sorted(topics))
    return topic, rng.randrange(topics[topic])


def _broker(rng: random.Random, brokers: int) -> int:
    return rng.randint(1, brokers)


def _of_partition(rng: random.Random, topics: Mapping[str, int], brokers: int) -> tuple[Any, ...]:
    return (*_partition(rng, topics), _broker(rng, brokers), rng.choice((0.0, 0.0, 0.05, 0.5)))


def _of_broker(rng: random.Random, _topics: Mapping[str, int], brokers: int) -> tuple[Any, ...]:
    return _broker(rng, brokers), rng.choice((0.01, 0.1, 0.5, 2.0))


def _errors(api: str, names: Sequence[str | int], *, about_partitions: bool = True) -> Draw:
    def draw(rng: random.Random, topics: Mapping[str, int], _brokers: int) -> tuple[Any, ...]:
        topic, partition = _partition(rng, topics)
        scope = (
            rng.choice(((None, None), (topic, None), (topic, partition)))
            if about_partitions
            else (None, None)
        )
        return api, rng.choice(names), rng.choice((1, 1, 2, 5)), *scope

    return draw


def _counted(api: str, seconds: Sequence[float]) -> Draw:
    return lambda rng, _topics, _brokers: (api, rng.choice(seconds), rng.randint(1, 4))


# --- applying


async def _leader(world: World, topic: str, partition: int, to: int, without: float) -> None:
    """Move a partition to another leader, for `without` seconds to none."""
    if without:
        world.move_leader(topic, partition, None)
        await asyncio.sleep(without)
    world.move_leader(topic, partition, to)


async def _crash(world: World, broker: int, down: float) -> None:
    """Stop a broker at once; others lead its partitions. Start it again after `down` seconds."""
    await world.stop_broker(broker, "crash")
    await asyncio.sleep(down)
    await world.start_broker(broker)


async def _crash_tail(world: World, broker: int, down: float) -> None:
    """Stop a broker as `_crash` does, and lose the records that its followers do not have."""
    await world.stop_broker(broker, "crash_tail", tail=True)
    await asyncio.sleep(down)
    await world.start_broker(broker)


async def _restart(world: World, broker: int, down: float) -> None:
    """Shut a broker down in order: its connections close after their last answers."""
    world.hand_over(broker)
    world.cluster.brokers[broker].close_all()
    await asyncio.sleep(0.01)
    await world.stop_broker(broker, "restart")
    await asyncio.sleep(down)
    await world.start_broker(broker)


async def _freeze(world: World, broker: int, seconds: float) -> None:
    """Pause a broker (SIGSTOP). Afterwards it answers the requests that came meanwhile as if it still led."""
    stopped = world.cluster.brokers[broker]
    world.count("freeze")
    stopped.pause()
    if seconds > 0.3:
        world.hand_over(broker)
    await asyncio.sleep(seconds)
    if stopped.is_paused and stopped.is_running:
        stopped.resume()


async def _slow(world: World, broker: int, seconds: float) -> None:
    """Let a broker answer late and read slowly."""
    slowed = world.cluster.brokers[broker]
    world.count("slow")
    slowed.latency, slowed.bandwidth = seconds / 8, 20_000 / seconds
    await asyncio.sleep(seconds)
    slowed.latency, slowed.bandwidth = 0.0, None


def _clock(world: World, seconds: float, calendar: float) -> None:
    """Let the process sleep, and change the calendar."""
    world.jump(seconds, calendar)


def _error(
    world: World, api: str, error: str | int, times: int, topic: str | None, partition: int | None
) -> None:
    kind = _CLASS_OF_API.get(api, "errors_transaction")
    world.script(
        kind,
        lambda cluster: cluster.fail(api, error, times=times, topic=topic, partition=partition),
    )


def _record_errors(world: World, topic: str, partition: int, index: int) -> None:
    """Script an answer that names the refused records (KIP-467)."""
    wrong = {index: "this one"}
    world.script(
        "record_errors",
        lambda cluster: cluster.fail(
            "Produce", "INVALID_RECORD", topic=topic, partition=partition, record_errors=wrong
        ),
    )


def _lost_reply(world: World, api: str, how: str, times: int) -> None:
    _script_lost(world, _LOST_OF_API.get(api, "lost_reply_transaction"), api, how, times)


def _script_lost(world: World, kind: str, api: str, how: str, times: int) -> None:
    def script(cluster: FakeCluster) -> None:
        if how == "unanswered":
            cluster.drop_reply(api, times=times)
        else:
            cluster.fail(api, disconnect="after", times=times)

    world.script(kind, script)


def _late(world: World, api: str, seconds: float, times: int) -> None:
    world.script(
        "late_reply", lambda cluster: cluster.delay(api, seconds, times=times, when="after")
    )


def _throttle(world: World, api: str, seconds: float, times: int) -> None:
    world.script("throttle", lambda cluster: cluster.throttle(api, seconds, times=times))


def _nonsense(world: World, api: str, how: str, times: int) -> None:
    def script(cluster: FakeCluster) -> None:
        match how:
            case "garbage":
                cluster.garbage(api, times=times)
            case "truncated":
                cluster.truncate(api, times=times)
            case "wrong id":
                cluster.wrong_correlation_id(api, times=times)
            case "pieces":
                cluster.segment(api, 3, times=times)
            case _:
                cluster.unsolicited(api, times=times)

    world.script("nonsense", script)


def _disconnect(world: World, in_order: bool) -> None:
    """End every connection."""
    world.count("disconnect")
    for broker in world.cluster.brokers.values():
        if in_order:
            broker.close_all()
        else:
            broker.disconnect_all()


def _grow(world: World, topic: str) -> None:
    """Add one partition to a topic."""
    world.count("grow")
    world.cluster.add_partitions(topic, len(world.cluster.end_offsets(topic)) + 1)


def _fence(world: World) -> None:
    """Let a successor take the transactional id."""
    world.fence()


def _upgrade(world: World) -> None:
    """Finalize the second version of transactions."""
    world.upgrade()


def _forget(world: World, topic: str, partition: int) -> None:
    """Remove a broker's producer state."""
    world.forget_producers(topic, partition)


async def _revoke(world: World, seconds: float) -> None:
    """Remove the producer's user for a while. Its connections stay until their sessions end."""
    world.revoke()
    await asyncio.sleep(seconds)
    world.grant()


def _refuse(world: World, times: int) -> None:
    """Refuse authentications and re-authentications."""
    world.script(
        "refused_login",
        lambda cluster: cluster.fail("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times=times),
    )


async def _no_token(world: World, how: str, seconds: float) -> None:
    """Let the source of tokens fail for a while."""
    world.break_tokens(how)
    await asyncio.sleep(seconds)
    world.break_tokens("")


def _lose_login(world: World, api: str, how: str, times: int) -> None:
    """Lose an answer within an exchange of SASL, with the connection or without."""
    _script_lost(world, "lost_login", api, how, times)


def _coordinator(world: World, to: int) -> None:
    """Make another broker the coordinator of the transactions and the group."""
    world.move_coordinator(to)


_CLASS_OF_API: Final = {
    "Produce": "errors_produce",
    "Metadata": "errors_metadata",
    "InitProducerId": "errors_init",
}
_LOST_OF_API: Final = {
    "Produce": "lost_reply",
    "Metadata": "lost_reply",
    "InitProducerId": "lost_reply_init",
}
_PRODUCE_ERRORS: Final = (
    "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "CORRUPT_MESSAGE", "THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_LEADER_EPOCH",
    "MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED", "INVALID_TIMESTAMP", "POLICY_VIOLATION", 999,
)  # fmt: skip
_METADATA_ERRORS: Final = (
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "TOPIC_AUTHORIZATION_FAILED",
)
_COORDINATOR_ERRORS: Final = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS",
)
_SHORT: Final = (0.01, 0.1, 0.6)

FAULTS: Final[Mapping[str, _Kind]] = {
    "leader": _Kind(_of_partition, _leader),
    "coordinator": _Kind(
        lambda rng, _topics, brokers: (_broker(rng, brokers),), _coordinator, _TRANSACTIONAL
    ),
    "fence": _Kind(lambda _rng, _topics, _brokers: (), _fence, _TRANSACTIONAL),
    "upgrade": _Kind(lambda _rng, _topics, _brokers: (), _upgrade, _TRANSACTIONAL),
    "forget_producers": _Kind(
        lambda rng, topics, _brokers: _partition(rng, topics), _forget, _NUMBERED
    ),
    "crash": _Kind(_of_broker, _crash),
    "crash_tail": _Kind(_of_broker, _crash_tail),
    "restart": _Kind(_of_broker, _restart),
    "freeze": _Kind(_of_broker, _freeze),
    "slow": _Kind(_of_broker, _slow),
    "clock": _Kind(
        lambda rng, _topics, _brokers: (
            rng.choice((0.0, 0.1, 1.0, 40.0)),
            rng.choice((-3600.0, 0.0, 3600.0)),
        ),
        _clock,
    ),
    "errors_produce": _Kind(_errors("Produce", _PRODUCE_ERRORS), _error),
    "errors_metadata": _Kind(_errors("Metadata", _METADATA_ERRORS), _error),
    "errors_init": _Kind(
        _errors("InitProducerId", _COORDINATOR_ERRORS, about_partitions=False), _error, _NUMBERED
    ),
    "errors_transaction": _Kind(
        lambda rng, topics, brokers: _errors(
            rng.choice(
                (
                    "AddPartitionsToTxn",
                    "AddOffsetsToTxn",
                    "EndTxn",
                    "TxnOffsetCommit",
                    "FindCoordinator",
                )
            ),
            _COORDINATOR_ERRORS,
            about_partitions=False,
        )(rng, topics, brokers),
        _error,
        _TRANSACTIONAL,
    ),
    "record_errors": _Kind(
        lambda rng, topics, _brokers: (*_partition(rng, topics), rng.randint(0, 2)), _record_errors
    ),
    "lost_reply": _Kind(
        lambda rng, _topics, _brokers: (
            rng.choice(("Produce", "Produce", "Produce", "Metadata")),
            rng.choice(("cut", "cut", "unanswered")),
            rng.randint(1, 4),
        ),
        _lost_reply,
    ),
    "lost_reply_init": _Kind(
        lambda rng, _topics, _brokers: (
            "InitProducerId",
            rng.choice(("cut", "unanswered")),
            rng.randint(1, 2),
        ),
        _lost_reply,
        _NUMBERED,
    ),
    "lost_reply_transaction": _Kind(
        lambda rng, _topics, _brokers: (
            rng.choice(
                ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "EndTxn", "TxnOffsetCommit")
            ),
            rng.choice(("cut", "unanswered")),
            rng.randint(1, 2),
        ),
        _lost_reply,
        _TRANSACTIONAL,
    ),
    "late_reply": _Kind(_counted("Produce", _SHORT), _late),
    "throttle": _Kind(_counted("Produce", _SHORT), _throttle),
    "nonsense": _Kind(
        lambda rng, _topics, _brokers: (
            rng.choice(("Produce", "Produce", "Metadata")),
            rng.choice(("garbage", "truncated", "wrong id", "pieces", "unsolicited")),
            rng.randint(1, 2),
        ),
        _nonsense,
    ),
    "disconnect": _Kind(lambda rng, _topics, _brokers: (rng.random() < 0.5,), _disconnect),
    "grow": _Kind(lambda rng, topics, _brokers: (rng.choice(sorted(topics)),), _grow),
    "revoked": _Kind(lambda rng, _topics, _brokers: (rng.choice((0.05, 0.5, 3.0)),), _revoke),
    "refused_login": _Kind(lambda rng, _topics, _brokers: (rng.randint(1, 3),), _refuse),
    "no_token": _Kind(
        lambda rng, _topics, _brokers: (
            rng.choice(("raises", "hangs", "expired")),
            rng.choice((0.05, 0.5, 3.0)),
        ),
        _no_token,
    ),
    "lost_login": _Kind(
        lambda rng, _topics, _brokers: (
            rng.choice(("SaslHandshake", "SaslAuthenticate")),
            rng.choice(("cut", "unanswered")),
            rng.randint(1, 2),
        ),
        _lose_login,
    ),
}
"""The timed faults by name; faults of the network and of the client's own options are in `plan`."""
SECURITY_FAULTS: Final = ("revoked", "refused_login", "lost_login")
"""The timed faults of clusters with SASL, which other clusters do not have."""
TOKEN_FAULTS: Final = ("no_token",)
"""The timed faults of clusters whose producer has bearer tokens."""
