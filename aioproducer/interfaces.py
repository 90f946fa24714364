"""The seams, as protocols: what the floors above and the user's own parts agree on. Knows nothing of what stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproducer.model import Headers

__all__ = ["Buffer", "Dialer", "OpenBatch", "Partitioner", "Receiver", "Resolver", "Serializer", "Stream"]

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
        """Connect, or raise OSError. `host` is what a resolver answered. Cancelled: nothing stays open."""


class Resolver(Protocol):
    """Knows host names: DNS, or a test's own table."""

    async def resolve(self, host: str) -> Sequence[str]:
        """The addresses behind a name, in the order in which to try them, or raise OSError."""

    async def canonical_name(self, address: str) -> str:
        """The name of an address (a reverse look-up), or the address itself if it has none; or raise OSError."""


@runtime_checkable
class Serializer(Protocol):
    """Makes bytes of a key or a value. None never comes here: it is a null key or a tombstone."""

    def __call__(self, topic: str, headers: Headers, value: object, /) -> bytes:
        """The bytes. What it raises reaches the caller of `send` as `SerializationError`."""


@runtime_checkable
class Partitioner(Protocol):
    """Chooses the partition of a record whose caller names none."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int], /) -> int:
        """A number from 0 to `partitions` - 1; `available` are those that have a leader now.

        Key and value are what the serializers made. What it raises, or a number that is no partition, reaches the caller of `send` as
        `UsageError`, and touches no other record. Asked once for each record, on the producer's loop: it must not wait.
        """


class OpenBatch(Protocol):
    """A batch that takes records; plain Python or compiled (`engine.hot`), the rules do not see which."""

    count: int
    granted: int

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, /) -> Any:
        """The record's delivery, or None: it does not fit, or is no plain record. Never raises for want of room."""

    def append_many(self, timestamp_ms: int, keys: Sequence[bytes] | None, values: Sequence[bytes], first: int, /) -> int:
        """`append` for those from `first` on; the number of those that were, 0: no room."""

    def append_record(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes, /) -> Any:
        """`append` for a record with encoded headers, an own timestamp or any size."""

    def grow(self, room: int, /) -> None:
        """Give it room for so many more encoded bytes."""

    def close(self) -> tuple[bytes, int, int]:
        """Its payload, base and max timestamp; it takes no more."""
