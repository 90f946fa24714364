"""The face: what `send` takes and refuses, what a send costs, what the producer says of itself. On a fake cluster in memory."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both, producer_on

from aioproducer import Producer, ProducerConfig, TransactionResolver
from aioproducer.errors import ConfigError, UsageError
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


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_producer_is_neither_pickled_nor_copied(take: Callable[[Producer], object]) -> None:
    """The error says what to do in its place, as for processes that are spawned. Its config may be pickled."""
    producer = Producer(bootstrap_servers="localhost:9092")
    with pytest.raises(TypeError, match="Pass on its config, and make one in each process"):
        take(producer)
    assert pickle.loads(pickle.dumps(producer.config)) == producer.config
