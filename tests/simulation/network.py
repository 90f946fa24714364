"""A network between client and brokers with faults drawn from a seed: refused, slow, cut or silent connections.

1. Bytes arrive in order in both directions, each piece a latency after it was written.
2. A connection's faults are drawn when it is made: at which byte of which direction, and what happens there. The bytes before
   arrive. Both ends learn of a cut, possibly one long before the other.
3. Bytes that a client wrote before it gave up a connection may still arrive. The broker then executes the request, and the client
   gets no answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from aioproducer.interfaces import Buffer, Receiver, Stream
    from aioproducer.testing.memory import MemoryNetwork

__all__ = ["SeededNetwork", "Weather"]

# writing resumes when the write buffer is a quarter full
_LOW: Final = 4


@dataclass(frozen=True, slots=True)
class Weather:
    """Holds the network's latency and fault probabilities.

    `refused` applies to a connection, the other probabilities to each of its directions.

    Attributes:
        latency: shortest and longest time from writing a piece to its arrival, in seconds.
        refused: probability that a connection is refused.
        cut: probability that it is cut at some byte.
        pause: probability that it stops at some byte, for up to `pause_seconds`.
        silence: probability that from some byte on no more bytes arrive.
        pause_seconds: longest pause, in seconds.
        reach: average number of bytes before a fault happens.
        room: bytes in transit that fill the client's write buffer.
    """

    latency: tuple[float, float] = (0.0002, 0.002)
    refused: float = 0.0
    cut: float = 0.0
    pause: float = 0.0
    silence: float = 0.0
    pause_seconds: float = 1.0
    reach: float = 1500.0
    room: int = 65_536


class _Misfortune(NamedTuple):
    """Holds one fault of a direction: it happens after `at` bytes."""

    at: int
    kind: str
    seconds: float


class SeededNetwork:
    """Dials connections through a `MemoryNetwork` and adds faults to them (a `Dialer`).

    Args:
        network: the network of the brokers.
        weather: see Attributes.
        rng: source of all random choices.
        tell: called with each fault: a word for its kind, and the connection's name.

    Attributes:
        weather: latency and faults of the connections that are made from now on.
    """

    def __init__(
        self,
        network: MemoryNetwork,
        weather: Weather,
        rng: random.Random,
        tell: Callable[[str, str], None],
    ) -> None:
        self.weather: Weather = weather
        self.rng = rng
        self.tell = tell
        self._network = network
        self._links: list[_Link] = []
        self._number = 0

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect after a latency.

        Raises:
            OSError: no broker listens there, or the seed refuses the connection.

        Cancellation: no connection remains open.
        """
        self._number += 1
        name = f"{self._number} to {host}"
        await asyncio.sleep(self.latency())
        if self.rng.random() < self.weather.refused:
            self.tell("refused", name)
            raise ConnectionRefusedError(f"{host}:{port} refuses connection {name}")
        link = _Link(self, name, receiver)
        await self._network.dial(host, port, lambda: link)
        self._links = [other for other in self._links if not other.is_over]
        self._links.append(link)
        return link

    def calm(self) -> None:
        """End all faults from now on, on open connections too."""
        self.weather = Weather()
        for link in self._links:
            link.spare()

    def latency(self) -> float:
        """Draw the latency of one piece, in seconds."""
        return self.rng.uniform(*self.weather.latency)

    def misfortunes(self) -> list[_Misfortune]:
        """Draw the faults of one direction of a new connection, in the order in which they happen."""
        weather, rng = self.weather, self.rng
        drawn = []
        for kind, probability in (
            ("cut", weather.cut),
            ("pause", weather.pause),
            ("silence", weather.silence),
        ):
            if rng.random() < probability:
                drawn.append(
                    _Misfortune(
                        int(rng.expovariate(1 / weather.reach)),
                        kind,
                        rng.uniform(0, weather.pause_seconds),
                    )
                )
        return sorted(drawn)


class _Direction:
    """Carries bytes in one direction, in order: holds each piece, or a callback in its place, with its arrival time.

    Args:
        network: source of latency and faults.
        name: the direction's name, for the history.
        deliver: called with each piece.
        on_cut: called when the connection is cut.
    """

    def __init__(
        self,
        network: SeededNetwork,
        name: str,
        deliver: Callable[[bytes], None],
        on_cut: Callable[[], None],
    ) -> None:
        self.travelling = 0
        self.is_dead = False
        self._network = network
        self._name = name
        self._deliver = deliver
        self._on_cut = on_cut
        self._loop = asyncio.get_running_loop()
        self._fates: list[_Misfortune] = network.misfortunes()
        self._carried = 0
        self._due = 0.0
        self._queue: deque[tuple[float, bytes | Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def push(self, data: bytes) -> None:
        """Carry bytes, and apply the faults that they reach."""
        while self._fates and not self.is_dead and self._carried + len(data) >= self._fates[0].at:
            fate = self._fates.pop(0)
            before = max(fate.at - self._carried, 0)
            self._put(data[:before])
            data = data[before:]
            self._network.tell(
                f"{fate.kind}_{self._name.split()[0]}", f"{self._name}, byte {self._carried}"
            )
            if fate.kind == "pause":
                self._due = max(self._due, self._loop.time()) + fate.seconds
                continue
            if fate.kind == "cut":
                self.then(self._on_cut)
            self.is_dead = True
        self._put(data)

    def then(self, do: Callable[[], None]) -> None:
        """Call `do` after the last byte has arrived."""
        if not self.is_dead:
            self._enqueue(do)

    def spare(self) -> None:
        """Drop the faults to come; a silent direction remains silent."""
        self._fates.clear()

    def end(self) -> None:
        """Drop all bytes in transit."""
        self.is_dead = True
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _put(self, data: bytes) -> None:
        if data and not self.is_dead:
            self._carried += len(data)
            self.travelling += len(data)
            self._enqueue(data)

    def _enqueue(self, what: bytes | Callable[[], None]) -> None:
        self._due = max(self._due, self._loop.time() + self._network.latency())
        self._queue.append((self._due, what))
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        queue, now = self._queue, self._loop.time()
        while queue and queue[0][0] <= now:
            what = queue.popleft()[1]
            if isinstance(what, bytes):
                self.travelling -= len(what)
                self._deliver(what)
            else:
                what()
        if queue and self._timer is None:
            self._timer = self._loop.call_at(queue[0][0], self._arrive)


class _Link:
    """One connection: the client's stream, and the receiver of bytes from the broker's memory stream."""

    def __init__(self, network: SeededNetwork, name: str, receiver: Callable[[], Receiver]) -> None:
        self.is_over = False
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._room = network.weather.room
        self._out = _Direction(network, f"request on connection {name}", self._to_broker, self._cut)
        self._back = _Direction(network, f"reply on connection {name}", self._to_client, self._cut)
        self._make = receiver
        self._receiver: Receiver | None = None
        self._near: Any = None
        self._is_closing = False
        self._is_lost = False
        self._is_full = False

    def spare(self) -> None:
        """Drop the faults to come."""
        self._out.spare()
        self._back.spare()

    # --- the client's stream

    def write(self, data: Buffer, /) -> None:
        """Queue bytes for the broker."""
        if self._is_closing:
            return
        self._out.push(bytes(data))
        if self._out.travelling > self._room and not self._is_full:
            self._is_full = True
            self._receiver.pause_writing()  # type: ignore[union-attr]

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Queue several buffers."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes in transit beyond the write buffer's limit."""
        return max(0, self._out.travelling - self._room)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the memory stream returns."""
        return self._near.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._is_closing

    def close(self) -> None:
        """Close after the bytes written so far."""
        if not self._is_closing:
            self._is_closing = True
            self._out.then(self._near.close)
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close at once. Bytes in transit to the broker may still arrive; bytes from the broker are dropped."""
        self._is_closing = True
        if not self._is_lost:
            self._give_up(None)

    # --- the receiver of the broker's bytes

    def connection_made(self, transport: Stream) -> None:
        """Handle the memory stream's connection: pass it to the client's receiver."""
        self._near = transport
        self._receiver = self._make()
        self._receiver.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Carry bytes that the broker wrote."""
        self._back.push(data)

    def eof_received(self) -> bool | None:
        """Report the broker's close to the client after the bytes that the broker wrote."""
        self._back.then(self._on_eof)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the broker's reset to the client after the bytes that came before."""
        self._out.end()
        self._back.then(
            lambda: self._lose(exc or ConnectionResetError("the broker reset the connection"))
        )

    def pause_writing(self) -> None:
        """Do nothing: while the broker does not read, bytes collect in its memory stream."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    # --- what arrives

    def _to_broker(self, data: bytes) -> None:
        self._near.write(data)
        if self._is_full and self._out.travelling <= self._room // _LOW:
            self._is_full = False
            if not self._is_closing and self._receiver is not None:
                self._receiver.resume_writing()

    def _to_client(self, data: bytes) -> None:
        if not self._is_lost and not self._is_closing and self._receiver is not None:
            self._receiver.data_received(data)

    def _on_eof(self) -> None:
        if (
            not self._is_lost
            and not self._is_closing
            and self._receiver is not None
            and not self._receiver.eof_received()
        ):
            self.close()

    def _cut(self) -> None:
        """Report the loss to both ends: to one now, to the other possibly much later."""
        if self._network.rng.random() < 0.5:
            self._near.abort()
            self._loop.call_later(
                self._network.latency(), self._lose, ConnectionResetError("the connection was cut")
            )
        else:
            self._give_up(ConnectionResetError("the connection was cut"))
            # a dead direction carries no abort: reset the broker's end directly
            if self._out.is_dead:
                self._loop.call_later(self._network.latency(), self._near.abort)

    def _give_up(self, error: Exception | None) -> None:
        """End the client's side; the broker learns it after the bytes in transit to it."""
        self._back.end()
        self._out.then(self._near.abort)
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = self.is_over = True
            self._back.end()
            assert self._receiver is not None
            self._receiver.connection_lost(error)
