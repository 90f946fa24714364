"""The face: what `send` takes and refuses, what a send costs, what the producer says of itself. On a fake cluster in memory."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both, producer_on

from aioproducer import Producer, ProducerConfig, TransactionResolver
from aioproducer.engine import chosen_build
from aioproducer.errors import ConfigError, ProducerClosed, SerializationError, UsageError
from aioproducer.serializers import json_serializer, string_serializer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable


def calls_of(producer: Producer[Any, Any], *record: Any) -> list[str]:
    """Return the Python functions that one `await producer.send(...)` enters, driven without an event-loop iteration between."""
    entered: list[str] = []

    def profile(frame: Any, event: str, _argument: object) -> None:
        if event == "call":
            entered.append(frame.f_code.co_name)

    call = producer.send(*record)
    sys.setprofile(profile)
    try:
        call.send(None)
    except StopIteration:
        pass
    else:
        raise AssertionError("the send waited")
    finally:
        sys.setprofile(None)
        call.close()
    return entered


@pytest.mark.parametrize(
    "key", [b"seen before", b"fresh", None], ids=["cached key", "fresh key", "no key"]
)
@on_both
@pytest.mark.asyncio
async def test_a_fast_send_enters_few_python_functions(build: Any, key: bytes | None) -> None:
    """While its batch has bytes left, a fast send enters three functions, and three more for a key that is new to the topic. Compiled, it
    enters `send` alone.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with producer_on(build)(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"v", b"seen before")
            await producer.send("orders", b"v", b"seen before")
            await producer.send("orders", b"v")
            entered = calls_of(producer, "orders", b"value", key)
            hashing = ["place", "murmur2", "_remember"] if key == b"fresh" else []
            assert entered == [
                "send",
                *([] if build.is_compiled else ["append", *hashing, "append"]),
            ]


@pytest.mark.parametrize(
    "odd",
    [
        bytearray(b"v"),
        memoryview(b"v"),
        memoryview(b"v.v.")[::2],
        type("Bytes", (bytes,), {})(b"v"),
    ],
    ids=["bytearray", "memoryview", "strided memoryview", "subclass"],
)
@pytest.mark.asyncio
async def test_anything_like_bytes_is_a_key_or_a_value(odd: Any) -> None:
    """`send` copies any buffer at the call, in any layout. The buffer harms no other record of its batch."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=3)
        async with Producer(**cluster.client_options) as producer:
            plain = bytes(odd)
            partition = (await producer.send_and_wait("orders", b"first", plain)).partition
            deliveries = [
                await producer.send("orders", b"before", plain),
                await producer.send("orders", odd, plain),
                await producer.send("orders", plain, odd),
                await producer.send("orders", odd, odd),
                await producer.send("orders", b"after", plain),
            ]
            if isinstance(odd, bytearray):
                odd[:] = b"changed"
            assert {metadata.partition for metadata in await asyncio.gather(*deliveries)} == {
                partition
            }
            records = cluster.records("orders", partition)
            assert [record.value for record in records] == [
                b"first",
                b"before",
                plain,
                plain,
                plain,
                b"after",
            ]
            assert {record.key for record in records} == {plain}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda send: send("", b"v"), UsageError, "non-empty"),
        (lambda send: send(None, b"v"), UsageError, "NoneType"),
        (lambda send: send(["orders"], b"v"), UsageError, "list"),
        (lambda send: send("orders", "text"), SerializationError, "value for 'orders' is str"),
        (lambda send: send("orders", 7), SerializationError, "value for 'orders' is int"),
        (lambda send: send("orders", b"v", "text"), SerializationError, "key for 'orders' is str"),
        (lambda send: send("orders", b"v", 0), SerializationError, "key for 'orders' is int"),
        (lambda send: send("orders", b"v", partition=-1), UsageError, "partition=-1"),
        (lambda send: send("orders", b"v", partition=True), UsageError, "partition=True"),
        (lambda send: send("orders", b"v", partition="0"), UsageError, "partition=str"),
        (lambda send: send("orders", b"v", timestamp_ms=-1), UsageError, "timestamp_ms=-1"),
        (lambda send: send("orders", b"v", timestamp_ms=1.5), UsageError, "timestamp_ms=1.5"),
        (lambda send: send("orders", b"v", timestamp_ms=2**63), UsageError, "timestamp_ms="),
        (lambda send: send("orders", b"v", headers=[("a",)]), UsageError, "header"),
        (lambda send: send("orders", b"v", headers=[(1, b"v")]), UsageError, "header"),
        (lambda send: send("orders", b"v", headers=[("a", 7)]), UsageError, "header"),
        (lambda send: send("orders", b"v", headers=7), UsageError, "header"),
    ],
)
@pytest.mark.asyncio
async def test_a_callers_mistake_is_said_before_anything_is_queued(
    call: Callable[..., Any], error: type[Exception], text: str
) -> None:
    """The error's text says what was wrong. The next record is sent."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"v", b"k")
            free = producer.buffer_available
            with pytest.raises(error, match=text):
                await call(producer.send)
            assert producer.buffer_available == free
            assert (await producer.send_and_wait("orders", b"v")).offset == 1


@pytest.mark.asyncio
async def test_serializers_make_the_bytes() -> None:
    """The serializers serialize keys and values, and not None. A key's partition is the one of its bytes."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=5)
        async with Producer(
            **cluster.client_options,
            key_serializer=string_serializer,
            value_serializer=json_serializer,
        ) as producer:
            told = [
                await producer.send_and_wait("orders", value, "key")
                for value in ({"a": 1}, None, [1, "ü"])
            ]
        async with Producer(**cluster.client_options) as producer:
            told.append(await producer.send_and_wait("orders", b"4", b"key"))
        assert len({metadata.partition for metadata in told}) == 1
        values = cluster.values("orders", told[0].partition)
        assert [None if value is None else json.loads(value) for value in values] == [
            {"a": 1},
            None,
            [1, "ü"],
            4,
        ]


@pytest.mark.asyncio
async def test_a_serializer_that_fails_fails_its_send() -> None:
    """It raises, gives no bytes, or gives a coroutine."""

    async def coroutine() -> bytes:
        return b""

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        for serializer in (lambda _value: 1 / 0, lambda _value: "text", lambda _value: coroutine()):
            async with Producer(**cluster.client_options, value_serializer=serializer) as producer:
                with pytest.raises(SerializationError, match="value_serializer"):
                    await producer.send("orders", b"v")
        assert cluster.values("orders") == []


@pytest.mark.asyncio
async def test_a_partitioner_of_the_users_chooses() -> None:
    """Also for records without a key, not for those with a partition; what it must not choose is refused."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=3)
        async with Producer(
            **cluster.client_options,
            partitioner=lambda key, partitions: partitions - 1 if key is None else len(key),
        ) as producer:
            assert (await producer.send_and_wait("orders", b"v")).partition == 2
            assert (await producer.send_and_wait("orders", b"v", b"k")).partition == 1
            assert (await producer.send_and_wait("orders", b"v", b"k", partition=0)).partition == 0
            with pytest.raises(UsageError, match="chose 5"):
                await producer.send("orders", b"v", b"12345")
        async with Producer(
            **cluster.client_options, partitioner=lambda _key, _partitions: 1 // 0
        ) as producer:
            with pytest.raises(UsageError, match="ZeroDivisionError"):
                await producer.send("orders", b"v")


@pytest.mark.asyncio
async def test_records_without_a_key_change_partition_with_the_batch() -> None:
    """KIP-794: `batch_size` bytes to one, then as many to another."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=4)
        async with Producer(
            **cluster.client_options, batch_size=500, partitioner_adaptive_partitioning_enable=False
        ) as producer:
            deliveries = [await producer.send("orders", b"." * 40) for _ in range(200)]
            partitions = [(await delivery).partition for delivery in deliveries]
        assert set(partitions) == {0, 1, 2, 3}
        changes = sum(one != other for one, other in pairwise(partitions))
        assert 15 < changes < 40


@pytest.mark.asyncio
async def test_its_text_says_how_it_stands() -> None:
    """The repr says not started, running or stopped, and how much memory is free."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        producer = Producer(**cluster.client_options)
        assert repr(producer).endswith("not started>")
        assert producer.buffer_available == producer.config.buffer_memory
        async with producer:
            delivery = await producer.send("orders", b"v")
            assert "running" in repr(producer)
            assert "0 waiting" in repr(producer)
            assert producer.buffer_available < producer.config.buffer_memory
            await delivery
        assert "stopped" in repr(producer)


def test_the_constructor_touches_no_loop_and_checks_its_options() -> None:
    """Unknown names, and options beside a config."""
    producer: Producer[bytes, bytes] = Producer(bootstrap_servers="broker:9092")
    assert "broker:9092" in repr(producer)
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        Producer(linger=5)
    assert Producer(producer.config, acks=1).config.bootstrap_servers == ("broker:9092",)
    mine = ProducerConfig(client_id="mine")
    assert Producer(mine).config is mine


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token": "canary",
        },
    ],
)
@pytest.mark.parametrize("kind", [Producer, TransactionResolver])
def test_a_start_outside_of_asyncio_says_what_it_needs(kind: Any, options: dict[str, Any]) -> None:
    """trio runs a coroutine as here: by its `send`, while asyncio has no running loop."""
    made = kind(bootstrap_servers="broker:9092", **options)
    for enter in (made.start, made.__aenter__):
        with pytest.raises(UsageError, match="no event loop of asyncio runs: .* trio has none"):
            enter().send(None)
    with pytest.raises(StopIteration):
        made.stop().send(None)


@pytest.mark.asyncio
async def test_a_forked_child_may_not_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections and its loop are the parent's."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"v", b"k")
            engine: Any = producer._engine
            with monkeypatch.context() as patch:
                patch.setattr("os.getpid", lambda: -1)
                engine.forget_fork()
                with pytest.raises(ProducerClosed, match="forked"):
                    await producer.send("orders", b"v", b"k")
            engine._fast_path.here, engine._fast_path.fast = (
                chosen_build.here(),
                engine.parts.partition_queues.routings,
            )
            await producer.send_and_wait("orders", b"v", b"k")


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_producer_is_neither_pickled_nor_copied(take: Callable[[Producer], object]) -> None:
    """The error says what to do in its place, as for processes that are spawned. Its config may be pickled."""
    producer = Producer(bootstrap_servers="localhost:9092")
    with pytest.raises(TypeError, match="Pass on its config, and make one in each process"):
        take(producer)
    assert pickle.loads(pickle.dumps(producer.config)) == producer.config
