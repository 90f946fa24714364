"""One fake broker: its listener, its connections, and the way of a request through them.

1. Requests of one connection are answered one at a time, in order; while one waits, no more is read than has come in already.
2. What no broker takes (a frame that is none, an unknown request or version, a message that does not decode) closes the connection
   and is remembered in `FakeCluster.violations`.
3. There are no tasks: what waits is a timer or a callback that ends with its connection.
4. The same protocol serves sockets and memory streams.

Knows nothing of what requests mean (`handlers`) or why they fail (`faults`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ProtocolError
from aioproducer.testing.handlers import HANDLERS, api_versions
from aioproducer.wire.api import ApiKey
from aioproducer.wire.frame import FrameReader, decode_request, encode_response
from aioproducer.wire.schema import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.faults import Target, Verdict, When
    from aioproducer.testing.handlers.handler import Handler
    from aioproducer.wire.frame import RequestHeader

__all__ = ["Call", "Connection", "FakeBroker"]

_START: Final = struct.Struct(">hhi")  # key, version, correlation id: the same in every request header
_LEAST_HEADER: Final = 10
_ACCEPTING_TURNS: Final = 3  # of the loop: from accepting a connection to `connection_made`, which resets it if we have stopped


class Call:
    """One request on its way to its answer."""

    def __init__(self, connection: Connection, header: RequestHeader, handler: Handler, request: Any) -> None:
        self.connection = connection
        self.broker = connection.broker
        self.cluster = connection.broker.cluster
        self.version = header.version
        self.request = request
        self.header = header
        self.verdict: Verdict
        self._handler = handler
        self._timer: asyncio.TimerHandle | None = None
        self._cleanups: list[Callable[[], None]] = []
        self._is_dropped = False

    def begin(self) -> None:
        """Meet what was scripted, and answer."""
        targets = self._handler.targets(self.cluster, self.request)
        self.verdict = self.cluster.faults.judge(self._handler.name, self.broker.node_id, targets)
        if self.verdict.disconnect == "before":
            self.connection.reset()
        else:
            self._hold("before", lambda: self._handler.answer(self))

    def reply(self, response: Any) -> None:
        """The answer; None where the request wants none."""
        self.forget_waiting()
        if self.verdict.disconnect == "after":
            self.connection.reset()
            return
        if response is not None:
            if self.verdict.throttle_ms:
                response.throttle_time_ms = self.verdict.throttle_ms
            for rewrite in self.verdict.rewrites:
                rewrite(response)
        self._hold("after", lambda: self._send(response))

    def code(self, target: Target) -> int:
        """The scripted error of a target; 0: none."""
        return self.verdict.code(target)

    def wait(self, seconds: float, then: Callable[[], None], cleanup: Callable[[], None]) -> None:
        """Call `then` after a while; `cleanup` when the call is answered or its connection is lost, whichever comes first."""
        self._cleanups.append(cleanup)
        self._timer = self.broker.loop.call_later(seconds, then)

    def forget_waiting(self) -> None:
        """End what `wait` began."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._cleanups:
            self._cleanups.pop()()

    def drop(self) -> None:
        """The connection is gone: nothing of this call happens any more."""
        self._is_dropped = True
        self.forget_waiting()

    def _hold(self, when: When, go_on: Callable[[], None]) -> None:
        delay = self.verdict.delay
        if delay is not None and delay.when == when:
            self._timer = self.broker.loop.call_later(delay.seconds, self._hang, when, go_on)
        else:
            self._hang(when, go_on)

    def _hang(self, when: When, go_on: Callable[[], None]) -> None:
        self._timer = None
        rule = self.verdict.hang
        if rule is not None and rule.hang is not None and rule.when == when and not rule.hang.is_released:
            rule.hang.hold(lambda: None if self._is_dropped else go_on())
        else:
            go_on()

    def _send(self, response: Any) -> None:
        if response is None:
            self.connection.finish()
            return
        header = self.header
        body: Sequence[Buffer] = codec(f"{self._handler.name}.response", self.version).encode(response)
        correlation_id = header.correlation_id
        match self.verdict.spoil:
            case "garbage":
                body = [b"\xff" * sum(map(len, body))]
            case "wrong_correlation_id":
                correlation_id ^= 0x5A5A
        frame = encode_response(header.key, self.version, correlation_id, body)
        if self.verdict.spoil == "truncate":
            whole = b"".join(frame)
            self.connection.write([whole[: len(whole) // 2]])
            self.connection.close()
        else:
            self.connection.finish(frame)


class Connection(asyncio.Protocol):
    """One client's connection to one broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.number = broker.cluster.next_connection()
        self._transport: Any = None
        self._reader = FrameReader()
        self._frames: deque[bytes] = deque()
        self._call: Call | None = None
        self._held: list[Buffer] = []
        self._is_open = False
        self._is_reading = True
        self._can_write = True
        self._is_pumping = False

    def connection_made(self, transport: Any) -> None:
        """A client is there."""
        self._transport = transport
        self._is_open = True
        self.broker.remember(self)
        if not self.broker.is_running:  # accepted in the turn in which the listener closed
            self.reset()
        self.go_on()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if not self._is_open:
            return
        try:
            self._frames.extend(self._reader.feed(data))
        except ProtocolError as error:
            self.violate(str(error))
        else:
            self.go_on()

    def pause_writing(self) -> None:
        """The client does not read its answers: no request is answered until it does."""
        self._can_write = False

    def resume_writing(self) -> None:
        """The client reads on."""
        self._can_write = True
        self.go_on()

    def connection_lost(self, _error: Exception | None) -> None:
        """The client is gone, or was sent away."""
        self._end()
        self.broker.forget(self)

    def finish(self, frame: Sequence[Buffer] = ()) -> None:
        """The current request is answered; on to the next."""
        self._call = None
        if frame:
            self.write(frame)
        self.go_on()

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Send bytes, or keep them while the broker is paused."""
        if self.broker.is_paused:
            self._held += chunks
        elif self._is_open:
            self._transport.writelines(chunks)

    def close(self) -> None:
        """Close behind what was written."""
        self._end()
        self._transport.close()

    def reset(self) -> None:
        """Close at once."""
        self._end()
        self._transport.abort()

    def violate(self, what: str) -> None:
        """The client did what no broker takes: remember it and close."""
        self.broker.cluster.remember_violation(self.broker.node_id, self.number, what)
        self.close()

    def go_on(self) -> None:
        """Answer what has come in, as far as it can be answered now; safe to call any time."""
        if self._held and not self.broker.is_paused:
            held, self._held = self._held, []
            self.write(held)
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._frames and self._is_ready:
                self._begin(self._frames.popleft())
        finally:
            self._is_pumping = False
        self._adjust_reading()

    def _end(self) -> None:
        """Nothing that came in is carried out any more."""
        self._is_open = False
        self._frames.clear()
        self._held.clear()
        if self._call is not None:
            self._call.drop()
            self._call = None

    @property
    def _is_ready(self) -> bool:
        return self._call is None and self._is_open and self._can_write and not self.broker.is_paused

    def _adjust_reading(self) -> None:
        """A broker mutes a connection that has a request waiting; here, one that has a second one behind it."""
        wants = not self.broker.is_paused and not self._frames
        if self._is_open and wants is not self._is_reading:
            self._is_reading = wants
            if wants:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _begin(self, frame: bytes) -> None:
        cluster = self.broker.cluster
        try:
            if len(frame) < _LEAST_HEADER:
                raise ProtocolError(f"a request of {len(frame)} bytes is shorter than its header")
            key, version, correlation_id = _START.unpack_from(frame)
            lowest, highest = cluster.versions.get(key, (0, -1))
            if key == ApiKey.API_VERSIONS and not lowest <= version <= highest:
                self.write(encode_response(key, 0, correlation_id, api_versions.unsupported(lowest, highest)))
                return
            if not lowest <= version <= highest:
                raise ProtocolError(f"request {key} in version {version}: this broker speaks {lowest} to {highest} (0 to -1: none)")
            header = decode_request(frame)
            handler = HANDLERS[key]
            request = codec(f"{handler.name}.request", version).decode(frame, header.offset)
        except ProtocolError as error:
            self.violate(str(error))
            return
        cluster.remember_request(self.broker.node_id, self.number, handler.name, header, request)
        self._call = call = Call(self, header, handler, request)
        call.begin()


class FakeBroker:
    """A broker of a `FakeCluster`, in its `brokers` by number. It keeps its port while it is stopped."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = "127.0.0.1"
        self.port = 0
        self.is_running = False
        self.is_paused = False
        self.is_known = True
        """Whether Metadata names it."""
        self.connections: set[Connection] = set()
        self._is_empty = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None

    async def start(self) -> None:
        """Listen, at first and after `stop`. Nothing happens if it listens already."""
        if self.is_running:
            return
        self.loop = asyncio.get_running_loop()
        network = self.cluster.network
        if network is not None:
            self.host = f"broker-{self.node_id}.memory"
            self.port = 9092
            network.listen(self.host, self.port, lambda: Connection(self))
        else:
            listener = self._reserved or _bound(self.host, self.port)
            self._reserved = None
            self.port = listener.getsockname()[1]
            self.is_running = True  # a connection may be made before create_server returns
            self._server = await self.loop.create_server(lambda: Connection(self), sock=listener)
        self.is_running = self.is_known = True

    async def stop(self, *, silently: bool = False) -> None:
        """Refuse connections and reset those that stand.

        Args:
            silently: Metadata goes on naming it and its leaderships, as in the seconds before a cluster notices. Otherwise its
                partitions have no leader until it starts again or `move_leader` gives them another.
        """
        if self.is_running:
            self.is_known = silently
            listened = self._server is not None
            await self._shut()
            if listened:
                self._reserved = _bound(self.host, self.port)

    async def close(self) -> None:
        """Stop for good: the port is given up."""
        await self._shut()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def _shut(self) -> None:
        self.is_running = False
        if self.cluster.network is not None:
            self.cluster.network.unlisten(self.host, self.port)
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(NotImplementedError):  # Windows' loop, which has no readers
                self.loop.remove_reader(server.sockets[0].fileno())
        self.disconnect_all()
        try:
            for _ in range(_ACCEPTING_TURNS):
                await asyncio.sleep(0)
        finally:
            if server is not None:  # only now: asyncio loses the socket of a connection that it had accepted and not made yet
                server.close()
        if self.connections:
            await self._is_empty.wait()

    def pause(self) -> None:
        """Read nothing and answer nothing, like a stopped process: what clients send fills their buffers."""
        self.is_paused = True
        self._tell_connections()

    def resume(self) -> None:
        """Go on after `pause`."""
        self.is_paused = False
        self._tell_connections()

    def remember(self, connection: Connection) -> None:
        """A client connected."""
        self.connections.add(connection)
        self._is_empty.clear()

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._is_empty.set()

    def disconnect_all(self) -> None:
        """Reset every connection."""
        for connection in tuple(self.connections):
            connection.reset()

    def _tell_connections(self) -> None:
        for connection in sorted(self.connections, key=lambda connection: connection.number):
            connection.go_on()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the port and refuses connections until it listens."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere the option means that others may take the port too
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
