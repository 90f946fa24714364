"""The user's functions around a record: interceptors, serializers and a partitioner, each called once, on the fast and the slow path."""

from __future__ import annotations

import asyncio
import enum
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

from aioproducer import Interceptor, Producer, ProducerRecord, RecordMetadata
from aioproducer.errors import (
    KafkaError,
    ProducerClosed,
    RecordTooLarge,
    SerializationError,
    UsageError,
)
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from aioproducer.model import Headers


class Steps:
    """Writes down what each of the user's functions is called for: interceptor, serializer, partitioner and end of a record."""

    def __init__(self) -> None:
        self.made: list[tuple[str, object]] = []
        self.acknowledged: list[tuple[int, int]] = []
        self.failed: list[tuple[type[BaseException], str, int]] = []

    def of(self, kind: str) -> list[object]:
        return [value for made, value in self.made if made == kind]

    def on_send(self, record: ProducerRecord) -> None:
        self.made.append(("interceptor", record.value))

    def on_acknowledgement(self, metadata: RecordMetadata, _headers: Headers) -> None:
        self.acknowledged.append((metadata.partition, metadata.offset))

    def on_error(self, error: BaseException, topic: str, partition: int, _headers: Headers) -> None:
        self.failed.append((type(error), topic, partition))

    def serialize(self, value: Any) -> bytes:
        self.made.append(("serializer", value))
        return bytes(value)

    def choose(
        self,
        _topic: str,
        _key: bytes | None,
        value: bytes | None,
        _partitions: int,
        _available: object,
    ) -> int:
        self.made.append(("partitioner", value))
        if value == b"bad":
            raise ValueError(value)
        return 1

    def options(self, *kinds: str) -> dict[str, Any]:
        made = {
            "interceptors": [self],
            "value_serializer": self.serialize,
            "partitioner": self.choose,
        }
        return {name: made[name] for name in kinds}


ALL = ("interceptors", "value_serializer", "partitioner")
SOME = [ALL, ALL[:1], ALL[2:], ALL[:2], ALL[1:], ALL[::2]]
FULL: dict[str, Any] = {
    "buffer_memory": 20_000,
    "batch_size": 2_000,
    "max_request_size": 4_000,
    "linger_ms": 5,
}


def slow_sends(producer: Producer[Any, Any]) -> list[object]:
    """Return a list of the values that take the slow path from now on."""
    taken: list[object] = []

    def noted(submit: Any) -> Any:
        def note(record: Any) -> Any:
            taken.append(record.value)
            return submit(record)

        return note

    assert producer._engine is not None
    admission: Any = producer._engine.parts.admission
    admission.submit, admission.submit_nowait = map(
        noted, (admission.submit, admission.submit_nowait)
    )
    return taken


@pytest.mark.parametrize("kinds", SOME)
@jumping
async def test_records_take_the_fast_path(kinds: tuple[str, ...]) -> None:
    """Once a batch is open, no record takes the slow path. The functions are called in their order, once for each record."""
    steps = Steps()
    async with running(**steps.options(*kinds), linger_ms=50) as (cluster, producer):
        topic = producer.topic("orders")
        await producer.send("orders", b"first", b"k")
        steps.made.clear()
        slow = slow_sends(producer)
        await producer.send("orders", b"0", b"k")
        producer.send_nowait("orders", b"1", b"k")
        await topic.send(b"2", b"k")
        await (await producer.send("orders", b"3", b"k"))
        assert slow == []
        names = {
            "interceptors": "interceptor",
            "value_serializer": "serializer",
            "partitioner": "partitioner",
        }
        assert steps.made == [
            (names[kind], b"%d" % number) for number in range(4) for kind in kinds
        ]
        partition = (
            1
            if "partitioner" in kinds
            else (await producer.send_and_wait("orders", b"4", b"k")).partition
        )
        assert cluster.values("orders", partition)[:5] == [b"first", b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("size", [10, 300, 1_500, 3_000])
@pytest.mark.parametrize("kinds", SOME)
@jumping
async def test_each_function_is_called_once_for_each_record(
    kinds: tuple[str, ...], size: int
) -> None:
    """Batches are full, memory is short, sends wait: the slow path continues with what the fast path began, and keeps the order."""
    steps = Steps()
    async with running(**steps.options(*kinds), **FULL) as (cluster, producer):
        values = [b"%d." % number + b"." * (size if number % 3 else 10) for number in range(300)]
        deliveries = [await producer.send("orders", value, b"k") for value in values[:100]]
        deliveries += await asyncio.gather(
            *[producer.send("orders", value, b"k") for value in values[100:200]]
        )
        await (await producer.send_many("orders", [b"many"]))
        deliveries += [await producer.send("orders", value, b"k") for value in values[200:]]
        partition = (await deliveries[0]).partition
        await producer.flush()
        assert [
            value for value in cluster.values("orders", partition) if value != b"many"
        ] == values
        for kind in ("interceptor", "serializer", "partitioner"):
            called = [value for value in steps.of(kind) if value != b"many"]
            assert called in ([], values)
        assert len(steps.acknowledged) == (301 if "interceptors" in kinds else 0)


@jumping
async def test_one_that_changes_the_record() -> None:
    """Topic, partition, headers, key and value are the interceptor's, on the fast path too, and encoded after it."""

    class Changing(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(
                "others", f"{record.value}!", b"key", 1, 1_700_000_000_000, [("a", "b")]
            )

    def shout(value: str) -> bytes:
        return value.upper().encode()

    async with running(interceptors=[Changing()], value_serializer=shout, linger_ms=5) as (
        cluster,
        producer,
    ):
        cluster.create_topic("others", partitions=2)
        for _ in range(3):
            await producer.send("orders", "x")
            await (await producer.topic("orders", value=str).send("y"))
        records = cluster.records("others", 1)
        assert [record.value for record in records] == [b"X!", b"y!"] * 3
        assert {(record.key, record.headers, record.timestamp_ms) for record in records} == {
            (b"key", (("a", b"b"),), 1_700_000_000_000)
        }
        assert cluster.values("orders") == []


@pytest.mark.parametrize(
    "change",
    [{"topic": ["orders"]}, {"topic": None}, {"partition": "1"}, {"key": "text"}, {"headers": 5}],
)
@pytest.mark.parametrize("kinds", [ALL, ALL[:2], ALL[::2], ALL[:1]])
@jumping
async def test_one_that_spoils_the_record(kinds: tuple[str, ...], change: dict[str, Any]) -> None:
    """The send raises what it raises for such a record, and the interceptor hears of it once. The partitioner is not called."""
    steps = Steps()

    class Spoiling(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(**change)

    options = steps.options(*kinds)
    async with running(**options | {"interceptors": [steps, Spoiling()]}) as (_, producer):
        await producer.partitions_for("orders")
        for _ in range(2):
            with pytest.raises(UsageError):
                await producer.send("orders", b"x")
            with pytest.raises(UsageError):
                producer.send_nowait("orders", b"x")
        assert len(steps.failed) == 4
        assert steps.of("interceptor") == [b"x"] * 4
        assert steps.of("partitioner") == []


@jumping
async def test_errors_of_the_other_functions_reach_the_interceptor() -> None:
    """A serializer or partitioner fails on the fast path: the send raises, and the interceptor hears of it."""
    steps = Steps()
    async with running(**steps.options(*ALL), max_request_size=2_000, linger_ms=50) as (
        _,
        producer,
    ):
        await producer.send("orders", b"first")
        with pytest.raises(SerializationError):
            await producer.send("orders", object())
        with pytest.raises(UsageError, match="the partitioner raised ValueError"):
            await producer.send("orders", b"bad")
        asked = len(steps.of("partitioner"))
        with pytest.raises(RecordTooLarge):
            await producer.send("orders", b"." * 2_500)
        with pytest.raises(UsageError, match="headers"):
            await producer.send("orders", b"x", headers=5)  # type: ignore[arg-type]
        assert len(steps.of("partitioner")) == asked
        assert [kind for kind, *_ in steps.failed] == [
            SerializationError,
            UsageError,
            RecordTooLarge,
            SerializationError,
        ]


@pytest.mark.parametrize("kinds", SOME)
@jumping
async def test_headers_of_a_serializer_stay_with_the_record(kinds: tuple[str, ...]) -> None:
    """An encoder gives headers with the bytes. Each function is called once."""
    steps = Steps()

    class Encoder:
        def encode(self, value: bytes, headers: Headers) -> tuple[bytes, Headers]:
            steps.made.append(("serializer", value))
            return value, (*headers, ("schema", b"1"))

    class Prepared:
        async def prepare(self, _topic: str) -> Encoder:
            return Encoder()

    options = {**steps.options(*kinds), "value_serializer": Prepared()}
    async with running(**options, linger_ms=50) as (cluster, producer):
        for value in (b"0", b"1", b"2"):
            await producer.send("orders", value, b"k")
        await producer.flush()
        records = [*cluster.records("orders", 0), *cluster.records("orders", 1)]
        assert [(record.value, record.headers) for record in records] == [
            (value, (("schema", b"1"),)) for value in (b"0", b"1", b"2")
        ]
    for kind in ("interceptor", "serializer", "partitioner"):
        assert steps.of(kind) in ([], [b"0", b"1", b"2"])


@jumping
async def test_one_that_sends_itself() -> None:
    """Each record of the caller brings along one of the interceptor's, which it sends from `on_send`, as the caller's is begun."""
    sent: list[Any] = []

    class Copying(Interceptor):
        def on_send(self, record: ProducerRecord) -> None:
            if record.topic == "orders":
                sent.append(producer.send_nowait("copies", record.value, partition=0))

    async with running(interceptors=[Copying()], batch_size=500, linger_ms=5) as (
        cluster,
        producer,
    ):
        cluster.create_topic("copies")
        await producer.partitions_for("copies")
        values = [b"%d" % number for number in range(300)]
        for value in values:
            await producer.send("orders", value, partition=0)
        await producer.flush()
        assert cluster.values("orders", 0) == cluster.values("copies", 0) == values
        assert len(sent) == 300


@pytest.mark.parametrize("kinds", SOME)
@jumping
async def test_none_is_called_after_stop(kinds: tuple[str, ...]) -> None:
    """A send of a stopped producer raises before any function is called, also in the event-loop iteration of the last send."""
    steps = Steps()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=2)
        async with Producer(**cluster.client_options, **steps.options(*kinds)) as producer:
            await producer.send("orders", b"x")
        made = list(steps.made)
        with pytest.raises(ProducerClosed):
            await producer.send("orders", b"y")
        with pytest.raises(ProducerClosed):
            await producer.topic("orders").send(b"y")
        with pytest.raises(ProducerClosed):
            producer.send_nowait("orders", b"y")
        assert steps.made == made


@pytest.mark.parametrize("kinds", SOME)
@jumping
async def test_another_thread_is_refused_before_any_function_is_called(
    kinds: tuple[str, ...],
) -> None:
    """A send in another thread raises ProducerClosed, also in the event-loop iteration of a send."""
    steps = Steps()
    async with running(**steps.options(*kinds)) as (_, producer):
        await producer.send("orders", b"first")
        producer.send_nowait("orders", b"of this iteration")
        steps.made.clear()
        with ThreadPoolExecutor(1) as pool, pytest.raises(ProducerClosed):
            pool.submit(producer.send_nowait, "orders", b"x").result()
        producer.send_nowait("orders", b"of this iteration")
        steps.made.clear()
        with ThreadPoolExecutor(1) as pool, pytest.raises(ProducerClosed):
            pool.submit(asyncio.run, producer.send("orders", b"x")).result()
        with ThreadPoolExecutor(1) as pool, pytest.raises(ProducerClosed):
            # No loop runs there.
            pool.submit(producer.send("orders", b"x").send, None).result()
        assert steps.made == []


@pytest.mark.parametrize("topic", ["orders", "audit"])
@jumping
async def test_a_refused_record_leaves_nothing_for_the_next_one(topic: str) -> None:
    """A partitioner sends a record that fails the transaction, so the record that it was asked for is refused. Its value changes later."""
    asked: list[bytes | None] = []

    def choose(
        _topic: str, _key: bytes | None, value: bytes | None, _partitions: int, _available: object
    ) -> int:
        asked.append(value)
        if len(asked) == 2:
            with pytest.raises(RecordTooLarge):
                producer.send_nowait("orders", {"v": "x" * 2_000_000})
        return 0

    def serialize(topic: str, _headers: Headers, value: dict[str, str]) -> bytes:
        return f"{topic}: {value['v']}".encode()

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("audit")
        options: dict[str, Any] = {
            "partitioner": choose,
            "value_serializer": serialize,
            "transactional_id": "x",
        }
        async with Producer(**cluster.client_options, **options) as producer:
            value = {"v": "1"}
            with pytest.raises(KafkaError):
                async with producer.transaction():
                    await producer.send("orders", {"v": "first"})
                    with pytest.raises(KafkaError):
                        await producer.send("orders", value)
            value["v"] = "2"
            async with producer.transaction():
                # A record with a time takes the slow path.
                await producer.send(topic, value, timestamp_ms=1)
        assert cluster.values(topic)[-1] == f"{topic}: 2".encode()
    assert asked[-1] == f"{topic}: 2".encode()


class Name(enum.StrEnum):
    """Names the topic."""

    ORDERS = "orders"


@jumping
async def test_the_partitioner_chooses_for_a_topic_of_another_type() -> None:
    """A topic that is of a subclass of str is found by its hash, too."""
    steps = Steps()
    async with running(**steps.options("partitioner")) as (cluster, producer):
        for number in range(4):
            await producer.send(
                "orders" if number % 2 else Name.ORDERS, b"%d" % number, b"k-%d" % number
            )
        await producer.flush()
        assert cluster.values("orders", 1) == [b"0", b"1", b"2", b"3"]
    assert steps.of("partitioner") == [b"0", b"1", b"2", b"3"]
