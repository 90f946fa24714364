"""Lets the connections of a producer be made one at a time while no broker accepts its credentials: `sasl.gate` in an event loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerNotTrusted, CertificateNotTrusted, CredentialsRefused
from aioproducer.sasl.gate import Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["LoginGate"]

# Seconds: while a broker's delay is longer, requests for any broker go to others.
_SHORT: Final = 1.0


class LoginGate:
    """Is the gate that all connections of one producer pass before they are made. A broker is named by its host:port."""

    def __init__(self) -> None:
        self._gate = Gate()
        # Set, and replaced, when a delay may have become shorter.
        self._changed = asyncio.Event()

    def blocks(self, where: str, now: float) -> bool:
        """Return True if a connection to a broker cannot be made within a second, unless another attempt ends first."""
        return self._gate.delay(where, now) > _SHORT

    @asynccontextmanager
    async def passage(self, where: str, chance: Callable[[], float]) -> AsyncIterator[None]:
        """Wait until a broker may be dialled. The body makes the connection: its end, or its error, is the broker's verdict.

        Cancellation is no verdict. `chance` returns a random number in [0, 1).
        """
        loop = asyncio.get_running_loop()
        while (delay := self._gate.delay(where, loop.time())) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._changed.wait()
        began_at = loop.time()
        self._gate.begin(where, began_at)
        try:
            yield
        except CredentialsRefused:
            self._gate.refused(where, began_at, loop.time(), chance())
            raise
        except (BrokerNotTrusted, CertificateNotTrusted):
            self._gate.not_trusted(where, loop.time(), chance())
            raise
        except BaseException:
            self._gate.end(where)
            raise
        else:
            self._gate.let_in(where)
        finally:
            # closed: the garbage collector ends a task that was left in it
            if not loop.is_closed():
                self._tell()

    def renewed(self, where: str) -> None:
        """Note that a broker renewed a session."""
        self._gate.let_in(where)
        self._tell()

    def renewal_refused(self, now: float) -> None:
        """Note that a broker refused to renew a session."""
        self._gate.renewal_refused(now)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
