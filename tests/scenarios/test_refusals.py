"""What a coordinator refuses, or does not offer: the error names the request, the resource and the remedy, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from transacting import VERSIONS, cluster_of, transactional
from whole import jumping, now, running

from aioproducer import (
    BootstrapFailed,
    BrokerError,
    Producer,
    TransactionError,
    TransactionResolver,
)
from aioproducer.testing import FakeCluster
from tests.scenarios.test_prepared import prepared_by, resolving, with_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TX, GROUP = "transactional_id 'tx'", "group 'job'"
TX_GRANT, GROUP_GRANT = (
    "Grant Describe and Write on the transactional_id",
    "Grant Read on the group",
)
TX_REFUSED, GROUP_REFUSED = (
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
)
TOPIC_REFUSED = "TOPIC_AUTHORIZATION_FAILED"


async def started(cluster: FakeCluster) -> None:
    await Producer(**cluster.client_options, transactional_id="tx").start()


async def transfer(producer: Producer[Any, Any]) -> None:
    async with producer.transaction():
        await producer.send("orders", b"v", partition=0)
        await producer.send_offsets_to_transaction({("payments", 0): 1}, "job")


@pytest.mark.parametrize(
    ("api", "error", "told"),
    [
        ("FindCoordinator", TX_REFUSED, (TX, TX_GRANT)),
        ("InitProducerId", TX_REFUSED, (TX, TX_GRANT)),
        ("InitProducerId", "INVALID_TRANSACTION_TIMEOUT", (TX, "transaction.max.timeout.ms")),
    ],
)
@jumping
async def test_a_start_that_is_refused(api: str, error: str, told: tuple[str, ...]) -> None:
    async with cluster_of(2) as cluster:
        cluster.fail(api, error)
        with pytest.raises(TransactionError) as raised:
            await started(cluster)
    for each in (f"{api} for ", error, *told):
        assert each in str(raised.value)


@pytest.mark.parametrize(
    ("api", "error", "told"),
    [
        ("FindCoordinator", GROUP_REFUSED, (GROUP, TX, GROUP_GRANT)),
        ("AddPartitionsToTxn", TX_REFUSED, ("orders-0", TX, TX_GRANT)),
        ("AddPartitionsToTxn", TOPIC_REFUSED, ("orders-0", TX, "Grant Write on the topic")),
        ("AddOffsetsToTxn", GROUP_REFUSED, (GROUP, TX, GROUP_GRANT)),
        ("AddOffsetsToTxn", TX_REFUSED, (GROUP, TX, TX_GRANT)),
        ("TxnOffsetCommit", GROUP_REFUSED, ("payments-0", GROUP, TX, GROUP_GRANT)),
        ("TxnOffsetCommit", TX_REFUSED, ("payments-0", GROUP, TX, TX_GRANT)),
        (
            "TxnOffsetCommit",
            TOPIC_REFUSED,
            ("payments-0", GROUP, "for offsets and positions, Read"),
        ),
        ("EndTxn", TX_REFUSED, (TX, TX_GRANT)),
        ("EndTxn", "INVALID_PRODUCER_ID_MAPPING", (TX, "transactional.id.expiration.ms")),
    ],
)
@VERSIONS
@jumping
async def test_a_transaction_that_is_refused(
    version: int, api: str, error: str, told: tuple[str, ...]
) -> None:
    """The text says what to do about the transaction, too."""
    if version == 2 and api.startswith("Add"):
        return
    async with transactional(version) as (cluster, producer):
        cluster.fail(api, error)
        with pytest.raises(TransactionError) as raised:
            await transfer(producer)
    *resources, remedy = told
    names = f"{api} (commit)" if api == "EndTxn" else api
    assert str(raised.value).startswith(f"{names} for {', '.join(resources)}")
    assert error in str(raised.value)
    assert remedy in raised.value.hint
    assert "abort_transaction()" in raised.value.hint or "start a new one" in raised.value.hint


@pytest.mark.parametrize(
    ("api", "error", "call", "told"),
    [
        ("FindCoordinator", GROUP_REFUSED, "committed_offset", (GROUP, GROUP_GRANT)),
        ("OffsetFetch", GROUP_REFUSED, "committed_offset", (GROUP, GROUP_GRANT)),
        ("OffsetFetch", GROUP_REFUSED, "committed_offsets", (GROUP, GROUP_GRANT)),
        ("OffsetCommit", GROUP_REFUSED, "commit_offsets", (GROUP, "orders-0", GROUP_GRANT)),
        ("OffsetCommit", TOPIC_REFUSED, "commit_offsets", (GROUP, "orders-0", "on the topic")),
        ("OffsetCommit", "UNKNOWN_MEMBER_ID", "commit_offsets", (GROUP, "stop them")),
        ("FindCoordinator", TX_REFUSED, "commit", (TX, TX_GRANT)),
        ("EndTxn", TX_REFUSED, "commit", (TX, TX_GRANT)),
        ("EndTxn", "PRODUCER_FENCED", "commit", (TX, "A newer producer")),
        ("EndTxn", "INVALID_TXN_STATE", "abort", (TX, "has ended the other way")),
        ("EndTxn", "INVALID_PRODUCER_ID_MAPPING", "abort", (TX, "transactional.id.expiration.ms")),
        ("DescribeTransactions", TX_REFUSED, "describe_transactions", (TX, TX_GRANT)),
        ("ListTransactions", "UNKNOWN_SERVER_ERROR", "list_transactions", ("broker-1.memory",)),
    ],
)
@jumping
async def test_a_call_of_a_resolver_that_is_refused(
    api: str, error: str, call: str, told: tuple[str, ...]
) -> None:
    async with with_topic(2) as cluster, resolving(cluster) as resolver:
        prepared = await prepared_by(cluster)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "committed_offset": lambda: resolver.committed_offset("job", "orders", stable=False),
            "committed_offsets": lambda: resolver.committed_offsets("job", stable=False),
            "commit_offsets": lambda: resolver.commit_offsets("job", {("orders", 0): 1}),
            "commit": lambda: resolver.commit(prepared),
            "abort": lambda: resolver.abort(prepared),
            "describe_transactions": lambda: resolver.describe_transactions(["tx"]),
            "list_transactions": resolver.list_transactions,
        }
        cluster.fail(api, error)
        with pytest.raises(BrokerError) as raised:
            await calls[call]()
    assert raised.value.name == error
    for each in (f"{api} for ", *told):
        assert each in str(raised.value)


@jumping
async def test_a_resolver_names_the_topic_whose_offset_it_may_not_read() -> None:
    async with with_topic(2) as cluster, resolving(cluster) as resolver:
        cluster.security.deny("*", "Describe", topic="orders")
        with pytest.raises(BrokerError, match=r"OffsetFetch for group 'job' .*orders-0.*Read"):
            await resolver.committed_offset("job", "orders")


@jumping
async def test_a_resolver_names_the_id_of_several_that_it_may_not_describe() -> None:
    async with with_topic(2) as cluster, resolving(cluster) as resolver:
        await prepared_by(cluster)
        cluster.security.deny("*", "Describe", transactional_id="secret")
        with pytest.raises(BrokerError, match=r"'secret'.* was refused.*Grant Describe"):
            await resolver.describe_transactions(["tx", "secret"])


# Requests that a broker does not have


@pytest.mark.parametrize(
    "api", ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "EndTxn"]
)
@pytest.mark.parametrize("wait", [True, False])
@jumping
async def test_a_broker_without_a_request_of_transactions(api: str, wait: bool) -> None:
    """`start` fails at once; without waiting, the first `begin_transaction` does."""
    async with FakeCluster(memory=True, versions={api: None}) as cluster:
        producer: Producer[Any, Any] = Producer(**cluster.client_options, transactional_id="tx")
        began_at = now()
        with pytest.raises(TransactionError, match=rf"broker-1.memory:9092 offers no {api}\b"):
            await producer.start(wait=wait)
            await producer.begin_transaction()
        await producer.stop()
        assert now() - began_at < 1


@pytest.mark.parametrize("api", ["Metadata", "Produce"])
@jumping
async def test_a_broker_without_a_request_that_every_producer_needs(api: str) -> None:
    async with FakeCluster(memory=True, versions={api: None}) as cluster:
        began_at = now()
        with pytest.raises(BootstrapFailed, match=rf"broker-1.memory:9092 offers no {api}\b"):
            await Producer(**cluster.client_options).start()
        assert now() - began_at < 1


@jumping
async def test_one_of_two_brokers_without_metadata() -> None:
    """The other one is asked."""
    async with FakeCluster(2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.speak(versions={"Metadata": None}, broker=1)
        async with running(cluster) as (_, producer):
            await producer.send_and_wait("orders", b"v", partition=1)


@jumping
async def test_offsets_where_a_broker_cannot_add_them() -> None:
    async with FakeCluster(memory=True, versions={"TxnOffsetCommit": None}) as cluster:
        cluster.create_topic("orders", 2)
        async with running(cluster, transactional_id="tx") as (_, producer):
            with pytest.raises(TransactionError, match="offers no TxnOffsetCommit"):
                await transfer(producer)


@jumping
async def test_a_resolver_at_a_broker_without_its_request() -> None:
    async with (
        FakeCluster(memory=True, versions={"OffsetFetch": None}) as cluster,
        TransactionResolver(**cluster.client_options) as resolver,
    ):
        with pytest.raises(BrokerError, match="offers no OffsetFetch"):
            await resolver.committed_offsets("job")
