"""The promises of `send` and its relatives, on all sides: arguments, order, the log, the metadata."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from aioproducer import (
    Deliveries,
    KafkaError,
    MetadataTimeout,
    ProducerClosed,
    Record,
    RecordMetadata,
    RecordTooLarge,
    SerializationError,
    TimestampType,
    UsageError,
    json_serializer,
)

if TYPE_CHECKING:
    from conftest import Side

PAIRS = (list, tuple)
pytestmark = pytest.mark.asyncio

CANARY = b"canary-bytes"


async def test_arguments_may_be_given_by_position(side: Side) -> None:
    """Each way of sending one record takes its arguments in aiokafka's order."""
    topic = await side.topic()
    record = (topic, b"v", b"k", 1, 1_357_034_400_000, [("trace", b"1")])
    async with side.producer() as producer:
        await producer.send(*record)
        producer.send_nowait(*record)
        assert (await producer.send_and_wait(*record)).partition == 1
        future = await asyncio.to_thread(producer.from_thread.send, *record)
        await asyncio.wrap_future(future)
    assert (await side.log(topic))[1] == [(b"k", b"v", 1_357_034_400_000, (("trace", b"1"),))] * 4


async def test_what_is_sent_stands_in_the_log(side: Side) -> None:
    """The log has keys, values, tombstones, empty and null, headers in order with repeats, and the given time: all as given."""
    records: list[tuple[Any, Any, Any, Any]] = [
        (b"k", b"v", 1_357_034_400_000, ()),
        (b"k", None, 0, ()),
        (None, b"", 5, (("a", b"1"), ("a", b"2"), ("b", None), ("", b""), ("żółć", b"3"))),
        (b"", None, 7, [("a", bytearray(b"4"))]),
        (bytearray(b"k"), memoryview(b"v"), 9, ()),
        (None, b"", 10, {"a": b"5", "żółć": "ó", "b": None}),
        (None, b"", 11, [("a", "1"), ("a", b"2")]),
        (None, b"", 12, MappingProxyType({"a": ""})),
        (None, b"", 13, {}),
    ]
    topic = await side.topic()
    async with side.producer() as producer:
        for key, value, stamp, headers in records:
            await producer.send(topic, value, key, timestamp_ms=stamp, headers=headers, partition=1)
    log = await side.log(topic)
    expected = [
        (
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            stamp,
            tuple(
                (n, v.encode() if isinstance(v, str) else v and bytes(v))
                for n, v in (headers if type(headers) in PAIRS else headers.items())
            ),
        )
        for key, value, stamp, headers in records
    ]
    assert log[1] == expected
    assert log[0] == log[2] == []


async def test_metadata(side: Side) -> None:
    """The metadata has the position, from 0 on in each partition, the record's time, and sizes in bytes, -1 for null."""
    topic = await side.topic()
    async with side.producer() as producer:
        first = await producer.send_and_wait(topic, b"abc", b"k", partition=2, timestamp_ms=77)
        second = await producer.send_and_wait(topic, None, partition=2, timestamp_ms=78)
        other = await producer.send_and_wait(topic, b"", b"", partition=0, timestamp_ms=79)
    assert first == RecordMetadata(topic, 2, 0, 77, TimestampType.CREATE_TIME, 1, 3)
    assert second == RecordMetadata(topic, 2, 1, 78, TimestampType.CREATE_TIME, -1, -1)
    assert other == RecordMetadata(topic, 0, 0, 79, TimestampType.CREATE_TIME, 0, 0)
    assert isinstance(first, RecordMetadata)


async def test_a_record_without_a_time_has_the_senders(side: Side) -> None:
    topic = await side.topic()
    before = int(time.time() * 1000) - 1000
    async with side.producer() as producer:
        metadata = await producer.send_and_wait(topic, b"v")
    assert before <= metadata.timestamp_ms <= int(time.time() * 1000) + 1000


async def test_without_acks_no_offset_is_known(side: Side) -> None:
    topic = await side.topic()
    async with side.producer(acks=0) as producer:
        assert (await producer.send_and_wait(topic, b"v", partition=1)).offset == -1


async def test_order_of_calls_is_order_of_the_log(side: Side) -> None:
    """Each key is in one partition. Its records are in the order in which the calls first ran, in any task."""
    topic = await side.topic()
    async with side.producer(linger_ms=1) as producer:
        await asyncio.gather(
            *(
                producer.send(topic, b"%d" % number, b"key-%d" % (number % 5))
                for number in range(200)
            )
        )
    places: dict[bytes, set[int]] = {}
    values: dict[bytes, list[int]] = {}
    for partition, records in (await side.log(topic)).items():
        for key, value, _, _ in records:
            places.setdefault(key, set()).add(partition)  # type: ignore[arg-type]
            values.setdefault(key, []).append(int(value))  # type: ignore[arg-type]
    assert {key: len(where) for key, where in places.items()} == {
        b"key-%d" % number: 1 for number in range(5)
    }
    assert values == {b"key-%d" % number: list(range(number, 200, 5)) for number in range(5)}


async def test_kafkas_partitioner_places_keys(side: Side) -> None:
    """The producer places keys by murmur2, as every Kafka client. The numbers are Java's (`Utils.toPositive(murmur2(key)) % 3`)."""
    topic = await side.topic()
    async with side.producer() as producer:
        placed = [
            (await producer.send_and_wait(topic, b"v", key)).partition
            for key in (b"21", b"foobar", b"abc", b"a-little-bit-long-string")
        ]
    assert placed == [
        number % 3
        for number in (
            0x7FFFFFFF & -973932308,
            0x7FFFFFFF & -790332482,
            0x7FFFFFFF & 479470107,
            0x7FFFFFFF & -985981536,
        )
    ]


async def test_records_of_two_topics_that_alternate(side: Side) -> None:
    """Each record is in the topic that its call named, also if its key was last sent to another topic."""
    topics = [await side.topic(), await side.topic()]
    async with side.producer() as producer:
        for topic in topics:
            await producer.send_and_wait(topic, b"first", b"key")
        for number in range(20):
            await producer.send(topics[number % 2], b"%d" % number, b"key")
    for at, topic in enumerate(topics):
        values = [
            value for records in (await side.log(topic)).values() for _, value, _, _ in records
        ]
        assert values == [b"first", *(b"%d" % number for number in range(at, 20, 2))]


@pytest.mark.parametrize("is_short", [True, False])
async def test_a_partitioner_of_ones_own(side: Side, *, is_short: bool) -> None:
    """The partitioner gets the key and the number of partitions, and its result counts. A given partition has precedence."""
    topic = await side.topic()

    def by_key(key: bytes | None, partitions: int) -> int:
        assert partitions in (1, side.partitions)
        return 0 if key is None else len(key) % partitions

    def by_all(
        _topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Any
    ) -> int:
        assert (_topic, value, list(available)) == (topic, b"v", list(range(partitions)))
        return by_key(key, partitions)

    async with side.producer(partitioner=by_key if is_short else by_all) as producer:
        assert (await producer.send_and_wait(topic, b"v")).partition == 0
        assert (await producer.send_and_wait(topic, b"v", b"kkk")).partition == 0
        assert (await producer.send_and_wait(topic, b"v", b"kkk", partition=2)).partition == 2


@pytest.mark.parametrize("chosen", [-1, 3, "0", None, True])
async def test_a_partitioner_that_is_wrong(side: Side, chosen: object) -> None:
    topic = await side.topic()
    async with side.producer(partitioner=lambda _key, _partitions: chosen) as producer:
        with pytest.raises(UsageError, match=f"the partitioner chose .* for '{topic}'"):
            await producer.send(topic, CANARY)
    assert await side.log(topic) == {0: [], 1: [], 2: []}


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"topic": ""}, UsageError, "a topic is a non-empty string"),
        ({"topic": 5}, UsageError, "a topic is a non-empty string, not int"),
        ({"value": "text"}, SerializationError, "value for .* is str, not bytes"),
        ({"key": 5}, SerializationError, "key for .* is int, not bytes"),
        ({"partition": -1}, UsageError, "partition=-1 .* a number from 0 on"),
        ({"partition": True}, UsageError, "partition=True"),
        ({"partition": CANARY}, UsageError, "partition=bytes for"),
        ({"timestamp_ms": -1}, UsageError, "timestamp_ms=-1 .* milliseconds since 1970"),
        ({"timestamp_ms": 1.5}, UsageError, r"timestamp_ms=1\.5"),
        ({"timestamp_ms": True}, UsageError, "timestamp_ms=True .* milliseconds since 1970"),
        ({"timestamp_ms": "canary"}, UsageError, "timestamp_ms=str .* milliseconds since 1970"),
        ({"timestamp_ms": 2**63}, UsageError, "timestamp_ms="),
        (
            {"headers": 5},
            SerializationError,
            "headers are a mapping or a sequence of pairs, not int",
        ),
        ({"headers": [("a",)]}, SerializationError, "a header is a pair"),
        ({"headers": ["ab"]}, SerializationError, "a header is a pair"),
        ({"headers": [(b"a", b"1")]}, SerializationError, "a header's key is a string, not bytes"),
        (
            {"headers": [("a", 1)]},
            SerializationError,
            "a header's value is bytes, a string or None, not int",
        ),
        (
            {"headers": {"canary\udce9": b"1"}},
            SerializationError,
            "a header's key has characters that UTF-8 does not",
        ),
        (
            {"headers": [("canary\udce9", b"1")]},
            SerializationError,
            "a header's key has characters that UTF-8 does not",
        ),
        (
            {"headers": {"a": "canary\ud800"}},
            SerializationError,
            "a header's value has characters that UTF-8 does not",
        ),
        ({"value": CANARY * 200_000}, RecordTooLarge, r"more than max_request_size=1048576"),
    ],
)
@pytest.mark.parametrize(
    "method", ["send", "send_nowait", "send_and_wait", "send_many", "from_thread"]
)
async def test_what_the_caller_gets_wrong(
    side: Side, method: str, arguments: dict[str, Any], error: type[KafkaError], said: str
) -> None:
    """Each side raises the same error text before it queues the record. The text has no key or value, and the producer continues."""
    topic = await side.topic()
    record: dict[str, Any] = {"value": CANARY, "key": CANARY, **arguments}
    asked = record.pop("topic", topic)
    async with side.producer() as producer:
        await producer.partitions_for(topic)
        with pytest.raises(error, match=said) as raised:
            if method == "send_many":
                await producer.send_many(asked, [Record(**record)])
            elif method == "from_thread":
                await asyncio.wrap_future(
                    await asyncio.to_thread(producer.from_thread.send, asked, **record)
                )
            else:
                sent = getattr(producer, method)(asked, **record)
                if method != "send_nowait":
                    await sent
        assert "canary" not in f"{raised.value} {raised.value!r}"
        await producer.send_and_wait(topic, b"fine", partition=0)
    assert [
        value for records in (await side.log(topic)).values() for _, value, _, _ in records
    ] == [b"fine"]


async def test_numbers_and_times_of_data_frames(side: Side) -> None:
    """Every way to send takes integers of other types, and aware datetimes."""
    topic = await side.topic()
    given: dict[str, Any] = {
        "partition": np.int64(1),
        "timestamp_ms": datetime(2023, 11, 14, 22, 13, 20, 999, tzinfo=UTC),
    }
    async with side.producer(partitioner=lambda _key, _count: np.int32(0)) as producer:
        await producer.send(topic, b"0", **given)
        await producer.send_many(topic, [Record(b"1", **given)])
        await producer.send_many(topic, [Record(b"2", **given)])
        await producer.send_columns(
            topic,
            values=pa.array([b"3"]),
            partition=np.int64(1),
            timestamps_ms=given["timestamp_ms"],
        )
        await producer.send(topic, b"4", timestamp_ms=np.int64(1_700_000_000_000))
        for number in (True, np.float64(1), -1):
            with pytest.raises(UsageError, match="partition"):
                await producer.send(topic, b"v", partition=number)
    log = await side.log(topic)
    placed = [(index, value, stamp) for index in (1, 0) for _, value, stamp, _ in log[index]]
    assert placed == [(int(number < 4), b"%d" % number, 1_700_000_000_000) for number in range(5)]


async def test_a_partition_that_is_not_there(side: Side) -> None:
    topic = await side.topic()
    async with side.producer(max_block_ms=2000) as producer:
        with pytest.raises(MetadataTimeout, match="partition"):
            await producer.send(topic, b"v", partition=7)


async def test_a_topic_that_kafka_refuses(side: Side) -> None:
    async with side.producer() as producer:
        with pytest.raises(KafkaError, match="INVALID_TOPIC"):
            await producer.send("no/such:name", b"v")


async def test_serializers(side: Side) -> None:
    """The serializers convert keys and values, get the topic if they have that parameter, and never get None."""
    topic = await side.topic()

    def with_topic(name: str, headers: Any, value: Any) -> bytes:
        assert (name, tuple(headers)) == (topic, (("h", b"1"),))
        return f"{value}!".encode()

    async with side.producer(
        value_serializer=json_serializer, key_serializer=with_topic
    ) as producer:
        metadata = await producer.send_and_wait(
            topic, {"id": 1}, 5, headers=(("h", b"1"),), partition=0, timestamp_ms=1
        )
        await producer.send_and_wait(topic, None, partition=0, timestamp_ms=2)
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == (2, 8)
    assert (await side.log(topic))[0] == [
        (b"5!", b'{"id":1}', 1, (("h", b"1"),)),
        (None, None, 2, ()),
    ]


@pytest.mark.parametrize(
    "given",
    [{"h": b"1", "i": "2"}, [("h", "1"), ("i", b"2")], (("h", b"1"), ("i", b"2"))],
    ids=repr,
)
async def test_who_is_shown_headers_gets_pairs_of_bytes(side: Side, given: Any) -> None:
    """A serializer and an interceptor may iterate them in each form that they were given in."""
    topic = await side.topic()
    shown: list[Any] = []

    def serializer(_topic: str, headers: Any, value: Any) -> bytes:
        shown.append(tuple(headers))
        return bytes(value)

    class Watch:
        def on_send(self, record: Any) -> None:
            shown.append(tuple(record.headers))

    async with side.producer(value_serializer=serializer, interceptors=[Watch]) as producer:
        await producer.send_and_wait(topic, b"v", headers=given, partition=0, timestamp_ms=1)
    assert set(shown) == {(("h", b"1"), ("i", b"2"))}
    assert (await side.log(topic))[0] == [(None, b"v", 1, (("h", b"1"), ("i", b"2")))]


async def test_a_serializer_that_raises(side: Side) -> None:
    topic = await side.topic()
    async with side.producer(value_serializer=json_serializer) as producer:
        with pytest.raises(
            SerializationError, match=r"value_serializer raised TypeError in .* on a set"
        ) as raised:
            await producer.send(topic, {CANARY})
        assert "canary" not in str(raised.value)


async def test_a_typed_topic(side: Side) -> None:
    """A handle sends what its types make of keys and values, in every way, and in order with the producer's own calls."""
    name = await side.topic()

    class Numbered:
        async def prepare(self, topic: str, /) -> Any:
            await asyncio.sleep(0)
            return self

        def encode(self, value: int, headers: Any) -> Any:
            return b"%d" % value, (*headers, ("by", b"me"))

        def is_stale(self) -> bool:
            return False

    async with side.producer(value_serializer=json_serializer) as producer:
        texts = producer.topic(name, key=str, value=str)
        numbers = producer.topic(name, value=Numbered())
        await numbers.ready()
        await texts.send("a", "k", partition=0, timestamp_ms=1)
        numbers.send_nowait(2, partition=0, timestamp_ms=2, headers={"h": "1"})
        await producer.send(name, {"id": 3}, partition=0, timestamp_ms=3)
        await texts.send_many([Record("d", "k", 0, 4), Record(None, "k", 0, 5)])
        metadata = await texts.send_and_wait("f", partition=0, timestamp_ms=6)
        with pytest.raises(
            SerializationError, match=f"value for '{name}' is set, not str"
        ) as raised:
            await texts.send({CANARY})
        assert "canary" not in str(raised.value)
        assert await texts.partitions() == await producer.partitions_for(name)
    assert metadata.offset == 5
    assert (await side.log(name))[0] == [
        (b"k", b"a", 1, ()),
        (None, b"2", 2, (("h", b"1"), ("by", b"me"))),
        (None, b'{"id":3}', 3, ()),
        (b"k", b"d", 4, ()),
        (b"k", None, 5, ()),
        (None, b"f", 6, ()),
    ]


async def test_send_many(side: Side) -> None:
    """`send_many` takes values and records, from an iterable or an async one, in order. The caller awaits all deliveries
    or looks at single ones.
    """
    topic = await side.topic()

    async def more() -> Any:
        for number in range(3):
            yield Record(b"b%d" % number, partition=1)

    async with side.producer() as producer:
        deliveries = await producer.send_many(
            topic, [Record(b"a%d" % number, b"k", 1, number) for number in range(50)]
        )
        later = await producer.send_many(topic, more())
        metadata = await deliveries
        assert [one.offset for one in metadata] == list(range(50))
        assert await deliveries[-1] == metadata[-1]
        assert len(deliveries) == 50
        assert [one.offset for one in await later] == [50, 51, 52]
        assert await later.wait() == later.summary() == (3, 0, 0)
        assert later.done()
        assert list(later.failures()) == []
        assert await (await producer.send_many(topic, [])) == []
        for bad in (b"bytes", "text", {"a": 1}, 5):
            with pytest.raises(UsageError, match="records are an iterable"):
                await producer.send_many(topic, bad)
    assert [value for _, value, _, _ in (await side.log(topic))[1]] == [
        *(b"a%d" % n for n in range(50)),
        b"b0",
        b"b1",
        b"b2",
    ]


async def test_send_many_that_stops_half_way_tells_what_is_queued(side: Side) -> None:
    topic = await side.topic()
    async with side.producer() as producer:
        with pytest.raises(SerializationError) as raised:
            await producer.send_many(
                topic,
                [Record(b"1", partition=0), Record(b"2", partition=0), Record(3, partition=0)],
            )  # type: ignore[arg-type]
        queued = Deliveries.of(raised.value)
        assert [one.offset for one in await queued] == [0, 1]
        assert queued.offsets() == {0: (0, 1)}
        assert queued.first_failure() is None
        for again in (copy.copy(raised.value), copy.deepcopy(raised.value)):
            assert Deliveries.of(again) is queued
        elsewhere = pickle.loads(pickle.dumps(raised.value))
        assert (type(elsewhere), str(elsewhere), elsewhere.__notes__) == (
            type(raised.value),
            str(raised.value),
            raised.value.__notes__,
        )
        with pytest.raises(UsageError, match="was pickled, without its deliveries"):
            Deliveries.of(elsewhere)
        with pytest.raises(TypeError, match="Pass on their outcomes"):
            pickle.dumps(queued)


async def test_send_columns(side: Side) -> None:
    """`send_columns` sends the rows of arrays in order, with keys and times. The caller awaits all deliveries or looks at single ones."""
    topic = await side.topic()
    values = pa.array([b"0", None, b"2", b"3"])
    async with side.producer() as producer:
        deliveries = await producer.send_columns(
            topic, values=values, keys=pa.array(["a", "b", None, "d"]), partition=1, timestamps_ms=5
        )
        later = await producer.send_columns(
            topic, values=values[2:], partition=1, timestamps_ms=pa.array([7, 8])
        )
        metadata = await deliveries
        assert [one.offset for one in metadata] == list(range(4))
        assert [(one.serialized_key_size, one.serialized_value_size) for one in metadata] == [
            (1, 1),
            (1, -1),
            (-1, 1),
            (1, 1),
        ]
        assert await deliveries[-1] == metadata[-1]
        assert await later.wait() == (2, 0, 0)
        assert await (await producer.send_columns(topic, values=values[:0])) == []
        for bad in ([b"v"], b"v", None, pa.array([1])):
            with pytest.raises(UsageError, match="values are "):
                await producer.send_columns(topic, values=bad)
        with pytest.raises(RecordTooLarge) as raised:
            await producer.send_columns(
                topic, values=pa.array([b"last", bytes(2**21)]), partition=1, timestamps_ms=9
            )
        assert [one.offset for one in await Deliveries.of(raised.value)] == [6]  # type: ignore[attr-defined]
    assert (await side.log(topic))[1] == [
        *((b"a", b"0", 5, ()), (b"b", None, 5, ()), (None, b"2", 5, ()), (b"d", b"3", 5, ())),
        *((None, b"2", 7, ()), (None, b"3", 8, ()), (None, b"last", 9, ())),
    ]


async def test_partitions_for(side: Side) -> None:
    """The call returns numbers from 0 on, and the topic is known before its first send."""
    topic = await side.topic()
    async with side.producer() as producer:
        known = await producer.partitions_for(topic)
        assert known == set(range(len(known)))
        assert len(known) in (1, side.partitions)
        delivery = producer.send_nowait(topic, b"v", partition=0)
        assert (await delivery).offset == 0


async def test_from_threads(side: Side) -> None:
    """Each thread's records keep their order, and the futures have the metadata. A call from the loop's own thread raises."""
    topic = await side.topic()
    async with side.producer() as producer:
        with pytest.raises(UsageError, match="other threads"):
            producer.from_thread.send(topic, b"v")
        door = producer.from_thread

        def work(name: int) -> list[Any]:
            return [
                door.send(topic, b"%d" % number, b"%d" % name, partition=name).result(30)
                for number in range(20)
            ]

        results = await asyncio.gather(*(asyncio.to_thread(work, name) for name in range(3)))
    assert [[one.offset for one in some] for some in results] == [list(range(20))] * 3
    for name, records in (await side.log(topic)).items():
        assert [(key, value) for key, value, _, _ in records] == [
            (b"%d" % name, b"%d" % number) for number in range(20)
        ]
    assert threading.active_count() < 50
    with pytest.raises(ProducerClosed):
        await asyncio.wrap_future(await asyncio.to_thread(door.send, topic, b"v"))


async def test_send_columns_with_headers_and_partitions(side: Side) -> None:
    """Each row has its own headers and its own partition, null being none; what cannot be sent is named with its row."""
    topic = await side.topic()
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []], kind)
    values = pa.array([b"0", b"1", b"2"])
    async with side.producer() as producer:
        deliveries = await producer.send_columns(
            topic,
            values=values,
            headers=headers,
            partitions=pa.array([1, 0, 1], pa.int32()),
            timestamps_ms=5,
        )
        assert [(one.partition, one.offset) for one in await deliveries] == [(1, 0), (0, 0), (1, 1)]
        with pytest.raises(UsageError, match="give one of them"):
            await producer.send_columns(
                topic, values=values, partition=1, partitions=pa.array([1, 0, 1])
            )
        for given, error, said in (
            ({"partitions": pa.array([1, -1, 0])}, UsageError, "row 1: partition=-1"),
            (
                {
                    "headers": pa.array([[], [{"key": None, "value": b""}], []], kind),
                    "partition": 1,
                },
                UsageError,
                "row 1: a header's key",
            ),
            (
                {
                    "headers": pa.array([[], [{"key": "a", "value": bytes(2**21)}], []], kind),
                    "partition": 1,
                },
                RecordTooLarge,
                "row 1: ",
            ),
        ):
            with pytest.raises(error, match=said) as raised:
                await producer.send_columns(topic, values=values, timestamps_ms=6, **given)
            assert [one.partition for one in await Deliveries.of(raised.value)] == [1]  # type: ignore[attr-defined]
    log = await side.log(topic)
    assert log[1][:2] == [(None, b"0", 5, (("a", b"1"), ("b", None))), (None, b"2", 5, ())]
    assert log[0] == [(None, b"1", 5, ())]
