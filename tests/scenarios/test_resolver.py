"""The life of a resolver, and what its calls meet: brokers that move, die, refuse and do not answer."""

from __future__ import annotations

from typing import Any

import pytest
from scenarios.transacting import cluster_of
from scenarios.whole import jumping

from aioproducer import ConfigError, PreparedTransaction, ProducerClosed, ProducerConfig, TransactionResolver, UsageError

TX = PreparedTransaction("tx", 1, 0, 2)


def test_it_has_no_transactional_id() -> None:
    """One config serves producers and resolvers, but for the name that a resolver does not have."""
    with pytest.raises(ConfigError, match="transactional_id='tx': a TransactionResolver has none of its own"):
        TransactionResolver(transactional_id="tx")
    with pytest.raises(ConfigError, match="linger_mss"):
        TransactionResolver(linger_mss=5)
    config = ProducerConfig(acks="all", linger_ms=7, compression_type="gzip", key_serializer=str.encode)
    assert TransactionResolver(config).config.linger_ms == 7


@pytest.mark.parametrize(
    "given",
    [
        None,
        "tx",
        ("tx", 1, 0),
        ("tx", 1, 0, 3),
        ("", 1, 0, 2),
        ("tx", -1, 0, 2),
        ("tx", 1, 2**15, 2),
        ("tx", 1.5, 0, 2),
        ("tx", True, 0, 2),
    ],
)
@jumping
async def test_what_is_no_prepared_transaction(given: Any) -> None:
    """It is refused before anything is sent."""
    async with cluster_of(2) as cluster, TransactionResolver(**cluster.client_options) as resolver:
        with pytest.raises(UsageError, match="is no prepared transaction"):
            await resolver.commit(given)
        assert [request.api for request in cluster.requests() if request.api == "FindCoordinator"] == []


@jumping
async def test_when_it_does_not_run() -> None:
    """Before its start and after its end it raises ProducerClosed; `stop` may be called twice, and before `start`."""
    async with cluster_of(2) as cluster:
        unused = TransactionResolver(**cluster.client_options)
        await unused.stop()
        with pytest.raises(ProducerClosed, match="was stopped"):
            await unused.start()
        resolver = TransactionResolver(**cluster.client_options)
        with pytest.raises(ProducerClosed, match="was not started"):
            await resolver.commit(TX)
        async with resolver:
            assert repr(resolver).endswith(": running>")
            with pytest.raises(ProducerClosed, match="starts once"):
                await resolver.start()
        await resolver.stop()
        assert repr(resolver).endswith(": stopped>")
        for call in (resolver.commit(TX), resolver.abort(TX), resolver.committed_offset("g", "orders"), resolver.start()):
            with pytest.raises(ProducerClosed, match="stopped"):
                await call
