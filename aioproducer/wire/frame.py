"""Frames: the size, the header and the message of requests and answers.

1. Request header v1 is key, version, correlation id, client id; v2 adds tagged fields. The client id is a string with a two-byte length
   in both.
2. Response header v0 is the correlation id; v1 adds tagged fields. An ApiVersions answer always has v0, because the client does not know
   the broker's versions yet (KIP-511).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from aioproducer.errors import ProtocolError
from aioproducer.wire.api import ApiKey, is_flexible
from aioproducer.wire.primitives import JOINED, skip_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer

# The most bytes that brokers accept by default (`socket.request.max.bytes`), and 20 times a Metadata answer with 100,000 partitions.
FRAME_LIMIT: Final = 100 * 1024 * 1024

_NO_TAGS: Final = b"\x00"
_read_int32 = struct.Struct(">i").unpack_from
_REQUEST: Final = struct.Struct(">ihhih")

_TLS_ALERT: Final = b"\x15\x03"
# The first bytes of other protocols, which the reader finds in place of a size.
_STRANGERS: Final = (
    (b"HTTP", "an HTTP server answers there"),
    # because the bytes of this client were no TLS handshake
    (
        _TLS_ALERT,
        "the port speaks TLS: set security_protocol=SSL or SASL_SSL, or use the address of a plaintext listener",
    ),
    (b"\x16\x03", "the other side speaks TLS to a plaintext listener"),
    (b"SSH-", "an SSH server answers there"),
    (b"GET ", "an HTTP client asks here"),
    (b"POST", "an HTTP client asks here"),
    (b"PUT ", "an HTTP client asks here"),
    (b"HEAD", "an HTTP client asks here"),
)


def encode_request(
    key: int, version: int, correlation_id: int, client_id: str | None, body: Sequence[Buffer]
) -> list[Buffer]:
    """Encode a request's frame. Returns the buffers to write."""
    length, rest = _behind_header(key, version, client_id)
    size = 10 + len(rest)
    for chunk in body:
        size += len(chunk)
    return behind(_REQUEST.pack(size, key, version, correlation_id, length) + rest, body)


@lru_cache(maxsize=64)
def _behind_header(key: int, version: int, client_id: str | None) -> tuple[int, bytes]:
    """Return the length of the client id, and the bytes that end a request's header."""
    name = b"" if client_id is None else client_id.encode()
    return (
        -1 if client_id is None else len(name),
        name + (_NO_TAGS if is_flexible(key, version) else b""),
    )


def decode_response(key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """Return the correlation id of an answer, and the offset of its message.

    Raises:
        ProtocolError: the frame ends before its message begins.
    """
    correlation_id = correlation_of(frame)
    if not is_tagged_response(key, version):
        return correlation_id, 4
    # Brokers send none.
    if frame[4:5] == _NO_TAGS:
        return correlation_id, 5
    try:
        return correlation_id, skip_tags(frame, 4)
    except IndexError as error:
        raise ProtocolError(f"an answer ends in its header, after {len(frame)} bytes") from error


def correlation_of(frame: Buffer) -> int:
    """Return the correlation id of an answer.

    Raises:
        ProtocolError: the frame is too short for a correlation id.
    """
    try:
        correlation_id: int = _read_int32(frame)[0]
    except struct.error as error:
        raise ProtocolError(
            f"an answer of {len(frame)} bytes is shorter than its header"
        ) from error
    return correlation_id


@lru_cache(maxsize=256)
def is_tagged_response(key: int, version: int) -> bool:
    """Return whether tagged fields follow the correlation id of an answer."""
    return key != ApiKey.API_VERSIONS and is_flexible(key, version)


def behind(header: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    """Return the header and the message's chunks. A small first chunk is joined to the header."""
    chunks = [header, *body]
    if body and len(body[0]) < JOINED:
        chunks[:2] = (header + body[0],)
    return chunks


class FrameReader:
    """Splits a stream of bytes into frames, without their sizes.

    A frame that comes whole is copied once. A frame that comes in pieces is copied twice, for any number of pieces. After an invalid size,
    no later frame can be found: `feed` returns the frames before it, and then `check` raises. The caller closes the connection then.

    Args:
        limit: the largest size of a frame in bytes.

    Attributes:
        limit: as given; it may be changed.
        found_tls_alert: whether the invalid size is the beginning of a TLS alert: the peer speaks TLS.
    """

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self.limit = limit
        self.found_tls_alert: bool = False
        # the received part of an incomplete frame, with its size
        self._begun = bytearray()
        self._trouble: ProtocolError | None = None

    def feed(self, data: Buffer) -> list[bytes]:
        """Add the received bytes. Returns the frames that are complete now; the caller calls `check` after it has used them.

        Raises:
            ProtocolError: an invalid size, with no complete frame before it. Its text names the protocol that the peer may speak.
        """
        self.check()
        frames: list[bytes] = []
        at, end = 0, len(data)
        try:
            if self._begun:
                at = self._go_on(memoryview(data), frames)
            while end - at >= 4:
                size: int = _read_int32(data, at)[0]
                if not 0 <= size <= self.limit:
                    self._refuse(size, data, at)
                stop = at + 4 + size
                if stop > end:
                    break
                frames.append(bytes(data[at + 4 : stop]))
                at = stop
            if at < end:
                self._begun += data[at:]
        except ProtocolError as error:
            self._trouble = error
            if not frames:
                raise
        return frames

    def check(self) -> None:
        """Raise the ProtocolError of an invalid size that followed the last complete frame, if there was one."""
        if self._trouble is not None:
            raise self._trouble

    def _go_on(self, data: memoryview, frames: list[bytes]) -> int:
        """Add `data` to the incomplete frame. Returns the number of bytes that were used."""
        begun = self._begun
        at = 0
        if len(begun) < 4:
            at = 4 - len(begun)
            begun += data[:at]
            if len(begun) < 4:
                return len(data)
        size: int = _read_int32(begun)[0]
        if not 0 <= size <= self.limit:
            self._refuse(size, begun, 0)
        missing = 4 + size - len(begun)
        begun += data[at : at + missing]
        if len(data) < at + missing:
            return len(data)
        frames.append(bytes(memoryview(begun)[4:]))
        self._begun = bytearray()
        return at + missing

    def _refuse(self, size: int, data: Buffer, at: int) -> NoReturn:
        """Raise the ProtocolError of an invalid size, which is at `at` of the bytes."""
        start = bytes(data[at : at + 4])
        self.found_tls_alert = start.startswith(_TLS_ALERT)
        cause = next(
            (f": {words}" for prefix, words in _STRANGERS if start.startswith(prefix)),
            "; is it a Kafka listener?",
        )
        raise ProtocolError(
            f"a frame claims {size} bytes, and no more than {self.limit} are taken{cause}"
        )
