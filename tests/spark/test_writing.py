"""The writers without Spark: what a task and the driver do, on a fake cluster behind loopback sockets."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pytest
from in_thread import PATIENCE, ClusterInThread

from aioproducer.spark.pumping import _Line, pump, read_ahead
from aioproducer.spark.sink_options import SinkOptions
from aioproducer.spark.writing import BatchWriter, StreamWriter, TaskMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.spark.worker import Worker

# Bytes of the batches that `pump` reads ahead.
LARGE: Final = 4 * 2**20


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
    return SinkOptions.of(
        {
            "topic": "orders",
            **{f"kafka.{name}": text for name, text in brokers.options.items()},
            **more,
        },
        is_stream=False,
    )


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
    partitioner = {
        "kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    }
    assert BatchWriter(options_of(brokers, **hours, **partitioner)).write(
        batches(["a"])
    ) == TaskMessage(0, 1, 1)


@pytest.mark.usefixtures("own_worker")
def test_an_empty_task(brokers: ClusterInThread) -> None:
    """Spark has tasks without a batch, and batches without a row."""
    assert BatchWriter(options_of(brokers)).write(batches()) == TaskMessage(0, 0, 0)
    assert brokers.cluster.requests("Produce") == []


def test_a_writer_is_pickled(brokers: ClusterInThread) -> None:
    """Spark sends it to executors and, for batches, to the process that commits."""
    options = options_of(brokers)
    writer = pickle.loads(pickle.dumps(StreamWriter(options)))
    assert writer._options == options
    writer.commit([TaskMessage(0, 1, 1), None], 7)
    writer.abort([None], 7)


class Batch(NamedTuple):
    """Stands for an Arrow batch of one row."""

    number: int
    nbytes: int
    num_rows: int = 1


class Sender:
    """Notes what is sent. A send waits until the batch that is `ahead` of it was read, or the last one."""

    def __init__(self, ahead: int = 1, *, count: int = 4, failing: int = -1) -> None:
        self.sent: list[int] = []
        self.read: list[int] = []
        self.cancelled = threading.Event()
        self._ahead = ahead
        self._count = count
        self._failing = failing
        self._is_read = [threading.Event() for _ in range(count)]

    async def send(self, batch: Batch) -> None:
        wanted = self._is_read[min(batch.number + self._ahead, self._count - 1)]
        try:
            while not wanted.is_set():
                await asyncio.to_thread(wanted.wait, PATIENCE)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if batch.number == self._failing:
            raise OSError(batch.number)
        self.sent.append(batch.number)

    def batches(self, size: int) -> Iterator[Any]:
        for number, is_read in enumerate(self._is_read):
            self.read.append(number)
            is_read.set()
            yield Batch(number, size)


def test_the_next_large_batch_is_read_while_one_is_sent(own_worker: Worker) -> None:
    """No batch is sent before the next one was read, and none is read before the one before the last is sent."""
    sender = Sender()
    for number, rows in enumerate(pump(own_worker, sender, sender.batches(LARGE))):  # type: ignore[arg-type]
        assert rows == number + 1
        assert sender.sent == list(range(number + 1))
        assert sender.read == list(range(min(number + 2, 4)))
    assert sender.sent == [0, 1, 2, 3]


def test_small_batches_are_read_ahead(own_worker: Worker) -> None:
    """The first one is sent once the last one was read; all are sent in order, and each is told."""
    sender = Sender(ahead=3)
    assert list(pump(own_worker, sender, sender.batches(LARGE // 4))) == [1, 2, 3, 4]  # type: ignore[arg-type]
    assert sender.sent == [0, 1, 2, 3]


def test_no_batch_is_sent_behind_one_that_failed(own_worker: Worker) -> None:
    sender = Sender(ahead=3, failing=1)
    told = []
    with pytest.raises(OSError, match="1"):
        told.extend(pump(own_worker, sender, sender.batches(1)))  # type: ignore[arg-type]
    assert (sender.sent, sender.read) == ([0], [0, 1, 2, 3])


def test_an_error_of_spark_ends_the_send(own_worker: Worker) -> None:
    """The batches of a stage before ours end with an error while a send waits: the send is cancelled."""
    sender = Sender(count=2)

    def broken() -> Iterator[Any]:
        yield Batch(0, 1)
        raise OSError("the stage before")

    with pytest.raises(OSError, match="the stage before"):
        list(pump(own_worker, sender, broken()))  # type: ignore[arg-type]
    assert sender.cancelled.wait(PATIENCE)


@pytest.mark.parametrize(("size", "read"), [(LARGE, 1), (LARGE // 2 + 1, 2), (LARGE // 4, 4)])
def test_no_more_than_4_mib_are_read_ahead(size: int, read: int) -> None:
    sender = Sender(count=6)
    rest = read_ahead(sender.batches(size), Future())
    assert len(sender.read) == read
    assert [batch.number for batch in rest] == list(range(6))  # type: ignore[attr-defined]


def test_nothing_is_read_ahead_once_the_future_is_done() -> None:
    sender, done = Sender(count=6), Future[None]()
    rest = read_ahead(
        (
            done.set_result(None) or batch if batch.number == 1 else batch
            for batch in sender.batches(1)
        ),
        done,
    )  # type: ignore[func-returns-value]
    assert len(sender.read) == 2
    assert [batch.number for batch in rest] == list(range(6))  # type: ignore[attr-defined]


def test_an_error_of_a_batch_that_is_read_ahead_has_its_place() -> None:
    def broken() -> Iterator[Any]:
        yield Batch(0, 1)
        raise OSError("the stage before")

    rest: Any = read_ahead(broken(), Future())
    assert next(rest).number == 0
    with pytest.raises(OSError, match="the stage before"):
        next(rest)


class Held:
    """Notes what is sent. The first send waits for `opened`."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.opened = asyncio.Event()

    async def send(self, batch: int) -> None:
        if batch == 0:
            await self.opened.wait()
        self.sent.append(batch)


def test_no_batch_is_sent_behind_one_that_is_cancelled_at_its_turn() -> None:
    """The task's thread cancels one send after the other while the loop runs: the first may have ended, and the next one have its turn."""

    async def run() -> list[int]:
        sender = Held()
        line: Any = _Line(sender)  # type: ignore[arg-type]
        first, second, third = [asyncio.ensure_future(line.send(number)) for number in range(3)]
        await asyncio.sleep(0)
        sender.opened.set()
        await asyncio.sleep(0)
        assert first.done()
        second.cancel()
        await asyncio.wait([second, third])
        assert second.cancelled()
        assert third.cancelled()
        return sender.sent

    assert asyncio.run(run()) == [0]
