"""Tests of `aioproducer.engine.transactions.requests`: what is asked in which version, and what an answer says."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer.core.sequence_numbers import NO_IDENTITY, ProducerIdAndEpoch
from aioproducer.core.transactions.transaction import (
    Coordinator,
    OffsetsCommit,
    Request,
    Transaction,
)
from aioproducer.core.transactions.transaction_errors import Rpc
from aioproducer.engine.transactions.requests import KEYS, TransactionResponse, bodies, newest, read
from aioproducer.errors import BrokerError
from aioproducer.model import ConsumerGroupMetadata, OffsetAndMetadata
from aioproducer.wire.api import CLIENT_VERSIONS, NAMES
from aioproducer.wire.schema import codec, message

HOME, GROUP = Coordinator(1, "tx"), Coordinator(0, "g")
PARTITIONS = (("a", 1), ("b", 0), ("a", 0))
OFFSETS: dict[tuple[str, int], OffsetAndMetadata] = {
    ("a", 1): OffsetAndMetadata(5, "note", 3),
    ("b", 0): OffsetAndMetadata(7),
}


def request(
    rpc: Rpc, group: ConsumerGroupMetadata | None = None, *, at: Coordinator = HOME
) -> Request:
    offsets = OffsetsCommit(group or ConsumerGroupMetadata("g"), OFFSETS)
    of_offsets = rpc in (Rpc.ADD_OFFSETS, Rpc.COMMIT_OFFSETS)
    return Request(
        rpc, at, PARTITIONS if rpc is Rpc.ADD_PARTITIONS else (), offsets if of_offsets else None
    )


def sent(asked: Request, version: int) -> Any:
    """Return the request as a broker decodes it."""
    transaction = Transaction("tx", 60_000, lambda: 2)
    transaction.identity = ProducerIdAndEpoch(7, 3)
    name = f"{NAMES[KEYS[asked.rpc]]}.request"
    return codec(name, version).decode(
        b"".join(
            map(bytes, codec(name, version).encode(bodies(asked, transaction, 9_000)(version)))
        )
    )


def versions(rpc: Rpc) -> range:
    low, high = CLIENT_VERSIONS[KEYS[rpc]]
    return range(low, min(high, newest(request(rpc), 2) or high) + 1)


EVERY = [
    (rpc, version)
    for rpc in KEYS
    for version in versions(rpc)
    if rpc is not Rpc.FIND_COORDINATOR or version
]


@pytest.mark.parametrize(("rpc", "version"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_what_is_asked(rpc: Rpc, version: int) -> None:
    """Each version of a request names the producer that asks, and what it asks for."""
    asked = sent(request(rpc), version)
    if rpc is Rpc.FIND_COORDINATOR:
        assert asked.key_type == 1
        assert (asked.key if version < 4 else list(asked.coordinator_keys)) == (
            "tx" if version < 4 else ["tx"]
        )
        return
    assert asked.transactional_id == "tx"
    if rpc is not Rpc.INIT or version >= 3:
        assert (asked.producer_id, asked.producer_epoch) == (7, 3)
    if rpc is Rpc.INIT:
        assert asked.transaction_timeout_ms == 9_000
    elif rpc is Rpc.ADD_PARTITIONS:
        assert {topic.name: list(topic.partitions) for topic in asked.topics} == {
            "a": [1, 0],
            "b": [0],
        }
    elif rpc is Rpc.ADD_OFFSETS:
        assert asked.group_id == "g"
    elif rpc is Rpc.COMMIT_OFFSETS:
        found = {
            (topic.name, one.partition_index): one
            for topic in asked.topics
            for one in topic.partitions
        }
        assert {
            at: (one.committed_offset, one.committed_metadata) for at, one in found.items()
        } == {
            ("a", 1): (5, "note"),
            ("b", 0): (7, ""),
        }
        assert found["a", 1].committed_leader_epoch == (3 if version >= 2 else -1)
    else:
        assert asked.committed is (rpc is Rpc.COMMIT)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_commits(version: int) -> None:
    """Group metadata goes where there is room for it (KIP-447)."""
    asked = sent(
        request(Rpc.COMMIT_OFFSETS, ConsumerGroupMetadata("g", 4, "member", "instance")), version
    )
    assert (asked.group_id, asked.generation_id, asked.member_id, asked.group_instance_id) == (
        "g",
        4,
        "member",
        "instance",
    )


@pytest.mark.parametrize(
    "group",
    [ConsumerGroupMetadata("g", 4, "member"), ConsumerGroupMetadata("g", group_instance_id="i")],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_broker_knows_no_members(version: int, group: ConsumerGroupMetadata) -> None:
    """TXN-14: said, not left out."""
    with pytest.raises(
        BrokerError, match=r"UNSUPPORTED_VERSION.*older than Kafka 2\.5.*the group id alone"
    ):
        sent(request(Rpc.COMMIT_OFFSETS, group), version)


def test_a_broker_that_knows_no_transactions() -> None:
    with pytest.raises(BrokerError, match=r"older than Kafka 0\.11"):
        sent(request(Rpc.FIND_COORDINATOR), 0)
    assert sent(request(Rpc.FIND_COORDINATOR, at=GROUP), 0).key == "g"


@pytest.mark.parametrize(
    ("rpc", "first", "second"),
    [
        (Rpc.ADD_PARTITIONS, 3, 3),
        (Rpc.COMMIT_OFFSETS, 4, None),
        (Rpc.COMMIT, 4, None),
        (Rpc.ABORT, 4, None),
        (Rpc.INIT, None, None),
        (Rpc.ADD_OFFSETS, None, None),
    ],
)
def test_the_newest_version(rpc: Rpc, first: int | None, second: int | None) -> None:
    """TV2-03: version 1 of transactions ends before that of version 2; what only brokers say to each other is not ours."""
    assert (newest(request(rpc), 1), newest(request(rpc), 2)) == (first, second)


# Answers


def answered(rpc: Rpc, **fields: Any) -> Any:
    return message(f"{NAMES[KEYS[rpc]]}.response", **fields)


def partitions(rpc: Rpc, codes: dict[tuple[str, int], int]) -> Any:
    name = f"{NAMES[KEYS[rpc]]}.response.topics"
    return answered(
        rpc,
        topics=[
            message(
                name,
                name=topic,
                partitions=[message(f"{name}.partitions", partition_index=index, error_code=code)],
            )
            for (topic, index), code in codes.items()
        ],
    )


@pytest.mark.parametrize("rpc", [Rpc.ADD_PARTITIONS, Rpc.COMMIT_OFFSETS])
def test_each_partitions_error(rpc: Rpc) -> None:
    """The response has an error for each partition by its name.

    The client asks again for a partition that the answer leaves out, and ignores one that it did not ask for.
    """
    asked = request(rpc)
    all_well = dict.fromkeys(PARTITIONS, 0)
    assert read(asked, 3, partitions(rpc, all_well)).errors == {}
    told = read(asked, 3, partitions(rpc, {("a", 1): 29, ("other", 0): 29, ("a", 0): 0}))
    assert {place: error.name for place, error in told.errors.items()} == {
        "a-1": "TOPIC_AUTHORIZATION_FAILED",
        "b-0": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert "leaves it out" in str(told.errors["b-0"])


@pytest.mark.parametrize(("version", "muted"), [(0, 0), (1, 50), (4, 50)])
def test_who_throttles(version: int, muted: int) -> None:
    """The client waits where brokers expect it to (KIP-219)."""
    assert (
        read(request(Rpc.COMMIT), version, answered(Rpc.COMMIT, throttle_time_ms=50)).mute_ms
        == muted
    )


def test_an_identity() -> None:
    """The response has the producer id and epoch of InitProducerId, and of version 2's EndTxn. Version 1's EndTxn has none."""
    assert read(
        request(Rpc.INIT), 4, answered(Rpc.INIT, producer_id=9, producer_epoch=2)
    ) == TransactionResponse({}, ProducerIdAndEpoch(9, 2))
    assert read(
        request(Rpc.COMMIT), 5, answered(Rpc.COMMIT, producer_id=9, producer_epoch=2)
    ) == TransactionResponse({}, ProducerIdAndEpoch(9, 2))
    assert read(request(Rpc.ABORT), 4, answered(Rpc.ABORT)).identity == NO_IDENTITY
    assert read(request(Rpc.ADD_OFFSETS), 3, answered(Rpc.ADD_OFFSETS)) == TransactionResponse({})


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (9, -1), (-2, 5)])
def test_an_id_that_is_none_is_asked_for_again(producer_id: int, epoch: int) -> None:
    """Neither a producer id nor an epoch is negative."""
    told = read(
        request(Rpc.INIT), 4, answered(Rpc.INIT, producer_id=producer_id, producer_epoch=epoch)
    )
    assert told.errors[""].name == "COORDINATOR_NOT_AVAILABLE"
    told = read(
        request(Rpc.COMMIT), 5, answered(Rpc.COMMIT, producer_id=producer_id, producer_epoch=epoch)
    )
    assert told == TransactionResponse({})


@pytest.mark.parametrize("rpc", [Rpc.INIT, Rpc.ADD_OFFSETS, Rpc.COMMIT, Rpc.ABORT])
def test_an_error(rpc: Rpc) -> None:
    told = read(request(rpc), 3, answered(rpc, error_code=48))
    assert {place: error.name for place, error in told.errors.items()} == {"": "INVALID_TXN_STATE"}


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("error", [0, 15])
def test_a_coordinator(version: int, error: int) -> None:
    """One, or a list in which ours is looked for."""
    fields = {"node_id": 2, "host": "h", "port": 9092, "error_code": error}
    other = message("FindCoordinator.response.coordinators", key="other", node_id=9)
    ours = message("FindCoordinator.response.coordinators", key="tx", **fields)
    found = answered(
        Rpc.FIND_COORDINATOR, **(fields if version < 4 else {"coordinators": [other, ours]})
    )
    told = read(request(Rpc.FIND_COORDINATOR), version, found)
    assert told.coordinator == (None if error else (2, "h", 9092))
    assert [each.name for each in told.errors.values()] == (
        ["COORDINATOR_NOT_AVAILABLE"] if error else []
    )


def test_a_coordinator_that_is_left_out() -> None:
    told = read(request(Rpc.FIND_COORDINATOR), 4, answered(Rpc.FIND_COORDINATOR))
    assert told.errors[""].name == "COORDINATOR_NOT_AVAILABLE"
