"""The default dialer, TCP, and how a list of buffers is best written. Knows nothing of Kafka's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.interfaces import Buffer, Receiver, Stream

__all__ = ["TcpDialer", "writer_of"]


class TcpDialer:
    """Connects over TCP; every address that the name resolves to is tried."""

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect, or raise OSError. Cancelled: nothing stays open."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(cast("Callable[[], asyncio.Protocol]", receiver), host, port)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            with contextlib.suppress(OSError):  # macOS refuses it when the peer has reset the connection already
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return transport


def writer_of(stream: Stream) -> Callable[[Sequence[Buffer]], None]:
    """The function that writes a list of buffers to `stream`, so that a full buffer pauses its receiver.

    uvloop gathers them in one system call. asyncio's own `writelines` joins them first in 3.11, and in 3.12 and 3.13 never calls
    `pause_writing`: there they are joined here.
    """
    if type(stream).__module__.startswith("asyncio") and sys.version_info >= (3, 12):
        return lambda buffers: stream.write(b"".join(buffers))
    return stream.writelines
