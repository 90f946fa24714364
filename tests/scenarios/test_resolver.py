"""The life of a resolver, and what its calls meet: brokers that move, die, refuse and do not answer."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from transacting import VERSIONS, asked, cluster_of, committed
from whole import jumping, turns

from aioproducer import (
    BootstrapFailed,
    BrokerError,
    ConfigError,
    PreparedTransaction,
    ProducerClosed,
    ProducerConfig,
    TransactionResolver,
    TransactionTimeout,
    UsageError,
)
from aioproducer.testing import FakeCluster, ListenerSecurity
from tests.scenarios.test_prepared import prepared_by, refusal, resolving, with_topic

if TYPE_CHECKING:
    from collections.abc import Callable

TX = PreparedTransaction("tx", 1, 0, 2)


def test_it_has_no_transactional_id() -> None:
    """One config serves producers and resolvers, but for the name that a resolver does not have."""
    with pytest.raises(
        ConfigError, match="transactional_id='tx': a TransactionResolver has none of its own"
    ):
        TransactionResolver(transactional_id="tx")
    with pytest.raises(ConfigError, match="linger_mss"):
        TransactionResolver(linger_mss=5)
    config = ProducerConfig(
        acks="all", linger_ms=7, compression_type="gzip", key_serializer=str.encode
    )
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
        assert [
            request.api for request in cluster.requests() if request.api == "FindCoordinator"
        ] == []


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
        for call in (
            resolver.commit(TX),
            resolver.abort(TX),
            resolver.committed_offset("g", "orders"),
            resolver.start(),
        ):
            with pytest.raises(ProducerClosed, match="stopped"):
                await call


# Its life


@jumping
async def test_stop_ends_what_waits() -> None:
    """A call that waits for an answer, and one that waits before it tries again, raise ProducerClosed at once."""
    async with with_topic(2, brokers=2) as cluster:
        prepared = await prepared_by(cluster)
        cluster.move_coordinator("g", 2)
        cluster.hang("EndTxn", times=1)
        cluster.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=1)
        resolver = TransactionResolver(
            **cluster.client_options, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000
        )
        await resolver.start()
        calls = [
            asyncio.create_task(resolver.commit(prepared)),
            asyncio.create_task(resolver.committed_offset("g", "orders")),
        ]
        await cluster.seen("EndTxn", 1)
        await cluster.seen("OffsetFetch", 1)
        await turns(20)
        began_at = asyncio.get_running_loop().time()
        await resolver.stop()
        for call in calls:
            with pytest.raises(ProducerClosed, match="was stopped before the answer"):
                await call
        assert asyncio.get_running_loop().time() == pytest.approx(began_at, abs=0.01)


@jumping
async def test_a_start_that_fails_or_is_stopped() -> None:
    """No task is left, and a start that failed may be tried again."""
    async with with_topic(2) as cluster:
        before = asyncio.all_tasks()
        resolver = TransactionResolver(**cluster.client_options, max_block_ms=1_000)
        await cluster.brokers[1].stop()
        with pytest.raises(BootstrapFailed):
            await resolver.start()
        assert asyncio.all_tasks() == before
        starting = asyncio.create_task(resolver.start())
        await turns(5)
        with pytest.raises(ProducerClosed, match="starts already"):
            await resolver.start()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert asyncio.all_tasks() == before
        starting = asyncio.create_task(resolver.start())
        await turns(5)
        await resolver.stop()
        with pytest.raises(ProducerClosed, match="stopped while it started"):
            await starting
        assert asyncio.all_tasks() == before
        await cluster.brokers[1].start()


@jumping
async def test_one_that_was_dropped() -> None:
    """It is reported, and its connections end."""
    async with with_topic(2) as cluster:
        before = asyncio.all_tasks()
        resolver = TransactionResolver(**cluster.client_options)
        await resolver.start()
        # all that drops it belongs to the check
        with pytest.warns(ResourceWarning, match="was never stopped"):  # noqa: PT031
            del resolver
            gc.collect()
        await turns(50)
        assert asyncio.all_tasks() == before
        assert not cluster.brokers[1].connections


@jumping
async def test_another_loop() -> None:
    """Its calls belong to its own loop; another thread is told so."""
    async with with_topic(2) as cluster, resolving(cluster) as resolver:
        raised: list[BaseException] = []

        def elsewhere() -> None:
            for call in (resolver.commit(TX), resolver.start(), resolver.stop()):
                try:
                    asyncio.run(call)
                except ProducerClosed as error:
                    raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert [str(error) for error in raised] == [
            "the resolver belongs to another event loop; make one in this loop"
        ] * 3
        assert await resolver.list_transactions() == []


# What its calls meet


@pytest.mark.parametrize(
    "fault",
    [
        ("EndTxn", "NOT_COORDINATOR"),
        ("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
        ("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("EndTxn", "CONCURRENT_TRANSACTIONS"),
        ("EndTxn", "before"),
        ("EndTxn", "after"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("FindCoordinator", "before"),
    ],
    ids=str,
)
@VERSIONS
@jumping
async def test_what_passes(version: int, fault: tuple[str, str]) -> None:
    """Errors that pass, and connections that end before or after a request was executed, are tried again."""
    api, error = fault
    async with with_topic(version, brokers=2) as cluster, resolving(cluster) as resolver:
        prepared = await prepared_by(cluster)
        if error in ("before", "after"):
            cluster.fail(api, disconnect="before" if error == "before" else "after", times=2)
        else:
            cluster.fail(api, error, times=2)
        await resolver.commit(prepared)
        assert committed(cluster) == [b"v"]


@pytest.mark.parametrize(
    "error",
    [
        "INVALID_TXN_STATE",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNKNOWN_SERVER_ERROR",
    ],
)
@jumping
async def test_a_refusal_is_never_tried_again(error: str) -> None:
    """It is raised at once, by its name."""
    async with with_topic(2) as cluster, resolving(cluster) as resolver:
        prepared = await prepared_by(cluster)
        cluster.fail("EndTxn", error)
        assert await refusal(resolver.commit(prepared)) == error
        assert asked(cluster, "EndTxn") == ["EndTxn"]
        await resolver.commit(prepared)


@jumping
async def test_what_lasts_too_long() -> None:
    """It ends after max_block_ms, by an error with the reason; the same call then succeeds."""
    async with with_topic(2) as cluster, resolving(cluster, max_block_ms=5_000) as resolver:
        prepared = await prepared_by(cluster)
        cluster.move_coordinator("tx", 1)
        cluster.fail("EndTxn", "CONCURRENT_TRANSACTIONS", times=None)
        began_at = asyncio.get_running_loop().time()
        with pytest.raises(
            TransactionTimeout,
            match=r"commit\(\) of 'tx' did not end within max_block_ms=5000: CONCURRENT",
        ) as raised:
            await resolver.commit(prepared)
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(5, abs=0.1)
        assert raised.value.persisted == "maybe"
        cluster.faults.clear()
        hang = cluster.hang("EndTxn", times=1)
        with pytest.raises(TransactionTimeout, match="no answer yet"):
            await resolver.commit(prepared)
        hang.release()
        await resolver.commit(prepared)
        assert committed(cluster) == [b"v"]


CALLS: dict[str, Callable[[TransactionResolver, PreparedTransaction], Any]] = {
    "commit": lambda resolver, prepared: resolver.commit(prepared),
    "abort": lambda resolver, prepared: resolver.abort(prepared),
    "committed_offset": lambda resolver, _: resolver.committed_offset("tx", "orders", stable=False),
    "committed_offsets": lambda resolver, _: resolver.committed_offsets("tx", stable=False),
    "commit_offsets": lambda resolver, _: resolver.commit_offsets("g", {("orders", 0): 1}),
    "list": lambda resolver, _: resolver.list_transactions(),
    "describe": lambda resolver, _: resolver.describe_transactions(["tx"]),
}


@VERSIONS
@jumping
async def test_the_coordinator_moves_and_dies(version: int) -> None:
    """The next one is found: it was moved, or the broker is gone."""
    async with with_topic(version, brokers=3) as cluster, resolving(cluster) as resolver:
        one, two = await prepared_by(cluster, "one", b"1"), await prepared_by(cluster, "two", b"2")
        three = await prepared_by(cluster, "three", b"3")
        for name in ("one", "two", "three"):
            cluster.move_coordinator(name, 2)
        await resolver.commit(one)
        cluster.move_coordinator("one", 3)
        cluster.move_coordinator("two", 3)
        await resolver.commit(one)
        await resolver.commit(two)
        await resolver.abort(three)
        cluster.move_coordinator("three", 1)
        await cluster.brokers[3].stop()
        await cluster.brokers[2].stop()
        await resolver.abort(three)
        assert {request.broker for request in cluster.requests() if request.api == "EndTxn"} == {
            1,
            2,
            3,
        }
        assert sorted(filter(None, committed(cluster))) == [b"1", b"2"]


@pytest.mark.parametrize("call", CALLS)
@jumping
async def test_cancelled_at_every_turn(call: str) -> None:
    """The call ends at once, at each of its awaits; the transaction is open or ended as asked, and the same call then succeeds."""
    for after in range(100):
        async with with_topic(2) as cluster, resolving(cluster) as resolver:
            prepared = await prepared_by(cluster)
            task = asyncio.ensure_future(CALLS[call](resolver, prepared))
            await turns(after)
            is_cancelled = task.cancel()
            await turns(2)
            assert task.done()
            await CALLS[call](resolver, prepared)
            if call in ("commit", "abort"):
                assert committed(cluster) == ([b"v"] if call == "commit" else [])
        if not is_cancelled:
            break
    assert after > 3
    assert not is_cancelled


@pytest.mark.parametrize("newest", [0, 1, 3, 4, 6])
@jumping
async def test_many_at_once(newest: int) -> None:
    """The look-ups of one moment share requests, where the brokers can read them; one that is cancelled takes no other along."""
    async with with_topic(2) as cluster:
        prepared = [
            await prepared_by(cluster, f"tx-{number}", b"%d" % number) for number in range(30)
        ]
        cluster.speak(versions={"FindCoordinator": (0, newest)})
        async with resolving(cluster) as resolver:
            before = len(asked(cluster, "FindCoordinator"))
            calls = [asyncio.create_task(resolver.commit(one)) for one in prepared]
            await turns(1)
            calls[3].cancel()
            done = await asyncio.gather(*calls, return_exceptions=True)
            if newest == 0:
                assert all(isinstance(one, BrokerError) for one in done if one is not done[3])
                return
            assert [one for one in done if one is not None] == [done[3]]
            assert len(asked(cluster, "FindCoordinator")) - before == (1 if newest >= 4 else 30)
            await resolver.commit(prepared[3])
        assert len(committed(cluster)) == 30


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.asyncio
async def test_a_secured_cluster(protocol: Any) -> None:
    """One config serves producers and resolvers; a refusal of the password is told by `start`."""
    security = ListenerSecurity(protocol, users={"alice": "canary-alice"})
    async with FakeCluster(security=security) as cluster:
        cluster.create_topic("orders", partitions=1)
        options = {
            **cluster.client_options,
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "canary-alice",
        }
        prepared = await prepared_by(cluster, **options)
        async with TransactionResolver(**options) as resolver:
            await resolver.commit(prepared)
        assert committed(cluster) == [b"v"]
        with pytest.raises(BootstrapFailed, match="no broker let this client in"):
            await TransactionResolver(**{**options, "sasl_password": "canary-wrong"}).start()


@jumping
async def test_what_is_not_permitted() -> None:
    """Each refusal by its name, at once."""
    async with with_topic(2) as cluster, resolving(cluster) as resolver:
        prepared = await prepared_by(cluster)
        cluster.security.deny("*", "Write", transactional_id="tx")
        assert await refusal(resolver.commit(prepared)) == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        cluster.security.deny("*", "Describe", transactional_id="tx")
        assert (
            await refusal(resolver.describe_transactions(["tx"]))
            == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        )
        assert await resolver.list_transactions() == []
        cluster.security.deny("*", "Read", group="g")
        assert (
            await refusal(resolver.commit_offsets("g", {("orders", 0): 1}))
            == "GROUP_AUTHORIZATION_FAILED"
        )
        cluster.security.deny("*", "Read", topic="orders")
        assert (
            await refusal(resolver.commit_offsets("h", {("orders", 0): 1}))
            == "TOPIC_AUTHORIZATION_FAILED"
        )
        cluster.security.deny("*", "Describe", topic="orders")
        assert (
            await refusal(resolver.committed_offset("h", "orders")) == "TOPIC_AUTHORIZATION_FAILED"
        )
        cluster.security.deny("*", "Describe", group="h")
        assert (
            await refusal(resolver.committed_offset("h", "orders")) == "GROUP_AUTHORIZATION_FAILED"
        )
        assert await refusal(resolver.committed_offsets("h")) == "GROUP_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("seed", range(24))
@jumping
async def test_what_is_decided_is_what_is_visible(seed: int) -> None:
    """In each state of the brokers, and at each step where a resolver dies: its successors end each transaction as it was decided, once."""
    rng = random.Random(seed)
    async with with_topic(rng.choice((1, 2)), brokers=3) as cluster:
        names = [f"tx-{number}" for number in range(6)]
        prepared = {name: await prepared_by(cluster, name, name.encode()) for name in names}
        kept = set(rng.sample(names, 3))

        async def end(resolver: TransactionResolver) -> None:
            ends = [
                resolver.commit(one) if name in kept else resolver.abort(one)
                for name, one in prepared.items()
            ]
            await asyncio.gather(*rng.sample(ends, len(ends)))

        for _ in range(rng.randint(1, 4)):
            for _ in range(rng.randint(0, 4)):
                api = rng.choice(("EndTxn", "EndTxn", "FindCoordinator", "Metadata"))
                if rng.random() < 0.5:
                    cluster.fail(api, disconnect=rng.choice(("before", "after")))
                elif api != "Metadata":
                    cluster.fail(
                        api,
                        rng.choice(
                            (
                                "COORDINATOR_NOT_AVAILABLE",
                                "NOT_COORDINATOR",
                                "COORDINATOR_LOAD_IN_PROGRESS",
                            )
                        ),
                    )
            cluster.move_coordinator(rng.choice(names), rng.choice((1, 2, 3)))
            async with resolving(cluster) as resolver:
                dying = asyncio.ensure_future(end(resolver))
                await turns(rng.randint(0, 60))
                if rng.random() < 0.3:
                    victim = cluster.brokers[rng.choice((1, 2, 3))]
                    await victim.stop()
                    await victim.start()
                if rng.random() < 0.5:
                    dying.cancel()
                    await asyncio.gather(dying, return_exceptions=True)
            await asyncio.gather(dying, return_exceptions=True)
        cluster.faults.clear()
        async with resolving(cluster) as successor:
            await end(successor)
            assert sorted(filter(None, committed(cluster))) == sorted(
                name.encode() for name in kept
            )
            for name in names:
                assert (await successor.committed_offset(name, "orders") is not None) is (
                    name in kept
                )
