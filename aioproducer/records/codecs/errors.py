"""Makes the errors of the decompressors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.errors import ProtocolError

if TYPE_CHECKING:
    from aioproducer.model import Compression

__all__ = ["check_end", "garbage", "overrun"]


def garbage(codec: Compression, reason: object) -> ProtocolError:
    """Return the error for data that is not in the codec's format."""
    return ProtocolError(f"unsound {codec.name.lower()} data: {reason}")


def overrun(codec: Compression, limit: int) -> ProtocolError:
    """Return the error for data that holds more than `limit` bytes."""
    return ProtocolError(f"{codec.name.lower()} data holds more than the {limit} bytes that it may")


def check_end(codec: Compression, *, ended: bool, rest: bytes | None) -> None:
    """Raise ProtocolError unless the data has ended, and nothing is left of it."""
    if not ended:
        raise garbage(codec, "it ends early")
    if rest:
        raise garbage(codec, f"{len(rest)} bytes follow its end")
