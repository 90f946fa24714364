"""A subclass with a `send` of its own changes `send` and `send_and_wait` only. The constructor warns of that."""

from __future__ import annotations

import asyncio
import functools
import warnings
from typing import Any

import pyarrow as pa
import pytest
from builds import BUILDS, producer_on

from aioproducer import Interceptor, Producer, Record
from aioproducer.testing import FakeCluster


@pytest.fixture(params=BUILDS)
def face(request: pytest.FixtureRequest) -> Any:
    return producer_on(request.param)


async def of_send_many(producer: Any, values: list[bytes]) -> None:
    await (await producer.send_many("orders", values))


async def of_send_many_with_headers(producer: Any, values: list[bytes]) -> None:
    await (
        await producer.send_many(
            "orders", [Record(value, headers=[("h", b"x")]) for value in values]
        )
    )


async def of_send_columns(producer: Any, values: list[bytes]) -> None:
    await (await producer.send_columns("orders", values=pa.array(values)))


async def of_send_nowait(producer: Any, values: list[bytes]) -> None:
    await producer.partitions_for("orders")
    for value in values:
        await producer.send_nowait("orders", value)


async def of_from_thread(producer: Any, values: list[bytes]) -> None:
    for value in values:
        await asyncio.wrap_future(
            await asyncio.to_thread(producer.from_thread.send, "orders", value)
        )


WAYS = [of_send_many, of_send_many_with_headers, of_send_columns, of_send_nowait, of_from_thread]


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
@pytest.mark.parametrize("is_known", [False, True], ids=["new topic", "known topic"])
@pytest.mark.asyncio
async def test_other_ways_in_never_go_by_it(face: Any, way: Any, *, is_known: bool) -> None:
    """The other ways to send never call the subclass's `send`, for any chunk and any known or unknown topic."""

    class Encrypting(face):  # type: ignore[misc]
        async def send(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> Any:
            return await super().send(topic, b"ENC(" + value + b")", key, **options)

    values = [b"%d" % number for number in range(4)]
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", 1)
        with pytest.warns(
            UserWarning,
            match="overrides send: records of send_nowait, send_many, send_columns, from_thread, topic do not",
        ):
            encrypting = Encrypting(**cluster.client_options)
        async with encrypting as producer:
            if is_known:
                await producer.partitions_for("orders")
            await way(producer, values)
            await producer.send_and_wait("orders", b"last")
        assert cluster.values("orders") == [*values, b"ENC(last)"]


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
@pytest.mark.parametrize("is_wrapper", [False, True], ids=["function", "wrapper"])
@pytest.mark.asyncio
async def test_a_send_that_replaced_the_classs(
    monkeypatch: pytest.MonkeyPatch, way: Any, *, is_wrapper: bool
) -> None:
    """As instrumentations replace it: `send` and `send_and_wait` call it, the other ways in never do, and the constructor warns of that."""
    original = Producer.send

    async def traced(
        self: Any, topic: str, value: Any = None, *arguments: Any, **options: Any
    ) -> Any:
        return await original(self, topic, b"traced " + value, *arguments, **options)

    monkeypatch.setattr(Producer, "send", Wrapper(traced) if is_wrapper else traced)
    values = [b"%d" % number for number in range(4)]
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", 1)
        with pytest.warns(
            UserWarning,
            match="send was replaced: records of send_nowait, send_many, send_columns, from_thread, topic do not",
        ):
            replaced = Producer(**cluster.client_options, interceptors=[Silent()])
        async with replaced as producer:
            await way(producer, values)
            await producer.send_and_wait("orders", b"last")
            await (await producer.send("orders", b"first", b"key"))
        assert cluster.values("orders") == [*values, b"traced last", b"traced first"]


class Wrapper:
    """A wrapper of a function, of which each look at the class makes another object, as of wrapt's."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: Any) -> Any:
        return (
            Wrapper(self.function)
            if instance is None
            else functools.partial(self.function, instance)
        )


class Silent(Interceptor):
    """An interceptor, with which `send_many` and `send_columns` send one record at a time."""


def test_a_class_whose_calls_were_all_replaced_is_left_in_peace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("send", "send_nowait", "send_many", "send_columns", "from_thread", "topic"):
        monkeypatch.setattr(Producer, name, None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Producer(bootstrap_servers="nowhere:1")
    assert told == []


def test_what_overrides_all_of_them_is_left_in_peace(face: Any) -> None:
    """The constructor does not warn a class that overrides all ways to send, or none."""

    class Whole(face):  # type: ignore[misc]
        send = send_nowait = send_many = send_columns = from_thread = topic = None

    class Named(face):  # type: ignore[misc]
        pass

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for kind in (Whole, Named, face):
            kind(bootstrap_servers="nowhere:1")
    assert told == []
