"""How a broker's name becomes a stream: look-ups, the addresses that are still to be tried, the dialer (TCP), and the stream's socket.

1. Names are looked up by the loop, which asks the system in its default executor (uvloop: in libuv's threads); the caller bounds the time.
   While that executor is full of the application's calls, or of look-ups that hang, a look-up waits there, and `asyncio.run` waits at its end
   for those that hang. A numeric host needs no look-up. A resolver of the user's (`resolver=`) has neither problem.
2. A connection tries each address of a name once before a failed one is tried again (NET-32). `Addresses` looks the name up again when
   no address is left, after an established connection is lost, and when the look-up is `_FRESH` seconds old, because the addresses of a
   name change: a pod that is replaced has another one. Addresses that are dead may each take the time limit of an attempt.
3. The address of a lost connection is tried last (KAFKA-12193): behind it may be an instance of a load balancer that accepts connections
   and serves none. It stays before the addresses of the other IP version, which may lead nowhere.
4. With `client_dns_lookup=resolve_canonical_bootstrap_servers_only`, canonical names replace the addresses of a bootstrap name
   (KIP-235). The dialer then connects to each host behind a load balancer by its own name, and checks that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from aioproducer.interfaces import Buffer, Receiver, Resolver, Stream

# Seconds after which a name is looked up again while some of its addresses are still to be tried, and seconds that this look-up may take.
_FRESH: Final = 5.0
_PATIENCE: Final = 1.0
# When the system probes a connection that is silent: after 60 s, then each 15 s; after four probes without an answer the connection is lost.
# By default Linux waits two hours, and NATs, firewalls and load balancers drop idle connections after some minutes. macOS has another
# name for the first option.
_PROBES: Final = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPALIVE", 60),
    ("TCP_KEEPINTVL", 15),
    ("TCP_KEEPCNT", 4),
)


class DnsResolver:
    """Resolves names by the running loop."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Return the addresses of a name; a numeric host is its own address.

        Raises:
            OSError: the name has no address; the resolver's text gives the reason.
        """
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return (host,)
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(each[4][0]) for each in found))

    async def canonical_name(self, address: str) -> str:
        """Return the name of an address, or the address itself if it has no name."""
        name, _ = await asyncio.get_running_loop().getnameinfo((address, 0))
        return name


class Verbatim:
    """Returns every name as its own address, for dialers that resolve names themselves, such as a fake cluster's dialer."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Return the name."""
        return (host,)

    async def canonical_name(self, address: str) -> str:
        """Return the address."""
        return address


def canonical(resolver: Resolver) -> Callable[[str], Awaitable[Sequence[str]]]:
    """Return a look-up function that gives the canonical names of the addresses of a name."""

    async def look_up(host: str) -> Sequence[str]:
        return tuple(
            dict.fromkeys(
                [await resolver.canonical_name(address) for address in await resolver.resolve(host)]
            )
        )

    return look_up


class Addresses:
    """Holds the addresses of one host that are still to be tried.

    Args:
        look_up: returns the addresses of the host's name.
    """

    def __init__(self, host: str, look_up: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        self._host = host
        self._look_up = look_up
        self._left: list[str] = []
        self._found_at = 0.0
        # Those that failed since all of them were to be tried.
        self._failed: set[str] = set()
        # The address of the connection that was lost latest; empty: it was closed here, or there was none.
        self._lost = ""

    async def to_try(self) -> Sequence[str]:
        """Return the addresses that have not failed. Looks the name up again if all of them failed, or if the look-up is old.

        If a look-up fails or hangs while addresses are left, these are returned. Cancellation changes no state.

        Raises:
            OSError: the name has no address.
        """
        now = asyncio.get_running_loop().time()
        if self._left and now < self._found_at + _FRESH:
            return tuple(self._left)
        try:
            async with asyncio.timeout(_PATIENCE if self._left else None):
                found = await self._look_up(self._host)
        # a resolver of the user's may raise anything
        except Exception:
            if not self._left:
                raise
            found = ()
        if found:
            self._take(found, now)
        elif not self._left:
            raise OSError(f"the name {self._host!r} stands for no address")
        return tuple(self._left)

    def _take(self, found: Sequence[str], now: float) -> None:
        """Note the addresses of a look-up, without those that have failed, unless all have."""
        ordered = _after(self._lost, list(found))
        self._left = [address for address in ordered if address not in self._failed]
        if not self._left:
            self._failed.clear()
            self._left = ordered
        self._found_at = now

    def failed(self, address: str) -> None:
        """Remove `address` from those to be tried, after a connection attempt to it failed."""
        if address in self._left:
            self._left.remove(address)
            self._failed.add(address)

    def forget(self, lost: str = "") -> None:
        """Drop all addresses, so that `to_try` looks the name up again.

        Args:
            lost: the address of a connection that was lost, which is to be tried last; empty: the order stays that of the look-up.
        """
        self._left.clear()
        self._failed.clear()
        self._lost = lost


def _after(lost: str, found: list[str]) -> list[str]:
    """Return the addresses of a name in the order in which they are tried after a connection to `lost` was lost.

    The addresses of its IP version come first, from the one behind it on, and `lost` as the last of them.
    """
    if lost not in found:
        return found
    at = found.index(lost) + 1
    others = found[at:] + found[:at]
    same = [address for address in others if (":" in address) == (":" in lost)]
    return same + [address for address in found if address not in same]


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
        self._options += [
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in _PROBES
            if hasattr(socket, name)
        ]
        self._options += [
            (socket.SOL_SOCKET, option, size)
            for option, size in (
                (socket.SO_SNDBUF, send_buffer),
                (socket.SO_RCVBUF, receive_buffer),
            )
            if size >= 0
        ]

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect to `host`. Returns the transport. Cancellation leaves no socket open.

        Raises:
            OSError: no connection could be made.
        """
        protocol = cast("Callable[[], asyncio.Protocol]", receiver)
        transport, _ = await asyncio.get_running_loop().create_connection(protocol, host, port)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            for level, option, value in self._options:
                # macOS refuses the option after the peer has reset the connection
                with contextlib.suppress(OSError):
                    connected.setsockopt(level, option, value)
        return transport


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
