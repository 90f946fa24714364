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
    """Connects over TCP. Small requests leave at once (the loop sets TCP_NODELAY), and idle connections are kept alive.

    Args:
        send_buffer: bytes of SO_SNDBUF; below 0: the system's own (`send_buffer_bytes`).
        receive_buffer: bytes of SO_RCVBUF, likewise.
    """

    def __init__(self, send_buffer: int = -1, receive_buffer: int = -1) -> None:
        self._options = [(socket.SO_KEEPALIVE, 1)]
        self._options += [
            (option, size) for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)) if size >= 0
        ]

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect, or raise OSError. Cancelled: nothing stays open."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(cast("Callable[[], asyncio.Protocol]", receiver), host, port)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            for option, value in self._options:
                with contextlib.suppress(OSError):  # macOS refuses it when the peer has reset the connection already
                    connected.setsockopt(socket.SOL_SOCKET, option, value)
        return transport


def writer_of(stream: Stream) -> Callable[[Sequence[Buffer]], None]:
    """The function that writes a list of buffers to `stream`, so that a full buffer pauses its receiver.

    uvloop gathers them in one system call. asyncio's own `writelines` joins them first in 3.11, and in 3.12 and 3.13 never calls
    `pause_writing`: there they are joined here.
    """
    if type(stream).__module__.startswith("asyncio") and sys.version_info >= (3, 12):
        return lambda buffers: stream.write(b"".join(buffers))
    return stream.writelines
