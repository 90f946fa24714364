"""The other side of a connection, written down and played by hand; and what nodes are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from aioproducer.core.retries import Backoff
from aioproducer.net.dialer import Verbatim
from aioproducer.net.settings import NetSettings
from aioproducer.testing.frames import decode_request, encode_response
from aioproducer.wire.api import CLIENT_VERSIONS, NAMES, ApiKey
from aioproducer.wire.frame import FrameReader
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aioproducer.interfaces import Buffer, Receiver

__all__ = ["Asked", "ScriptedDialer", "ScriptedStream", "api_versions", "settings"]


class Asked(NamedTuple):
    """A request that came in."""

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Any


class ScriptedStream:
    """Keeps what is written, as requests; the test plays the broker.

    Args:
        answers: gives the answer to a request, at once; None: the test will answer.
    """

    def __init__(
        self, receiver: Receiver, answers: Callable[[ScriptedStream, Asked], object] | None = None
    ) -> None:
        self.receiver = receiver
        self.asked: list[Asked] = []
        self.aborted = False
        self.lingers = False  # a close waits for the peer to read, as with a full socket
        self._loop = asyncio.get_running_loop()
        self._answers = answers
        self._reader = FrameReader()
        self._is_closing = False
        self._is_lost = False
        receiver.connection_made(self)

    # A stream's methods

    def write(self, data: Buffer, /) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        if self._is_closing:
            return
        for frame in self._reader.feed(b"".join(list_of_data)):
            header = decode_request(frame)
            key = ApiKey(header.key)
            body = codec(f"{NAMES[key]}.request", header.version).decode(frame, header.offset)
            asked = Asked(key, header.version, header.correlation_id, header.client_id, body)
            self.asked.append(asked)
            if self._answers is not None:
                self._loop.call_soon(self._answers, self, asked)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        if not self.lingers:
            self._loop.call_soon(self.lose)

    def abort(self) -> None:
        self._is_closing = self.aborted = True
        self._loop.call_soon(self.lose)

    # A broker's methods

    def answer(self, asked: Asked, answer: Any = None, *, version: int | None = None) -> None:
        """Answer a request; by default with nothing in it."""
        self.receive(self.frame(asked, answer, version=version))

    def frame(self, asked: Asked, answer: Any = None, *, version: int | None = None) -> bytes:
        version = asked.version if version is None else version
        name = f"{NAMES[asked.key]}.response"
        body = codec(name, version).encode(message(name) if answer is None else answer)
        return b"".join(encode_response(asked.key, version, asked.correlation_id, body))

    def receive(self, data: bytes) -> None:
        """Let bytes come in, now."""
        self.receiver.data_received(data)

    def end(self) -> None:
        """The broker closes."""
        if not self.receiver.eof_received():
            self.close()

    def lose(self, error: Exception | None = None) -> None:
        """The connection is gone, now."""
        self._is_closing = True
        if not self._is_lost:
            self._is_lost = True
            self.receiver.connection_lost(error)


def api_versions(stream: ScriptedStream, asked: Asked) -> None:
    """A broker that speaks all that we do, and answers nothing else."""
    if asked.key is ApiKey.API_VERSIONS:
        keys = [
            message(
                "ApiVersions.response.api_keys",
                api_key=key,
                min_version=lowest,
                max_version=highest,
            )
            for key, (lowest, highest) in CLIENT_VERSIONS.items()
        ]
        stream.answer(asked, message("ApiVersions.response", api_keys=keys))


class ScriptedDialer:
    """Dials as told; keeps when, where, and the streams.

    Args:
        before: awaited at each dial before it succeeds; what it raises, the dial raises. It is given the number of the dial.
    """

    def __init__(
        self,
        before: Callable[[int], Awaitable[object]] | None = None,
        answers: Callable[[ScriptedStream, Asked], object] | None = api_versions,
    ) -> None:
        self.dials: list[tuple[float, str, int]] = []
        self.streams: list[ScriptedStream] = []
        self._before = before
        self._answers = answers

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> ScriptedStream:
        self.dials.append((asyncio.get_running_loop().time(), host, port))
        number = len(self.dials)
        await asyncio.sleep(0)
        if self._before is not None:
            await self._before(number)
        self.streams.append(ScriptedStream(receiver(), self._answers))
        return self.streams[-1]


def settings(dialer: Any, **changes: Any) -> NetSettings:
    """Kafka's pauses; jitter neither lengthens nor shortens."""
    defaults = NetSettings(
        client_id="tests",
        software_version="1.2.3",
        dialer=dialer,
        resolver=Verbatim(),
        chance=lambda: 0.5,
        max_in_flight=5,
        request_timeout=30.0,
        setup=Backoff(10.0, 30.0),
        reconnect=Backoff(0.05, 1.0),
        max_idle=0.0,
        canonical_bootstrap=False,
        rebootstraps=True,
    )
    return defaults._replace(**changes)
