"""Both builds of the record path get the same input. They must hold the same bytes and raise the same errors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import time
from collections import UserList
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from builds import BUILDS, on_both, on_compiled, producer_on
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import Producer, UsageError
from aioproducer.core import topic_routing
from aioproducer.engine.observability.diagnostics import SlowCallbacks
from aioproducer.errors import DeliveryError, Persisted, SerializationError
from aioproducer.records.record_batch import encode_headers
from aioproducer.records.varints import TABLE
from aioproducer.testing import FakeCluster
from aioproducer.testing.jumping import JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from aioproducer.engine.chosen_build import MemoryRecordsBuilder

BASE = 1_000_000
ERROR = DeliveryError("it broke", topic="orders", partition=3, persisted=Persisted.NO, attempts=1)
PLAIN, COMPILED = (one.values[0] for one in BUILDS)


class Bytes(bytes):
    """A subclass of bytes, so not plain bytes."""


class Listed(list[Any]):
    """A subclass of list that makes its own items."""

    def __iter__(self) -> Iterator[Any]:
        return iter([b"made up"])


SIZES = st.sampled_from(
    [
        0,
        1,
        2,
        50,
        55,
        56,
        57,
        62,
        63,
        64,
        65,
        8_100,
        8_191,
        8_192,
        32_740,
        32_750,
        32_760,
        32_767,
        32_768,
        40_000,
    ]
)
SMALL = st.sampled_from([0, 1, 3, 56, 57, 63, 64, 200])
ODD = st.sampled_from(
    [
        Bytes(b"odd"),
        bytearray(b"odd"),
        memoryview(b"o.d.d.")[::2],
        "odd",
        3,
        ["odd"],
        b"odd".hex,
        True,
    ]
)
PARTS = st.none() | SIZES.map(bytes)
TIMES = st.sampled_from(
    [
        BASE,
        BASE + 1,
        BASE + 63,
        BASE + 64,
        BASE + 4_095,
        BASE + 4_096,
        BASE - 1,
        BASE - 64,
        0,
        2**40,
        2**63 - 1,
    ]
)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | SMALL.map(bytes)), max_size=3).map(
    encode_headers
)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), TIMES, PARTS, PARTS),
    st.tuples(st.just("append"), TIMES, PARTS, SIZES.map(bytes)),
    st.tuples(st.just("append"), TIMES, PARTS | ODD, PARTS | ODD),
    st.tuples(
        st.just("append"), st.sampled_from([1.5, "now", b"now", BASE + 0.5, [], 1j]), PARTS, PARTS
    ),
    st.tuples(st.just("append_record"), TIMES, PARTS, PARTS, HEADERS),
    st.tuples(
        st.just("append_record"), st.sampled_from([1.5, "now", b"now", []]), PARTS, PARTS, HEADERS
    ),
    st.tuples(
        st.just("append_many"), TIMES, st.none() | SMALL, st.lists(SMALL, min_size=1, max_size=90)
    ),
    st.tuples(
        st.just("append_many"),
        TIMES,
        st.none() | SMALL,
        st.tuples(SMALL, st.integers(1, 9_000)).map(lambda even: [even[0]] * even[1]),
    ),
    st.tuples(st.just("grow"), st.sampled_from([0, 1, 7, 64, 4_096, 100_000, -1, -100_000])),
)


class Subject:
    """Holds a batch of one build, and what the tests observe of it."""

    def __init__(self, build: Any, loop: asyncio.AbstractEventLoop, room: int) -> None:
        self.delivery_context = build.DeliveryContext(loop, lambda _error, _count: None)
        self.result = build.ProduceRequestResult(self.delivery_context, "orders", 3, BASE)
        self.open: MemoryRecordsBuilder = build.MemoryRecordsBuilder(self.result, BASE, room)
        self.build = build

    def do(self, name: str, *arguments: Any) -> Any:
        """Return the result or the error of an operation, and the state of the batch after it."""
        try:
            given_back = getattr(self, f"_{name}")(*arguments)
        except (TypeError, ValueError) as error:
            given_back = type(error), str(error) if isinstance(error, ValueError) else ""
        return given_back, self.open.count, self.open.granted

    def _append(self, timestamp_ms: Any, key: Any, value: Any) -> Any:
        return self._seen(self.open.append(timestamp_ms, key, value))

    def _append_record(self, timestamp_ms: Any, key: Any, value: Any, headers: bytes) -> Any:
        return self._seen(self.open.append_record(timestamp_ms, key, value, headers))

    def _append_many(self, timestamp_ms: Any, key_size: int | None, sizes: Sequence[int]) -> int:
        """Append until a call takes no record. A build may take the records in portions."""
        values = [b"%d" % (at % 10) * size for at, size in enumerate(sizes)]
        keys = (
            None
            if key_size is None
            else [b"k" * ((key_size + at) % 70) for at in range(len(sizes))]
        )
        at = 0
        while at < len(values) and (count := self.open.append_many(timestamp_ms, keys, values, at)):
            at += count
        return at

    def _seen(self, delivery: Any) -> Any:
        if delivery is None:
            return None
        assert type(delivery) is self.build.Delivery
        return delivery.index, delivery._result is self.result

    def _grow(self, room: int) -> Any:
        return self.open.grow(room)

    def _close(self) -> Any:
        return self.open.close()

    def told(self, end: str) -> Iterator[Any]:
        """Yield what each record's delivery reports after the batch ended as `end` says."""
        count = self.open.count
        results = [self.result]
        if end == "split":
            yield self.result.largest()
            results = self.result.split(
                [range(1, count, 2), range(0, count, 2)] if count > 1 else [range(count)]
            )
        deliveries = [self.build.make_delivery(self.result, index) for index in range(count)]
        for number, result in enumerate(results):
            result.fail(ERROR) if end == "failed" else result.complete(
                100 * number, 77 if end == "logged" else -1
            )
        for delivery in deliveries:
            try:
                yield delivery.result()
            except DeliveryError as error:
                yield type(error), str(error)
            yield delivery.done(), delivery.cancelled(), type(delivery.exception())
        for result in results:
            yield (
                [
                    str(told) if isinstance(told, BaseException) else told
                    for told in result.get_many(0, result.count)
                ]
                if end != "failed"
                else None
            )


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        yield loop


@on_compiled
@pytest.mark.parametrize("base_offset", [0, 2**30, 2**60 - 1, 2**60, 2**63 - 1])
def test_any_offset_is_told(build: Any, loop: asyncio.AbstractEventLoop, base_offset: int) -> None:
    """The deliveries report any offset, also one that overflows a C integer with the record's index added. The first and
    the second look agree.
    """
    result = build.ProduceRequestResult(
        build.DeliveryContext(loop, lambda _error, _count: None), "orders", 3, BASE
    )
    opened = build.MemoryRecordsBuilder(result, BASE, 1_000)
    deliveries = [opened.append(BASE, None, b"v") for _ in range(3)]
    opened.close()
    result.complete(base_offset, -1)
    told = [[delivery.result() for delivery in deliveries] for _ in range(2)]
    assert told[0] == told[1] == list(result.get_many(0, 3))
    assert [metadata.offset for metadata in told[0]] == [
        base_offset,
        base_offset + 1,
        base_offset + 2,
    ]


@on_compiled
@settings(max_examples=400, deadline=None)
@given(
    room=st.sampled_from([-1, 0, 1, 8, 100, 4_096, 50_000, 10_000_000]),
    operations=st.lists(OPERATIONS, max_size=40),
    end=st.sampled_from(["acknowledged", "logged", "failed", "split"]),
)
def test_a_batch_takes_the_same_and_says_the_same(
    build: Any, loop: asyncio.AbstractEventLoop, room: int, operations: list[Any], end: str
) -> None:
    """Both builds agree after each operation on its result, the record count and the bytes left. At the end they agree on
    bytes, times and metadata.
    """
    plain, other = Subject(PLAIN, loop, room), Subject(build, loop, room)
    for operation in operations:
        assert other.do(*operation) == plain.do(*operation), operation
    assert other.do("close") == plain.do("close")
    for operation in operations:
        assert other.do(*operation) == plain.do(*operation), ("closed", operation)
    assert other.do("close") == plain.do("close")
    if plain.open.count:
        for theirs, ours in itertools.zip_longest(other.told(end), plain.told(end)):
            assert theirs == ours


@on_compiled
@pytest.mark.parametrize("end", [0, 63, 64, 8_191, 8_192, TABLE - 1, TABLE])
def test_indices_round_the_ends_of_the_table(
    build: Any, loop: asyncio.AbstractEventLoop, end: int
) -> None:
    """At an index where a varint gets longer, or past the table of indices, both builds agree. Past the table only
    `append_record` takes records.
    """
    plain, other = (Subject(one, loop, 10_000_000) for one in (PLAIN, build))
    for subject in (plain, other):
        assert subject.do("append_many", BASE, None, [1] * end)[0] == end
    for operation in (
        ("append", BASE, None, b"v"),
        ("append", BASE + 1, b"k", b"v"),
        ("append_many", BASE + 2, 1, [1, 1, 1]),
        ("append_record", BASE + 3, b"k", None, b"\0"),
        ("append_record", BASE + 3, None, b"v", b"\0"),
        ("append", BASE + 3, None, b"v"),
    ):
        assert other.do(*operation) == plain.do(*operation), operation
    assert other.do("close") == plain.do("close")
    assert list(other.told("acknowledged")) == list(plain.told("acknowledged"))


@on_both
@pytest.mark.parametrize(
    ("column", "sizes"),
    [
        ([], (0, 0)),
        ((), (0, 0)),
        ([b""], (0, 0)),
        ([b"a", b"long" * 9, b"bc"], (39, 36)),
        ((b"longer", b"a", b""), (7, 6)),
        ([bytes(70_000)] * 3, (210_000, 70_000)),
        *(
            (kind([b"a", odd, b"b"]), None)
            for kind in (list, tuple)
            for odd in (None, Bytes(b"odd"), bytearray(b"odd"), "odd", 3)
        ),
        *(([b"a"] * at + [None] + [b"a"] * (2 - at), None) for at in range(3)),
        (Listed([b"a"]), None),
        *(
            (other, None)
            for other in (
                None,
                b"bytes",
                "text",
                {b"a": b"b"},
                {b"a"},
                iter([b"a"]),
                map(bytes, [3]),
                7,
            )
        ),
    ],
)
def test_a_column_is_measured(build: Any, column: Any, sizes: tuple[int, int] | None) -> None:
    """`measured` returns the total and the longest size of a list or tuple of plain items. It runs no code of the caller's objects."""
    assert build.measured(column) == sizes


@on_compiled
@given(column=st.lists(PARTS | ODD) | st.lists(SIZES.map(bytes)), is_tuple=st.booleans())
def test_both_measure_the_same(build: Any, column: list[Any], is_tuple: bool) -> None:
    given_column = tuple(column) if is_tuple else column
    assert build.measured(given_column) == PLAIN.measured(given_column)


@on_both
@pytest.mark.parametrize("has_keys", [True, False])
def test_many_may_be_any_sequence(
    build: Any, loop: asyncio.AbstractEventLoop, has_keys: bool
) -> None:
    """`append_many` writes the same bytes for a list, a tuple and a sequence that makes its own items. It begins at the given index."""
    seen = []
    for kind in (list, tuple, UserList):
        batch = Subject(build, loop, 1_000).open
        keys = kind([b"k%d" % at for at in range(9)]) if has_keys else None
        assert batch.append_many(BASE, keys, kind([b"%d" % at * at for at in range(9)]), 4) == 5
        seen.append((*batch.close(), *batch.result.record_sizes))
    assert seen == seen[:1] * 3


@on_compiled
def test_what_a_closed_batch_keeps_does_not_wake_the_collector(
    build: Any, loop: asyncio.AbstractEventLoop
) -> None:
    """Closing batches makes few containers. After enough new containers, the collector would walk all kept deliveries."""
    batches = [Subject(build, loop, 1_000) for _ in range(200)]
    for one in batches:
        for at in range(3):
            assert one.open.append(BASE + at, b"k" * at, b"v" * at) is not None
    gc.disable()
    try:
        before = gc.get_count()[0]
        for one in batches:
            one.open.close()
        assert gc.get_count()[0] - before < len(batches) // 10
    finally:
        gc.enable()
    assert [tuple(map(list, one.result.record_sizes or ())) for one in batches] == [
        ([0, 1, 2], [0, 1, 2], [0, 1, 2])
    ] * len(batches)


@on_compiled
@pytest.mark.parametrize(
    ("keys", "values", "first", "error", "taken"),
    [
        (None, [b"a", Bytes(b"odd"), b"b"], 0, TypeError, 1),
        (None, (b"a", None, b"b"), 0, TypeError, 1),
        ([b"a", bytearray(b"odd"), b"b"], [b"v"] * 3, 0, TypeError, 1),
        ((b"a", None, b"b"), (b"v",) * 3, 0, TypeError, 1),
        ([b"a"], [b"v"] * 3, 0, IndexError, 0),
        (None, [b"v"] * 3, -1, IndexError, 0),
        ([b"k"] * 3, [b"v"] * 3, -(2**62), IndexError, 0),
        (None, 3, 0, TypeError, 0),
        (3, [b"v"], 0, TypeError, 0),
    ],
)
def test_many_that_are_not_plain_are_refused(
    build: Any,
    loop: asyncio.AbstractEventLoop,
    keys: Any,
    values: Any,
    first: int,
    error: type[Exception],
    taken: int,
) -> None:
    """`append_many` raises and keeps the records before the refused item. It reads nothing outside of the sequences."""
    batch = Subject(build, loop, 1_000).open
    with pytest.raises(error):
        batch.append_many(BASE, keys, values, first)
    assert batch.count == taken


class Parting(int):
    """A time that clears a column of records when it is released."""

    column: list[bytes]

    def __del__(self) -> None:
        self.column.clear()


@on_compiled
@pytest.mark.parametrize("which", ["keys", "values"])
def test_many_that_vanish_are_not_read(
    build: Any, loop: asyncio.AbstractEventLoop, which: str
) -> None:
    """The batch releases its old time when it takes a new one. The destructor clears the column before the batch
    reads any record from it.
    """
    columns = {"keys": [b"k" * 50] * 9, "values": [b"v" * 50] * 9}
    parting = Parting(BASE + 1)
    parting.column = columns[which]
    batch = Subject(build, loop, 5_000).open
    batch.append(parting, None, b"first")
    del parting
    with contextlib.suppress(IndexError):
        batch.append_many(BASE + 2, columns["keys"], columns["values"], 0)
    assert columns[which] == []
    assert batch.count == 1


@on_compiled
@given(key=st.binary(max_size=300))
def test_a_key_has_the_same_hash(build: Any, key: bytes) -> None:
    """Both builds hash a key of any length to the same number, and every byte counts."""
    assert build.murmur2(key) == topic_routing.murmur2(key)
    assert build.murmur2(key[:-1]) == topic_routing.murmur2(key[:-1])


@on_compiled
@pytest.mark.parametrize("key", [None, "key", bytearray(b"key"), 3])
def test_what_is_not_bytes_has_no_hash(build: Any, key: Any) -> None:
    with pytest.raises(TypeError):
        build.murmur2(key)


# Through a producer

GOOD_HEADERS: list[Any] = [
    ("", b""),
    ("a", None),
    ("traceparent", b"00-1-2-01"),
    ("h\u00e4\U0001f600", b"\0" * 70),
    ("n" * 200, b"v" * 300),
]
ODD_HEADERS: list[Any] = [
    ("a", bytearray(b"1")),
    ["a", b"1"],
    ("a", b"1", b"2"),
    ("a", 3),
    ("a", "1"),
    ("a", "\ud800"),
    ("\ud800", b"1"),
    None,
    ("a", memoryview(b"123")[::2]),
]
MANY_HEADERS: list[Any] = [[("h", b"v")] * count for count in (31, 32, 33, 70)] + [
    (("h", b"v" * 4_090),),
    [("h", b"v" * 4_100)],
    [("n" * 5_000, None)],
]

SENDS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"topic": st.just("orders"), "value": SMALL.map(bytes)},
            optional={"key": SMALL.map(bytes)},
        ),
        st.fixed_dictionaries(
            {
                "topic": st.sampled_from(
                    ["orders", "orders", "others", "", "no such", 3, None, b"orders"]
                )
            },
            optional={
                "value": PARTS | ODD,
                "key": PARTS | ODD,
                "partition": st.sampled_from([None, 0, 1, 2, 7, -1, "1", True, 0.0, 2**70]),
                "timestamp_ms": st.sampled_from(
                    [None, 0, 5, BASE, 2**40, 2**63 - 1, 2**63, -1, "now", 1.5, True]
                ),
                "headers": st.sampled_from(
                    [
                        (),
                        [],
                        None,
                        {},
                        "",
                        0,
                        (("a", b"1"), ("", None)),
                        {"a": b"1"},
                        {"a": "1", "b": None},
                        {3: b""},
                        [("a",)],
                        3,
                        [(3, b"")],
                        iter(()),
                    ]
                ),
            },
        ),
        st.fixed_dictionaries(
            {"topic": st.just("orders"), "value": SMALL.map(bytes)},
            optional={
                "key": SMALL.map(bytes),
                "partition": st.integers(0, 2),
                "timestamp_ms": st.integers(0, 2**63 - 1),
                "headers": st.lists(
                    st.sampled_from(GOOD_HEADERS) | st.sampled_from(ODD_HEADERS), max_size=4
                ),
            },
        ),
        st.fixed_dictionaries(
            {
                "topic": st.just("orders"),
                "headers": st.just([("h", b"v")]) | st.sampled_from(MANY_HEADERS),
            }
        ),
    ),
    min_size=1,
    max_size=25,
)


async def sent(build: Any, records: list[dict[str, Any]]) -> Any:
    """Return the result or the error of each send, the result of each delivery, and the log."""
    loop = asyncio.get_running_loop()
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", 3)
        cluster.create_topic("others", 1)
        producer = producer_on(build)(
            **cluster.client_options,
            chance=lambda: 0.4,
            wall_clock=loop.time,
            max_block_ms=50,
            linger_ms=1_000,
        )
        given_back: list[Any] = []
        async with producer:
            await producer.send("orders", b"first")
            for record in records:
                try:
                    given_back.append(await producer.send(**record))
                except Exception as error:
                    given_back.append((type(error), str(error)))
        told = [one if isinstance(one, tuple) else await one for one in given_back]
        log = [
            cluster.records(topic, index)
            for topic, count in (("orders", 3), ("others", 1))
            for index in range(count)
        ]
        return told, [
            [(one.key, one.value, one.timestamp_ms, one.headers) for one in partition]
            for partition in log
        ]


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run it on a new loop with virtual time, so that a wait in vain lasts no longer than needed."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)


@on_compiled
@settings(max_examples=100, deadline=None)
@given(records=SENDS)
def test_a_producer_sends_the_same_and_says_the_same(
    build: Any, records: list[dict[str, Any]]
) -> None:
    """Both builds get right and wrong arguments. They agree on deliveries, errors and their texts, metadata and the log."""
    plain, other = (run(sent(one, records)) for one in (PLAIN, build))
    for theirs, ours, record in zip(other[0], plain[0], records, strict=True):
        assert theirs == ours, record
    assert other[1] == plain[1]


@on_compiled
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "dress",
    [
        {"partition": 0},
        {"timestamp_ms": 5, "partition": 0},
        {"headers": [("traceparent", b"00-1-2-01"), ("a", None)], "partition": 0},
        {"headers": (("h\u00e4", b""),), "timestamp_ms": 2**62, "key": b"k", "partition": 0},
    ],
)
async def test_a_partition_a_time_and_headers_go_the_fast_way(
    build: Any, dress: dict[str, Any]
) -> None:
    """A record with a partition, a time or headers takes the fast path when an open batch has enough bytes left."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", 1)
        async with producer_on(build)(**cluster.client_options, linger_ms=1_000) as producer:
            await producer.send("orders", b"opens a batch")
            with mock.patch.object(
                producer._fast_path, "slowly", side_effect=AssertionError("it went the slow way")
            ):
                delivery = await producer.send("orders", b"v", **dress)
            await producer.flush()
        assert (await delivery).offset == 1
        [record] = cluster.records("orders", 0)[1:]
        assert (record.key, record.value) == (dress.get("key"), b"v")
        assert [(name, value and bytes(value)) for name, value in record.headers] == list(
            dress.get("headers", ())
        )
        assert record.timestamp_ms == dress.get("timestamp_ms", record.timestamp_ms)


@on_both
@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["key", "value"])
async def test_only_a_slow_serializer_is_named(
    build: Any, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In real time, which the compiled build reads otherwise than a simulation's: one slow call is named, and no slow code around it."""

    def hold() -> None:
        end = time.monotonic() + 0.15
        while time.monotonic() < end:
            pass

    def serialize(given: bytes) -> bytes:
        if given == b"slow":
            hold()
        return given

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", 1)
        options: Any = {f"{what}_serializer": serialize}
        async with producer_on(build)(
            **cluster.client_options, **options, linger_ms=1_000
        ) as producer:
            await producer.send("orders", b"opens a batch")
            producer._fast_path.watch = SlowCallbacks(
                asyncio.get_running_loop().time, slow_after=0.1
            )
            with mock.patch.object(
                producer._fast_path, "slowly", side_effect=AssertionError("it went the slow way")
            ):
                await producer.send("orders", b"v", b"k")
                hold()
                await producer.send("orders", b"v", b"k")
                assert caplog.messages == []
                await producer.send("orders", b"slow", b"slow")
            [message] = caplog.messages
            assert message.startswith(f"{what}_serializer held the event loop for ")


@on_both
@pytest.mark.asyncio
@pytest.mark.parametrize("by_topic", [False, True])
async def test_what_a_serializer_does_is_not_taken_for_the_fast_paths_own(
    build: Any, *, by_topic: bool
) -> None:
    """An error of it that a dictionary or attribute raises, too, is its failure; what it returns is checked, and it is called once."""
    called: list[Any] = []

    def serialize(value: Any) -> Any:
        called.append(value)
        if isinstance(value, Exception):
            raise value
        return value[0]

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", 1)
        options: Any = {} if by_topic else {"value_serializer": serialize}
        async with producer_on(build)(
            **cluster.client_options, **options, linger_ms=1_000
        ) as producer:
            topic: Any = producer.topic("orders", value=serialize)
            send = topic.send if by_topic else functools.partial(producer.send, "orders")
            await send([b"opens a batch"])
            for error in (
                KeyError("k"),
                AttributeError("a"),
                TypeError("t"),
                RuntimeError("r"),
                ValueError("v"),
            ):
                with pytest.raises(
                    SerializationError,
                    match=f"value_serializer raised {type(error).__name__} in serialize",
                ) as raised:
                    await send(error)
                assert raised.value.__cause__ is error
            for made in (None, "text", 1.5):
                with pytest.raises(
                    SerializationError,
                    match=f"value_serializer gave {type(made).__name__} for 'orders', not bytes",
                ):
                    await send([made])
            for wrong in ("k", 1):
                with pytest.raises(
                    SerializationError,
                    match=f"key for 'orders' is {type(wrong).__name__}, not bytes",
                ):
                    await send([b"not serialized"], wrong)
            await send([bytearray(b"array")])
            await send([b"keyed"], b"k")
            await send([b"keyed"], bytearray(b"k"))
            await send(None)
            await producer.flush()
        assert len(called) == 1 + 5 + 3 + 3
        assert cluster.values("orders", 0) == [b"opens a batch", b"array", b"keyed", b"keyed", None]


@on_both
@pytest.mark.asyncio
async def test_an_encoded_record_is_counted_once(build: Any) -> None:
    """Also one that did not fit into the open batch: the loop budget reads the clock after so many records."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", 1)
        options: Any = {"value_serializer": lambda value: value, "batch_size": 1_000}
        async with producer_on(build)(
            **cluster.client_options, **options, linger_ms=1_000
        ) as producer:
            await producer.send("orders", b"opens a batch")
            await producer.flush()
            producer.send_nowait("orders", b"is the first of its iteration")
            before = producer._fast_path.taken
            for _ in range(10):
                producer.send_nowait("orders", b"v" * 400)
            assert producer._fast_path.taken == before + 10


@pytest.mark.asyncio
async def test_headers_are_refused_where_the_format_has_none() -> None:
    """The send raises when the message format has no headers, also when a batch is already open."""
    async with FakeCluster(memory=True, version="1.0") as cluster:
        cluster.create_topic("orders", 1)
        async with Producer(
            **cluster.client_options,
            linger_ms=1_000,
            message_format_max=1,
            enable_idempotence=False,
        ) as producer:
            await producer.send("orders", b"opens a batch")
            with pytest.raises(UsageError, match="headers need record format 2"):
                await producer.send("orders", b"v", headers=[("h", b"v")])
            await producer.flush()
        assert cluster.values("orders") == [b"opens a batch"]
