"""Frames: a size, a header, a message. Knows nothing of what the messages say.

Request header v1 is key, version, correlation id, client id; v2 has tagged fields behind it. The client id is a string with a
two-byte length in both. Response header v0 is the correlation id; v1 has tagged fields behind it, but an ApiVersions answer is
always v0, because its reader does not know yet what the broker speaks (KIP-511).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import ProtocolError
from aioproducer.wire.api import ApiKey, is_flexible
from aioproducer.wire.primitives import JOINED, skip_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer

__all__ = [
    "FRAME_LIMIT",
    "FrameReader",
    "RequestHeader",
    "correlation_of",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

# What brokers take at most by default (`socket.request.max.bytes`), and 20 times a Metadata answer with 100,000 partitions
FRAME_LIMIT: Final = 100 * 1024 * 1024

_NO_TAGS: Final = b"\x00"
_INT32: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">ihhih")
_RESPONSE: Final = struct.Struct(">ii")

_STRANGERS: Final = (  # what other protocols say first, read as a size
    (b"HTTP", "an HTTP server answers there"),
    (b"\x15\x03", "the port speaks TLS: use the address of a plaintext listener"),  # an alert: our bytes were no handshake
    (b"\x16\x03", "the other side speaks TLS to a plaintext listener"),
    (b"SSH-", "an SSH server answers there"),
    (b"GET ", "an HTTP client asks here"),
    (b"POST", "an HTTP client asks here"),
    (b"PUT ", "an HTTP client asks here"),
    (b"HEAD", "an HTTP client asks here"),
)


class RequestHeader(NamedTuple):
    """Who asks for what; the message begins at `offset` of the frame."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    offset: int


def encode_request(key: int, version: int, correlation_id: int, client_id: str | None, body: Sequence[Buffer]) -> list[Buffer]:
    """A request, ready to be written."""
    length, rest = _behind_header(key, version, client_id)
    header = _REQUEST.pack(10 + len(rest) + sum(map(len, body)), key, version, correlation_id, length)
    return _behind(header + rest, body)


@lru_cache(maxsize=64)
def _behind_header(key: int, version: int, client_id: str | None) -> tuple[int, bytes]:
    """Bytes of the client id, and what ends a request's header."""
    name = b"" if client_id is None else client_id.encode()
    return (-1 if client_id is None else len(name), name + (_NO_TAGS if is_flexible(key, version) else b""))


def decode_request(frame: Buffer) -> RequestHeader:
    """The header of a request. ProtocolError: it has none."""
    try:
        key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        offset = 10 + max(length, 0)
        if length < -1 or offset > len(frame):
            raise ProtocolError(f"a request header claims a client id of {length} bytes, and {len(frame) - 10} are left")
        client_id = None if length == -1 else bytes(frame[10:offset]).decode()
        if is_flexible(key, version):
            offset = skip_tags(frame, offset)
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"a request ends in its header, after {len(frame)} bytes") from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a request's client id is not UTF-8") from error
    return RequestHeader(key, version, correlation_id, client_id, offset)


def encode_response(key: int, version: int, correlation_id: int, body: Sequence[Buffer]) -> list[Buffer]:
    """An answer to a request of that key and version, ready to be written."""
    tags = _NO_TAGS if _is_tagged_response(key, version) else b""
    size = 4 + len(tags) + sum(map(len, body))
    return _behind(_RESPONSE.pack(size, correlation_id) + tags, body)


def decode_response(key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id of an answer, and where its message begins. ProtocolError: it ends before."""
    correlation_id = correlation_of(frame)
    if not _is_tagged_response(key, version):
        return correlation_id, 4
    try:
        return correlation_id, skip_tags(frame, 4)
    except IndexError as error:
        raise ProtocolError(f"an answer ends in its header, after {len(frame)} bytes") from error


def correlation_of(frame: Buffer) -> int:
    """Which request an answer answers. ProtocolError: the frame is too short for one."""
    if len(frame) < 4:
        raise ProtocolError(f"an answer of {len(frame)} bytes is shorter than its header")
    correlation_id: int = _INT32.unpack_from(frame)[0]
    return correlation_id


@lru_cache(maxsize=256)
def _is_tagged_response(key: int, version: int) -> bool:
    return key != ApiKey.API_VERSIONS and is_flexible(key, version)


def _behind(header: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    """The header and the message; a small first chunk joins the header."""
    if body and len(body[0]) < JOINED:
        return [header + body[0], *body[1:]]
    return [header, *body]


class FrameReader:
    """Cuts a stream of bytes into frames, without their sizes.

    A frame that comes whole is copied once; one that comes in pieces twice, however many they are. After a size that cannot be,
    nothing that follows can be told apart: the frames before it are given, then close the connection.

    Args:
        limit: the size in bytes that no frame exceeds.
    """

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._limit = limit
        self._begun = bytearray()  # a frame that is not whole yet, with its size
        self._trouble: ProtocolError | None = None

    def feed(self, data: Buffer) -> list[bytes]:
        """Take what came in; give back the frames that are whole now. Then `check`.

        Raises:
            ProtocolError: a size that no Kafka peer sends, and no whole frame before it. Its text names what may be on the other side.
        """
        self.check()
        frames: list[bytes] = []
        try:
            self._cut(data, frames)
        except ProtocolError as error:
            self._trouble = error
            if not frames:
                raise
        return frames

    def check(self) -> None:
        """ProtocolError: what came behind the last whole frame cannot be the size of one."""
        if self._trouble is not None:
            raise self._trouble

    def _cut(self, data: Buffer, frames: list[bytes]) -> None:
        at, end = 0, len(data)
        if self._begun:
            at = self._go_on(memoryview(data), frames)
        while end - at >= 4:
            stop = at + 4 + self._size(data, at)
            if stop > end:
                break
            frames.append(bytes(data[at + 4 : stop]))
            at = stop
        if at < end:
            self._begun += data[at:]

    def _go_on(self, data: memoryview, frames: list[bytes]) -> int:
        """Add to the frame that has begun; how much of `data` it took."""
        begun = self._begun
        at = 0
        if len(begun) < 4:
            at = 4 - len(begun)
            begun += data[:at]
            if len(begun) < 4:
                return len(data)
        missing = 4 + self._size(begun, 0) - len(begun)
        begun += data[at : at + missing]
        if len(data) < at + missing:
            return len(data)
        frames.append(bytes(memoryview(begun)[4:]))
        self._begun = bytearray()
        return at + missing

    def _size(self, data: Buffer, at: int) -> int:
        size: int = _INT32.unpack_from(data, at)[0]
        if not 0 <= size <= self._limit:
            start = bytes(data[at : at + 4])
            cause = next((f": {words}" for prefix, words in _STRANGERS if start.startswith(prefix)), "; is it a Kafka listener?")
            raise ProtocolError(f"a frame claims {size} bytes, and no more than {self._limit} are taken{cause}")
        return size
