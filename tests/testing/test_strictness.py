"""One table of the refusals that the fake shares with Kafka, so that a test on the fake checks the protocol too."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from fake_requests import batch, fetch, produce, topic

from aioproducer.errors import ConnectionLost, broker_error
from aioproducer.testing import FakeCluster
from aioproducer.testing.client import WireClient
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Ask = Callable[[WireClient], Awaitable[Any]]

pytestmark = pytest.mark.asyncio
GOOD = batch(b"a", b"b")
CONTROL, TRANSACTIONAL, APPEND_TIME, ZSTD = 0x20, 0x10, 0x08, 4


def changed(at: int, to: bytes) -> bytes:
    """A sound batch with other bytes at one place; its CRC is as before."""
    return GOOD[:at] + to + GOOD[at + len(to) :]


def produced(records: bytes | None, **options: Any) -> Ask:
    return lambda kafka: produce(kafka, records, **options)


def part(path: str, **fields: Any) -> list[Any]:
    return [message(path, **fields)]


def fetched(
    version: int = 12, offset: int = 0, name: str = "orders", node: int = 1, **fields: Any
) -> Ask:
    """Partition 0, which broker 1 leads in epoch 1."""

    async def ask(kafka: WireClient) -> Any:
        path = "Fetch.request.topics"
        partition = part(
            f"{path}.partitions",
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=100,
            **fields,
        )
        asked = part(path, topic=name, topic_id=b"x" * 16, partitions=partition)
        return (
            (await kafka.ask(ApiKey.FETCH, node=node, version=version, topics=asked, min_bytes=1))
            .responses[0]
            .partitions[0]
        )

    return ask


def listed(node: int = 1, name: str = "orders", **fields: Any) -> Ask:
    async def ask(kafka: WireClient) -> Any:
        path = "ListOffsets.request.topics"
        asked = part(
            path,
            name=name,
            partitions=part(f"{path}.partitions", partition_index=0, timestamp=-1, **fields),
        )
        return (
            (await kafka.ask(ApiKey.LIST_OFFSETS, node=node, replica_id=-1, topics=asked))
            .topics[0]
            .partitions[0]
        )

    return ask


def epoch_ended(node: int = 1, **fields: Any) -> Ask:
    async def ask(kafka: WireClient) -> Any:
        path = "OffsetForLeaderEpoch.request.topics"
        asked = part(
            path, topic="orders", partitions=part(f"{path}.partitions", partition=0, **fields)
        )
        return (
            (await kafka.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, node=node, topics=asked))
            .topics[0]
            .partitions[0]
        )

    return ask


def committed(**fields: Any) -> Ask:
    async def ask(kafka: WireClient) -> Any:
        path = "OffsetCommit.request.topics"
        partitions = part(f"{path}.partitions", partition_index=0, committed_offset=1)
        asked = {
            "node": 1,
            "version": 9,
            "group_id": "g",
            "topics": part(path, name="orders", partitions=partitions),
        }
        return (
            (await kafka.ask(ApiKey.OFFSET_COMMIT, **{**asked, **fields})).topics[0].partitions[0]
        )

    return ask


def asked(key: ApiKey, **fields: Any) -> Ask:
    return lambda kafka: kafka.ask(key, **{"node": 1, **fields})


def began(**fields: Any) -> Ask:
    return asked(
        ApiKey.INIT_PRODUCER_ID,
        **{"transactional_id": "tx", "transaction_timeout_ms": 9000, **fields},
    )


REFUSED: dict[str, tuple[Ask, str | int]] = {
    # record batches
    "a bad CRC": (produced(changed(17, bytes(4))), "CORRUPT_MESSAGE"),
    "a flipped bit": (produced(changed(len(GOOD) - 2, b"\xff")), "CORRUPT_MESSAGE"),
    "a batch cut off": (produced(GOOD[:-1]), "CORRUPT_MESSAGE"),
    "a batch cut off in its header": (produced(GOOD[:16]), "CORRUPT_MESSAGE"),
    "a batch that says it is longer": (
        produced(changed(8, struct.pack(">i", 10_000))),
        "CORRUPT_MESSAGE",
    ),
    "more records than it has offsets": (
        produced(batch(b"a", b"b", count=3, last_delta=1)),
        "INVALID_RECORD",
    ),
    "fewer records than it has offsets": (
        produced(batch(b"a", b"b", count=1, last_delta=1)),
        "INVALID_RECORD",
    ),
    "a count of none": (produced(batch(count=0, last_delta=-1)), "INVALID_RECORD"),
    "a count that its records do not have": (
        produced(batch(b"a", b"b", count=3)),
        "INVALID_RECORD",
    ),
    "no records": (produced(None), "INVALID_RECORD"),
    "no bytes of records": (produced(b""), "INVALID_RECORD"),
    "two batches": (produced(GOOD + GOOD), "INVALID_RECORD"),
    "an unknown magic": (produced(changed(16, b"\x03")), "INVALID_RECORD"),
    "a message set's magic": (produced(changed(16, b"\x01")), "INVALID_RECORD"),
    "control records": (produced(batch(b"a", attributes=CONTROL)), "INVALID_RECORD"),
    "a transaction without its id": (
        produced(batch(b"a", attributes=TRANSACTIONAL, producer_id=7, epoch=0, sequence=0)),
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    "a transaction of nobody": (
        produced(batch(b"a", attributes=TRANSACTIONAL)),
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    "a transaction that nobody began": (
        produced(
            batch(b"a", attributes=TRANSACTIONAL, producer_id=7, epoch=0, sequence=0),
            version=12,
            transactional_id="nobody",
        ),
        "INVALID_PRODUCER_ID_MAPPING",
    ),
    "a base offset": (produced(changed(0, struct.pack(">q", 5))), "INVALID_RECORD"),
    "a producer without sequences": (
        produced(batch(b"a", producer_id=7, epoch=0)),
        "INVALID_RECORD",
    ),
    "LogAppendTime of a client": (
        produced(batch(b"a", attributes=APPEND_TIME)),
        "INVALID_TIMESTAMP",
    ),
    "zstd before version 7": (
        produced(batch(b"a", attributes=ZSTD), version=6),
        "UNSUPPORTED_COMPRESSION_TYPE",
    ),
    "a batch too large": (produced(batch(b"x" * 2000)), "MESSAGE_TOO_LARGE"),
    # whereto
    "a wrong leader": (produced(GOOD, node=2), "NOT_LEADER_OR_FOLLOWER"),
    "an unknown topic": (produced(GOOD, name="nothing"), "UNKNOWN_TOPIC_OR_PARTITION"),
    "an unknown partition": (produced(GOOD, partition=2), "UNKNOWN_TOPIC_OR_PARTITION"),
    "an unknown topic id": (
        produced(GOOD, name="", version=13, topic_id=b"x" * 16),
        "UNKNOWN_TOPIC_ID",
    ),
    "acks that are none": (produced(GOOD, acks=2), "INVALID_REQUIRED_ACKS"),
    # reading
    "a fetch from another leader": (fetched(node=2), "NOT_LEADER_OR_FOLLOWER"),
    "a fetch with a stale epoch": (fetched(current_leader_epoch=0), "FENCED_LEADER_EPOCH"),
    "a fetch with an epoch to come": (fetched(current_leader_epoch=2), "UNKNOWN_LEADER_EPOCH"),
    "a fetch past the end": (fetched(offset=1), "OFFSET_OUT_OF_RANGE"),
    "a fetch of an unknown topic": (fetched(name="nothing"), "UNKNOWN_TOPIC_OR_PARTITION"),
    "a fetch of an unknown id": (fetched(version=13), "UNKNOWN_TOPIC_ID"),
    "a fetch session that was not given": (
        lambda kafka: fetch(kafka, {0: 0}, session_id=5, session_epoch=1),
        70,
    ),  # producers know no name
    "offsets from another leader": (listed(node=2), "NOT_LEADER_OR_FOLLOWER"),
    "offsets with a stale epoch": (listed(current_leader_epoch=0), "FENCED_LEADER_EPOCH"),
    "offsets with an epoch to come": (listed(current_leader_epoch=2), "UNKNOWN_LEADER_EPOCH"),
    "offsets of an unknown topic": (listed(name="nothing"), "UNKNOWN_TOPIC_OR_PARTITION"),
    "an epoch's end from another leader": (epoch_ended(node=2), "NOT_LEADER_OR_FOLLOWER"),
    "an epoch's end with a stale epoch": (
        epoch_ended(current_leader_epoch=0),
        "FENCED_LEADER_EPOCH",
    ),
    # groups
    "a commit of a stranger": (
        committed(generation_id_or_member_epoch=5, member_id="m", group_id="other"),
        "UNKNOWN_MEMBER_ID",
    ),
    "a commit to who does not coordinate": (committed(node=2), "NOT_COORDINATOR"),
    "a heartbeat of a stranger": (
        asked(ApiKey.HEARTBEAT, group_id="g", member_id="m"),
        "UNKNOWN_MEMBER_ID",
    ),
    # transactions
    "a producer id without an epoch": (
        asked(ApiKey.INIT_PRODUCER_ID, transaction_timeout_ms=1, producer_id=5),
        "INVALID_REQUEST",
    ),
    "a nameless transactional id": (began(transactional_id=""), "INVALID_REQUEST"),
    "a time-out of a transaction that is too long": (
        began(transaction_timeout_ms=900_001),
        "INVALID_TRANSACTION_TIMEOUT",
    ),
    "a transaction without time": (began(transaction_timeout_ms=0), "INVALID_TRANSACTION_TIMEOUT"),
    "a transaction of a stranger that ends": (
        asked(ApiKey.END_TXN, transactional_id="nobody"),
        "INVALID_PRODUCER_ID_MAPPING",
    ),
    "a stranger's group in a transaction": (
        asked(ApiKey.ADD_OFFSETS_TO_TXN, transactional_id="nobody", group_id="g"),
        "INVALID_PRODUCER_ID_MAPPING",
    ),
    "a transaction at who does not coordinate": (began(node=2), "NOT_COORDINATOR"),
    "a member of no group": (
        asked(ApiKey.JOIN_GROUP, group_id="", session_timeout_ms=6000),
        "INVALID_GROUP_ID",
    ),
}

HUNG_UP_ON: dict[str, tuple[Ask, str]] = {
    "what brokers ask each other": (
        asked(ApiKey.ADD_PARTITIONS_TO_TXN, version=4),
        "is for brokers",
    ),
    "a version that Kafka gave up": (
        asked(ApiKey.PRODUCE, version=2, topics=[]),
        "request 0 in version 2",
    ),
    "a version to come": (asked(ApiKey.METADATA, version=13, topics=[]), "request 3 in version 13"),
    "a partition twice": (
        asked(
            ApiKey.PRODUCE,
            version=9,
            acks=-1,
            topics=[topic("orders", {0: GOOD}), topic("orders", {0: GOOD})],
        ),
        "names a partition twice",
    ),
}


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Broker 1 leads partition 0 of orders, in epoch 1; every record is decoded when it is appended."""
    async with FakeCluster(brokers=2, verify_records=True) as cluster:
        cluster.create_topic("orders", 2, {"max.message.bytes": 1000})
        cluster.move_leader("orders", 0, to=1)
        yield cluster


@pytest_asyncio.fixture
async def kafka(cluster: FakeCluster) -> AsyncIterator[WireClient]:
    """Asks the fake."""
    async with WireClient(cluster.bootstrap_servers) as client:
        await client.metadata()
        yield client


@pytest.mark.parametrize("case", REFUSED)
async def test_what_kafka_refuses_is_refused(
    cluster: FakeCluster, kafka: WireClient, case: str
) -> None:
    """The fake answers with Kafka's error. It writes and commits nothing, and the connection goes on."""
    ask, refusal = REFUSED[case]
    assert (await ask(kafka)).error_code == broker_error(refusal).code
    assert (cluster.end_offsets("orders"), cluster.committed("g"), cluster.violations) == (
        {0: 0, 1: 0},
        {},
        [],
    )
    assert (await produce(kafka, GOOD, node=1)).base_offset == 0


@pytest.mark.parametrize("case", HUNG_UP_ON)
async def test_what_kafka_hangs_up_on_ends_the_connection(
    cluster: FakeCluster, kafka: WireClient, case: str
) -> None:
    """The fake closes the connection and records the violation, so that a test can look for it."""
    ask, words = HUNG_UP_ON[case]
    if case == "a version to come":
        cluster.speak(versions={"Metadata": (0, 12)})
    with pytest.raises(ConnectionLost):
        await ask(kafka)
    assert [words in violation.what for violation in cluster.violations] == [True]
    assert cluster.end_offsets("orders") == {0: 0, 1: 0}
