"""TLS between the stream that a dialer made and the connection, over `ssl.MemoryBIO`: sockets, memory streams and virtual time alike.

1. To the dialed stream, a `TlsStream` is the receiver; to the connection, it is the stream. It has no task: it runs in the callbacks of
   the dialed stream. Its output is in that stream's write buffer at once, so pausing and `get_write_buffer_size` mean what they mean
   without TLS.
2. Each SSL_write makes at least one TLS record. So `writelines` joins buffers up to 64 KiB, and larger ones are encrypted and passed on in
   pieces of 64 KiB: a larger piece has left the processor's caches when it is copied.
3. A step of a handshake takes about a millisecond of CPU, and a dial a tenth of that. `HandshakeTurns` runs one of them in each
   event-loop iteration, so that a hundred connections that are dialled at once do not hold the loop.
4. The end of the received bytes is only an end: Kafka's frames have sizes, so a truncated one is noticed by `Connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.interfaces import Buffer, Receiver, Stream

# Bytes that are encrypted or decrypted at once. It also bounds what OpenSSL's buffers of an idle connection keep.
_SLICE: Final = 65_536
# Bytes received that are decrypted in one event-loop iteration; asyncio reads no more from a socket at once.
_TAKEN_PER_TURN: Final = 262_144
# The plaintext of one TLS record; SSL_read never returns more.
_RECORD: Final = 16_384


def server_name(host: str) -> str:
    """Return the name, or the address, that the certificate of a broker is checked against.

    A trailing dot is a form of the DNS alone, and so is the scope id of an IPv6 address one of this machine.
    """
    return host.partition("%")[0] if ":" in host else host.removesuffix(".")


class TlsFacts(NamedTuple):
    """Holds what was agreed on for one connection.

    Attributes:
        version: "TLSv1.2" or "TLSv1.3".
        cipher: OpenSSL's name of the cipher suite.
        certificate_ends_at: the end of the broker's certificate, in seconds since 1970; None: it was not verified.
    """

    version: str
    cipher: str
    certificate_ends_at: float | None


class HandshakeTurns:
    """Runs dials and the steps of handshakes, one in each event-loop iteration, in the order of the calls."""

    def __init__(self) -> None:
        self._steps: deque[Callable[[], None]] = deque()

    def soon(self, step: Callable[[], None]) -> None:
        """Run `step` in a later iteration of the running loop."""
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    async def turn(self) -> None:
        """Wait for a turn: at most one call returns in each event-loop iteration. A cancelled call gives up its turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.soon(lambda: None if future.done() else future.set_result(None))
        await future

    def _run(self) -> None:
        step = self._steps[0]
        try:
            step()
        finally:
            self._steps.popleft()
            if self._steps:
                asyncio.get_running_loop().call_soon(self._run)


class TlsStream:
    """Encrypts one connection: the `Receiver` of a dialed stream, and the `Stream` of `receiver`.

    The receiver gets `connection_made` after the handshake, and nothing if the handshake fails.

    Args:
        receiver: gets the decrypted bytes and the events.
        context: a context for clients.
        server_name: the name, or the address, that the server's certificate is checked against. A name is also sent to the server (SNI).
        turns: runs the steps of the handshake.

    Raises:
        ValueError: `server_name` is empty. `ssl` would take it, and check nothing.
    """

    def __init__(
        self, receiver: Receiver, context: ssl.SSLContext, server_name: str, turns: HandshakeTurns
    ) -> None:
        if not server_name:
            raise ValueError("there is no name to check the server's certificate against")
        self._receiver = receiver
        self._context = context
        self._server_name = server_name
        self._turns = turns
        self._stream: Any = None
        self._tls: Any = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Received bytes that are not in `_incoming` yet.
        self._arrived: deque[memoryview] = deque()
        # The handshake has succeeded.
        self._is_up = False
        # The handshake has succeeded or failed.
        self._is_over = False
        self._is_closing = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def handshake(self) -> None:
        """Wait until the handshake is over. Cancellation, or a failure, leaves no stream open.

        Raises:
            ssl.SSLError: TLS failed: a certificate, an alert of the server, or bytes that are not TLS.
            OSError: the stream ended.
        """
        if not self._is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            # a cancellation: no stream stays open
            except BaseException:
                self.abort()
                raise
        if self._error is not None:
            raise self._error

    # The receiver of the dialed stream

    def connection_made(self, transport: Stream) -> None:
        """Keep the stream, and begin the handshake in a turn of its own."""
        self._stream = transport
        # a dialer that ignored its cancellation
        if self._is_over:
            transport.abort()
            return
        self._loop = asyncio.get_running_loop()
        self._turns.soon(self._step)

    def _step(self) -> None:
        """Begin the handshake, or take what has arrived, and write what the handshake answers."""
        if self._is_over:
            return
        while self._arrived:
            self._incoming.write(self._arrived.popleft())
        try:
            if self._tls is None:
                self._tls = self._context.wrap_bio(
                    self._incoming, self._outgoing, server_hostname=self._server_name
                )
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        # a UnicodeError, which is a ValueError, reports a name that has no form for the DNS (IDNA)
        except (OSError, ValueError) as error:
            # the alert that gives the server the reason
            self._flush()
            self._fail(error)
            return
        self._flush()
        self._is_up = True
        self._receiver.connection_made(self)
        self._end_handshake()
        # the server may have written behind the handshake
        self._read()

    def data_received(self, data: Buffer) -> None:
        """Decrypt the bytes, and pass them on; during the handshake, take its next step in a turn of its own."""
        if self._is_closing:
            return
        if self._is_up and not self._arrived and len(data) <= _SLICE:
            self._incoming.write(data)
            self._read()
            return
        # Windows before Python 3.12 gives a bytearray that it uses again
        view = memoryview(bytes(data))
        # then a call of `_take` is scheduled, or a step of the handshake
        is_behind = bool(self._arrived)
        self._arrived.extend(view[at : at + _SLICE] for at in range(0, len(view), _SLICE))
        if not self._is_up:
            self._turns.soon(self._step)
        elif not is_behind:
            self._take(_TAKEN_PER_TURN)

    def _take(self, most: int) -> None:
        """Decrypt up to `most` of the bytes that have arrived; the others follow in the next event-loop iteration."""
        while self._arrived and most > 0 and not self._is_closing:
            piece = self._arrived.popleft()
            most -= len(piece)
            self._incoming.write(piece)
            self._read()
        if self._arrived and not self._is_closing:
            self._loop.call_soon(self._take, _TAKEN_PER_TURN)

    def _read(self) -> None:
        """Pass on what `_incoming` holds, then react to the end of it, or to an alert."""
        chunks: list[bytes] = []
        is_ended = self._decrypt(chunks)
        if chunks:
            self._receiver.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self._is_closing:
            return
        # an answer to a key update, or an alert
        self._flush()
        if self._error is not None:
            self.abort()
        elif is_ended:
            self.close()

    def _decrypt(self, chunks: list[bytes]) -> bool:
        """Append the plaintext of what `_incoming` holds to `chunks`. Returns True at the peer's close_notify. Keeps an error."""
        tls, incoming = self._tls, self._incoming
        left, has_more = incoming.pending, False
        try:
            # to learn by an exception that nothing is left costs 2 us (python/cpython#123954)
            while left or has_more:
                # decrypted bytes are fewer, unless a record's first bytes came before
                most = left if 0 < left < _RECORD else _RECORD
                chunk = tls.read(most)
                if not chunk:
                    return True
                chunks.append(chunk)
                left, has_more = incoming.pending, len(chunk) == most
        except ssl.SSLWantReadError:
            pass
        # TLS 1.3 reports a client certificate that the server refuses here, after the handshake
        except OSError as error:
            self._error = error
        return False

    def eof_received(self) -> bool:
        """Take what has arrived before the end. Returns False, by which the stream closes."""
        self._take_rest()
        if not self._is_over:
            self._fail(ConnectionResetError("the connection was closed during the TLS handshake"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Take what has arrived, and pass the loss on; the text of an alert goes before that of a reset."""
        self._take_rest()
        self._is_closing = True
        if self._is_up:
            self._receiver.connection_lost(self._error or exc)
        else:
            self._error = (
                self._error
                or exc
                or ConnectionResetError("the connection was lost during the TLS handshake")
            )
            self._end_handshake()

    def _take_rest(self) -> None:
        if self._arrived and not self._is_over:
            self._step()
        if self._is_up:
            self._take(sum(map(len, self._arrived)))

    def pause_writing(self) -> None:
        """Pass on that the write buffer is full."""
        if self._is_up:
            self._receiver.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the write buffer accepts bytes again."""
        if self._is_up:
            self._receiver.resume_writing()

    # The stream of the receiver

    def write(self, data: Buffer, /) -> None:
        """Encrypt bytes, and write them. Dropped when the stream is closing, as asyncio's transports do."""
        if len(data) <= _SLICE:
            self._encrypt(data)
            return
        view = memoryview(data)
        for at in range(0, len(view), _SLICE):
            self._encrypt(view[at : at + _SLICE])

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Encrypt and write several buffers, the small ones of them joined."""
        buffers = list(list_of_data)
        if sum(map(len, buffers)) <= _SLICE:
            self._encrypt(b"".join(buffers) if len(buffers) != 1 else buffers[0])
            return
        pieces: list[Buffer] = []
        size = 0
        for data in buffers:
            if pieces and size + len(data) > _SLICE:
                self._encrypt(b"".join(pieces))
                pieces, size = [], 0
            if len(data) > _SLICE:
                self.write(data)
            else:
                pieces.append(data)
                size += len(data)
        self._encrypt(b"".join(pieces))

    def _encrypt(self, data: Buffer) -> None:
        if self._is_closing or not len(data):
            return
        try:
            self._tls.write(data)
        except OSError as error:
            self._error = error
            self.abort()
            return
        self._stream.write(self._outgoing.read())

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that the kernel does not have yet. There are no others: `write` encrypts at once."""
        size: int = self._stream.get_write_buffer_size()
        return size

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._is_closing or bool(self._stream.is_closing())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return `ssl_object`, or what the dialed stream gives: `socket`, `peername`."""
        if name == "ssl_object":
            return self._tls if self._is_up else default
        get = getattr(self._stream, "get_extra_info", None)
        return default if get is None else get(name, default)

    @property
    def facts(self) -> TlsFacts | None:
        """Return what was agreed on; None before the handshake has succeeded."""
        if not self._is_up:
            return None
        cipher, certificate = self._tls.cipher(), self._tls.getpeercert()
        ends = (
            None
            if not certificate
            else float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
        )
        return TlsFacts(self._tls.version() or "", cipher[0] if cipher else "", ends)

    def close(self) -> None:
        """Write close_notify behind the queued bytes and close; the peer's close_notify is not waited for."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._is_up:
            # SSLWantReadError: the peer has not sent its close_notify
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._stream.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_closing = self._is_over = True
        if self._stream is not None:
            self._stream.abort()

    # The end of the handshake

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._stream.write(self._outgoing.read())

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._is_closing = True
        self._stream.close()
        self._end_handshake()

    def _end_handshake(self) -> None:
        self._is_over = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
