"""Idempotence, the whole producer: what the rows 7, 33, 41 and 52 to 63 of tests/tools/faults do not show.

An acknowledged record is in the log once, in call order, after any retry.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import loops
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from whole import jumping, running

from aioproducer import (
    BrokerError,
    DeliveryError,
    Persisted,
    Producer,
    TimestampType,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence


ON = {"enable_idempotence": True}
ONE_EACH = {"batch_size": 100, **ON}  # a batch for each record
NOW = 1_700_000_000_000  # milliseconds of a calendar that stands still


def numbered(number: int) -> bytes:
    return b"%d" % number + b"." * 60


async def send_all(producer: Producer[Any, Any], count: int, first: int = 0) -> list[Any]:
    """Send `count` batches to partition 0."""
    return [
        await producer.send("orders", numbered(number), partition=0)
        for number in range(first, first + count)
    ]


def logged(cluster: FakeCluster) -> list[int]:
    """Return the record numbers in the log of partition 0, in log order."""
    return [int(value.split(b".")[0]) for value in cluster.values("orders", 0) if value is not None]


def epochs(cluster: FakeCluster) -> list[int]:
    """Return the epochs of partition 0's batches, each once in a row."""
    seen: list[int] = []
    for batch in cluster.log("orders", 0).batches():
        if seen[-1:] != [batch.producer_epoch]:
            seen.append(batch.producer_epoch)
    return seen


async def ends(deliveries: list[Any]) -> list[Any]:
    return await asyncio.gather(*deliveries, return_exceptions=True)


REFUSALS = [
    "NOT_ENOUGH_REPLICAS",
    "NOT_LEADER_OR_FOLLOWER",
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "KAFKA_STORAGE_ERROR",
]


TROUBLE = st.lists(
    st.sampled_from(
        [
            *REFUSALS,
            "REQUEST_TIMED_OUT",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            "MESSAGE_TOO_LARGE",
            "before",
            "after",
            "lost",
            "move",
            "ok",
        ]
    ),
    max_size=14,
)


def script(cluster: FakeCluster, trouble: str) -> None:
    match trouble:
        case "ok":
            pass
        case "before" | "after":
            cluster.fail("Produce", disconnect=trouble)
        case "lost":
            cluster.drop_reply("Produce")
        case "move":
            cluster.move_leader("orders", 0, 3 - (cluster.leader("orders", 0) or 1))
        case error:
            cluster.fail("Produce", error)


async def play(troubles: Sequence[str], batch_size: int) -> tuple[list[int], list[Any]]:
    """Send 120 records. Returns the numbers of those in the log, and the outcomes of all."""
    trouble = list(troubles)
    async with running(
        brokers=2, verify_records=True, batch_size=batch_size, request_timeout_ms=2000, **ON
    ) as (cluster, producer):
        deliveries = []
        for number in range(120):
            deliveries.append(await producer.send("orders", numbered(number), partition=0))
            if number % 8 == 7 and trouble:
                script(cluster, trouble.pop())
                await asyncio.sleep(0.01)
        outcomes = await ends(deliveries)
        cluster.faults.clear()
    return logged(cluster), outcomes


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trouble=TROUBLE, batch_size=st.sampled_from([100, 700, 16_384]))
@example(
    trouble=[
        "MESSAGE_TOO_LARGE",
        *["REQUEST_TIMED_OUT"] * 3,
        "MESSAGE_TOO_LARGE",
        "REQUEST_TIMED_OUT",
    ],
    batch_size=700,
)
def test_five_in_flight_never_reorder_nor_repeat(trouble: list[str], batch_size: int) -> None:
    """Refusals, lost answers, lost connections, split batches and elections come in any order (rows 53, 57, 58)."""
    with asyncio.Runner(loop_factory=loops.jumping) as runner:
        log, outcomes = runner.run(asyncio.wait_for(play(trouble, batch_size), 3000))
    assert log == sorted(set(log)), "in call order, once"
    failed = {
        number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, Exception)
    }
    assert sum(number not in log for number in failed) <= 14, (
        "only single records that were said to be too large"
    )
    assert not failed.keys() & set(log) or "MESSAGE_TOO_LARGE" in trouble, (
        "only what was cut in two although it may have been written"
    )
    assert all(
        outcome.persisted is Persisted.MAYBE for number, outcome in failed.items() if number in log
    )
    assert [outcome.offset for outcome in outcomes if outcome not in failed.values()] == [
        place for place, number in enumerate(log) if number not in failed
    ]


# Records that end without an acknowledgement


@jumping
async def test_a_late_acknowledgement_spares_the_new_epoch() -> None:
    """The record expired before its answer came. The late answer proves that no sequence number is missing."""
    async with running(delivery_timeout_ms=2000, request_timeout_ms=2000, **ONE_EACH) as (
        cluster,
        producer,
    ):
        await producer.send_and_wait("orders", numbered(0), partition=0)
        hang = cluster.hang("Produce", when="after", times=1)
        [delivery] = await send_all(producer, 1, 1)
        await hang.reached()
        await asyncio.sleep(1.5)
        late = await send_all(producer, 3, 2)
        [lost] = await ends([delivery])
        assert lost.persisted is Persisted.MAYBE
        hang.release()
        await asyncio.gather(*late)
        assert logged(cluster) == list(range(5))


@jumping
async def test_a_record_that_is_refused_for_good_leaves_no_gap() -> None:
    """IDM-08: the broker refuses a batch for good while others are in flight behind it.

    The producer numbers those anew, and no record is there twice or out of order.
    """
    async with running(**ONE_EACH) as (cluster, producer):
        await producer.send_and_wait("orders", numbered(0), partition=0)
        cluster.delay("Produce", 0.01)
        cluster.fail("Produce", "INVALID_RECORD")
        first, *others = await ends(await send_all(producer, 12, 1))
        assert first.persisted is Persisted.NO
        assert [one.offset for one in others] == list(range(1, 12))
        assert logged(cluster) == [0, *range(2, 13)]
        assert epochs(cluster) == [0, 1]
        cluster.faults.clear()


@jumping
async def test_a_refused_record_alone_costs_no_epoch() -> None:
    """The sequence number of the refused record was not used, and no record has a later one."""
    async with running(**ONE_EACH) as (cluster, producer):
        await producer.send_and_wait("orders", numbered(0), partition=0)
        cluster.fail("Produce", "INVALID_RECORD")
        await ends(await send_all(producer, 1, 1))
        await asyncio.gather(*await send_all(producer, 3, 2))
        assert logged(cluster) == [0, 2, 3, 4]
        assert epochs(cluster) == [0]


@jumping
async def test_after_a_silence_the_first_goes_alone() -> None:
    """After a silence the Sender sends the first batch alone, as its broker may have forgotten the producer.

    Such a broker would take the batch behind a refused one for the first (found by the simulation).
    """
    async with running(batch_size=700, **ON) as (cluster, producer):
        await producer.send_and_wait("orders", numbered(0), partition=0)
        await asyncio.sleep(25 * 3600)
        cluster.forget_producers("orders", 0)
        cluster.delay("Produce", 0.01)
        cluster.fail("Produce", "INVALID_RECORD", record_errors={1: "no", 3: "nor this"})
        outcomes = await ends(await send_all(producer, 60, 1))
        cluster.faults.clear()
        failed = [
            number for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, Exception)
        ]
        assert len(failed) == 2
        assert logged(cluster) == [number for number in range(61) if number not in failed]


# Answers of brokers about sequence numbers


@jumping
async def test_a_duplicate_whose_place_is_forgotten_is_written() -> None:
    """Row 52: the record counts as written, with offset -1."""
    async with running(**ONE_EACH) as (cluster, producer):
        cluster.fail("Produce", "DUPLICATE_SEQUENCE_NUMBER")
        metadata = await producer.send_and_wait("orders", numbered(0), partition=0)
        assert metadata.offset == -1
        assert cluster.values("orders", 0) == []


@pytest.mark.parametrize("stamps", [False, True])
@pytest.mark.parametrize("ended", ["lost answer", "DUPLICATE_SEQUENCE_NUMBER"])
@jumping
async def test_records_of_a_duplicate_have_their_own_times(stamps: bool, ended: str) -> None:
    """Kafka answers the latest of the records' times in the place of a log append time.

    On a LogAppendTime topic that is the time of the append.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic(
            "stamped", config={"message.timestamp.type": "LogAppendTime"} if stamps else {}
        )
        async with running(cluster, **ONE_EACH | {"batch_size": 16_384}) as (_, producer):
            await producer.partitions_for("stamped")
            cluster.fail("Produce", disconnect="after")
            if ended != "lost answer":
                cluster.fail("Produce", ended)
            deliveries = [
                await producer.send("stamped", b"v", timestamp_ms=stamp)
                for stamp in (1_000, 3_000, 2_000)
            ]
            metadata = await asyncio.gather(*deliveries)
            assert len({each.timestamp_type for each in metadata}) == 1
            told = [each.timestamp_ms for each in metadata]
            is_told = stamps and ended == "lost answer"  # the error comes without any time
            assert metadata[0].timestamp_type == TimestampType(is_told)
            assert told == (
                [record.timestamp_ms for record in cluster.records("stamped", 0)]
                if is_told
                else [1_000, 3_000, 2_000]
            )


@jumping
async def test_a_duplicate_within_the_millisecond_of_its_append_goes_by_what_the_topic_showed() -> (
    None
):
    """The latest of the records' own times equals the time of the append.

    An earlier answer of the topic shows which of the two the broker means.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
        async with running(cluster, **ONE_EACH | {"batch_size": 16_384}) as (_, producer):
            before = await producer.send_and_wait("stamped", b"v")
            assert before.timestamp_type is TimestampType.LOG_APPEND_TIME
            cluster.fail("Produce", disconnect="after")
            deliveries = [
                await producer.send("stamped", b"v", timestamp_ms=stamp)
                for stamp in (7, cluster.now_ms())
            ]
            metadata = await asyncio.gather(*deliveries)
            assert [(each.timestamp_ms, each.timestamp_type) for each in metadata] == [
                (record.timestamp_ms, TimestampType.LOG_APPEND_TIME)
                for record in cluster.records("stamped", 0)[1:]
            ]


@pytest.mark.parametrize("is_idempotent", [True, False])
@pytest.mark.parametrize("ended", ["refused", "lost request"])
@jumping
async def test_a_second_attempt_that_is_no_duplicate_has_the_time_of_its_append(
    ended: str, is_idempotent: bool
) -> None:
    """The answer's time is the record's own, and no answer of the topic came before.

    A batch is no duplicate if its first attempt was refused for certain, or without idempotence.
    """
    async with FakeCluster(memory=True, wall_clock=lambda: NOW / 1000) as cluster:
        cluster.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
        async with running(cluster, **ONE_EACH | {"enable_idempotence": is_idempotent}) as (
            _,
            producer,
        ):
            if ended == "refused":
                cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
            else:
                cluster.fail("Produce", disconnect="before")
            metadata = await producer.send_and_wait("stamped", b"v", timestamp_ms=NOW)
            is_told = ended == "refused" or not is_idempotent
            assert (metadata.timestamp_ms, metadata.timestamp_type) == (NOW, TimestampType(is_told))


@jumping
async def test_what_may_be_there_is_not_sent_under_another_number() -> None:
    """The broker may have forgotten a batch that it appended (KAFKA-9199).

    The record must fail with `maybe`, as that is better than a record twice.
    """
    async with running(**ONE_EACH) as (cluster, producer):
        await producer.send_and_wait("orders", numbered(0), partition=0)
        cluster.fail("Produce", disconnect="after")
        cluster.fail("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
        [lost] = await ends(await send_all(producer, 1, 1))
        assert lost.persisted is Persisted.MAYBE
        await asyncio.gather(*await send_all(producer, 3, 2))
        assert logged(cluster) == list(range(5))


@jumping
async def test_numbers_wrap() -> None:
    """Row 61: after 2147483647 comes 0, also in the middle of a batch and while some batches are in flight."""
    async with running(**ONE_EACH) as (cluster, producer):
        numbers = None
        cluster.log(
            "orders", 0
        )  # the broker does not know the producer, and takes any first number
        await producer.send_and_wait("orders", numbered(0), partition=1)
        queue = producer._engine.parts.partition_queues.routings["orders"].queues[0]
        await producer.send_and_wait("orders", numbered(0), partition=0)
        cluster.forget_producers("orders", 0)
        numbers = queue.numbers
        assert numbers is not None
        numbers.next = 2**31 - 3
        numbers.acked = 2**31 - 4
        cluster.fail("Produce", disconnect="after", times=2)
        await asyncio.gather(*await send_all(producer, 9, 1))
        assert logged(cluster) == list(range(10))
        assert [batch.base_sequence for batch in cluster.log("orders", 0).batches()][1:] == [
            *range(2**31 - 3, 2**31),
            *range(6),
        ]


# The id


@jumping
async def test_records_whose_id_does_not_come_name_the_reason_at_their_time_out() -> None:
    """So does `explain` while they wait."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
        async with Producer(
            **cluster.client_options, delivery_timeout_ms=5000, request_timeout_ms=3000
        ) as producer:
            delivery = await producer.send("orders", b"v")
            await asyncio.sleep(1)
            reason = "a producer id (COORDINATOR_LOAD_IN_PROGRESS (14): InitProducerId was refused)"
            assert f"waits for {reason}" in producer.explain()
            with pytest.raises(
                DeliveryError,
                match=re.escape(
                    f"it was ready (waited for {reason}) (the record was not written; never sent)"
                ),
            ):
                await delivery


@pytest.mark.parametrize(("times", "least", "most"), [(1, 0.05, 0.2), (100, 0.5, 0.6)])
@jumping
async def test_a_start_waits_a_little_for_an_id_that_a_broker_has_not_yet(
    times: int, least: float, most: float
) -> None:
    """A cluster that has just started has no id yet for its first producer.

    Without the wait in `start`, records sent at once would wait until the producer asks again.
    """
    loop = asyncio.get_running_loop()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=times)
        began = loop.time()
        async with running(cluster, **ON) as (_, producer):
            assert least <= loop.time() - began <= most
            began = loop.time()
            cluster.faults.clear()
            await asyncio.gather(*await send_all(producer, 5))
            assert (loop.time() - began < 0.01) == (times == 1)
        assert logged(cluster) == list(range(5))


@jumping
async def test_records_fail_while_there_may_be_no_id_and_go_when_there_may() -> None:
    """IDM-02: records fail at first; the next record makes the producer ask again, after a pause."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.fail("InitProducerId", "CLUSTER_AUTHORIZATION_FAILED", times=2)
        producer = Producer(**cluster.client_options, **ON)
        await producer.start(wait=False)
        outcomes = []
        for number in range(6):
            outcomes += await ends(await send_all(producer, 1, number))
        await producer.stop()
        failed = [number for number, one in enumerate(outcomes) if isinstance(one, DeliveryError)]
        assert failed == list(range(len(failed)))
        assert 1 <= len(failed) <= 3
        assert all(isinstance(outcomes[number].__cause__, BrokerError) for number in failed)
        assert outcomes[0].persisted is Persisted.NO
        assert logged(cluster) == list(range(len(failed), 6))
