"""From a host's name to the addresses to dial, and which of them is next. Knows nothing of connections.

1. Each address that a name stands for is tried, those that failed last (NET-32). When none is left the name is looked up again, and
   also after a connection that stood was lost: names move.
2. `client_dns_lookup=resolve_canonical_bootstrap_servers_only` puts the canonical names behind a bootstrap address in the place of
   its addresses (KIP-235): what a load balancer's name hides is then dialled, and checked, under names of its own.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from aioproducer.net.name_resolution import look_up, numeric_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioproducer.interfaces import Resolver

__all__ = ["Addresses", "DnsResolver", "Verbatim", "canonical"]


class DnsResolver:
    """Asks the system (`getaddrinfo`, `getnameinfo`), in threads of this library (`name_resolution`)."""

    async def resolve(self, host: str) -> Sequence[str]:
        """The addresses of a name; a numeric host is its own. OSError: there is none; the resolver's text says why."""
        if numeric_address(host, 0) is not None:
            return (host,)
        found = await look_up("addresses", host, lambda: socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM))
        return tuple(dict.fromkeys(str(each[4][0]) for each in found))

    async def canonical_name(self, address: str) -> str:
        """The name of an address, or the address itself if it has none."""
        name, _ = await look_up("name", address, lambda: socket.getnameinfo((address, 0), 0))
        return str(name)


class Verbatim:
    """Takes every name for an address: for dialers that know names themselves, as a fake cluster's does."""

    async def resolve(self, host: str) -> Sequence[str]:
        """The name."""
        return (host,)

    async def canonical_name(self, address: str) -> str:
        """The address."""
        return address


def canonical(resolver: Resolver) -> Callable[[str], Awaitable[Sequence[str]]]:
    """A look-up that answers the canonical names of the addresses behind a name."""

    async def look_up(host: str) -> Sequence[str]:
        return tuple(dict.fromkeys([await resolver.canonical_name(address) for address in await resolver.resolve(host)]))

    return look_up


class Addresses:
    """The addresses of one host.

    Args:
        look_up: asks for them.
    """

    def __init__(self, host: str, look_up: Callable[[str], Awaitable[Sequence[str]]]) -> None:
        self._host = host
        self._look_up = look_up
        self._left: list[str] = []

    async def to_try(self) -> Sequence[str]:
        """The addresses that have not failed since the name was looked up; if there is none, all, looked up again.

        Raises:
            OSError: the name stands for none.
        Cancellation leaves nothing behind.
        """
        if not self._left:
            found = await self._look_up(self._host)
            if not found:
                raise OSError(f"the name {self._host!r} stands for no address")
            self._left = list(found)
        return tuple(self._left)

    def failed(self, address: str) -> None:
        """Another is tried next."""
        if address in self._left:
            self._left.remove(address)

    def forget(self) -> None:
        """Look the name up again."""
        self._left.clear()
