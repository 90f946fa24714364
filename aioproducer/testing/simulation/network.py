"""The way between client and brokers, as bad as a seed has it: connections that are refused, slow, cut at any byte, or silent.

1. Bytes arrive in order, each piece a while after it was written, in both directions.
2. A connection's misfortunes are drawn when it is made: at which byte of which direction, and what happens there. The bytes before
   arrive; of a cut, both ends learn, perhaps one long before the other.
3. What was written before a client gave a connection up may still arrive: the broker carries it out, and nobody hears of it.

Knows nothing of Kafka.
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

_LOW: Final = 4  # the write buffer has room again at a quarter of what fills it


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad it is. Probabilities are of one connection, and of each of its directions.

    Attributes:
        latency: shortest and longest time of a piece on its way, in seconds.
        refused: probability that a connection is refused.
        cut: probability that it is cut at some byte.
        pause: probability that it stands still at some byte, for up to `pause_seconds`.
        silence: probability that from some byte on nothing arrives any more.
        reach: bytes within which that happens, on average.
        room: bytes on their way that fill the client's write buffer.
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
    """What happens when so many bytes went one way."""

    at: int
    kind: str
    seconds: float


class SeededNetwork:
    """A `Dialer` whose connections lead through a `MemoryNetwork`.

    Args:
        tell: called with what happens: a word for the kind of fault, and to which connection.

    Attributes:
        weather: of the connections that are made from now on.
    """

    def __init__(self, network: MemoryNetwork, weather: Weather, rng: random.Random, tell: Callable[[str, str], None]) -> None:
        self.weather = weather
        self.rng = rng
        self.tell = tell
        self._network = network
        self._links: list[_Link] = []
        self._number = 0

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        """Connect, after a while. Raises OSError if nobody listens, or the seed has it so. Cancelled: nothing stays open."""
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
        """Let all go well from now on, also on the connections that stand."""
        self.weather = Weather()
        for link in self._links:
            link.spare()

    def latency(self) -> float:
        """Of one piece, in seconds."""
        return self.rng.uniform(*self.weather.latency)

    def misfortunes(self) -> list[_Misfortune]:
        """What will happen to one direction of a new connection, in the order in which it does."""
        weather, rng = self.weather, self.rng
        drawn = []
        for kind, probability in (("cut", weather.cut), ("pause", weather.pause), ("silence", weather.silence)):
            if rng.random() < probability:
                drawn.append(_Misfortune(int(rng.expovariate(1 / weather.reach)), kind, rng.uniform(0, weather.pause_seconds)))
        return sorted(drawn)


class _Direction:
    """Bytes on their way, in order: each piece, or what takes the place of one, with the time at which it arrives.

    Args:
        deliver: given each piece.
        on_cut: called where the connection is cut.
    """

    def __init__(self, network: SeededNetwork, name: str, deliver: Callable[[bytes], None], on_cut: Callable[[], None]) -> None:
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
        """Carry bytes; what is to happen to them happens."""
        while self._fates and not self.is_dead and self._carried + len(data) >= self._fates[0].at:
            fate = self._fates.pop(0)
            before = max(fate.at - self._carried, 0)
            self._put(data[:before])
            data = data[before:]
            self._network.tell(f"{fate.kind}_{self._name.split()[0]}", f"{self._name}, byte {self._carried}")
            if fate.kind == "pause":
                self._due = max(self._due, self._loop.time()) + fate.seconds
                continue
            if fate.kind == "cut":
                self.then(self._on_cut)
            self.is_dead = True
        self._put(data)

    def then(self, do: Callable[[], None]) -> None:
        """Call `do` behind the last byte."""
        if not self.is_dead:
            self._enqueue(do)

    def spare(self) -> None:
        """Nothing more happens to it; what is silent stays so."""
        self._fates.clear()

    def end(self) -> None:
        """What is on its way is lost."""
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
    """One connection: the client's stream, and the receiver of what comes from the broker's memory stream."""

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
        self._is_reading = True

    def spare(self) -> None:
        """Let all go well from now on."""
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
        """Bytes that have not left."""
        return max(0, self._out.travelling - self._room)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the memory stream's."""
        return self._near.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether it is closed or closing."""
        return self._is_closing

    def close(self) -> None:
        """Close behind what was written."""
        if not self._is_closing:
            self._is_closing = True
            self._out.then(self._near.close)
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Close at once: what is on its way to the broker may arrive all the same, what comes from it does not."""
        self._is_closing = True
        if not self._is_lost:
            self._give_up(None)

    # --- the receiver of the broker's bytes

    def connection_made(self, transport: Stream) -> None:
        """The connection stands."""
        self._near = transport
        self._receiver = self._make()
        self._receiver.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """The broker wrote."""
        self._back.push(data)

    def eof_received(self) -> bool | None:
        """The broker closed, behind what it wrote."""
        self._back.then(self._on_eof)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The broker reset it: the client learns that behind what came before."""
        self._out.end()
        self._back.then(lambda: self._lose(exc or ConnectionResetError("the broker reset the connection")))

    def pause_writing(self) -> None:
        """The broker does not read: what is written piles up in its buffers."""

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
        if not self._is_lost and not self._is_closing and self._receiver is not None and not self._receiver.eof_received():
            self.close()

    def _cut(self) -> None:
        """Both ends learn that it is lost: one now, the other perhaps much later."""
        if self._network.rng.random() < 0.5:
            self._near.abort()
            self._loop.call_later(self._network.latency(), self._lose, ConnectionResetError("the connection was cut"))
        else:
            self._give_up(ConnectionResetError("the connection was cut"))
            if self._out.is_dead:  # nothing is behind which the broker could learn it
                self._loop.call_later(self._network.latency(), self._near.abort)

    def _give_up(self, error: Exception | None) -> None:
        """The client's end is gone; the broker learns that behind what is on its way to it."""
        self._back.end()
        self._out.then(self._near.abort)
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = self.is_over = True
            self._back.end()
            assert self._receiver is not None
            self._receiver.connection_lost(error)
