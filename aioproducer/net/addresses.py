"""The addresses of a host: the resolvers that look them up, and the addresses that are still to be tried.

1. A connection tries each address of a name once before a failed one is tried again (NET-32). `Addresses` looks the name up again when
   no address is left, after an established connection is lost, and when the look-up is `_FRESH` seconds old, because the addresses of a
   name change: a pod that is replaced has another one. Addresses that are dead may each take the time limit of an attempt.
2. The address of a lost connection is tried last (KAFKA-12193): behind it may be an instance of a load balancer that accepts connections
   and serves none. It stays before the addresses of the other IP version, which may lead nowhere.
3. With `client_dns_lookup=resolve_canonical_bootstrap_servers_only`, canonical names replace the addresses of a bootstrap name
   (KIP-235). The dialer then connects to each host behind a load balancer by its own name, and checks that name.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from aioproducer.net.name_resolution import look_up, numeric_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioproducer.interfaces import Resolver

__all__ = ["Addresses", "DnsResolver", "Verbatim", "canonical"]

# Seconds after which a name is looked up again while some of its addresses are still to be tried, and seconds that this look-up may take.
_FRESH: Final = 5.0
_PATIENCE: Final = 1.0


class DnsResolver:
    """Resolves names with the system's `getaddrinfo` and `getnameinfo`, in threads of this library (`name_resolution`)."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Return the addresses of a name; a numeric host is its own address.

        Raises:
            OSError: the name has no address; the resolver's text gives the reason.
        """
        if numeric_address(host, 0) is not None:
            return (host,)
        found = await look_up("addresses", host, lambda: socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM))
        return tuple(dict.fromkeys(str(each[4][0]) for each in found))

    async def canonical_name(self, address: str) -> str:
        """Return the name of an address, or the address itself if it has no name."""
        name, _ = await look_up("name", address, lambda: socket.getnameinfo((address, 0), 0))
        return str(name)


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
        return tuple(dict.fromkeys([await resolver.canonical_name(address) for address in await resolver.resolve(host)]))

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
