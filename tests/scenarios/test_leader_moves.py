"""Leaders that move while records are on their way."""

from __future__ import annotations

from whole import jumping, now, running, turns

from aioproducer.testing import FakeCluster


@jumping
async def test_what_waits_for_a_batch_at_the_old_leader_goes_to_the_new_one_when_that_ends() -> (
    None
):
    """A batch is unanswered at broker 1, the next batch waits for it, and broker 2 leads by then.

    The answer of broker 1 must let the Sender send the next batch at once.
    """
    async with FakeCluster(brokers=2, memory=True) as cluster:
        cluster.create_topic("orders")
        if cluster.leader("orders", 0) != 1:
            cluster.move_leader("orders", 0, 1)
        async with running(cluster, metadata_max_age_ms=500) as (_, producer):
            hang = cluster.hang("Produce", when="after")
            first = await producer.send("orders", b"1")
            await hang.reached()
            cluster.move_leader("orders", 0, 2)
            await cluster.seen("Metadata", len(cluster.requests("Metadata")) + 1)
            await turns(20)
            second = await producer.send("orders", b"2")
            await turns(20)
            began = now()
            hang.release()
            assert [(await first).offset, (await second).offset] == [0, 1]
            assert now() - began < 1
            assert cluster.requests("Produce")[-1].broker == 2


@jumping
async def test_a_topic_that_an_answer_leaves_out_is_asked_for_again() -> None:
    """A broker leaves out the topic once: the send waits a pause, not `max_block_ms`."""
    async with running() as (cluster, producer):
        cluster.rewrite("Metadata", lambda answer: answer.topics.clear())
        began = now()
        await producer.send_and_wait("orders", b"v")
        assert now() - began < 1
