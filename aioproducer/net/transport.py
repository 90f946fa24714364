"""The default dialer (TCP), the function that writes a list of buffers, and the closing of abandoned sockets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.net.name_resolution import look_up, numeric_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioproducer.interfaces import Buffer, Receiver, Stream

__all__ = ["TcpDialer", "close_socket", "disown", "writer_of"]

# When the system probes a connection that is silent: after 60 s, then each 15 s; after four probes without an answer the connection is lost.
# By default Linux waits two hours, and NATs, firewalls and load balancers drop idle connections after some minutes. macOS has another
# name for the first option.
_PROBES: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class TcpDialer:
    """Dials over TCP. The loop sets TCP_NODELAY, so small requests are sent at once; SO_KEEPALIVE keeps idle connections alive.

    The system probes a connection after a minute of silence. So NATs and load balancers do not drop it, and a peer that has vanished is
    noticed after two minutes.

    Args:
        send_buffer: bytes of SO_SNDBUF; below 0: the system's default (`send_buffer_bytes`).
        receive_buffer: bytes of SO_RCVBUF; below 0: the system's default.
    """

    def __init__(self, send_buffer: int = -1, receive_buffer: int = -1) -> None:
        self._options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        self._options += [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _PROBES if hasattr(socket, name)]
        self._options += [
            (socket.SOL_SOCKET, option, size)
            for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer))
            if size >= 0
        ]

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect to `host`. Returns the transport. Cancellation leaves no socket open.

        Raises:
            OSError: no connection could be made.
        """
        transport = await _connect(host, port, cast("Callable[[], asyncio.Protocol]", receiver))
        connected = transport.get_extra_info("socket")
        if connected is not None:
            for level, option, value in self._options:
                # macOS refuses the option after the peer has reset the connection
                with contextlib.suppress(OSError):
                    connected.setsockopt(level, option, value)
        return transport


async def _connect(host: str, port: int, receiver: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    """Connect to a numeric host, or to the first address of a name that accepts. A resolver other than DNS may give a name."""
    loop = asyncio.get_running_loop()
    if (found := numeric_address(host, port)) is not None:
        if "%" in host:
            return await _connect_scoped(loop, *found, receiver)
        # neither asyncio nor uvloop looks up a numeric host
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
    """Connect to an IPv6 address with a scope id, which asyncio's `create_connection` looks up in the default executor.

    uvloop's `sock_connect` looks up even a socket address, in libuv's threads. So this function connects the socket itself, and uses the
    loop only to wait until the socket is writable.
    """
    # asyncio sets TCP_NODELAY only on a socket that was made with its protocol number
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
    """Wait until the socket is connected or has failed. Returns the system's error number, or 0."""
    writable: asyncio.Future[None] = loop.create_future()

    def on_writable() -> None:
        if not writable.done():
            writable.set_result(None)

    try:
        loop.add_writer(connecting, on_writable)
    # the proactor loop of Windows has no `add_writer`, and its `sock_connect` makes no look-up
    except NotImplementedError:
        await loop.sock_connect(connecting, address)
        return 0
    try:
        await writable
    finally:
        loop.remove_writer(connecting)
    return connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def writer_of(stream: Stream) -> Callable[[Sequence[Buffer]], None]:
    """Return the function that writes a list of buffers to `stream`, so that a full write buffer pauses the stream's receiver.

    uvloop's `writelines` passes the buffers to one system call. asyncio's `writelines` joins them in Python 3.11. In 3.12 and 3.13 it
    never calls `pause_writing`, so from 3.12 on the returned function joins them.
    """
    if type(stream).__module__.startswith("asyncio") and sys.version_info >= (3, 12):
        return lambda buffers: stream.write(b"".join(buffers))
    return stream.writelines


def disown(streams: Iterable[Stream]) -> None:
    """Replace the socket of each stream by an unconnected one in a forked child, in the child's file table alone.

    The parent's socket and its entry in the shared epoll stay unchanged when the child's transport reads, writes, or is closed by the
    garbage collector. When the parent closes its socket, the broker is notified at once, because no other process has it open.
    """
    with contextlib.suppress(OSError), socket.socket() as nobodys:
        for stream in streams:
            connected = _socket_of(stream)
            number = connected.fileno() if connected is not None else -1
            if number >= 0:
                os.dup2(nobodys.fileno(), number, inheritable=False)


def close_socket(stream: Stream) -> None:
    """Close a stream's socket after its loop was closed, when the stream's `close` and `abort` raise.

    uvloop closes the socket with the loop.
    """
    connected = _socket_of(stream)
    # asyncio gives a wrapper without `close`; the real socket is its `_sock`
    connected = getattr(connected, "_sock", connected)
    if connected is not None and hasattr(connected, "close") and connected.fileno() >= 0:
        with contextlib.suppress(OSError):
            connected.close()


def _socket_of(stream: Any) -> Any:
    """Return the socket of a stream. Returns None for a stream in memory, or one of a user's dialer that gives no socket."""
    with contextlib.suppress(Exception):
        return stream.get_extra_info("socket")
    return None
