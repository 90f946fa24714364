"""Numbers and times from data frames, by every method of sending, in both builds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from builds import on_both
from whole import running_on

from aioproducer import ConfigError, Producer, ProducerConfig, Record, UsageError
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from types import ModuleType

MOMENT = 1_700_000_000_000
AWARE = datetime(2023, 11, 14, 22, 13, 20, 999, tzinfo=UTC)


async def send_by(producer: Producer[Any, Any], method: str, given: dict[str, Any]) -> None:
    """Send `v` to `orders` by one method, and wait for it."""
    if method == "send_many":
        await (await producer.send_many("orders", [Record(b"v", **given)]))
    elif method == "send_columns":
        columns = {
            "timestamps_ms" if name == "timestamp_ms" else name: value
            for name, value in given.items()
        }
        await (await producer.send_columns("orders", values=pa.array([b"v"]), **columns))
    elif method == "from_thread":
        await asyncio.wrap_future(
            await asyncio.to_thread(lambda: producer.from_thread.send("orders", b"v", **given))
        )
    elif method == "send_nowait":
        await producer.send_nowait("orders", b"v", **given)
    else:
        await getattr(producer, method)("orders", b"v", **given)


METHODS = ["send_and_wait", "send_nowait", "send_many", "send_columns", "from_thread"]


@on_both
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"timestamp_ms": True}, "timestamps?_ms=True"),
        ({"timestamp_ms": np.True_}, "timestamps?_ms"),
        ({"timestamp_ms": np.float64(MOMENT)}, "timestamps?_ms"),
        (
            {"timestamp_ms": AWARE.replace(tzinfo=None)},
            "timestamps?_ms=2023-11-14 22:13:20.000999.* no time zone",
        ),
        ({"partition": True}, "partition=True for 'orders': it is a number from 0 on"),
        ({"partition": np.True_}, "partition=bool for 'orders': it is a number from 0 on"),
        ({"partition": np.float64(1)}, r"partition=1\.0 for 'orders': it is a number from 0 on"),
        (
            {"partition": np.float32(1)},
            r"partition=.*1\.0.* for 'orders': it is a number from 0 on",
        ),
        (
            {"partition": Decimal(1)},
            r"partition=Decimal\('1'\) for 'orders': it is a number from 0 on",
        ),
        (
            {"partition": 2**31},
            "partition=2147483648 for 'orders': it is a number from 0 on, less than 2",
        ),
        ({"partition": np.int64(-1)}, "partition=-1 for 'orders': it is a number from 0 on"),
    ],
    ids=str,
)
@pytest.mark.asyncio
async def test_what_is_no_number_is_refused(
    build: ModuleType, method: str, given: dict[str, Any], told: str
) -> None:
    """The call raises and queues nothing, also on the fast path, where a batch is open for such records."""
    async with running_on(build, partitions=3, linger_ms=10_000, max_block_ms=500) as (
        cluster,
        producer,
    ):
        before = await producer.send("orders", b"before", partition=1, timestamp_ms=MOMENT)
        with pytest.raises(UsageError, match=told):
            await send_by(producer, method, given)
        await producer.flush()
        await before
    assert [record.value for index in range(3) for record in cluster.records("orders", index)] == [
        b"before"
    ]


@pytest.mark.parametrize(
    "five", [np.int64(5), np.float64(5), np.float32(5), Decimal(5), np.array(5)], ids=repr
)
def test_options(five: Any) -> None:
    """The config takes whole numbers, milliseconds, and librdkafka's options in their units. It holds Python's own types."""
    config = ProducerConfig(linger_ms=five, compression_gzip_level=five, retries=five)
    assert (config.linger_ms, config.compression_gzip_level, config.retries) == (5.0, 5, 5)
    assert [
        type(value) for value in (config.linger_ms, config.compression_gzip_level, config.retries)
    ] == [float, int, int]
    assert (
        ProducerConfig.from_mapping({"queue.buffering.max.kbytes": five * 1024}).buffer_memory
        == 5 * 1024 * 1024
    )


def test_options_that_are_not_whole() -> None:
    """Milliseconds may have a fraction, whole numbers may not. The config takes numpy's booleans, and numbers for acks."""
    assert ProducerConfig(linger_ms=Decimal("0.5")).linger_ms == 0.5
    assert ProducerConfig(linger_ms=np.float32(0.5)).linger_ms == 0.5
    assert ProducerConfig(enable_idempotence=np.False_).enable_idempotence is False
    assert ProducerConfig(acks=np.int64(1)) == ProducerConfig(acks=1)
    assert ProducerConfig(buffer_memory=2**60 + 1).buffer_memory == 2**60 + 1
    for whole in (np.float64(5.5), Decimal("5.5"), 5.5, "5.5"):
        with pytest.raises(ConfigError, match=r"retries=.*: it is a whole number"):
            ProducerConfig(retries=whole)
    with pytest.raises(
        ConfigError, match=r"queue\.buffering\.max\.kbytes=.*: it is a whole number"
    ):
        ProducerConfig.from_mapping({"queue.buffering.max.kbytes": 1.5})


@pytest.mark.parametrize(
    "value",
    [True, np.True_, np.float64("nan"), np.float64("inf"), Decimal("NaN"), Decimal("Infinity"), 1j],
    ids=repr,
)
def test_what_no_option_is(value: Any) -> None:
    """The config refuses True as a number: a caller that passes True means something else than 1."""
    for name in ("linger_ms", "retries", "batch_size"):
        with pytest.raises(ConfigError, match=f"{name}=.*: it is a (whole )?number"):
            ProducerConfig(**{name: value})
    with pytest.raises(
        ConfigError, match=r"queue\.buffering\.max\.kbytes=.*: it is a whole number"
    ):
        ProducerConfig.from_mapping({"queue.buffering.max.kbytes": value})


@pytest.mark.asyncio
async def test_offsets_of_a_transaction() -> None:
    """The call takes offsets as a data frame has them."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with (
            Producer(**cluster.client_options, transactional_id="bank") as producer,
            producer.transaction(),
        ):
            await producer.send_offsets_to_transaction(
                {("orders", np.int64(0)): np.int64(7)}, "group"
            )
        assert cluster.committed("group") == {("orders", 0): 7}
        async with (
            Producer(**cluster.client_options, transactional_id="bank") as producer,
            producer.transaction(),
        ):
            for offsets in (
                {("orders", np.True_): 7},
                {("orders", 0): np.True_},
                {("orders", 0): np.float64(7)},
            ):
                with pytest.raises(UsageError):
                    await producer.send_offsets_to_transaction(offsets, "group")


@pytest.mark.asyncio
async def test_times_that_a_call_may_take() -> None:
    """The calls take seconds as a number of any type, and refuse booleans."""
    async with FakeCluster(memory=True) as cluster, Producer(**cluster.client_options) as producer:
        await producer.flush(np.float32(1))
        await producer.flush(Decimal("0.5"))
        assert producer.health(patience=Decimal(1))
        for timeout in (True, np.True_, "1", np.float64(-1)):
            with pytest.raises(
                UsageError, match="it is seconds, from 0 on, or a timedelta, or None"
            ):
                await producer.flush(timeout)
