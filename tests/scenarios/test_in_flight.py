"""Order of batches in flight without idempotence (rows 7, 22, 33; seeds/003).

The hazard that the seed documents has, and its remedy.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import loops
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whole import jumping, running

from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer

ONE_EACH = {"batch_size": 100, "enable_idempotence": False}  # a batch for each record


async def send_all(producer: Producer[Any, Any], count: int) -> None:
    """Send `count` batches to partition 0, and wait for their acknowledgements."""
    await asyncio.gather(
        *[
            await producer.send("orders", b"%d" % number + b"." * 60, partition=0)
            for number in range(count)
        ]
    )


def logged(cluster: FakeCluster) -> list[int]:
    """Return the record numbers in the log of partition 0, in log order."""
    return [int(value.split(b".")[0]) for value in cluster.values("orders", 0) if value is not None]


@jumping
async def test_five_in_flight_reorder_when_the_first_is_refused() -> None:
    """The hazard: the broker appends the batches behind the first before its retry.

    Only as many as were in flight go ahead, and no record is lost or twice.
    """
    async with running(**ONE_EACH) as (cluster, producer):
        cluster.delay("Produce", 0.01)
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        await send_all(producer, 20)
        assert logged(cluster) == [1, 2, 3, 4, 0, *range(5, 20)]
        cluster.faults.clear()


@jumping
async def test_a_retry_is_not_overtaken_twice() -> None:
    """Five are in flight, and the broker refuses the first twice.

    Its second attempt goes alone, however many batches beside its first attempt succeeded.
    """
    async with running(**ONE_EACH) as (cluster, producer):
        cluster.delay("Produce", 0.01)
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        deliveries = [
            await producer.send("orders", b"%d" % number + b"." * 60, partition=0)
            for number in range(20)
        ]
        await deliveries[4]
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        await asyncio.gather(*deliveries)
        assert logged(cluster) == [1, 2, 3, 4, 0, *range(5, 20)]
        cluster.faults.clear()


TROUBLE = st.lists(
    st.sampled_from(
        [
            "NOT_ENOUGH_REPLICAS",
            "NOT_LEADER_OR_FOLLOWER",
            "CORRUPT_MESSAGE",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "KAFKA_STORAGE_ERROR",
            "MESSAGE_TOO_LARGE",
            "before",
            "move",
            "ok",
            "ok",
        ]
    ),
    max_size=12,
)


async def play(trouble: list[str], batch_size: int) -> tuple[list[int], set[int]]:
    """Send 120 records. Returns the numbers of those in the log, and of those that failed."""
    async with running(
        brokers=2,
        verify_records=True,
        max_in_flight_requests_per_connection=1,
        batch_size=batch_size,
        enable_idempotence=False,
    ) as (cluster, producer):
        deliveries = []
        for number in range(120):
            deliveries.append(
                await producer.send("orders", b"%d" % number + b"." * 60, partition=0)
            )
            if number % 10 == 9 and trouble:
                script(cluster, trouble.pop())
                await asyncio.sleep(0.01)
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        cluster.faults.clear()
    return logged(cluster), {
        number for number, outcome in enumerate(outcomes) if isinstance(outcome, Exception)
    }


def script(cluster: FakeCluster, trouble: str) -> None:
    """Script the next Produce request. No fault comes after the append, as that batch would be written twice."""
    match trouble:
        case "ok":
            pass
        case "before":
            cluster.fail("Produce", disconnect="before")
        case "move":
            cluster.move_leader("orders", 0, 3 - (cluster.leader("orders", 0) or 1))
        case error:
            cluster.fail("Produce", error)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trouble=TROUBLE, batch_size=st.sampled_from([100, 700, 16_384]))
def test_one_in_flight_never_reorders(trouble: list[str], batch_size: int) -> None:
    """Refusals, lost connections, split batches and elections come in any order. Records are logged in call order, once."""
    with asyncio.Runner(loop_factory=loops.jumping) as runner:
        log, failed = runner.run(asyncio.wait_for(play(list(trouble), batch_size), 3000))
    assert log == [number for number in range(120) if number not in failed]
    assert len(failed) <= 12, "only single records that were said to be too large"


@pytest.mark.parametrize("in_flight", [1, 5])
@jumping
async def test_as_many_requests_are_in_flight_as_may_be(in_flight: int) -> None:
    """The Sender has no more requests in flight than it may, and no fewer."""
    async with running(max_in_flight_requests_per_connection=in_flight, **ONE_EACH) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", b"first", partition=0)
        hang = cluster.hang("Produce")
        deliveries = [await producer.send("orders", b"." * 60, partition=0) for _ in range(12)]
        await hang.reached()
        await asyncio.sleep(1)
        assert producer.metrics().number("requests-in-flight") == in_flight
        hang.release()
        await asyncio.gather(*deliveries)
