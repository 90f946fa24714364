"""One fake broker: its address, listener and connections; start, stop, pause and their variants."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Final

from aioproducer.testing.call import Call
from aioproducer.testing.connection import Connection
from aioproducer.testing.security.tls import TlsSpoil, TlsStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.security.authenticator import BrokerSecurity

__all__ = ["Call", "FakeBroker"]

# event-loop iterations from accepting a connection to `connection_made`, which resets it if the broker has stopped
_ACCEPTING_TURNS: Final = 3
_FILLERS: Final = 4  # connections that fill the queue of a listener without accepts; the kernel drops the next SYN


class FakeBroker:
    """A broker of a `FakeCluster`, in its `brokers` by number. It keeps its port while it is stopped.

    Attributes:
        node_id: its number.
        host: the host in Metadata answers; `advertise` makes it differ from the listener's.
        port: the port in Metadata answers; `advertise` makes it differ from the listener's.
        rack: its `broker.rack` in Metadata answers; None: it has none.
        latency: seconds that each answer is delayed, however many are in transit; a change applies to these too.
        bandwidth: bytes per second that each connection reads; None: unlimited; a change applies to bytes in transit too.
        is_running: whether it listens.
        is_paused: whether it neither reads nor answers.
        is_known: whether Metadata names it.
        connections: the open connections.
        versions: lowest and highest version by request number.
        security: what it demands of clients, and the users that it knows; `FakeCluster.security` changes it.
    """

    def __init__(
        self, cluster: FakeCluster, node_id: int, versions: Mapping[int, tuple[int, int]]
    ) -> None:
        self.cluster = cluster
        self.node_id: int = node_id
        self.host: str = "127.0.0.1"
        self.port: int = 0
        self.rack: str | None = None
        self._latency = 0.0
        self._bandwidth: float | None = None
        self.is_running: bool = False
        self.is_paused: bool = False
        self.is_known: bool = True
        self.connections: dict[Connection, None] = {}
        self.versions = versions
        self.security: BrokerSecurity = cluster.security.of_new_broker()
        self.loop: asyncio.AbstractEventLoop
        self._is_empty = asyncio.Event()
        self._listens_on: tuple[str, int] | None = None
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None
        self._fillers: list[socket.socket] = []

    @property
    def address(self) -> tuple[str, int]:
        """Return the address that the broker listens on, or listened on last."""
        return self._listens_on or (self.host, self.port)

    # --- latency and bandwidth

    @property
    def latency(self) -> float:
        """Return the seconds that each answer is delayed."""
        return self._latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self._latency = seconds
        for connection in self._in_order():
            connection.on_latency()

    @property
    def bandwidth(self) -> float | None:
        """Return the bytes per second that each connection reads; None: unlimited."""
        return self._bandwidth

    @bandwidth.setter
    def bandwidth(self, speed: float | None) -> None:
        before, self._bandwidth = self._bandwidth, speed
        for connection in self._in_order():
            connection.on_bandwidth(before)

    # --- start and stop

    async def start(self) -> None:
        """Listen, at first and after `stop` or `vanish`. Does nothing if the broker listens already."""
        if self.is_running:
            return
        self.loop = asyncio.get_running_loop()
        self.is_paused = False
        # connections that were open when it vanished
        self.disconnect_all()
        network = self.cluster.network
        if network is not None:
            if self._listens_on is None:
                self._listen_on(f"broker-{self.node_id}.memory", 9092)
            network.listen(*self.address, self._accept)
        else:
            self._unfill()
            listener = self._reserved or _bound(*self.address)
            self._reserved = None
            if self._listens_on is None:
                self._listen_on(self.host, listener.getsockname()[1])
            self.is_running = True  # a connection may be made before start_serving returns
            self._server = await self.loop.create_server(
                self._accept, sock=listener, start_serving=False
            )
            # A separate call: a create_server that is cancelled while it serves would leak the server.
            await self._server.start_serving()
        self.is_running = self.is_known = True

    async def stop(self, *, silently: bool = False) -> None:
        """Refuse connections and reset the open ones.

        Args:
            silently: Metadata continues to name the broker and its leaderships, as in the seconds before a cluster notices. Otherwise its
                partitions have no leader until it starts again or `move_leader` gives them another.
        """
        if self.is_running:
            self.is_known = silently
            listened = self._server is not None
            await self._shut()
            if listened:
                self._reserved = _bound(*self.address)

    async def vanish(self) -> None:
        """Disappear like a machine without power: no answer and no reset on open connections, no accept or refusal of new ones.

        `start` ends this; it resets the old connections. With sockets it needs a kernel that drops connections beyond a full accept queue,
        as Linux does.
        """
        self.pause()
        if not self.is_running:
            return
        self.is_running = False
        network = self.cluster.network
        if network is not None:
            network.silence(*self.address)
            return
        self._close_server()
        await asyncio.sleep(0)
        self._reserved = _bound(*self.address)
        self._reserved.listen(0)
        for _ in range(_FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(self.address)
            self._fillers.append(filler)

    async def relocate(self) -> None:
        """Move to another port with number and leaderships, as a broker that is replaced at another address."""
        host, port = self.address
        was_running = self.is_running
        await self.close()
        if self.cluster.network is not None:
            self._listen_on(host, port + 1)
        else:
            self._listens_on, self.port = None, 0
        if was_running:
            await self.start()

    async def renumber(self, node_id: int) -> None:
        """Restart with another number at the same address, and with the old leaderships."""
        cluster = self.cluster
        if node_id in cluster.brokers:
            raise ValueError(f"there is a broker {node_id}")
        await self.stop()
        del cluster.brokers[self.node_id]
        cluster.brokers[node_id] = self
        cluster.topics.replace_broker(self.node_id, node_id)
        self.node_id = node_id
        await self.start()

    async def retire(self) -> None:
        """Leave the cluster for good: other replicas lead its partitions, Metadata stops naming it, and its port is closed."""
        if len(self.cluster.brokers) == 1:
            raise ValueError("a cluster has at least 1 broker; add another one first")
        del self.cluster.brokers[self.node_id]
        self.cluster.topics.replace_broker(self.node_id, None)
        await self.close()

    def advertise(self, host: str, port: int) -> None:
        """Let Metadata name this address from now on, right or wrong; the listener's address does not change."""
        self.host, self.port = host, port

    async def close(self) -> None:
        """Stop for good and close the port."""
        await self._shut()
        self._unfill()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def pause(self) -> None:
        """Stop reading and answering, like a stopped process: clients' requests fill their buffers."""
        self.is_paused = True
        self._tell_connections()

    def resume(self) -> None:
        """Continue after `pause`."""
        self.is_paused = False
        self._tell_connections()

    # --- its connections

    def remember(self, connection: Connection) -> None:
        """Note a new connection."""
        self.connections[connection] = None
        self._is_empty.clear()

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._is_empty.set()

    def disconnect_all(self) -> None:
        """Reset every connection."""
        for connection in tuple(self.connections):
            connection.reset()

    def close_all(self) -> None:
        """Close every connection after its last answer, as a broker does with idle ones (`connections.max.idle.ms`)."""
        for connection in tuple(self.connections):
            connection.close()

    def _tell_connections(self) -> None:
        for connection in self._in_order():
            connection.go_on()

    def _in_order(self) -> list[Connection]:
        return sorted(self.connections, key=lambda connection: connection.number)

    # --- its listener

    def _accept(self) -> Connection | TlsStream:
        """Return the protocol of a new connection, below TLS if the listener has it."""
        connection = Connection(self)
        if not self.security.listener.has_tls:
            return connection
        rule = self.cluster.faults.judge("TLS", self.node_id, ()).others.get("tls")
        spoil = rule.tls if rule is not None and rule.tls is not None else TlsSpoil()
        return TlsStream(
            connection,
            self.security.context(),
            on_up=connection.tls_up,
            on_failure=connection.tls_failed,
            spoil=spoil,
        )

    def _listen_on(self, host: str, port: int) -> None:
        self._listens_on = self.host, self.port = host, port

    async def _shut(self) -> None:
        self.is_running = False
        if self.cluster.network is not None:
            self.cluster.network.unlisten(*self.address)
        server = self._server
        self._stop_accepting()
        self.disconnect_all()
        try:
            for _ in range(_ACCEPTING_TURNS):
                await asyncio.sleep(0)
        finally:
            # close only now: asyncio would lose the socket of a connection between its accept and `connection_made`
            if server is not None:
                self._close_server()
        if self.connections:
            await self._is_empty.wait()

    def _stop_accepting(self) -> None:
        if self._server is not None:
            # Windows' proactor loop has no readers
            with contextlib.suppress(NotImplementedError):
                self.loop.remove_reader(self._server.sockets[0].fileno())

    def _close_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _unfill(self) -> None:
        """Close the listener that accepts no connection, and the connections in its queue."""
        if self._fillers:
            while self._fillers:
                self._fillers.pop().close()
            if self._reserved is not None:
                self._reserved.close()
                self._reserved = None


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the port; it refuses connections until it listens."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # on other systems the option lets other processes bind the port too
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
