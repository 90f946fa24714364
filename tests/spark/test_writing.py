"""The writers without Spark: what a task and the driver do, on a fake cluster behind loopback sockets."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from in_thread import PATIENCE, ClusterInThread

from aioproducer.spark.pumping import pump
from aioproducer.spark.rows import RowFailed
from aioproducer.spark.sink_options import SinkOptions
from aioproducer.spark.writing import BatchWriter, StreamWriter, TaskMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.spark.worker import Worker


def batches(*parts: list[str]) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_pydict({"value": pa.array(part, pa.string())}) for part in parts)


class Traced(BatchWriter):
    """A batch writer that notes each step."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self.steps: list[tuple[str, dict[str, Any]]] = []

    def reached(self, step: str, **where: Any) -> None:
        self.steps.append((step, where))


def options_of(brokers: ClusterInThread, **more: str) -> SinkOptions:
    return SinkOptions.of({"topic": "orders", **{f"kafka.{name}": text for name, text in brokers.options.items()}, **more}, is_stream=False)


@pytest.mark.usefixtures("own_worker")
def test_a_task(brokers: ClusterInThread) -> None:
    """When it returns every row is in the log; the message says how many; each step is told."""
    writer = Traced(options_of(brokers))
    message = writer.write(batches(["a", "bc"], [], ["d"]))
    assert sorted(brokers.cluster.values("orders")) == [b"a", b"bc", b"d"]
    assert pickle.loads(pickle.dumps(message)) == TaskMessage(0, 3, 4)
    writer.commit([message])
    writer.abort([message, None])
    task = {"batch": 0, "partition": 0, "attempt": 0}
    assert writer.steps == [
        ("start", task),
        *(("rows", {**task, "rows": rows}) for rows in (2, 2, 3)),
        ("written", task),
        ("commit", {"batch": 0}),
        ("committed", {"batch": 0}),
    ]


@pytest.mark.usefixtures("own_worker")
def test_linger_does_not_hold_a_task(brokers: ClusterInThread) -> None:
    """The last rows leave at once, also where each row is a record of its own, as with this partitioner."""
    hours = {"kafka.linger.ms": "3600000", "kafka.delivery.timeout.ms": "7200000"}
    partitioner = {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}
    assert BatchWriter(options_of(brokers, **hours, **partitioner)).write(batches(["a"])) == TaskMessage(0, 1, 1)


@pytest.mark.usefixtures("own_worker")
def test_an_empty_task(brokers: ClusterInThread) -> None:
    """Spark has tasks without a batch, and batches without a row."""
    assert BatchWriter(options_of(brokers)).write(batches()) == TaskMessage(0, 0, 0)
    assert brokers.cluster.requests("Produce") == []


@pytest.mark.usefixtures("own_worker")
def test_a_refused_row_fails_the_task(brokers: ClusterInThread) -> None:
    brokers.cluster.fail("Produce", "INVALID_RECORD", times=None)
    with pytest.raises(RowFailed, match=r"task 0, row 0: topic orders, partition \d: "):
        BatchWriter(options_of(brokers)).write(batches(["a"], ["b"]))


@pytest.mark.usefixtures("own_worker")
def test_a_row_that_is_too_large_fails_the_task(brokers: ClusterInThread) -> None:
    options = options_of(brokers, **{"kafka.max.request.size": "1000"})
    with pytest.raises(RowFailed, match="task 0, row 2: topic orders: a record for 'orders' takes"):
        BatchWriter(options).write(batches(["a"], ["b", "c" * 2_000]))


def test_a_writer_is_pickled(brokers: ClusterInThread) -> None:
    """Spark sends it to executors and, for batches, to the process that commits."""
    options = options_of(brokers)
    writer = pickle.loads(pickle.dumps(StreamWriter(options)))
    assert writer._options == options
    writer.commit([TaskMessage(0, 1, 1), None], 7)
    writer.abort([None], 7)


class Sender:
    """Notes what is sent; waits where it is told to."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.read: list[int] = []
        self.next_is_read = threading.Event()
        self.cancelled = threading.Event()
        self.is_held = False

    async def send(self, batch: int) -> None:
        try:
            while self.is_held or not await asyncio.to_thread(self.next_is_read.wait, PATIENCE):
                await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.next_is_read.clear()
        self.sent.append(batch)

    def batches(self, count: int) -> Iterator[Any]:
        for number in range(count):
            self.read.append(number)
            if number:
                self.next_is_read.set()
            yield number
        self.next_is_read.set()


def test_the_next_batch_is_read_while_one_is_sent(own_worker: Worker) -> None:
    """No batch is sent before the next one was read, and none is read before the one before the last is sent."""
    sender = Sender()
    for number, _ in enumerate(pump(own_worker, sender, sender.batches(4))):  # type: ignore[arg-type]
        assert sender.sent == list(range(number + 1))
        assert sender.read == list(range(min(number + 2, 4)))
    assert sender.sent == [0, 1, 2, 3]


def test_an_error_of_spark_ends_the_send(own_worker: Worker) -> None:
    """The batches of a stage before ours end with an error while a send waits: the send is cancelled."""
    sender = Sender()
    sender.is_held = True

    def broken() -> Iterator[Any]:
        yield 0
        raise OSError("the stage before")

    with pytest.raises(OSError, match="the stage before"):
        list(pump(own_worker, sender, broken()))  # type: ignore[arg-type]
    assert sender.cancelled.wait(PATIENCE)
