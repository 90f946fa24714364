"""The wall clock: a test that replaces `time.time`, as freezegun does, replaces it for producers and fake clusters."""

from __future__ import annotations

import time

import pytest
from whole import jumping

from aioproducer import Producer
from aioproducer.testing import FakeCluster

JULY = 1_753_000_000.5


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@jumping
async def test_records_have_the_time_of_a_test_that_replaces_it(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A producer from before, too, and a fake cluster. They kept the function that `time.time` was at their import."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", config={"message.timestamp.type": kind})
        async with Producer(**cluster.client_options) as producer:
            now = (await producer.send_and_wait("orders", b"1")).timestamp_ms
            assert abs(now - time.time() * 1000) < 60_000
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda: JULY)
                replaced = await producer.send_and_wait("orders", b"2")
            assert replaced.timestamp_ms == 1_753_000_000_500
            assert (await producer.send_and_wait("orders", b"3")).timestamp_ms >= now
        assert [record.timestamp_ms for record in cluster.records("orders", 0)][
            1
        ] == 1_753_000_000_500
