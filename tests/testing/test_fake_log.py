"""Tests of `aioproducer.testing.log`."""

from __future__ import annotations

import pytest
from fake_requests import TIME, batch, bodies

from aioproducer.errors import BrokerError, ProtocolError
from aioproducer.model import Compression, TimestampType
from aioproducer.records.message_set import message, read_messages, wrapper
from aioproducer.testing.log import Appended, PartitionLog, message_set, only_batch


def make_log(*sent: bytes, **options: object) -> PartitionLog:
    log = PartitionLog(**{"max_message_bytes": 1_000_000, **options})
    for one in sent:
        log.append(only_batch(one), leader_epoch=7, now_ms=99)
    return log


def refusal(sent: bytes | None, **options: object) -> BrokerError:
    log = PartitionLog(**{"max_message_bytes": 1_000_000, **options})
    with pytest.raises(BrokerError) as caught:
        log.append(only_batch(sent), leader_epoch=0, now_ms=99)
    assert log.end_offset == 0
    assert log.records() == []
    return caught.value


def test_log_append_time_is_stamped_with_a_new_crc() -> None:
    """The records read back with the broker's time, and the batch is sound."""
    log = PartitionLog(max_message_bytes=1000, stamps_time=True)
    assert log.append(
        only_batch(batch(b"a", b"b")), leader_epoch=0, now_ms=TIME + 5000
    ) == Appended(0, TIME + 5000)
    assert [r.timestamp_ms for r in log.records()] == [TIME + 5000] * 2
    assert log.batches()[0].timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_batch_of_exactly_the_limit_is_taken() -> None:
    """`max.message.bytes` counts the whole batch."""
    sent = batch(b"v" * 100)
    assert make_log(sent, max_message_bytes=len(sent)).end_offset == 1
    assert refusal(sent, max_message_bytes=len(sent) - 1).name == "MESSAGE_TOO_LARGE"


def test_records_are_checked_when_they_are_looked_at() -> None:
    """A header that promises more records than there are passes the append, and not the look."""
    log = make_log(batch(b"a", count=2))
    assert log.end_offset == 2
    with pytest.raises(ProtocolError):
        log.records()


def test_reading_begins_with_the_batch_that_has_the_offset() -> None:
    """Also from the middle of it; consumers skip what is before."""
    first, second = batch(b"a", b"b", b"c"), batch(b"d")
    log = make_log(first, second)
    whole = b"".join(log.read(0, 1_000_000))
    assert bodies([whole[: len(first)], whole[len(first) :]]) == bodies([first, second])
    assert b"".join(log.read(2, 1_000_000)) == whole
    assert b"".join(log.read(3, 1_000_000)) == whole[len(first) :]
    assert log.read(4, 1_000_000) == []


# --- message sets


def one_set(magic: int, *values: bytes, codec: Compression = Compression.NONE) -> bytes:
    """Return a message set as a producer sends it."""
    plain = b"".join(
        message(magic, number, TIME + number, None, value) for number, value in enumerate(values)
    )
    return (
        plain
        if codec is Compression.NONE
        else wrapper(magic, codec, plain, len(values) - 1, TIME + len(values) - 1)
    )


def send_set(log: PartitionLog, data: bytes) -> Appended:
    return log.append(message_set(data), leader_epoch=3, now_ms=TIME + 5000)


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, Compression.NONE), (1, Compression.NONE), (1, Compression.GZIP)]
)
def test_message_sets_stay_as_they_were_sent(magic: int, codec: Compression) -> None:
    """The log changes only the offset before each message. Magic 0 in a wrapper has absolute offsets, so a broker must make it anew."""
    log = PartitionLog(max_message_bytes=1_000_000)
    sent = one_set(magic, b"a", b"b", codec=codec)
    send_set(log, sent)
    send_set(log, sent)
    assert [bytes(one.raw[8:]) for one in log.messages()] == [
        bytes(one.raw[8:]) for one in read_messages(sent)
    ] * 2


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_append_time_is_stamped_from_magic_1_on(codec: Compression) -> None:
    """Magic 0 has no place for it."""
    log = PartitionLog(max_message_bytes=1_000_000, stamps_time=True)
    assert send_set(log, one_set(1, b"a", b"b", codec=codec)).log_append_time_ms == TIME + 5000
    assert send_set(log, one_set(0, b"c", codec=codec)).log_append_time_ms == -1
    assert [record.timestamp_ms for record in log.records()] == [TIME + 5000, TIME + 5000, -1]
    assert log.first_since(TIME + 5000) == (TIME + 5000, 0)


def broken(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "INVALID_RECORD"),
        (b"\x00" * 9, "CORRUPT_MESSAGE"),
        (broken(one_set(1, b"a"), 33), "CORRUPT_MESSAGE"),
        (broken(one_set(1, b"a", b"b", codec=Compression.GZIP), 14), "CORRUPT_MESSAGE"),
        (one_set(1, b"a") + broken(one_set(1, b"b"), 33), "CORRUPT_MESSAGE"),
        (one_set(1, b"a")[:-1], "CORRUPT_MESSAGE"),
        (one_set(1, bytes(1000)), "MESSAGE_TOO_LARGE"),
        (batch(b"a"), "INVALID_RECORD"),
    ],
)
def test_message_sets_that_no_broker_takes(data: bytes, error: str) -> None:
    """Nothing of them is appended."""
    log = PartitionLog(max_message_bytes=500)
    with pytest.raises(BrokerError) as raised:
        send_set(log, data)
    assert raised.value.name == error
    assert log.end_offset == 0
    assert log.read(0, 100) == []


def test_a_log_may_hold_every_format() -> None:
    """A log holds every format after an upgrade, and its offsets go on."""
    log = PartitionLog(max_message_bytes=1_000_000)
    send_set(log, one_set(0, b"a"))
    send_set(log, one_set(1, b"b", b"c", codec=Compression.GZIP))
    log.append(only_batch(batch(b"d")), leader_epoch=0, now_ms=TIME + 5000)
    assert [record.value for record in log.records()] == [b"a", b"b", b"c", b"d"]
    assert [record.offset for record in log.records()] == [0, 1, 2, 3]
