"""Order, cancellation and memory in random histories: the log has the queued records in call order, no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import loops
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whole import running, turns

from aioproducer.engine.append import loop_budget as turn_module
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer import Producer
    from aioproducer.engine.chosen_build import Delivery


class Send(NamedTuple):
    """One call of a history; `target` is a key, a partition, or None for neither."""

    topic: str
    target: bytes | int | None
    size: int
    then: str


class Cancel(NamedTuple):
    """Cancels a task after a number of event-loop iterations or milliseconds."""

    turns: int
    pause_ms: int
    task: int


class History(NamedTuple):
    """Holds all events of one producer's life."""

    tasks: list[list[Send]]
    cancels: list[Cancel]
    late_after_ms: int
    grows_after_ms: int
    metadata_delay_ms: int
    produce_delays_ms: list[int]
    turn: int
    go: int
    options: dict[str, Any]


class Call:
    """Holds one call of `send` and its result; made in the step in which the call first runs."""

    def __init__(self, number: int, send: Send) -> None:
        self.send = send
        self.value = b"%06d" % number + b"." * send.size
        self.delivery: Delivery | None = None
        self.was_cancelled = False


SENDS = st.builds(
    Send,
    topic=st.sampled_from(["orders", "late"]),
    target=st.sampled_from([b"a", b"b", b"c", 0, 1, 2, None]),
    size=st.sampled_from([0, 10, 10, 200, 900]),
    then=st.sampled_from(["go on", "go on", "go on", "turn", "wait", "pause"]),
)
HISTORIES = st.builds(
    History,
    tasks=st.lists(st.lists(SENDS, min_size=1, max_size=16), min_size=1, max_size=8),
    cancels=st.lists(
        st.builds(
            Cancel,
            turns=st.integers(0, 6),
            pause_ms=st.sampled_from([0, 0, 0, 1, 7]),
            task=st.integers(0, 7),
        ),
        max_size=10,
    ),
    late_after_ms=st.sampled_from([0, 3, 250]),
    grows_after_ms=st.sampled_from([0, 5, 300]),
    metadata_delay_ms=st.sampled_from([0, 0, 4]),
    produce_delays_ms=st.lists(st.sampled_from([0, 1, 5, 60]), max_size=6),
    turn=st.sampled_from([200, 1500, 131_072]),
    go=st.sampled_from([1, 2, 5, 512]),
    options=st.fixed_dictionaries(
        {
            "buffer_memory": st.sampled_from([2_500, 4_000, 9_000, 40_000]),
            "batch_size": st.sampled_from([1, 300, 2_000]),
            "batch_max_size": st.sampled_from([1, 5_000]),
            "linger_ms": st.sampled_from([0, 0, 3, "auto"]),
            "max_in_flight_requests_per_connection": st.sampled_from([1, 5]),
            "acks": st.sampled_from(["all", "all", 1]),
            "compression_type": st.sampled_from(["none", "none", "gzip"]),
        }
    ),
)


async def run_task(producer: Producer[Any, Any], sends: list[Send], calls: list[Call]) -> None:
    """Call the sends of one task one after another. A cancelled call is noted, and the task continues."""
    for send in sends:
        call = Call(len(calls), send)
        target = send.target
        try:
            calls.append(call)
            if isinstance(target, int):
                call.delivery = await producer.send(send.topic, call.value, partition=target)
            else:
                call.delivery = await producer.send(send.topic, call.value, key=target)
        except asyncio.CancelledError:
            call.was_cancelled = True
            if len(calls) % 2:  # as a time-out does
                current = asyncio.current_task()
                assert current is not None
                current.uncancel()
            continue
        try:
            match send.then:
                case "turn":
                    await asyncio.sleep(0)
                case "wait":
                    await call.delivery
                case "pause":
                    await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            pass  # the record is sent all the same


async def change_cluster(cluster: FakeCluster, history: History) -> None:
    """Create the late topic, and add the third partition of `orders`."""
    for at, change in sorted(
        [
            (history.late_after_ms, lambda: cluster.create_topic("late", partitions=3)),
            (history.grows_after_ms, lambda: cluster.add_partitions("orders", 3)),
        ],
        key=lambda entry: entry[0],
    ):
        await asyncio.sleep(at / 1000)
        change()


async def cancel(tasks: list[asyncio.Task[None]], cancels: list[Cancel]) -> None:
    """Cancel tasks at random moments."""
    for wanted in cancels:
        await turns(wanted.turns)
        if wanted.pause_ms:
            await asyncio.sleep(wanted.pause_ms / 1000)
        tasks[wanted.task % len(tasks)].cancel()


async def play(history: History) -> tuple[FakeCluster, list[Call]]:
    """Run a history. Returns its cluster and the calls in their order."""
    calls: list[Call] = []
    async with FakeCluster(memory=True, verify_records=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        if history.metadata_delay_ms:
            cluster.delay("Metadata", history.metadata_delay_ms / 1000)
        async with running(cluster, metadata_max_age_ms=500, **history.options) as (_, producer):
            for delay_ms in history.produce_delays_ms:
                cluster.delay("Produce", delay_ms / 1000, times=1)
            tasks = [
                asyncio.create_task(run_task(producer, sends, calls)) for sends in history.tasks
            ]
            await asyncio.gather(change_cluster(cluster, history), cancel(tasks, history.cancels))
            await asyncio.gather(*tasks)
            summary = await producer.flush()
            assert summary.failed == summary.pending == 0
            assert producer.buffer_available == producer.config.buffer_memory
            cluster.faults.clear()
        return cluster, calls


def check(cluster: FakeCluster, calls: list[Call]) -> None:
    """Check that log order is call order, that cancelled calls left no record, and that each delivered record is at its position, once."""
    numbers = {call.value: number for number, call in enumerate(calls)}
    logged = {}
    for topic in ("orders", "late"):
        for partition in range(3):
            order = [numbers[value] for value in cluster.values(topic, partition)]
            assert order == sorted(order), f"{topic}-{partition} is not in call order"
            for offset, number in enumerate(order):
                assert number not in logged, "a record was logged twice"
                logged[number] = (topic, partition, offset)
    for number, call in enumerate(calls):
        if call.was_cancelled:
            assert number not in logged, "a cancelled call left a record"
            continue
        assert call.delivery is not None
        metadata = call.delivery.result()
        assert logged[number] == metadata[:3]
        assert (
            isinstance(call.send.target, (bytes, type(None)))
            or metadata.partition == call.send.target
        )


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=HISTORIES)
def test_records_are_logged_in_call_order_whatever_their_sends_waited_for(history: History) -> None:
    """Sends wait for metadata, memory and the loop budget, and some are cancelled. Log order is call order, and a cancelled
    wait leaves no record.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        asyncio.Runner(loop_factory=loops.jumping) as runner,
    ):
        patch.setattr(turn_module, "SLICE_BYTES", history.turn)
        patch.setattr(turn_module, "_FIRST", min(16, history.go))
        patch.setattr(turn_module, "MAX_SLICE_RECORDS", history.go)
        check(*runner.run(asyncio.wait_for(play(history), 3000)))
