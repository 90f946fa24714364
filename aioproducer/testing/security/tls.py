"""TLS of a fake broker: a listener's `ssl.SSLContext`, a certificate for a cluster that is given none, and TLS over any stream."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.testing.security.listener import ListenerTls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioproducer.interfaces import Buffer, Receiver
    from aioproducer.testing.security.listener import ClientAuth

__all__ = ["TlsSpoil", "TlsStream", "common_name", "new_tls", "server_context"]

_VERIFY: Final[Mapping[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MEMORY_BROKERS: Final = 16


def server_context(tls: ListenerTls) -> ssl.SSLContext:
    """Return a context with a listener's certificate, versions and demands of clients.

    Raises:
        ssl.SSLError: the certificate or the key is malformed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # TLS 1.0 and 1.1, which a test asks for
        context.minimum_version, context.maximum_version = (
            ssl.TLSVersion[version.replace(".", "_")] for version in tls.versions
        )
    if context.minimum_version < ssl.TLSVersion.TLSv1_2:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
    elif tls.ciphers is not None:
        context.set_ciphers(tls.ciphers)
    # ssl loads a key from a file alone
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(tls.certificate.pem)
        context.load_cert_chain(path)
    context.num_tickets = tls.tickets
    context.verify_mode = _VERIFY[tls.client_auth]
    if tls.client_authority is not None:
        context.load_verify_locations(cadata=tls.client_authority.pem.decode())
    return context


def new_tls() -> tuple[ListenerTls, bytes]:
    """Make an authority and a certificate for the brokers' addresses. Returns the TLS, and the authority's certificate in PEM.

    Raises:
        ModuleNotFoundError: the extra `crypto` is not installed.
    """
    from aioproducer.testing.certificates import LOOPBACK, CertificateAuthority

    authority = CertificateAuthority()
    names = (*LOOPBACK, *(f"broker-{number}.memory" for number in range(1, _MEMORY_BROKERS + 1)))
    return ListenerTls(authority.server(*names)), authority.pem


def common_name(tls: ssl.SSLObject) -> str | None:
    """Return the CN of the peer's certificate; None: it showed none."""
    certificate: Any = tls.getpeercert() or {}
    return next(
        (
            value
            for part in certificate.get("subject", ())
            for name, value in part
            if name == "commonName"
        ),
        None,
    )


# TLS over any stream, by `ssl.MemoryBIO`: on sockets and on the memory streams of a fake cluster alike, in virtual time too.
#
# To the stream below, a `TlsStream` is an `asyncio.Protocol`; to the protocol above, it is the transport. The protocol above is connected at
# once; what it writes is sent after the handshake.


_READ_AT_MOST: Final = 256 * 1024
_FATAL_ALERT: Final = bytes.fromhex("15 03 03 00 02 02")
_INTERNAL_ERROR: Final = 80


class TlsSpoil(NamedTuple):
    """Holds what is wrong with the TLS of one connection. `FakeCluster.spoil_tls` describes the fields."""

    hang: bool = False
    cut: int | None = None
    alert: int | None = None
    ignore_close: bool = False


_SOUND: Final = TlsSpoil()


class TlsStream(asyncio.Protocol):
    """Encrypts one connection, as its server or as its client.

    Args:
        receiver: the protocol above.
        context: of the server, or of the client if `server_hostname` is given.
        on_up: called with the `SSLObject` when the handshake is over.
        on_failure: called with the reason when TLS fails, in the handshake or later.
        server_hostname: the name that the client asks for and checks; None: this side is the server.
        spoil: what is wrong with the connection.
    """

    def __init__(
        self,
        receiver: Receiver,
        context: ssl.SSLContext,
        *,
        on_up: Callable[[ssl.SSLObject], object],
        on_failure: Callable[[str], object],
        server_hostname: str | None = None,
        spoil: TlsSpoil = _SOUND,
    ) -> None:
        self._receiver = receiver
        self._on_up, self._on_failure = on_up, on_failure
        self._is_server = server_hostname is None
        self._spoil = spoil
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=self._is_server, server_hostname=server_hostname
        )
        self._transport: Any = None
        self._early: list[bytes] = []
        self._error: Exception | None = None
        self._sent = 0
        self._is_up = self._is_closing = False

    # --- as the protocol of the stream below

    def connection_made(self, transport: Any) -> None:
        """Connect the protocol above; a client begins its handshake."""
        self._transport = transport
        self._receiver.connection_made(self)
        if not self._is_server:
            self._shake()

    def data_received(self, data: bytes) -> None:
        """Take encrypted bytes."""
        if self._is_closing or (self._spoil.hang and not self._is_up):
            return
        if self._spoil.alert is not None:
            self._transport.write(_FATAL_ALERT + bytes([self._spoil.alert]))
            self._fail(f"a scripted alert {self._spoil.alert}", None)
            return
        self._in.write(data)
        if not self._is_up:
            self._shake()
        if self._is_up:
            self._read()

    def eof_received(self) -> bool | None:
        """Fail a handshake that the peer gave up; pass the end on otherwise."""
        if self._spoil.ignore_close:
            return True
        if not self._is_up and not self._is_closing:
            self._fail("the peer closed the connection during the handshake", None)
        return self._receiver.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end on, with the reason if TLS has failed."""
        if not self._is_up and not self._is_closing:
            self._on_failure("the connection was lost during the handshake")
        self._is_closing = True
        self._receiver.connection_lost(self._error or exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._receiver.resume_writing()

    # --- as the transport of the protocol above

    def write(self, data: Buffer, /) -> None:
        """Encrypt and send bytes; before the end of the handshake, keep them."""
        if self._is_closing or not len(data):
            return
        if self._is_up:
            self._tls.write(data)
            self._flush()
        else:
            self._early.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Encrypt and send several buffers."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that are not sent yet."""
        size: int = self._transport.get_write_buffer_size()
        return size

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the stream below knows; `ssl_object` is this side's state of TLS."""
        return self._tls if name == "ssl_object" else self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._is_closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read no more encrypted bytes."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read encrypted bytes again."""
        self._transport.resume_reading()

    def close(self) -> None:
        """Send close_notify after the written bytes, and close without an answer to it."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._is_up:
            # it wants the peer's close_notify, which may never come
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once, without close_notify."""
        self._is_closing = True
        self._transport.abort()

    # --- implementation

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, OSError, ValueError) as error:
            if self._is_server and not self._sent and not self._out.pending:
                # Kafka answers bytes that are no TLS with an alert, where OpenSSL only closes
                self._out.write(_FATAL_ALERT + bytes([_INTERNAL_ERROR]))
            # the alert that tells the peer why
            self._flush()
            self._fail(str(error), error)
            return
        self._is_up = True
        self._flush()
        if not self._is_closing:
            self._on_up(self._tls)
            early, self._early = self._early, []
            for data in early:
                self.write(data)

    def _read(self) -> None:
        chunks: list[bytes] = []
        ended = False
        try:
            while self._in.pending or self._tls.pending():
                chunk = self._tls.read(_READ_AT_MOST)
                ended = not chunk
                if ended:
                    break
                chunks.append(chunk)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, OSError) as error:
            self._flush()
            self._fail(str(error), error)
        self._flush()
        if chunks:
            self._receiver.data_received(b"".join(chunks))
        if ended and not self._spoil.ignore_close:
            self.close()

    def _flush(self) -> None:
        """Send what is encrypted, up to the scripted cut."""
        data = self._out.read()
        cut = self._spoil.cut
        if cut is not None and self._sent + len(data) >= cut:
            self._transport.write(data[: cut - self._sent])
            self._sent = cut
            self._spoil = _SOUND
            self._fail(f"a scripted cut after {cut} bytes", None)
            return
        if data and not self._transport.is_closing():
            self._transport.write(data)
        self._sent += len(data)

    def _fail(self, reason: str, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._error = error
        self._is_closing = True
        self._on_failure(reason)
        self._transport.close()
