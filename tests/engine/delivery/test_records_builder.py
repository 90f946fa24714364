"""Compares the bytes of an open batch with what the reader of record batches reads, for all kinds of appends."""

from __future__ import annotations

import asyncio
from typing import Any

from builds import on_both
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.records.record_batch import encode_headers, header, size_limit
from aioproducer.testing.record_batches import read_batches

RECORDS = st.lists(
    st.tuples(
        st.sampled_from([1_000, 1_001, 1_001, 700, 2**40]),
        st.none() | st.binary(max_size=70) | st.sampled_from([32_767, 40_000]),
        st.none() | st.binary(max_size=70) | st.sampled_from([16_380, 32_768]),
        st.just(())
        | st.lists(
            st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3
        ).map(tuple),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@on_both
@given(records=RECORDS, room=st.sampled_from([10, 300, 100_000]))
def test_what_is_appended_is_what_a_reader_reads(build: Any, records: list[Any], room: int) -> None:
    """The reader reads the appended records, for both append methods.

    The builder refuses a record that does not fit, unchanged, and never exceeds its bytes.
    """
    loop = asyncio.new_event_loop()
    try:
        result = build.ProduceRequestResult(
            build.DeliveryContext(loop, lambda _error, _count: None), "orders", 0, 1_000
        )
        batch = build.MemoryRecordsBuilder(result, 1_000, room)
        wanted = []
        for timestamp_ms, key, value, headers, is_plain in records:
            key, value = (
                bytes(part) if isinstance(part, int) else part for part in (key, value)
            )  # a number stands for so many zeros
            if is_plain and not headers:
                delivery = batch.append(timestamp_ms, key, value)
            else:
                encoded = encode_headers(headers) if headers else b"\0"
                delivery = batch.append_record(timestamp_ms, key, value, encoded)
                if delivery is None:
                    batch.grow(size_limit(key, value, encoded))
                    delivery = batch.append_record(timestamp_ms, key, value, encoded)
                assert delivery is not None
            if delivery is not None:
                assert (delivery.index, delivery._result) == (len(wanted), result)
                wanted.append((timestamp_ms, key, value, headers))
        if not wanted:
            return
        granted = batch.granted
        payload, base, highest = batch.close()
        assert len(payload) <= granted
        (read,) = read_batches(header(payload, batch.count, 0, base, highest) + payload)
        assert [
            (record.timestamp_ms, record.key, record.value, record.headers)
            for record in read.check()
        ] == wanted
        assert (read.base_timestamp, read.max_timestamp) == (
            1_000,
            max(record[0] for record in wanted),
        )
        result.complete(50, -1)
        for index, (timestamp_ms, key, value, _) in enumerate(wanted):
            metadata = build.make_delivery(result, index).result()
            sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
            assert metadata == ("orders", 0, 50 + index, timestamp_ms, 0, *sizes)
    finally:
        loop.close()


@on_both
@given(
    sizes=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 50, 55, 56, 57, 63, 64, 200]), st.sampled_from([0, 3, 63, 64])
        ),
        min_size=1,
        max_size=200,
    ),
    uniform=st.booleans(),
    keyed=st.booleans(),
    before=st.sampled_from([0, 1, 60, 64, 100]),
    room=st.sampled_from([0, 20, 1_000, 4_096, 1_000_000]),
    timestamp_ms=st.sampled_from([1_000, 1_500]),
)
def test_many_at_once_are_the_same_bytes_as_one_by_one(
    build: Any,
    sizes: list[tuple[int, int]],
    uniform: bool,
    keyed: bool,
    before: int,
    room: int,
    timestamp_ms: int,
) -> None:
    """As many as there is room for, however they are cut; what their deliveries are made of, too."""
    loop = asyncio.new_event_loop()
    try:
        delivery_context = build.DeliveryContext(loop, lambda _error, _count: None)
        one, many = (
            build.MemoryRecordsBuilder(
                build.ProduceRequestResult(delivery_context, "orders", 0, 1_000),
                1_000,
                room + 10 * before,
            )
            for _ in range(2)
        )
        for batch in (one, many):
            for _ in range(before):
                assert batch.append(1_000, None, b"") is not None
        if uniform:
            sizes = [sizes[0]] * len(sizes)
        values = [bytes([at % 256]) * size for at, (size, _) in enumerate(sizes)]
        keys = [bytes([at % 256]) * size for at, (_, size) in enumerate(sizes)] if keyed else None
        fitted = 0
        for key, value in zip(keys or [None] * len(values), values, strict=True):
            if one.append(timestamp_ms, key, value) is None:
                break
            fitted += 1
        at = 0
        while at < len(values) and (count := many.append_many(timestamp_ms, keys, values, at)):
            at += count
        assert at == fitted
        assert many.count == one.count
        if many.count:
            assert many.close() == one.close()
            assert tuple(many.result.record_sizes) == tuple(one.result.record_sizes)
    finally:
        loop.close()


@on_both
def test_the_sentinel_takes_nothing(build: Any) -> None:
    """A partition without an open batch says no to everything, at any time."""
    for timestamp_ms in (0, 1, 1_700_000_000_000):
        assert build.FULL.append(timestamp_ms, b"k", b"v") is None
        assert build.FULL.append_record(timestamp_ms, b"k", b"v", b"\0") is None
        assert build.FULL.append_many(timestamp_ms, None, [b""], 0) == 0
    assert build.FULL.count == 0
