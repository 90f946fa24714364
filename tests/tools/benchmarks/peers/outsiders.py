"""Lists the clients in other languages: how each runs a task in its own process, and its functions that send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.tools.benchmarks.peers import franz, java
from tests.tools.benchmarks.peers.clients import CLIENTS, FRANZ, JAVA

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tests.tools.benchmarks.task import Task, Told

OUTSIDERS: Final[Mapping[str, Callable[[Task], Awaitable[Told]]]] = {JAVA: java.run, FRANZ: franz.run}
_WAYS: Final[Mapping[str, Sequence[str]]] = {JAVA: java.WAYS, FRANZ: franz.WAYS}


def ways_of(client: str) -> Sequence[str]:
    """Return the names of all functions that a client has."""
    return _WAYS[client] if client in _WAYS else tuple(CLIENTS[client].ways)
