"""Servers of TLS for tests, apart from the client's layer: on memory streams, and in front of a whole fake cluster."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from aioproducer.interfaces import Buffer, Receiver
    from aioproducer.testing import FakeCluster
    from aioproducer.testing.certificates import Certificate, CertificateAuthority

__all__ = [
    "TlsServer",
    "client_context",
    "context_of_pem",
    "has_verify_error",
    "openssl_server",
    "s_client",
    "seen_by_s_client",
    "server_context",
    "tls_in_front",
    "wants_a_client_certificate",
]


class TlsServer:
    """The server's end of one connection: decrypts for `receiver`, the broker, and is its stream.

    Attributes:
        tls: the state of the connection.
        failure: what ended the handshake.
    """

    def __init__(self, receiver: Receiver, context: ssl.SSLContext) -> None:
        self.receiver = receiver
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        self.failure: Exception | None = None
        self.stream: Any = None
        self.is_up = False

    # A receiver's methods

    def connection_made(self, transport: Any) -> None:
        self.stream = transport

    def data_received(self, data: Buffer) -> None:
        self._in.write(data)
        try:
            if not self.is_up:
                self.tls.do_handshake()
                self.is_up = True
                self.flush()
                self.receiver.connection_made(self)
            while data := self.tls.read(65536):
                self.receiver.data_received(data)
            self.close()
        except ssl.SSLWantReadError:
            self.flush()
        except ssl.SSLError as error:
            self.failure = error
            self.flush()
            self.stream.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_up:
            self.receiver.connection_lost(exc)

    def pause_writing(self) -> None:
        if self.is_up:
            self.receiver.pause_writing()

    def resume_writing(self) -> None:
        if self.is_up:
            self.receiver.resume_writing()

    # A stream's methods

    def write(self, data: Buffer) -> None:
        if not self.is_closing():
            self.tls.write(data)
            self.flush()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in list_of_data:
            self.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.stream.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return int(self.stream.get_write_buffer_size())

    def is_closing(self) -> bool:
        return bool(self.stream.is_closing())

    def pause_reading(self) -> None:
        self.stream.pause_reading()

    def resume_reading(self) -> None:
        self.stream.resume_reading()

    def close(self) -> None:
        if not self.is_closing():
            with contextlib.suppress(ssl.SSLError):
                self.tls.unwrap()
            self.flush()
            self.stream.close()

    def abort(self) -> None:
        self.stream.abort()

    def flush(self) -> None:
        if self._out.pending:
            self.stream.write(self._out.read())


def server_context(
    certificate: Certificate,
    *,
    clients: CertificateAuthority | None = None,
    version: ssl.TLSVersion | None = None,
    oldest: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """A server's context. `clients`: the authority of the client certificates that it wants."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with _file_of(certificate.pem) as path:
        context.load_cert_chain(path)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem.decode())
    if oldest is not None:
        context.minimum_version = oldest
    if version is not None:
        context.maximum_version = version
    return context


def client_context(
    *trusted: CertificateAuthority, certificate: Certificate | None = None
) -> ssl.SSLContext:
    """A client's context, as a user gives it."""
    return context_of_pem(
        "".join(one.pem.decode() for one in trusted),
        "" if certificate is None else certificate.pem.decode(),
    )


def context_of_pem(trusted: str, key_and_chain: str = "") -> ssl.SSLContext:
    """A client's context of texts in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trusted:
        context.load_verify_locations(cadata=trusted)
    if key_and_chain:
        with _file_of(key_and_chain.encode()) as path:
            context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    import pathlib
    import tempfile

    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(content)
    try:
        yield file.name
    finally:
        pathlib.Path(file.name).unlink()


def tls_in_front(
    cluster: FakeCluster, context: ssl.SSLContext | Callable[[], ssl.SSLContext]
) -> list[TlsServer]:
    """Encrypt every listener of a fake cluster in memory, also of a broker that restarts. Returns the connections so far."""
    made: list[TlsServer] = []
    network: Any = cluster.network
    listen = network.listen

    def encrypted(receiver: Callable[[], Receiver]) -> Callable[[], TlsServer]:
        def make() -> TlsServer:
            made.append(
                TlsServer(receiver(), context if isinstance(context, ssl.SSLContext) else context())
            )
            return made[-1]

        return make

    network.listen = lambda host, port, receiver: listen(host, port, encrypted(receiver))
    for place, receiver in network._listeners.items():
        network._listeners[place] = encrypted(receiver)
    return made


@contextlib.asynccontextmanager
async def openssl_server(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Run `openssl s_server` on a free port of this machine, and wait until it accepts. Yields the process and the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipe = subprocess.PIPE
    command = ("openssl", "s_server", "-accept", f"127.0.0.1:{port}", *arguments)
    server = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
    )
    assert server.stdout is not None
    try:
        async with asyncio.timeout(30):
            await server.stdout.readuntil(b"ACCEPT")
            yield server, port
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.communicate()


async def s_client(port: int, *arguments: str) -> str:
    """Return what `openssl s_client` prints of the peer on a port of this machine. Its standard input is empty: it ends once it is connected.

    Args:
        port: the peer's.
        arguments: more of them; with -ign_eof it ends when the peer does.
    """
    client = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{port}", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(30):
            seen, _ = await client.communicate()
    except TimeoutError:
        client.kill()
        await client.communicate()
        raise
    return seen.decode(errors="replace")


class _ClosingProtocol(asyncio.Protocol):
    """Closes a connection once its handshake is over."""

    def connection_made(self, transport: Any) -> None:
        transport.close()


def seen_by_s_client(peer: ssl.SSLContext | Callable[[], Any], *arguments: str) -> str:
    """Return what `openssl s_client` prints of a peer: tests of faulty peers first show by it that the peer has its fault.

    The peer, a server's context or a listener's protocol, is served on a socket by a loop of its own, so that tests in virtual time can ask.
    """

    async def main() -> str:
        protocol = (
            (lambda: TlsServer(_ClosingProtocol(), peer))
            if isinstance(peer, ssl.SSLContext)
            else peer
        )
        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)  # type: ignore[arg-type]  # a Receiver is one
        async with server:
            return await s_client(server.sockets[0].getsockname()[1], *arguments)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()


def _is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


def has_verify_error(
    peer: ssl.SSLContext, number: int, trusted: CertificateAuthority, name: str
) -> bool:
    """Return whether OpenSSL refuses a peer's certificate for this reason alone (X509_V_ERR_*): it trusts the authority, and checks the name."""
    checked = (
        ("-verify_ip", name)
        if _is_address(name)
        else ("-verify_hostname", name, "-servername", name)
    )
    with _file_of(trusted.pem) as path:
        seen = seen_by_s_client(peer, "-CAfile", path, *checked)
    # the second of the two errors of an authority that is not known
    numbers = set(re.findall(r"verify error:num=(\d+):", seen)) - {"21"}
    return numbers == {str(number)}


def wants_a_client_certificate(
    peer: ssl.SSLContext, authority: CertificateAuthority, refused: Certificate | None = None
) -> bool:
    """Return whether a peer lets a client in that has a certificate of the authority, and answers one with `refused`, or none, by an alert."""
    with _file_of(authority.client("shown").pem) as path:
        accepted = seen_by_s_client(peer, "-ign_eof", "-cert", path)
    with _file_of(b"" if refused is None else refused.pem) as path:
        answer = seen_by_s_client(peer, "-ign_eof", *([] if refused is None else ["-cert", path]))
    return "SSL alert number" in answer and "SSL routines" not in accepted
