"""What may be watched of connections, and a watch that sees nothing. Knows nothing of what is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.errors import TransportError

__all__ = ["NO_TRAFFIC", "UNSEEN", "Observer", "Traffic"]


class Traffic:
    """Watches the requests of one broker. Of this one nothing is kept."""

    __slots__ = ()

    def sent(self, now: float, size: int) -> None:
        """A request of so many bytes was written."""

    def answered(self, now: float, size: int) -> None:
        """An answer of so many bytes came."""


class Observer:
    """Watches connections. This one sees nothing."""

    def traffic(self, node_id: int) -> Traffic:  # noqa: ARG002
        """Who watches the requests of that broker."""
        return NO_TRAFFIC

    def connected(self, broker: Broker, label: str) -> None:
        """A connection stands; `label` is its lane's."""

    def lost(self, broker: Broker, label: str, cause: TransportError | None) -> None:
        """One that stood is gone."""

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        """One could not be made, for so many times in a row."""

    def throttled(self, broker: Broker, milliseconds: int) -> None:
        """A broker that was not left alone wants to be, for so long."""

    def forgotten(self) -> None:
        """No known broker answers: all are forgotten."""

    def gone(self, broker: Broker) -> None:
        """It is a broker of the cluster no more, or has another address."""


NO_TRAFFIC: Final = Traffic()
UNSEEN: Final = Observer()
