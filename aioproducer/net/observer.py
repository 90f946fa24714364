"""The observer of connections: the events that it is notified of. The classes here ignore all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer.core.metadata.cluster_metadata import Broker
    from aioproducer.errors import TransportError
    from aioproducer.net.tls import TlsFacts


class Traffic:
    """Is notified of the requests and answers of one broker. This class ignores them."""

    __slots__ = ()

    def sent(self, now: float, size: int) -> None:
        """Record that a request of `size` bytes was written at the loop's time `now`."""

    def answered(self, now: float, size: int) -> None:
        """Record that an answer of `size` bytes came at the loop's time `now`."""


class Observer:
    """Is notified of the events of connections. This class ignores them."""

    def traffic(self, node_id: int) -> Traffic | None:
        """Return what counts the requests of that broker; None: nothing does."""

    def connected(self, broker: Broker, label: str) -> None:
        """Record that a connection is ready; `label` is "produce" or "control"."""

    def encrypted(
        self, broker: Broker, facts: TlsFacts, client_certificate_ends_at: float | None
    ) -> None:
        """Record what TLS agreed on for a connection that is ready.

        Args:
            broker: the broker.
            facts: the version, the cipher and the end of the broker's certificate.
            client_certificate_ends_at: the end of this client's certificate, in seconds since 1970; None: it has none, or none that is known.
        """

    def lost(self, broker: Broker, label: str, cause: TransportError | None) -> None:
        """Record that an established connection was lost."""

    def failed(self, broker: Broker, label: str, cause: TransportError, failures: int) -> None:
        """Record that an attempt to connect failed, the last of `failures` consecutive ones."""

    def authenticated(
        self,
        broker: Broker,
        label: str,
        seconds: float,
        session_seconds: float,
        *,
        is_renewal: bool,
    ) -> None:
        """Record that a connection was authenticated, by TLS or SASL, or that its session was renewed.

        Args:
            broker: the broker.
            label: "produce" or "control".
            seconds: time that the SASL exchange took; 0 without SASL.
            session_seconds: lifetime of the session; 0: it does not end.
            is_renewal: the connection was authenticated before (KIP-368).
        """

    def authentication_failed(
        self, broker: Broker, label: str, error: TransportError, *, is_renewal: bool
    ) -> None:
        """Record that a connection could not be authenticated, or that its session could not be renewed."""

    def token_fetched(self, source: str, seconds: float) -> None:
        """Record that `source` gave a bearer token, which lives for so many seconds."""

    def token_failed(self, source: str, error: TransportError, failures: int) -> None:
        """Record that `source` gave no token, at the last of `failures` consecutive attempts."""

    def throttled(self, broker: Broker, milliseconds: int) -> None:
        """Record that a broker, which was not muted, throttles this client for `milliseconds`."""

    def forgotten(self) -> None:
        """Record that the cluster drops all brokers, because none of them answers."""

    def gone(self, broker: Broker) -> None:
        """Record that a broker left the cluster, or has another address."""


UNSEEN: Final = Observer()
