"""The broker's half of `aioproducer.wire.frame`: reads the headers of requests, from untrusted bytes, and frames answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import ProtocolError
from aioproducer.wire.api import is_flexible
from aioproducer.wire.frame import behind, is_tagged_response
from aioproducer.wire.primitives import skip_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer

_NO_TAGS: Final = b"\x00"
_RESPONSE: Final = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """Holds the fields of a request's header. The message begins at `offset` of the frame."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    offset: int


def decode_request(frame: Buffer) -> RequestHeader:
    """Return the header of a request's frame, which comes without its size.

    Raises:
        ProtocolError: the frame has no valid header.
    """
    try:
        key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        offset = 10 + max(length, 0)
        if length < -1 or offset > len(frame):
            raise ProtocolError(
                f"a request header claims a client id of {length} bytes, and {len(frame) - 10} are left"
            )
        client_id = None if length == -1 else bytes(frame[10:offset]).decode()
        if is_flexible(key, version):
            offset = skip_tags(frame, offset)
    except (IndexError, struct.error) as error:
        raise ProtocolError(f"a request ends in its header, after {len(frame)} bytes") from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a request's client id is not UTF-8") from error
    return RequestHeader(key, version, correlation_id, client_id, offset)


def encode_response(
    key: int, version: int, correlation_id: int, body: Sequence[Buffer]
) -> list[Buffer]:
    """Encode the frame of an answer to a request of that key and version. Returns the buffers to write."""
    tags = _NO_TAGS if is_tagged_response(key, version) else b""
    size = 4 + len(tags) + sum(map(len, body))
    return behind(_RESPONSE.pack(size, correlation_id) + tags, body)
