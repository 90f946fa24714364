"""Other libraries' idempotent and transactional producers, and their read_committed consumers, as judges of the fake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from transactional_peers import COMMITTED_READERS, IDEMPOTENT, TRANSACTORS

from aioproducer.testing import FakeCluster

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
VALUES = [b"value %d" % number for number in range(60)]
TRANSACTIONS = [
    (VALUES[:20], True),
    (VALUES[20:30], False),
    (VALUES[30:40], True),
    (VALUES[40:], False),
]
COMMITTED = [(VALUES[:20] + VALUES[30:40])[partition::2] for partition in range(2)]


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=3, verify_records=True) as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster
        assert cluster.violations == []


@pytest.mark.parametrize("peer", IDEMPOTENT)
async def test_idempotent_peers_write_once(cluster: FakeCluster, peer: str) -> None:
    """A peer writes each value once, although some of its answers are lost or wrong."""
    cluster.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS")
    for _ in range(2):
        cluster.fail("Produce", disconnect="after")
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND")
        cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    await IDEMPOTENT[peer](cluster, "t", VALUES)
    assert cluster.values("t", 0) == VALUES
    cluster.assert_all_fired()


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("peer", TRANSACTORS)
async def test_peers_transact(cluster: FakeCluster, peer: str, version: int) -> None:
    """A reader sees the transactions that a peer commits and not those that it aborts. The offsets are committed with the transaction."""
    cluster.transaction_version = version
    cluster.move_coordinator("tx", to=2)
    await TRANSACTORS[peer](cluster, "t", TRANSACTIONS, "tx")
    assert [
        cluster.values("t", partition, isolation="read_committed") for partition in range(2)
    ] == COMMITTED
    assert len(cluster.values("t")) == len(VALUES)
    assert cluster.committed("copied") == {("t", 2): 2}
    for read in COMMITTED_READERS.values():
        assert await read(cluster, "t", 3) == [*COMMITTED, []]


@pytest.mark.parametrize("peer", TRANSACTORS)
async def test_peers_wait_for_markers(cluster: FakeCluster, peer: str) -> None:
    """CONCURRENT_TRANSACTIONS is what they are answered meanwhile."""
    cluster.marker_delay = 0.1
    await TRANSACTORS[peer](cluster, "t", TRANSACTIONS, "tx")
    assert [
        cluster.values("t", partition, isolation="read_committed") for partition in range(2)
    ] == COMMITTED


@pytest.mark.parametrize("peer", TRANSACTORS)
async def test_peers_transact_through_trouble(cluster: FakeCluster, peer: str) -> None:
    """Lost answers and coordinators that moved: each record once all the same."""
    for api in ("EndTxn", "InitProducerId"):
        cluster.fail(api, "NOT_COORDINATOR")
        cluster.fail(api, "COORDINATOR_LOAD_IN_PROGRESS")
    cluster.fail("TxnOffsetCommit", "COORDINATOR_NOT_AVAILABLE", topic="t")
    cluster.fail("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", times=3)
    cluster.fail("Produce", disconnect="after")
    await TRANSACTORS[peer](cluster, "t", TRANSACTIONS, "tx")
    assert [
        cluster.values("t", partition, isolation="read_committed") for partition in range(2)
    ] == COMMITTED
    cluster.assert_all_fired()
