"""Tests of `tests.tools.chaos.sequences`."""

from __future__ import annotations

from .sequences import Batch, batches, broken_rows

PRINTED = """\
Dumping /tmp/sent-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 lastSequence: 2 producerId: 7 producerEpoch: 1 partitionLeaderEpoch: 0 \
isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1690000000000 size: 100 magic: 2 \
compresscodec: none crc: 1 isvalid: true
baseOffset: 3 lastOffset: 3 count: 1 baseSequence: -1 lastSequence: -1 producerId: 7 producerEpoch: 1 partitionLeaderEpoch: 0 \
isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty position: 100 CreateTime: 1690000000000 size: 78 magic: 2 \
compresscodec: none crc: 1 isvalid: false
Dumping /tmp/sent-0/00000000000000000004.log
Dumping /tmp/sent-1/00000000000000000000.log
"""


def batch(
    offset: int,
    first: int,
    count: int = 1,
    producer: int = 7,
    epoch: int = 0,
    *,
    is_control: bool = False,
) -> Batch:
    last = -1 if is_control else (first + count - 1) % 2**31
    return Batch(
        offset,
        count,
        producer,
        epoch,
        first,
        last,
        is_transactional=is_control,
        is_control=is_control,
        is_valid=True,
    )


def test_what_the_tool_prints() -> None:
    """The parser reads batches and markers, and finds a wrong checksum."""
    found = batches(PRINTED.splitlines())
    assert found == {
        "sent-0": [
            Batch(0, 3, 7, 1, 0, 2, is_transactional=True, is_control=False, is_valid=True),
            Batch(3, 1, 7, 1, -1, -1, is_transactional=True, is_control=True, is_valid=False),
        ],
        "sent-1": [],
    }
    assert list(broken_rows(found["sent-0"])) == [
        "offset 3, producer 7, epoch 1: its checksum is wrong"
    ]


def test_unbroken_rows() -> None:
    """Each epoch, and each producer, begins at 0. A marker has no sequence number. 0 follows 2^31-1."""
    assert not list(
        broken_rows(
            [
                batch(0, 0, 3),
                batch(3, 3),
                batch(4, -1, is_control=True),
                batch(5, 4),
                batch(6, 0, epoch=1),
            ]
        )
    )
    assert not list(broken_rows([batch(0, 0, 2), batch(2, 0, producer=8), batch(3, 2)]))
    assert not list(broken_rows([batch(0, 0, 2**31 - 1), batch(1, 2**31 - 1, 2), batch(3, 1)]))


def test_broken_rows() -> None:
    """The check finds a repeated or missing batch, a first number that is not 0, an older epoch, a wrong count, and no batch at all."""
    assert list(broken_rows([batch(0, 0), batch(1, 0)])) == [
        "offset 1, producer 7, epoch 0: sequence 0 where 1 was due"
    ]
    assert list(broken_rows([batch(0, 0), batch(1, 2)])) == [
        "offset 1, producer 7, epoch 0: sequence 2 where 1 was due"
    ]
    assert list(broken_rows([batch(0, 3)])) == [
        "offset 0, producer 7, epoch 0: sequence 3 where 0 was due"
    ]
    assert list(broken_rows([batch(0, 0, epoch=2), batch(1, 0, epoch=1)])) == [
        "offset 1, producer 7, epoch 1: behind epoch 2"
    ]
    assert list(broken_rows([batch(0, 0, 2)._replace(last=5)])) == [
        "offset 0, producer 7, epoch 0: 2 records from sequence 0 to 5"
    ]
    assert list(broken_rows([batch(0, -1, producer=-1)])) == [
        "offset 0, producer -1, epoch 0: it has no producer id"
    ]
