"""Notes when the certificates in use end, and reports each once when its end is near."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Certificates"]

_DAY: Final = 86_400.0
# Days before its end from which on a certificate is reported.
_NEAR: Final = 30.0


class Certificates:
    """Holds the ends of this client's certificate and of the brokers' ones, in seconds since 1970.

    Args:
        epoch: the time of day at the clock's zero, in seconds since 1970.
        clock: returns the loop's time.
        on_near: called once for each certificate with its owner and the days that are left.

    Attributes:
        client_ends_at: the end of the client's certificate; None: there is none.
        brokers_end_at: the end of the certificate of each broker that was connected to, by its number.
    """

    def __init__(self, epoch: float, clock: Callable[[], float], on_near: Callable[[str, float], None]) -> None:
        self.client_ends_at: float | None = None
        self.brokers_end_at: dict[int, float] = {}
        self._epoch = epoch
        self._clock = clock
        self._on_near = on_near
        self._reported: dict[str, float] = {}

    def note(self, node_id: int, where: str, broker_ends_at: float | None, client_ends_at: float | None) -> None:
        """Note the certificates of a new connection; None: the certificate is not known."""
        self.client_ends_at = client_ends_at
        if broker_ends_at is not None:
            self.brokers_end_at[node_id] = broker_ends_at
            self._report(f"the broker at {where}", broker_ends_at)
        if client_ends_at is not None:
            self._report("this client", client_ends_at)

    def forget(self, node_id: int) -> None:
        """Forget the certificate of a broker that left the cluster."""
        self.brokers_end_at.pop(node_id, None)

    def _report(self, owner: str, ends_at: float) -> None:
        days = (ends_at - self._epoch - self._clock()) / _DAY
        if days < _NEAR and self._reported.get(owner) != ends_at:
            self._reported[owner] = ends_at
            self._on_near(owner, days)
