"""Types of the public interface: mypy and pyright check each `assert_type` (`nox -s types`).

When run, it is many users' first snippet.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import sys
from typing import TYPE_CHECKING, Any, Literal, assert_type, get_args, get_origin, get_type_hints

import pydantic
import pytest
import typing_extensions

import aioproducer
import aioproducer.testing
from aioproducer import (
    ConsumerGroupMetadata,
    Deliveries,
    Delivery,
    DeliveryError,
    Distribution,
    FlushSummary,
    FromThread,
    Health,
    OffsetAndMetadata,
    Persisted,
    Position,
    Producer,
    ProducerConfig,
    Record,
    RecordMetadata,
    TopicPartition,
    TransactionError,
    TransactionTimeout,
    UsageError,
)
from aioproducer.config.producer_config import OPTIONS, ProducerArguments, ProducerOptions
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


@pytest.mark.asyncio
async def test_the_face_has_types() -> None:
    """The arguments, the results and the awaited results have types."""

    async def source() -> AsyncIterator[dict[str, int]]:
        yield {"a": 3}

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        options: dict[str, Any] = {
            **cluster.client_options,
            "key_serializer": str.encode,
            "value_serializer": lambda value: repr(value).encode(),
        }
        producer: Producer[str, dict[str, int]] = Producer[str, dict[str, int]](**options)
        async with producer as entered:
            assert_type(entered, Producer[str, dict[str, int]])
            assert_type(producer.config, ProducerConfig)
            delivery = await producer.send("orders", {"a": 1}, "key")
            assert_type(delivery, Delivery)
            assert_type(await delivery, RecordMetadata)
            assert_type(await producer.send_and_wait("orders", {"a": 1}), RecordMetadata)
            assert_type(producer.send_nowait("orders", {"a": 1}), Delivery)
            deliveries = await producer.send_many(
                "orders", [{"a": 1}, None, Record({"a": 2}, "key")]
            )
            assert_type(deliveries, Deliveries)
            assert_type(await deliveries, list[RecordMetadata])
            assert_type(await (await producer.send_many("orders", source())).wait(), FlushSummary)
            with pytest.raises(UsageError, match="serializer"):
                assert_type(await producer.send_columns("orders", values=()), Deliveries)
            assert_type(deliveries[0], Delivery)
            assert_type(deliveries[:1], list[Delivery])
            assert_type(await producer.partitions_for("orders"), set[int])
            assert_type(producer.from_thread, FromThread[str, dict[str, int]])
            assert_type(await producer.flush(), FlushSummary)
            assert_type(producer.buffer_available, int)
            assert_type(producer.explain(), str)
            assert_type(producer.metrics().number("record-send-total"), float)
            assert_type(producer.metrics().distribution("batch-fill-ratio"), Distribution)
            assert_type(producer.health(), Health)
        assert len(cluster.values("orders")) == 7


def hinted() -> list[tuple[str, Any]]:
    """Return the public functions and methods of `aioproducer` and of `aioproducer.testing`."""
    modules = (aioproducer, aioproducer.testing)
    named = [(name, getattr(module, name)) for module in modules for name in module.__all__]
    functions = [(name, thing) for name, thing in named if inspect.isroutine(thing)]
    for kind, thing in named:
        if inspect.isclass(thing):
            members = inspect.getmembers(
                thing, lambda member: inspect.isfunction(member) or inspect.ismethod(member)
            )
            functions += [
                (f"{kind}.{name}", member)
                for name, member in members
                if not name.startswith("_") or name == "__init__"
            ]
    return functions


@pytest.mark.parametrize(
    ("name", "function"), hinted(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_hints_can_be_read_when_it_runs(name: str, function: Any) -> None:
    """Containers of dependencies, and documentation tools, call `get_type_hints`: each name of a public signature is there."""
    assert isinstance(get_type_hints(function), dict), name


@pytest.mark.parametrize(
    "module", [aioproducer, aioproducer.testing], ids=lambda module: module.__name__
)
def test_hints_of_classes_can_be_read_when_it_runs(module: Any) -> None:
    """So can the attributes of each public class, those that it inherits among them."""
    classes = [
        thing
        for thing in (getattr(module, name) for name in module.__all__)
        if inspect.isclass(thing)
    ]
    assert all(isinstance(get_type_hints(kind), dict) for kind in classes)


# Types of the package that a public signature names and `aioproducer` does not export, with the reason.
INTERNAL = {
    "ProduceRequestResult": "`Deliveries.add_one` is called by the engine",
    "ThreadBridge": "`Producer.from_thread` makes a `FromThread`",
    "AllProducerArguments": "`Producer.from_env` takes its items by name; a settings class uses `ProducerOptions`",
    "Encoding": "`Producer.topic` makes a `Topic`",
    "FakeBroker": "`FakeCluster.add_broker` makes one",
    "Hang": "`FakeCluster.hang` makes one",
    "PartitionLog": "`FakeCluster.log` returns one",
    "Record": "`FakeCluster.records` returns those of a log",
    "Request": "`FakeCluster.requests` returns them",
    "ServerCertificate": "`CertificateAuthority.server` makes one",
    "Certificate": "so does `client`",
    "Validity": "of `aioproducer.testing.certificates`, with its constants",
    "Authority": "a protocol that `CertificateAuthority` has",
}


def provided(function: Callable[..., Any], values: dict[type, Any]) -> Any:
    """Return what `function` makes of the values that its hints ask for: containers of dependencies work so."""
    hints = get_type_hints(function)
    made = function(
        **{
            name: values[hint]
            for name, hint in hints.items()
            if name != "return" and hint in values
        }
    )
    assert hints["return"] in {type(made), type(None)} or isinstance(made, hints["return"])
    return made


@pytest.mark.asyncio
async def test_a_container_can_make_a_producer() -> None:
    """It reads the hints of a function that a user wrote, and those of a class's constructor."""

    def orders(config: ProducerConfig) -> Producer:
        return Producer(config)

    config = ProducerConfig(linger_ms=7)
    assert provided(orders, {ProducerConfig: config}).config.linger_ms == 7
    hints = get_type_hints(Producer.__init__)
    assert hints["config"] == ProducerConfig | None


@pytest.mark.asyncio
async def test_settings_may_have_options_as_a_field() -> None:
    """pydantic checks a field of type `ProducerOptions` by it, and what it read makes a producer."""
    # before Python 3.12 pydantic takes those of typing_extensions alone
    typed_dict: Any = typing_extensions.TypedDict
    is_taken = sys.version_info >= (3, 12)
    options = (
        ProducerOptions
        if is_taken
        else typed_dict("ProducerOptions", get_type_hints(ProducerOptions), total=False)
    )
    # a serializer may be an object of a protocol, which pydantic knows nothing of
    allowed = pydantic.ConfigDict(arbitrary_types_allowed=True)
    settings: Any = pydantic.create_model("Settings", __config__=allowed, kafka=(options, ...))
    read = settings.model_validate(
        {"kafka": {"bootstrap_servers": "kafka:9092", "linger_ms": 7, "acks": "all"}}
    )
    config = Producer(ProducerConfig(**read.kafka)).config
    assert (config.bootstrap_servers, config.linger_ms) == (("kafka:9092",), 7)
    with pytest.raises(pydantic.ValidationError, match="acks"):
        settings.model_validate({"kafka": {"acks": "some"}})


def classes_of(hint: Any) -> Iterator[type]:
    """Yield the classes that a hint names, also as arguments of others."""
    if inspect.isclass(hint):
        yield hint
    for part in hint if isinstance(hint, list) else get_args(hint):
        yield from classes_of(part)


def test_no_internal_type_is_in_a_public_signature() -> None:
    """A user can name what is taken and given."""
    public = {
        getattr(module, name)
        for module in (aioproducer, aioproducer.errors, aioproducer.testing)
        for name in module.__all__
    }
    named = {
        one
        for _, function in hinted()
        for hint in get_type_hints(function).values()
        for one in classes_of(hint)
    }
    assert {
        one.__name__
        for one in named
        if one.__module__.startswith("aioproducer") and one not in public
    } == set(INTERNAL)


def test_the_options_are_those_of_a_config() -> None:
    """`ProducerOptions` names each field of `ProducerConfig`, and those of the producer none but these and its own arguments."""
    fields = {field.name for field in dataclasses.fields(ProducerConfig)}
    serializers = {"key_serializer", "value_serializer"}
    assert get_type_hints(ProducerOptions).keys() == fields
    own = inspect.signature(Producer).parameters.keys() - {"config", "options"}
    assert get_type_hints(ProducerArguments).keys() == (fields - serializers) | own


@pytest.mark.parametrize(
    "name",
    [name for name, hint in get_type_hints(ProducerOptions).items() if "Literal" in str(hint)],
)
def test_each_literal_is_taken(name: str) -> None:
    """Each word that the type names is one that the option reads."""
    kinds = [
        kind
        for kind in get_args(get_type_hints(ProducerOptions)[name])
        if get_origin(kind) is Literal
    ]
    words = [word for kind in kinds for word in get_args(kind)] or get_args(
        get_type_hints(ProducerOptions)[name]
    )
    assert words
    for word in words:
        OPTIONS[name].kind.read(name, word)


@pytest.mark.asyncio
async def test_asyncios_helpers_know_a_delivery() -> None:
    """asyncio's helpers accept a `Delivery` where they are declared to take a Future, as docs/topics/delivery.md uses them."""

    def is_told(ended: Delivery) -> None:
        assert ended.result().offset >= 0

    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            delivery = await producer.send("orders", b"v")
            future: asyncio.Future[RecordMetadata] = delivery
            delivery.add_done_callback(is_told)
            done, pending = await asyncio.wait({delivery}, timeout=30)
            assert_type(done, set[Delivery])
            assert_type(pending, set[Delivery])
            assert (done, pending) == ({delivery}, set())
            assert_type(
                await asyncio.wait([delivery, delivery], return_when=asyncio.FIRST_COMPLETED),
                tuple[set[Delivery], set[Delivery]],
            )
            assert_type(
                await asyncio.gather(delivery, delivery), tuple[RecordMetadata, RecordMetadata]
            )
            assert_type(await asyncio.gather(*[delivery, delivery]), list[RecordMetadata])
            assert_type(
                await asyncio.gather(*[delivery], return_exceptions=True),
                list[RecordMetadata | BaseException],
            )
            assert_type(await asyncio.wait_for(delivery, 30), RecordMetadata)
            assert_type(await asyncio.shield(delivery), RecordMetadata)
            for ended in asyncio.as_completed([delivery, delivery], timeout=30):
                assert_type(await ended, RecordMetadata)
            assert_type(asyncio.ensure_future(delivery), Delivery)
            async with asyncio.TaskGroup() as group:
                assert_type(
                    group.create_task(producer.send("orders", b"v")), asyncio.Task[Delivery]
                )
                assert_type(
                    group.create_task(producer.send_and_wait("orders", b"v")),
                    asyncio.Task[RecordMetadata],
                )
            async with asyncio.timeout(30):
                assert_type(await delivery, RecordMetadata)
            assert_type(delivery.exception(), DeliveryError | None)
            assert_type(delivery.remove_done_callback(is_told), int)
            assert future is delivery


@pytest.mark.asyncio
async def test_transactions_have_types() -> None:
    """Offsets may be any mapping of tuples. A group may be of two kinds."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options, transactional_id="tx") as producer:
            async with producer.transaction() as nothing:
                assert_type(nothing, None)
                await producer.send_offsets_to_transaction({("orders", 0): 5}, "group")
                await producer.send_offsets_to_transaction(
                    {TopicPartition("orders", 0): OffsetAndMetadata(6)},
                    ConsumerGroupMetadata("group"),
                )
                assert_type(
                    await producer.send_position_to_transaction("job", 5, topic="orders"), None
                )
            assert_type(await producer.committed_position("job", topic="orders"), Position | None)
            assert_type(await producer.begin_transaction(), None)
            await producer.abort_transaction()
        try:
            raise TransactionTimeout("late")
        except TransactionError as error:
            assert_type(error.hint, str)
            assert_type(error.persisted, Persisted)
        assert cluster.committed("group") == {("orders", 0): 6}
