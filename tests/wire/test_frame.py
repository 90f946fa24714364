"""Frames: headers, sizes, and streams cut anywhere."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_samples import EVERY_CODEC

from aioproducer.errors import ProtocolError
from aioproducer.testing.frames import RequestHeader, decode_request, encode_response
from aioproducer.wire.api import NAMES, ApiKey
from aioproducer.wire.frame import (
    FRAME_LIMIT,
    FrameReader,
    correlation_of,
    decode_response,
    encode_request,
)

_FRAMES = st.lists(st.binary(max_size=300), max_size=6)


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


# Headers


def test_a_request_header_v1_and_v2() -> None:
    """Size, key, version, correlation id, client id; from the first flexible version on, an empty tag section behind."""
    assert encode_request(3, 8, 7, "me", [b"body"]) == [
        bytes.fromhex("00000010 0003 0008 00000007 0002 6d65") + b"body"
    ]
    assert encode_request(3, 9, 7, "me", [b"body"]) == [
        bytes.fromhex("00000011 0003 0009 00000007 0002 6d65 00") + b"body"
    ]
    assert encode_request(3, 8, 7, None, []) == [bytes.fromhex("0000000a 0003 0008 00000007 ffff")]


def test_a_response_header_v0_and_v1() -> None:
    """Size and correlation id; from the first flexible version on, an empty tag section behind."""
    assert encode_response(3, 8, 7, [b"body"]) == [bytes.fromhex("00000008 00000007") + b"body"]
    assert encode_response(3, 9, 7, [b"body"]) == [bytes.fromhex("00000009 00000007 00") + b"body"]


def test_an_api_versions_answer_has_the_oldest_header() -> None:
    """Its reader does not know yet what the broker speaks; the request has the flexible header all the same."""
    assert encode_response(ApiKey.API_VERSIONS, 4, 7, [b"body"]) == [
        bytes.fromhex("00000008 00000007") + b"body"
    ]
    assert decode_response(ApiKey.API_VERSIONS, 4, b"\0\0\0\x07body") == (7, 4)
    assert encode_request(ApiKey.API_VERSIONS, 3, 7, "", [])[0].endswith(b"\0\0\0")


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, v) for key, name in NAMES.items() for n, v in EVERY_CODEC if n == f"{name}.request"],
)
@settings(max_examples=10, deadline=None)
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=30),
    body=st.lists(st.binary(max_size=2000), max_size=4),
)
def test_headers_round_trip(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: list[bytes]
) -> None:
    """One side reads the headers that the other writes, in each version of each request, and the size is right."""
    (request,) = FrameReader().feed(
        b"".join(encode_request(key, version, correlation_id, client_id, body))
    )
    header = decode_request(request)
    assert header[:4] == (key, version, correlation_id, client_id)
    assert request[header.offset :] == b"".join(body)
    (response,) = FrameReader().feed(b"".join(encode_response(key, version, correlation_id, body)))
    assert correlation_of(response) == correlation_id
    answered, offset = decode_response(key, version, response)
    assert (answered, response[offset:]) == (correlation_id, b"".join(body))


def test_large_chunks_are_not_copied() -> None:
    """Only a small first chunk joins the header."""
    large = bytes(5000)
    assert encode_request(0, 9, 1, "me", [large, b"end"])[1] is large
    assert len(encode_request(0, 9, 1, "me", [b"small", large, b"end"])) == 3


def test_tags_in_headers_are_skipped() -> None:
    """A newer peer's header fields do not disturb."""
    request = bytes.fromhex("0003 0009 00000007 0002 6d65") + b"\x01\x05\x02ab" + b"body"
    assert decode_request(request) == RequestHeader(3, 9, 7, "me", len(request) - 4)
    assert decode_response(3, 9, b"\0\0\0\x07\x01\x05\x02abbody") == (7, 9)


def test_an_unknown_request_is_still_named() -> None:
    """The decoder reads the key and the correlation id of an unknown request, so that a broker can refuse it by name."""
    assert decode_request(bytes.fromhex("03e7 0001 00000007 0000"))[:3] == (999, 1, 7)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(9),
        bytes.fromhex("0003 0008 00000007 0003 6d65"),
        bytes.fromhex("0003 0008 00000007 fffe 6d65"),
        bytes.fromhex("0003 0008 00000007 0002 c328"),
        bytes.fromhex("0003 0009 00000007 0000"),
        bytes.fromhex("0003 0009 00000007 0000 01 05 05"),
        bytes.fromhex("0003 0009 00000007 0000 808080808001"),
    ],
)
def test_a_broken_request_header_is_refused(frame: bytes) -> None:
    """Ends early, claims too much, is no text: one ProtocolError."""
    with pytest.raises(ProtocolError):
        decode_request(frame)


@pytest.mark.parametrize(
    "frame", [b"", b"\0\0\0", b"\0\0\0\x07", b"\0\0\0\x07\x01\x05\x05", b"\0\0\0\x07" + b"\x80" * 6]
)
def test_a_broken_response_header_is_refused(frame: bytes) -> None:
    """So is an answer that ends in its header."""
    with pytest.raises(ProtocolError):
        decode_response(ApiKey.METADATA, 9, frame)


@given(st.binary(max_size=40))
def test_noise_is_a_header_or_a_protocol_error(frame: bytes) -> None:
    """Any bytes in a frame give a header or a ProtocolError."""
    for decode in (decode_request, lambda frame: decode_response(3, 9, frame), correlation_of):
        try:
            decode(frame)
        except ProtocolError as error:
            assert str(error)  # noqa: PT017


# The stream


@given(frames=_FRAMES, draw=st.data())
def test_frames_come_out_however_the_stream_is_cut(
    frames: list[bytes], draw: st.DataObject
) -> None:
    """The reader gives the same frames in the same order, each as soon as its last byte is there. It waits for the end of an incomplete
    frame.
    """
    stream = b"".join(map(_framed, frames)) + b"\0\0\0\x09begun"
    cuts = sorted(draw.draw(st.sets(st.integers(0, len(stream)), max_size=20)))
    reader, out, fed = FrameReader(), [], 0
    ends = [sum(len(frame) + 4 for frame in frames[: index + 1]) for index in range(len(frames))]
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        out += reader.feed(stream[start:stop])
        fed += stop - start
        assert len(out) == sum(end <= fed for end in ends)
    assert out == frames


def test_the_reader_keeps_nothing_of_a_buffer_that_is_used_again() -> None:
    """Frames, whole or begun, are copies of what a reused receive buffer held."""
    buffer = bytearray(_framed(b"first") + _framed(b"next")[:7])
    reader = FrameReader()
    (first,) = reader.feed(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert first == b"first"
    assert reader.feed(b"t") == [b"next"]


def test_a_large_frame_in_many_segments_takes_time_that_grows_with_its_size_only() -> None:
    """4 MiB in 64-byte segments: were each segment to copy what came before, it would copy 128 GiB."""
    frame = bytes(4 * 1024 * 1024)
    stream, reader, out = memoryview(_framed(frame)), FrameReader(), []
    started = time.process_time()
    for at in range(0, len(stream), 64):
        out += reader.feed(stream[at : at + 64])
    assert out == [frame]
    assert time.process_time() - started < 5


@pytest.mark.parametrize("size", [-1, -(2**31), FRAME_LIMIT + 1, 2**31 - 1])
@pytest.mark.parametrize("split", [0, 2])
def test_a_size_that_cannot_be_is_refused(size: int, split: int) -> None:
    """At its fourth byte, before anything is kept for it."""
    data, reader = size.to_bytes(4, "big", signed=True), FrameReader()
    assert reader.feed(data[:split]) == []
    with pytest.raises(ProtocolError, match=f"a frame claims {size} bytes"):
        reader.feed(data[split:])


def test_the_limit_is_the_largest_frame_that_is_taken() -> None:
    """One byte more is refused."""
    assert FrameReader(limit=5).feed(_framed(b"12345")) == [b"12345"]
    with pytest.raises(ProtocolError, match="no more than 5"):
        FrameReader(limit=5).feed(_framed(b"123456"))


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x32", "speaks TLS"),
        (b"\x16\x03\x01\x02\x00\x01", "speaks TLS"),
        (b"SSH-2.0-OpenSSH", "SSH server"),
        (b"GET / HTTP/1.1\r\n", "HTTP client"),
        (b"\xff\xff\xff\xff", "is it a Kafka listener"),
    ],
)
def test_a_stranger_is_named(start: bytes, words: str) -> None:
    """A wrong port is the usual cause of a wrong size: the error says what seems to be there."""
    with pytest.raises(ProtocolError, match=words):
        FrameReader().feed(start)


@pytest.mark.parametrize(
    "begun", [b"", b"\0\0", b"\0\0\0\x05fi"], ids=["nothing", "a size", "a frame"]
)
def test_frames_before_a_bad_size_are_given(begun: bytes) -> None:
    """They are answers to what was asked; only what follows cannot be told apart."""
    reader = FrameReader()
    assert reader.feed(begun) == []
    whole = (_framed(b"first") + _framed(b"second"))[len(begun) :]
    assert reader.feed(whole + b"HTTP/1.1") == [b"first", b"second"]
    for look in (reader.check, lambda: reader.feed(b"more")):
        with pytest.raises(ProtocolError, match="HTTP server"):
            look()


def test_a_stream_without_trouble_passes_the_check() -> None:
    """Also in the midst of a frame."""
    reader = FrameReader()
    assert reader.feed(_framed(b"one") + b"\0\0\0\x09begun") == [b"one"]
    reader.check()
