"""Values of the user's that raise when they are read: each is the error of its own record, also where the loop reads them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

import pytest
from builds import on_both
from whole import jumping, running_on

from aioproducer import ProducerRecord, SerializationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioproducer import Headers


def released() -> memoryview:
    """A buffer as it is after its `with` block."""
    with memoryview(bytearray(b"v")) as view:
        return view


class NoTruth(list[Any]):
    """Headers without a truth value, as an array."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


class NoIndex:
    """A number that asks for the result of a cancelled future."""

    def __index__(self) -> int:
        raise asyncio.CancelledError


class NoOffset(tzinfo):
    """A time zone that asks for the result of a cancelled future."""

    def utcoffset(self, _moment: datetime | None) -> timedelta:
        raise asyncio.CancelledError

    def dst(self, _moment: datetime | None) -> None:
        return None

    def tzname(self, _moment: datetime | None) -> None:
        return None


class NoItems(list[Any]):
    """Headers that ask for the result of a cancelled future."""

    def __iter__(self) -> Iterator[Any]:
        raise asyncio.CancelledError


class Gives:
    """An encoder that gives an awkward result for b"bad"."""

    def __init__(self, result: Any) -> None:
        self.result = result

    async def prepare(self, _topic: str) -> Gives:
        await asyncio.sleep(0.1)
        return self

    def encode(self, value: bytes, _headers: Headers) -> Any:
        return self.result if value == b"bad" else value


RESULTS: dict[str, Callable[[], Any]] = {
    "released": released,
    "released beside headers": lambda: (released(), ()),
    "a released header": lambda: (b"v", [("h", released())]),
    "headers without truth": lambda: (b"v", NoTruth()),
}


async def all_but_the_bad_one(producer: Any) -> BaseException:
    """Send three records at once, the second one "bad", and another one later. Returns the error of the bad one; the others are sent."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: told.append(repr(context.get("exception")))
    )
    sends = [producer.send_and_wait("orders", value) for value in (b"1", b"bad", b"2")]
    _, error, _ = await asyncio.gather(*sends, return_exceptions=True)
    await producer.send_and_wait("orders", b"3")
    assert told == []
    assert isinstance(error, BaseException)
    return error


@on_both
@pytest.mark.parametrize("result", RESULTS)
@jumping
async def test_what_an_encoder_gave_and_cannot_be_read_fails_its_record(
    build: Any, result: str
) -> None:
    """It failed the producer for good where the record had waited for the encoder."""
    async with running_on(build, value_serializer=Gives(RESULTS[result]())) as (cluster, producer):
        error = await all_but_the_bad_one(producer)
    assert isinstance(error, SerializationError)
    assert isinstance(error.__cause__, ValueError)
    assert cluster.values("orders") == [b"1", b"2", b"3"]


@on_both
@pytest.mark.parametrize("way", ["value", "key", "value_serializer"])
@jumping
async def test_a_buffer_that_was_released_is_named(build: Any, way: str) -> None:
    """Also on the fast path."""
    options = {way: lambda _value: released()} if way == "value_serializer" else {}
    given = {"value": b"v"} if way == "value_serializer" else {way: released()}
    async with running_on(build, **options) as (cluster, producer):
        await producer.partitions_for("orders")
        for partition in (None, 0):
            with pytest.raises(
                SerializationError,
                match=rf"^{'key' if way == 'key' else 'value'} for 'orders' is a memoryview",
            ):
                producer.send_nowait("orders", partition=partition, **given)


@on_both
@jumping
async def test_a_buffer_that_is_released_while_its_record_waits_fails_the_record(
    build: Any,
) -> None:
    """The key is read when the encoder of the values is prepared."""
    async with running_on(build, value_serializer=Gives(b"")) as (cluster, producer):
        with memoryview(b"key") as key:
            waiting = asyncio.ensure_future(producer.send_and_wait("orders", b"1", key))
            other = asyncio.ensure_future(producer.send_and_wait("orders", b"2"))
            await asyncio.sleep(0)
        with pytest.raises(
            SerializationError, match="key for 'orders' is a memoryview that cannot be read"
        ):
            await waiting
        await other
    assert cluster.values("orders") == [b"2"]


@on_both
@jumping
async def test_a_partition_that_cannot_be_read_fails_its_record(build: Any) -> None:
    def choose(_topic: str, _key: object, value: bytes, _count: int, _available: object) -> Any:
        return NoIndex() if value == b"bad" else 0

    async with running_on(build, partitioner=choose) as (cluster, producer):
        error = await all_but_the_bad_one(producer)
    assert isinstance(error, UsageError)
    assert "the partitioner chose NoIndex for 'orders'" in str(error)
    assert cluster.values("orders") == [b"1", b"2", b"3"]


@on_both
@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("partition", NoIndex(), "^partition=NoIndex for 'orders': it is a number"),
        ("timestamp_ms", NoIndex(), "^timestamp_ms=NoIndex for 'orders': it is whole milliseconds"),
        (
            "timestamp_ms",
            datetime(2026, 1, 1, tzinfo=NoOffset()),
            "its time zone raised CancelledError",
        ),
        (
            "headers",
            NoItems([("h", b"v")]),
            "headers for 'orders' raised CancelledError when they were read",
        ),
    ],
)
@jumping
async def test_an_argument_that_raises_cancelled_error_is_refused(
    build: Any, argument: str, value: Any, words: str
) -> None:
    """CancelledError came out of `send`, and cancelled the task."""
    given: dict[str, Any] = {argument: value}
    async with running_on(build) as (cluster, producer):
        for _ in range(2):
            with pytest.raises(UsageError, match=words):
                await producer.send("orders", b"1", **given)
            with pytest.raises(UsageError, match=words):
                producer.topic("orders", value=str).send_nowait("1", **given)
            await producer.send_and_wait("orders", b"2")
    assert cluster.values("orders") == [b"2", b"2"]


@on_both
@jumping
async def test_headers_of_an_interceptor_that_cannot_be_read_reach_no_record(
    build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As an exception that it raises."""

    class Interceptor:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers=NoTruth())

    async with running_on(build, interceptors=[Interceptor()]) as (cluster, producer):
        await producer.send_and_wait("orders", b"1")
        await producer.send_and_wait("orders", b"2")
    assert cluster.values("orders") == [b"1", b"2"]
    assert caplog.text.count("Interceptor Interceptor.on_send raised ValueError") == 1


@on_both
@jumping
async def test_records_before_a_cancelled_error_of_an_iterable_are_queued(build: Any) -> None:
    """As before any other exception of it: the generator asks for the result of a cancelled future."""

    def records() -> Iterator[bytes]:
        yield b"1"
        yield b"2"
        raise asyncio.CancelledError

    async with running_on(build) as (cluster, producer):
        with pytest.raises(asyncio.CancelledError) as caught:
            await producer.send_many("orders", records())
        # The Deliveries of that build: those of the other one do not know its errors.
        assert len(await producer.send_many.__globals__["Deliveries"].of(caught.value)) == 2
    assert cluster.values("orders") == [b"1", b"2"]
