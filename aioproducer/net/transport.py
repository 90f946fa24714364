"""The default dialer, TCP; how a list of buffers is best written; sockets whose loop can do nothing more. Knows nothing of Kafka's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, cast

from aioproducer.net.name_resolution import look_up, numeric_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproducer.interfaces import Buffer, Receiver, Stream

__all__ = ["TcpDialer", "close_socket", "disown", "writer_of"]


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
        transport = await _connect(host, port, cast("Callable[[], asyncio.Protocol]", receiver))
        connected = transport.get_extra_info("socket")
        if connected is not None:
            for option, value in self._options:
                with contextlib.suppress(OSError):  # macOS refuses it when the peer has reset the connection already
                    connected.setsockopt(socket.SOL_SOCKET, option, value)
        return transport


async def _connect(host: str, port: int, receiver: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    """A connection to a numeric host, or to one of the addresses of a name, which a resolver other than DNS may have given."""
    loop = asyncio.get_running_loop()
    if (found := numeric_address(host, port)) is not None:
        if "%" in host:
            return await _connect_scoped(loop, *found, receiver)
        # of these neither asyncio nor uvloop makes a look-up
        transport, _ = await loop.create_connection(receiver, host, port)
        return transport
    failures: dict[str, OSError] = {}
    for *_, sockaddr in await look_up("addresses", host, lambda: socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM)):
        address = str(sockaddr[0])
        try:
            return await _connect(address, port, receiver)
        except OSError as error:
            failures[address] = error
    if len(failures) == 1:
        raise failures.popitem()[1]
    raise OSError("; ".join(f"{address}: {error}" for address, error in failures.items()))


async def _connect_scoped(
    loop: asyncio.AbstractEventLoop, family: int, address: tuple[Any, ...], receiver: Callable[[], asyncio.Protocol]
) -> asyncio.Transport:
    """A connection to an IPv6 address with a scope id, which asyncio's `create_connection` looks up in the default executor.

    uvloop's `sock_connect` has a look-up in libuv's threads even of a socket address: the loop is only asked when the socket is writable.
    """
    # with its protocol, without which asyncio does not set TCP_NODELAY
    connecting = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        connecting.setblocking(False)
        status = connecting.connect_ex(address)
        if status in {errno.EINPROGRESS, errno.EWOULDBLOCK}:
            status = await _connected(loop, connecting, address)
        if status:
            raise OSError(status, f"Connect call failed {address}")
        transport, _ = await loop.create_connection(receiver, sock=connecting)
    except BaseException:
        connecting.close()
        raise
    return transport


async def _connected(loop: asyncio.AbstractEventLoop, connecting: socket.socket, address: tuple[Any, ...]) -> int:
    """Wait for the connection; the system's error number, or 0."""
    writable: asyncio.Future[None] = loop.create_future()

    def on_writable() -> None:
        if not writable.done():
            writable.set_result(None)

    try:
        loop.add_writer(connecting, on_writable)
    except NotImplementedError:  # Windows: its own `sock_connect` makes no look-up
        await loop.sock_connect(connecting, address)
        return 0
    try:
        await writable
    finally:
        loop.remove_writer(connecting)
    return connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def writer_of(stream: Stream) -> Callable[[Sequence[Buffer]], None]:
    """The function that writes a list of buffers to `stream`, so that a full buffer pauses its receiver.

    uvloop gathers them in one system call. asyncio's own `writelines` joins them first in 3.11, and in 3.12 and 3.13 never calls
    `pause_writing`: there they are joined here.
    """
    if type(stream).__module__.startswith("asyncio") and sys.version_info >= (3, 12):
        return lambda buffers: stream.write(b"".join(buffers))
    return stream.writelines


def disown(streams: Iterable[Stream]) -> None:
    """In a forked child: put a socket of nobody's in the place of each stream's, in the child's table of files alone.

    The parent's socket and its entry in the shared epoll stay as they are, whatever the child's transport does from now on: reads, writes,
    or closes when it is collected. And when the parent closes its socket, the broker learns it at once, as no other process has it open.
    """
    with contextlib.suppress(OSError), socket.socket() as nobodys:
        for stream in streams:
            connected = _socket_of(stream)
            number = connected.fileno() if connected is not None else -1
            if number >= 0:
                os.dup2(nobodys.fileno(), number, inheritable=False)


def close_socket(stream: Stream) -> None:
    """Close a stream's socket after its loop was closed, when the stream's own `close` and `abort` raise. uvloop has closed it with the loop."""
    connected = _socket_of(stream)
    connected = getattr(connected, "_sock", connected)  # asyncio shows a socket that cannot be closed around the one that can
    if connected is not None and hasattr(connected, "close") and connected.fileno() >= 0:
        with contextlib.suppress(OSError):
            connected.close()


def _socket_of(stream: Any) -> Any:
    """None: the stream has none, as one in memory, or one of a dialer of the user's that does not show it."""
    with contextlib.suppress(Exception):
        return stream.get_extra_info("socket")
    return None
