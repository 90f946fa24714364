"""The seams, as protocols: what the floors above and the user's own parts agree on. Knows nothing of what stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.model import Headers

__all__ = ["Buffer", "Dialer", "OpenBatch", "Receiver", "Serializer", "Stream"]

Buffer: TypeAlias = "bytes | bytearray | memoryview"


class Receiver(Protocol):
    """What a connection's bytes are given to; the shape of `asyncio.Protocol`."""

    def connection_made(self, transport: Stream, /) -> None:
        """The connection stands; `transport` writes to it."""

    def data_received(self, data: bytes, /) -> None:
        """Bytes came in."""

    def eof_received(self) -> bool | None:
        """The peer will send no more."""

    def connection_lost(self, exc: Exception | None, /) -> None:
        """The connection is gone, and nothing reads its buffers any more."""

    def pause_writing(self) -> None:
        """The write buffer is full."""

    def resume_writing(self) -> None:
        """The write buffer has room again."""


class Stream(Protocol):
    """One connection's writing side; the shape of `asyncio.Transport`."""

    def write(self, data: Buffer, /) -> None:
        """Queue bytes. They must not change until they are sent."""

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Queue several buffers."""

    def get_write_buffer_size(self) -> int:
        """Bytes that are queued and not with the kernel yet."""

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""

    def close(self) -> None:
        """Close once what is queued was sent."""

    def abort(self) -> None:
        """Close at once."""


class Dialer(Protocol):
    """Makes connections: sockets, or the memory streams of a fake cluster."""

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect, or raise OSError. Cancelled: nothing stays open."""


@runtime_checkable
class Serializer(Protocol):
    """Makes bytes of a key or a value. None never comes here: it is a null key or a tombstone."""

    def __call__(self, topic: str, headers: Headers, value: object, /) -> bytes:
        """The bytes. What it raises reaches the caller of `send` as `SerializationError`."""


class OpenBatch(Protocol):
    """A batch that takes records; plain Python or compiled (`engine.hot`), the rules do not see which."""

    count: int
    granted: int

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, /) -> Any:
        """The record's delivery, or None: it does not fit, or is no plain record. Never raises for want of room."""

    def append_record(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes, /) -> Any:
        """`append` for a record with encoded headers, an own timestamp or any size."""

    def grow(self, room: int, /) -> None:
        """Give it room for so many more encoded bytes."""

    def close(self) -> tuple[bytes, int, int]:
        """Its payload, base and max timestamp; it takes no more."""
