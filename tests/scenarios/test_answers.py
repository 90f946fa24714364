"""Produce answers beside success.

Final errors, and too few or too many partitions, beside what the rows 22-24, 31-36, 44-46 and 51 of tests/tools/faults show.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, now, running

from aioproducer.errors import BrokerError, DeliveryError, DeliveryTimeout, Persisted
from aioproducer.testing import FakeCluster
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer import Producer


async def failure_of(producer: Producer[Any, Any]) -> DeliveryError:
    """Return the failure of one record to partition 0."""
    with pytest.raises(DeliveryError) as raised:
        await producer.send_and_wait("orders", b"v", partition=0)
    return raised.value


@jumping
async def test_a_named_leader_that_is_no_news_is_no_help() -> None:
    """Row 24: the answer names a leader that the producer knows already. The producer waits the normal backoff, and refreshes metadata."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders")

        def stale(answer: Any) -> None:
            for topic in answer.topics:
                for partition in topic.partitions:
                    partition.current_leader.leader_id, partition.current_leader.leader_epoch = 2, 0

        async with running(cluster, retry_backoff_ms=1000) as (_, producer):
            await producer.send_and_wait("orders", b"0")
            asked, began = len(cluster.requests("Metadata")), now()
            cluster.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
            cluster.rewrite("Produce", stale, times=1)
            await producer.send_and_wait("orders", b"1")
            assert 0.8 <= now() - began <= 1.3
            await cluster.seen(
                "Metadata", asked + 1
            )  # the refresh has its own pause, with its own jitter
            assert now() - began <= 1.3


@pytest.mark.parametrize("version", [5, 6])
@jumping
async def test_a_broker_before_2_0_has_waited_itself(version: int) -> None:
    """Below Produce 6 the broker reports a throttle time that it has waited already, so the Sender does not wait."""
    async with running(versions={"Produce": (3, version)}, partitions=1) as (cluster, producer):
        cluster.throttle("Produce", 2.0, times=1)
        await producer.send_and_wait("orders", b"0")
        began = now()
        await producer.send_and_wait("orders", b"1")
        assert (now() - began >= 2) == (version >= 6)


@pytest.mark.parametrize(
    ("error", "persisted"),
    [
        ("NOT_ENOUGH_REPLICAS", Persisted.NO),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", Persisted.MAYBE),
        ("REQUEST_TIMED_OUT", Persisted.MAYBE),
        ("KAFKA_STORAGE_ERROR", Persisted.MAYBE),
        ("CORRUPT_MESSAGE", Persisted.NO),
        ("UNKNOWN_TOPIC_OR_PARTITION", Persisted.NO),
    ],
)
@jumping
async def test_what_is_retried_in_vain_ends_with_its_name(error: str, persisted: Persisted) -> None:
    """Rows 32-34, 36, 44: the record fails at delivery_timeout_ms, after some attempts.

    The failure says truly whether the record may be in the log.
    """
    async with running(delivery_timeout_ms=3000, request_timeout_ms=3000) as (cluster, producer):
        cluster.fail("Produce", error, times=1000)
        began = now()
        failure = await failure_of(producer)
        assert now() - began == pytest.approx(3, abs=0.01)
        assert isinstance(failure.__cause__, BrokerError)
        assert failure.__cause__.name == error
        assert error in str(failure)
        assert failure.persisted is persisted
        assert isinstance(failure, DeliveryTimeout)
        assert (failure.code, failure.retriable) == ("TIMED_OUT", persisted is Persisted.NO)
        assert 4 <= failure.attempts <= 10
        cluster.faults.clear()


@pytest.mark.parametrize(
    "error",
    [
        "INVALID_TIMESTAMP",
        "POLICY_VIOLATION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "INVALID_REQUIRED_ACKS",
        "TOPIC_AUTHORIZATION_FAILED",
        "INVALID_RECORD",
        999,
    ],
)
@jumping
async def test_what_is_refused_for_good_fails_at_once(error: str | int) -> None:
    """Rows 40, 45, 46: the record fails for good, with the broker's error number. The record of the other partition is delivered."""
    async with running() as (cluster, producer):
        cluster.fail("Produce", error, partition=0)
        began = now()
        other = await producer.send("orders", b"other", partition=1)
        failure = await failure_of(producer)
        assert now() - began < 0.1
        assert isinstance(failure.__cause__, BrokerError)
        assert (failure.persisted, failure.attempts) == (Persisted.NO, 1)
        assert not isinstance(failure, TimeoutError)
        assert (failure.code, failure.retriable) == (failure.__cause__.name, False)
        assert error in (failure.__cause__.name, failure.__cause__.code)
        assert f"({failure.__cause__.code})" in str(failure)
        assert (await other).offset == 0


@pytest.mark.parametrize("retries", [0, 1, 2])
@jumping
async def test_no_more_retries_than_there_may_be(retries: int) -> None:
    """DLV-09: the producer retries at most `retries` times. With no retries, a temporary error fails the record at once."""
    async with running(retries=retries) as (cluster, producer):
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS", times=3)
        failure = await failure_of(producer)
        assert (failure.attempts, failure.persisted) == (retries + 1, Persisted.NO)
        assert (failure.code, failure.retriable) == ("NOT_ENOUGH_REPLICAS", True)
        cluster.faults.clear()


@jumping
async def test_an_answer_that_lacks_a_partition_costs_that_one_an_attempt() -> None:
    """Row 51: the partition in the answer is acknowledged at once, and the connection stays."""
    async with running() as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)

        def omit(answer: Any) -> None:
            for topic in answer.topics:
                topic.partitions = [
                    partition for partition in topic.partitions if partition.index != 1
                ]

        cluster.rewrite("Produce", omit, times=1)
        done, left_out = [
            await producer.send("orders", b"%d" % partition, partition=partition)
            for partition in (0, 1)
        ]
        await done
        assert not left_out.done()
        assert (await left_out).offset == 0, "it was sent twice, and is there once"
        assert len({request.connection for request in cluster.requests("Produce")}) == 1


@pytest.mark.parametrize(
    ("records", "errors", "is_taken"),
    [(1_500, 1_500, True), (1, 900, True), (1, 1_010, False), (10, 200_000, False)],
)
@jumping
async def test_errors_of_more_records_than_were_sent(
    records: int, errors: int, is_taken: bool
) -> None:
    """A broker may refuse each record of a batch. An answer with many more errors is not decoded: that would hold the loop for 0.1 s."""
    error = message(
        "Produce.response.topics.partitions.record_errors",
        batch_index=0,
        batch_index_error_message="bad",
    )

    def crowd(answer: Any) -> None:
        answer.topics[0].partitions[0].record_errors = [error] * errors

    async with running(batch_size=1_000_000, linger_ms=100) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        answered = len(cluster.requests("Produce"))
        cluster.fail("Produce", "INVALID_RECORD", message="bad")
        cluster.rewrite("Produce", crowd, times=1)
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=0) for number in range(records)
        ]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        # The record that the answer names fails, or all records are sent again over another connection.
        assert isinstance(outcomes[0], DeliveryError) is is_taken
        assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1:])
        before, after = (
            request.connection
            for request in (
                cluster.requests("Produce")[answered - 1],
                cluster.requests("Produce")[-1],
            )
        )
        assert (before == after) is is_taken


@jumping
async def test_an_answer_for_what_nobody_sent_is_passed_over_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Row 51: the answer has a partition and a topic that were not in the request, and one partition twice.

    The producer takes the first entry.
    """
    async with running() as (cluster, producer):

        def add(answer: Any) -> None:
            topic = answer.topics[0]
            stranger, again = (type(topic.partitions[0])(), type(topic.partitions[0])())
            for made, index, offset in ((stranger, 7, 70), (again, 0, 99)):
                for name in type(made).__slots__:
                    setattr(made, name, getattr(topic.partitions[0], name))
                made.index, made.base_offset = index, offset
            topic.partitions = [stranger, topic.partitions[0], again]

        cluster.rewrite("Produce", add, times=1)
        with caplog.at_level(logging.WARNING, "aioproducer"):
            assert (await producer.send_and_wait("orders", b"v", partition=0)).offset == 0
        assert "2 partitions that nothing was sent to" in caplog.text
        assert (await producer.send_and_wait("orders", b"v", partition=0)).offset == 1


@pytest.mark.parametrize(
    "error", [None, "MESSAGE_TOO_LARGE", "NOT_ENOUGH_REPLICAS", "POLICY_VIOLATION"]
)
@jumping
async def test_the_late_answer_of_an_expired_batch_is_dropped(error: str | None) -> None:
    """DLV-03, DLV-04: a late success, MESSAGE_TOO_LARGE, retriable or final error does not change the failure of the batch.

    The memory of the batch comes back, and the next record is delivered.
    """
    async with running(delivery_timeout_ms=1000, request_timeout_ms=1000) as (cluster, producer):
        await producer.send_and_wait("orders", b"first", partition=0)
        cluster.fail("Produce", "NOT_ENOUGH_REPLICAS")
        cluster.delay("Produce", 0.5, times=1)
        cluster.delay("Produce", 0.8, times=1)
        if error is not None:
            cluster.fail("Produce", error)
        began, ended = now(), []
        deliveries = [
            await producer.send("orders", b"%d" % number, partition=0) for number in range(3)
        ]
        for delivery in deliveries:
            delivery.add_done_callback(lambda _delivery: ended.append(now() - began))
        failures = await asyncio.gather(*deliveries, return_exceptions=True)
        assert all(
            isinstance(failure, DeliveryError) and failure.persisted is Persisted.MAYBE
            for failure in failures
        )
        assert "within delivery_timeout_ms=1000: it was in flight (NOT_ENOUGH_REPLICAS" in str(
            failures[0]
        )
        assert ended == pytest.approx([1, 1, 1], abs=0.01)
        assert producer.buffer_available < producer.config.buffer_memory, (
            "they are still on their way"
        )
        await asyncio.sleep(3)
        assert producer.buffer_available == producer.config.buffer_memory
        assert len(cluster.requests("Produce")) == 3
        assert len(ended) == 3
        assert (await producer.send_and_wait("orders", b"next", partition=0)).offset == (
            4 if error is None else 1
        )


@jumping
async def test_records_expire_wherever_they_are_and_their_callbacks_may_send_again() -> None:
    """DLV-06, DLV-07: records without a leader, for a stopped broker, or in a lingering batch all expire at their deadline."""
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.move_leader("orders", 0, 1)
        cluster.move_leader("orders", 1, 2)
        cluster.move_leader("orders", 2, None)
        async with running(
            cluster, delivery_timeout_ms=2000, request_timeout_ms=1000, linger_ms=1000
        ) as (_, producer):
            await producer.send_and_wait("orders", b"first", partition=0)
            await cluster.brokers[2].stop()
            again: list[asyncio.Task[Any]] = []
            began = now()
            deliveries = [
                await producer.send("orders", b"lost", partition=partition) for partition in (1, 2)
            ]
            for delivery in deliveries:
                delivery.add_done_callback(
                    lambda _delivery: again.append(
                        asyncio.ensure_future(
                            producer.send_and_wait("orders", b"again", partition=0)
                        )
                    )
                )
            failures = await asyncio.gather(*deliveries, return_exceptions=True)
            assert now() - began == pytest.approx(2, abs=0.01)
            assert all(
                isinstance(failure, DeliveryError) and failure.persisted is Persisted.NO
                for failure in failures
            )
            assert "no leader is known" in str(failures[1])
            assert sorted(metadata.offset for metadata in await asyncio.gather(*again)) == [1, 2]
            await cluster.brokers[2].start()
