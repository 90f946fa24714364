"""The writers exactly once, without Spark: threads of tasks and the driver's calls, on a fake cluster behind loopback sockets."""

from __future__ import annotations

import asyncio
import pickle
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from in_thread import PATIENCE, ClusterInThread

from aioproducer.errors import KafkaError, ProducerClosed, TransactionTimeout
from aioproducer.spark import exactly_once_writing, writing
from aioproducer.spark.decisions import HalfCommitted, TaskState
from aioproducer.spark.exactly_once import TaskTransaction
from aioproducer.spark.ledger import QueryName
from aioproducer.spark.ledger_client import Ledger, LedgerClients
from aioproducer.spark.rows import RowFailed, RowSender
from aioproducer.spark.sink_options import MAX_NAME_BYTES, SinkOptions
from aioproducer.spark.writing import BatchWriter, NoBatchNumber, StreamWriter, TaskMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.spark.worker import Worker

pytestmark = pytest.mark.usefixtures("own_worker")


class Died(Exception):
    """Stands for the death of the driver."""


class Task:
    """Spark's context of a task."""

    def __init__(self, number: int, batch: int | None = 0) -> None:
        self._number = number
        self._properties = (
            {}
            if batch is None
            else {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": "q"}
        )

    def partitionId(self) -> int:
        return self._number

    def attemptNumber(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


class Query:
    """Runs the tasks and the driver of a query."""

    def __init__(
        self, brokers: ClusterInThread, monkeypatch: pytest.MonkeyPatch, **options: str
    ) -> None:
        self.cluster = brokers.cluster
        kafka = {f"kafka.{name}": text for name, text in brokers.options.items()}
        self.options = SinkOptions.of(
            {"topic": "orders", "delivery": "exactly_once", **kafka, **options}, is_stream=True
        )
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self._patch = monkeypatch

    def writer(self, kind: Any = StreamWriter) -> Any:
        made = kind(self.options)
        made.reached = lambda step, **where: self.steps.append((str(step), where))
        return made

    def task(
        self, number: int, *batches: Any, batch: int | None = 0, writer: Any = None
    ) -> TaskMessage:
        """Run a task. Its batches are given by their columns, or by one iterable of those."""
        columns_of = batches if not batches or isinstance(batches[0], dict) else batches[0]
        self._patch.setattr(writing.TaskContext, "get", lambda: Task(number, batch))
        rows = (
            pa.RecordBatch.from_pydict(
                {name: pa.array(column, pa.string()) for name, column in columns.items()}
            )
            for columns in columns_of
        )
        message: TaskMessage = pickle.loads(pickle.dumps((writer or self.writer()).write(rows)))
        return message

    def values(self) -> list[bytes | None]:
        return sorted(self.cluster.values("orders", isolation="read_committed"), key=str)


@pytest.fixture
def query(brokers: ClusterInThread, monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(brokers, monkeypatch)


def values(*texts: str) -> dict[str, list[Any]]:
    return {"value": list(texts)}


def test_a_micro_batch(query: Query) -> None:
    """Nothing is visible before the driver's commit. Empty Arrow batches are no rows."""
    messages = [query.task(0, {"value": []}, values("a", "b"), values("c")), query.task(1)]
    assert [
        (message.report.state, message.rows, message.bytes)
        for message in messages
        if message.report
    ] == [
        (TaskState.PREPARED, 3, 3),
        (TaskState.EMPTY, 0, 0),
    ]
    assert query.values() == []
    query.writer().commit(messages, 0)
    assert query.values() == [b"a", b"b", b"c"]
    steps = [step for step, _ in query.steps]
    assert steps == [
        "start",
        "rows",
        "rows",
        "written",
        "prepared",
        "start",
        "commit",
        "undecided",
        "decided",
        "ended",
        "committed",
    ]
    assert query.steps[1][1] == {"batch": 0, "partition": 0, "attempt": 0, "rows": 2}
    assert query.steps[-2][1] == {"batch": 0, "task": 0, "number": 1}


def test_a_task_without_rows_asks_for_no_producer_id(query: Query) -> None:
    message = query.task(0, {"value": []})
    assert message.report is not None
    assert (message.report.state, query.cluster.requests("InitProducerId")) == (TaskState.EMPTY, [])
    query.writer().commit([message], 0)
    query.writer().abort([message, None], 0)
    assert query.cluster.requests("EndTxn") == []


def test_a_batch_that_is_run_again_is_counted_alike(query: Query) -> None:
    """However Spark cuts it into Arrow batches, and though its rows come from a topic column."""
    query.options = query.options._replace(topic=None, ledger_topic="orders")
    rows = {
        "value": ["a", "b", "c"],
        "key": ["k", None, "k"],
        "topic": ["orders", "other", "orders"],
    }
    query.cluster.create_topic("other")
    first = query.task(0, rows)
    query.writer().commit([first], 0)
    again = query.task(
        0, *[{name: column[at : at + 1] for name, column in rows.items()} for at in (0, 1, 2)]
    )
    assert first.report is not None
    assert again.report is not None
    assert again.report.state is TaskState.SKIPPED
    assert [(one.rows, one.bytes, one.checksum) for one in (first.report, again.report)] == [
        (3, 5, first.report.checksum)
    ] * 2
    moved = query.task(0, rows | {"topic": ["other", "orders", "orders"]})
    assert moved.report is not None
    assert moved.report.checksum != first.report.checksum
    query.writer().commit([again], 0)
    assert query.values() == [b"a", b"c"]


def test_a_failed_task_leaves_nothing_open(query: Query) -> None:
    """A row that cannot be written, and an error of the stage before."""
    query.cluster.fail("Produce", "INVALID_RECORD", times=1)
    with pytest.raises(RowFailed, match="task 2, row 0"):
        query.task(2, values("a"))
    writer = query.writer()
    writer.reached = lambda step, **_: 1 / 0 if step == "rows" else None
    with pytest.raises(ZeroDivisionError):
        query.task(2, values("a"), writer=writer)
    assert query.cluster.transactions["spark-q-2"].state.value == "CompleteAbort"
    query.writer().commit([query.task(0), query.task(1), query.task(2, values("b"))], 0)
    assert query.values() == [b"b"]


def test_the_mark_is_sent_while_rows_are_in_flight(
    brokers: ClusterInThread, query: Query, own_worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once some of them are acknowledged: their partitions are part of the transaction."""
    senders: list[RowSender] = []

    def made(*args: Any, **options: Any) -> RowSender:
        senders.append(RowSender(*args, **options))
        return senders[-1]

    monkeypatch.setattr(exactly_once_writing, "RowSender", made)

    async def release(hang: Any) -> None:
        try:
            async with asyncio.timeout(10):
                await query.cluster.seen("TxnOffsetCommit")
        finally:
            hang.release()

    released = []

    def batches() -> Iterator[dict[str, list[Any]]]:
        # The task's thread reads ahead before it has a sender.
        while not senders or not senders[0].count.rows:
            yield values("a")
        own_worker.call(senders[0].end())
        assert query.cluster.requests("TxnOffsetCommit") == []
        hang = query.cluster.hang("Produce", times=1, when="after")
        released.append(asyncio.run_coroutine_threadsafe(release(hang), brokers.loop))
        yield values("b")

    message = query.task(0, batches())
    released[0].result(PATIENCE)
    query.writer().commit([message], 0)
    assert set(query.values()) == {b"a", b"b"}
    assert len(query.values()) == message.rows


def test_the_mark_follows_the_first_rows(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside them, the one or the other would be refused, because the coordinator adds the other to the transaction."""
    steps = []
    end, mark = RowSender.end, TaskTransaction.mark

    async def ended(sender: RowSender) -> None:
        await end(sender)
        steps.append("acknowledged")

    async def marked(transaction: TaskTransaction, *count: int) -> None:
        steps.append("mark")
        await mark(transaction, *count)

    monkeypatch.setattr(RowSender, "end", ended)
    monkeypatch.setattr(TaskTransaction, "mark", marked)
    query.writer().commit([query.task(0, values("a"))], 0)
    assert steps == ["acknowledged", "mark"]
    assert query.values() == [b"a"]


def test_a_process_keeps_a_producer(query: Query, own_worker: Worker) -> None:
    """Its later tasks and drivers open no connection, and read no metadata. Another kind of producer takes its place."""

    def asked() -> tuple[int, int]:
        requests = query.cluster.requests()
        return len({(one.broker, one.connection) for one in requests}), sum(
            one.api == "Metadata" for one in requests
        )

    query.writer().commit([query.task(0, values("a"))], 0)
    [shared] = own_worker._ledger_clients.values()
    assert shared._client is not None
    driver = shared._client.idle
    first = [query.task(task, values("b"), batch=1) for task in (0, 1)]
    before = asked()
    second = query.task(2, values("c"), batch=1)
    assert asked() == before
    [kept] = driver._idle
    query.writer().commit([*first, second], 1)
    assert driver._idle != [kept]
    with pytest.raises(ProducerClosed):
        own_worker.call(kept.flush())
    assert query.values() == [b"a", b"b", b"b", b"c"]
    before = asked()
    own_worker.call(commit_nothing(query, shared._client))
    assert asked() == before


async def commit_nothing(query: Query, clients: LedgerClients) -> None:
    """Take the lock, and decide nothing."""
    ledger = Ledger(
        QueryName("spark-q"), "orders", clients.config, clients.resolver, idle=clients.idle
    )
    async with ledger.lock():
        pass
    assert len(clients.idle._idle) == 1


def test_a_kept_producer_that_fails_is_replaced(query: Query, own_worker: Worker) -> None:
    """What it has prepared stays: no new attempt of its task has begun."""
    first = query.task(0, values("a"))
    [shared] = own_worker._ledger_clients.values()
    assert shared._client is not None
    [kept] = shared._client.idle._idle
    own_worker.call(kept.stop())
    second = query.task(1, values("b"))
    assert query.cluster.transactions["spark-q-0"].state.value == "Ongoing"
    query.cluster.fail("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=1)
    third = query.task(2, values("c"))
    assert query.cluster.transactions["spark-q-1"].state.value == "Ongoing"
    query.writer().commit([first, second, third], 0)
    assert query.values() == [b"a", b"b", b"c"]


def test_a_mark_that_is_refused_fails_the_task(query: Query) -> None:
    """Its rows are acknowledged then, or not: the transaction is aborted."""
    query.cluster.fail("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=1)
    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
        query.task(0, values("a"))
    assert query.cluster.transactions["spark-q-0"].state.value == "CompleteAbort"
    query.writer().commit([query.task(0, values("b"))], 0)
    assert query.values() == [b"b"]


def test_a_ledger_topic_that_is_not_there(
    brokers: ClusterInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that was deleted, or misspelt: the task's error names it."""
    query = Query(brokers, monkeypatch, ledgertopic="ledgr", **{"kafka.max.block.ms": "300"})
    with pytest.raises(TransactionTimeout, match=r"UNKNOWN_TOPIC_OR_PARTITION \(3\): ledgr-0"):
        query.task(0, values("a"))


@pytest.mark.parametrize(
    ("delivery", "text"),
    [
        (
            "at_least_once",
            r"row 0: topic orders, partition \d: orders-\d: not acknowledged within delivery_timeout_ms=1000: ",
        ),
        (
            "exactly_once",
            "row 0: topic orders: 'orders' was not found in the cluster's metadata within max_block_ms=1000",
        ),
    ],
)
def test_a_topic_that_is_deleted(
    brokers: ClusterInThread, monkeypatch: pytest.MonkeyPatch, delivery: str, text: str
) -> None:
    """The task fails in time, and its error names the topic. Nothing makes the topic anew where the client may not."""
    brokers.cluster.auto_create = True
    times = dict.fromkeys(
        ("kafka.max.block.ms", "kafka.delivery.timeout.ms", "kafka.request.timeout.ms"), "1000"
    )
    query = Query(
        brokers,
        monkeypatch,
        delivery=delivery,
        **times,
        **{"kafka.allow.auto.create.topics": "false", "kafka.linger.ms": "0"},
    )
    query.writer().commit([query.task(0, values("a"))], 0)

    async def delete() -> None:
        query.cluster.delete_topic("orders")

    brokers.run(delete())
    with pytest.raises(RowFailed, match=text):
        query.task(0, values("b"), batch=1)
    assert "orders" not in [topic.name for topic in query.cluster.topics]


def test_rows_are_read_while_a_transaction_begins(
    brokers: ClusterInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator answers once the third batch was read."""
    query = Query(brokers, monkeypatch, **{"kafka.max.block.ms": "5000"})
    hang = query.cluster.hang("InitProducerId", times=1)

    def batches() -> Iterator[dict[str, list[Any]]]:
        yield from (values("a"), values("b"))
        brokers.loop.call_soon_threadsafe(hang.release)
        yield values("c")

    query.writer().commit([query.task(0, batches())], 0)
    assert query.values() == [b"a", b"b", b"c"]


def test_an_error_of_rows_that_were_read_while_a_transaction_began(
    brokers: ClusterInThread, query: Query
) -> None:
    """It is raised once the transaction has begun, which is then ended: the rows before it may have been sent."""
    hang = query.cluster.hang("InitProducerId", times=1)

    def batches() -> Iterator[dict[str, list[Any]]]:
        yield values("a")
        brokers.loop.call_soon_threadsafe(hang.release)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        query.task(0, batches())
    assert query.cluster.transactions["spark-q-0"].state.value in {"Empty", "CompleteAbort"}
    query.writer().commit([query.task(0, [values("b")])], 0)
    assert query.values() == [b"b"]


def test_an_error_of_the_first_rows_is_raised(query: Query) -> None:
    """They are read while the coordinator is asked for a decision."""
    with pytest.raises(ZeroDivisionError):
        query.writer(BatchWriter).write(1 / 0 for _ in range(1))
    assert query.cluster.requests("InitProducerId") == []


def test_a_failed_batch_is_aborted(query: Query) -> None:
    """Only what was not decided: Spark calls abort also after a commit that failed."""
    messages = [query.task(0, values("a")), query.task(1, values("b"))]
    query.writer().abort([messages[0], None], 0)
    assert query.cluster.transactions["spark-q-0"].state.value == "CompleteAbort"
    messages[0] = query.task(0, values("a"))
    writer = query.writer()

    def dies(step: str, **_: Any) -> None:
        if step == "decided":
            raise Died

    writer.reached = dies
    with pytest.raises(Died):
        writer.commit(messages, 0)
    query.writer().abort(messages, 0)
    assert query.values() == []
    assert [
        message.report.state
        for number in (0, 1)
        if (message := query.task(number, values("ab"[number]))).report
    ] == ["skipped"] * 2
    assert query.values() == [b"a", b"b"]


def test_a_replay_that_is_not_the_same_is_refused(query: Query) -> None:
    """Equal counts and bytes, and other rows: the checksum tells."""
    messages = [query.task(0, values("a")), query.task(1, values("b"))]
    writer = query.writer()
    writer.max_ends = 1

    def loses(step: str, **where: Any) -> None:
        if step == "ended":
            query.cluster.fail("EndTxn", "INVALID_TXN_STATE", times=None)

    writer.reached = loses
    with pytest.raises(Exception, match=re.escape("the transactions of task 1 were ended")):
        writer.commit(messages, 0)
    swapped = [query.task(0, values("b")), query.task(1, values("a"))]
    with pytest.raises(
        HalfCommitted,
        match=r"Task 0 had 1 row with 1 byte \(checksum \w+\), and has 1 row with 1 byte",
    ):
        query.writer().commit(swapped, 0)


def test_a_spark_without_batch_numbers_is_refused(query: Query) -> None:
    with pytest.raises(
        NoBatchNumber, match=r"streaming\.sql\.batchId.*foreachBatch, with transactionalId="
    ):
        query.task(0, values("a"), batch=None)


def test_a_write_has_its_name_or_one_of_its_own(query: Query) -> None:
    """The second write of a name writes nothing. Without a name, all tasks of a write have one, and no two writes."""
    query.options = query.options._replace(transactional_id="load", prefix="team-", is_stream=False)
    for _ in range(2):
        writer = query.writer(BatchWriter)
        writer.commit([query.task(0, values("a"), writer=writer, batch=None)])
    assert query.values() == [b"a"]
    assert "team-load-0" in query.cluster.transactions
    query.options = query.options._replace(transactional_id=None)
    names = set()
    for _ in range(2):
        writer = pickle.loads(pickle.dumps(BatchWriter(query.options)))
        messages = [
            query.task(number, values("b"), writer=pickle.loads(pickle.dumps(writer)))
            for number in (0, 1)
        ]
        names.add(frozenset(message.report.name for message in messages if message.report))
        writer.abort([messages[0], None])
        writer.commit([query.task(0, values("b"), writer=writer), messages[1]])
    assert query.values() == [b"a", *[b"b"] * 4]
    assert sorted(map(len, names)) == [1, 1]
    assert all(re.fullmatch(r"team-[0-9a-f]{32}", name) for each in names for name in each)


def test_a_named_write_without_rows_leaves_no_mark(query: Query) -> None:
    """A mark would cost a transaction for each empty micro-batch of foreachBatch. So the name is free for a write that has rows."""
    query.options = query.options._replace(transactional_id="load", is_stream=False)

    def write(*rows: str) -> None:
        writer = query.writer(BatchWriter)
        writer.commit([query.task(0, values(*rows), writer=writer, batch=None)])

    write()
    assert [
        (name, query.cluster.requests(name)) for name in ("InitProducerId", "TxnOffsetCommit")
    ] == [
        ("InitProducerId", []),
        ("TxnOffsetCommit", []),
    ]
    write("a")
    write()
    write("b")
    assert query.values() == [b"a"]


def test_the_longest_name(query: Query) -> None:
    """Kafka takes the ids that are made of it."""
    query.options = query.options._replace(
        transactional_id="x" * (MAX_NAME_BYTES - len("spark-")), is_stream=False
    )
    writer = query.writer(BatchWriter)
    writer.commit([query.task(0, values("a"), writer=writer, batch=None)])
    assert query.values() == [b"a"]
    assert query.task(2**31 - 1, values("b"), writer=writer, batch=None).rows == 1


@pytest.mark.parametrize(
    ("options", "timeout"), [({}, 900_000), ({"kafka.transaction.timeout.ms": "30000"}, 30_000)]
)
def test_a_transaction_lives_as_long_as_a_broker_allows(
    brokers: ClusterInThread, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], timeout: int
) -> None:
    """By default. A batch that takes longer loses its transactions."""
    query = Query(brokers, monkeypatch, **options)
    query.task(0, values("a"))
    assert query.cluster.transactions["spark-q-0"].timeout == timeout / 1000


@pytest.mark.parametrize(
    ("request_", "code", "remedy"),
    [
        (request_, code, remedy)
        for requests, code, remedy in (
            (
                ("FindCoordinator", "OffsetFetch", "TxnOffsetCommit", "AddOffsetsToTxn"),
                "GROUP_AUTHORIZATION_FAILED",
                "The sink needs Read on groups that begin with nightly-",
            ),
            (
                ("InitProducerId", "TxnOffsetCommit", "AddOffsetsToTxn"),
                "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
                "The sink needs Write and Describe on transactional ids that begin with nightly-",
            ),
            (
                ("OffsetFetch", "TxnOffsetCommit"),
                "TOPIC_AUTHORIZATION_FAILED",
                "The sink needs Write on the topics, and Read on the ledger topic orders",
            ),
            (
                ("InitProducerId",),
                "INVALID_TRANSACTION_TIMEOUT",
                "Lower kafka.transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms",
            ),
            (
                ("TxnOffsetCommit",),
                "OFFSET_METADATA_TOO_LARGE",
                "The sink needs the brokers' offset.metadata.max.bytes to be 4096 or more",
            ),
            (
                ("TxnOffsetCommit",),
                "UNKNOWN_MEMBER_ID",
                "Give a transactionalIdPrefix with which no group of consumers begins",
            ),
        )
        for request_ in requests
    ],
)
def test_a_refusal_says_what_the_sink_needs(
    monkeypatch: pytest.MonkeyPatch, request_: str, code: str, remedy: str
) -> None:
    """Each request of a task that a broker may refuse: by the prefix that the user chose, which a client does not know."""
    # Only the first version of transactions has this request.
    brokers = ClusterInThread(transaction_version=1 if request_ == "AddOffsetsToTxn" else 2)
    try:
        query = Query(brokers, monkeypatch, transactionalidprefix="nightly-")
        query.cluster.fail(request_, code, times=None)
        with pytest.raises(KafkaError, match=code) as caught:
            query.task(0, values("a"))
        assert caught.value.__notes__ == [remedy]
    finally:
        brokers.close()
