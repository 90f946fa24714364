"""Runs a TCP proxy that delays every byte by some milliseconds in each direction, as a distant broker does.

    python -m tests.tools.benchmarks.proxy DELAY_MS

Bytes are stamped as they come and released when their time is up, however many are on the way: delay, and no limit of throughput.
It prints the port that it listens on, and reads the upstream port from its standard input. It ends when its standard input does, that is,
with its parent.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sys
from typing import cast

import uvloop

HOST = "127.0.0.1"


class Lane(asyncio.Protocol):
    """One end of a proxied connection. Its `other` end writes the bytes that it reads, after the delay."""

    def __init__(self, delay: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay = delay
        self._late: collections.deque[tuple[float, bytes | None]] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.other: Lane | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._take(None)

    def _take(self, data: bytes | None) -> None:
        """Queue bytes with their time. None stands for the connection's end, which gets the same delay as the bytes before it."""
        self._late.append((self._loop.time() + self._delay, data))
        if self._timer is None:
            self.start()

    def start(self) -> None:
        """Write the due bytes once there is another end, and set a timer for the later ones."""
        if self._late and self.other is not None:
            self._timer = self._loop.call_at(self._late[0][0], self._release)

    def _release(self) -> None:
        assert self.other is not None
        assert self.other.transport is not None
        self._timer = None
        if self.other.transport.is_closing():
            self._late.clear()  # the other end is closed, so no peer reads the bytes
            return
        now = self._loop.time()
        while self._late and self._late[0][0] <= now:
            _, data = self._late.popleft()
            if data is None:
                self.other.transport.close()
            else:
                self.other.transport.write(data)
        self.start()


class Door(Lane):
    """The client's end: dials the upstream as soon as a client connects."""

    def __init__(self, delay: float, upstream_port: int) -> None:
        super().__init__(delay)
        self._upstream_port = upstream_port
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dialling = self._loop.create_task(self._dial(cast("asyncio.Transport", transport)))

    async def _dial(self, transport: asyncio.Transport) -> None:
        try:
            _, upstream = await self._loop.create_connection(
                lambda: Lane(self._delay), HOST, self._upstream_port
            )
        except OSError:
            transport.abort()  # as a broker that is not there would answer
            return
        upstream.other, self.other = self, upstream
        self.start()
        upstream.start()


async def serve(delay: float) -> None:
    """Proxy until standard input ends."""
    loop = asyncio.get_running_loop()
    upstream_port = 0
    server = await loop.create_server(lambda: Door(delay, upstream_port), HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        upstream_port = int(line)
    server.close()


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is for the parent, which ends us
        uvloop.run(serve(float(sys.argv[1]) / 1e3))


if __name__ == "__main__":
    main()
