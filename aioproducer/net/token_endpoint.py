"""Asks a token endpoint over HTTP: one POST, within bounds of time and size, in the calling thread.

1. No redirect is followed: it would take the client's secret to another server.
2. The time of `connect_timeout` is for the connection, with proxy and TLS; that of `read_timeout` for the whole answer. Each read of the
   socket has what is left of it, so that a server which sends a byte now and then is bounded, too.
3. An answer has at most 1 MiB.
4. `https_proxy` and `no_proxy` are honoured, as urllib reads them. The address of a loopback endpoint is never given to a proxy.
5. What goes wrong is returned as a text, as frames of an error would hold the secrets of the request. The text has the host, the status, and
   nothing of the request.
"""

from __future__ import annotations

import base64
import http.client
import io
import socket
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from aioproducer.config.security_options import PORTS, is_loopback, parts_of
from aioproducer.errors import ConfigError
from aioproducer.net.key_stores import load_trust
from aioproducer.net.tls_errors import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import WriteableBuffer

__all__ = ["Answer", "EndpointTrust", "TokenEndpoint"]

MAX_ANSWER_BYTES: Final = 1 << 20
_OPTION: Final = "sasl_oauthbearer_token_endpoint_url"


class Answer(NamedTuple):
    """Holds the status and the body of an HTTP answer."""

    status: int
    body: bytes


class EndpointTrust(NamedTuple):
    """Holds the options of the authorities that are trusted: a file, or PEM; None: the system's."""

    https_ca_location: str | None = None
    https_ca_pem: str | None = None

    def __str__(self) -> str:
        if self.https_ca_location is not None:
            return f"https_ca_location={self.https_ca_location}"
        return "the system's trust store, as there is no https_ca_location" if self.https_ca_pem is None else "https_ca_pem"

    def context(self) -> ssl.SSLContext:
        """Make the context of a connection, with the flags of those to brokers. It may block.

        Raises:
            ConfigError: the file cannot be read, or has no certificate; the text names the option.
        """
        tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls_context.minimum_version = ssl.TLSVersion.TLSv1_2
        tls_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        tls_context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        tls_context.options |= ssl.OP_NO_RENEGOTIATION
        if self.https_ca_location is not None:
            load_trust(tls_context, str(self), path=self.https_ca_location)
        elif self.https_ca_pem is not None:
            load_trust(tls_context, str(self), pem=self.https_ca_pem)
        else:
            tls_context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return tls_context


class TokenEndpoint:
    """Posts to one URL.

    Args:
        url: https://..., or http://... of this machine.
        trust: the authorities that may have signed the endpoint's certificate.
        connect_timeout: seconds for the connection.
        read_timeout: seconds for the answer.

    Attributes:
        name: "the token endpoint HOST", for error texts.

    Raises:
        ConfigError: no such URL. The text has nothing of it but the scheme and the host.
    """

    def __init__(self, url: str, trust: EndpointTrust, *, connect_timeout: float = 10.0, read_timeout: float = 10.0) -> None:
        parts = parts_of(_OPTION, url)
        self._host = parts.hostname or ""
        self._scheme = parts.scheme
        self._port = parts.port or PORTS[parts.scheme]
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._authority = _authority(self._host, parts.port)
        self._trust = trust
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self.name: str = f"the token endpoint {self._authority}"

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer | str:
        """Return the answer to a POST, or what went wrong, as the end of a sentence that begins with the endpoint's name. It blocks."""
        connection = _Connection(self._scheme, self._host, self._port, self._trust, self._connect_timeout)
        try:
            connection.connect()
            connection.bound(self._read_timeout)
            connection.request("POST", self._path, body, {**headers, "Host": self._authority, "Connection": "close"})
            with connection.getresponse() as response:
                content = response.read(MAX_ANSWER_BYTES + 1)
                return f"answers more than {MAX_ANSWER_BYTES >> 20} MiB" if len(content) > MAX_ANSWER_BYTES else _judged(response, content)
        except TimeoutError:
            if connection.is_open:
                return f"does not answer within {self._read_timeout:g} s"
            return f"cannot be reached within {self._connect_timeout:g} s{connection.way}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return _reason(error, self._host, self._trust) + connection.way
        finally:
            connection.close()


def _judged(response: http.client.HTTPResponse, content: bytes) -> Answer | str:
    if 300 <= response.status < 400:
        return f"answers {response.status}, a redirect, which is not followed: give {_OPTION} the URL that it leads to"
    if response.length:
        return "closed the connection within its answer"
    return Answer(response.status, content)


def _authority(host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


# The first class that an error is of gives its reason.
_REASONS: Final[tuple[tuple[type[Exception], Callable[[Any], str]], ...]] = (
    (ConfigError, lambda error: f"is not asked: {error}"),
    (ssl.SSLError, lambda error: f"cannot be reached: TLS failed ({(error.reason or 'no reason').replace('_', ' ').lower()})"),
    (socket.gaierror, lambda error: f"cannot be reached: its name cannot be looked up ({error.strerror})"),
    (ConnectionResetError, lambda _: "closed the connection without an answer"),
    (OSError, lambda error: f"cannot be reached: {error.strerror or type(error).__name__}"),
    # of the codec for host names
    (UnicodeError, lambda _: "cannot be reached: its name is no host name"),
    (Exception, lambda error: f"answers what is no HTTP ({type(error).__name__})"),
)


def _reason(error: Exception, host: str, trust: EndpointTrust) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is refused: {refusal(error, host)}. Trusted: {trust}"
    return next(say(error) for kind, say in _REASONS if isinstance(error, kind))


class _Connection(http.client.HTTPConnection):
    """A connection with one deadline at a time, through a proxy if the environment names one.

    Attributes:
        is_open: whether it is connected.
        way: " through the proxy HOST:PORT", for error texts; empty: there is none.
    """

    def __init__(self, scheme: str, host: str, port: int, trust: EndpointTrust, connect_timeout: float) -> None:
        super().__init__(host, port)
        self._trust = trust
        self._is_encrypted = scheme == "https"
        self._deadline = time.monotonic() + connect_timeout
        self.is_open = False
        self.way = ""

    def connect(self) -> None:
        """Connect.

        Raises:
            ConfigError: the proxy's URL, or the trusted certificates, cannot be used.
            OSError: it cannot be reached.
        """
        proxy = _proxy(self.host) if self._is_encrypted else None
        if proxy is not None:
            self.way = f" (through the proxy {proxy.host}:{proxy.port})"
        connected = _dialled(proxy.host if proxy else self.host, proxy.port if proxy else self.port, self._deadline)
        try:
            if proxy is not None:
                _ask_for_tunnel(_BoundedSocket(connected, self._deadline), _authority(self.host, self.port), proxy)
            if self._is_encrypted:
                connected.settimeout(_left(self._deadline))
                connected = self._trust.context().wrap_socket(connected, server_hostname=self.host.rstrip("."))
        except BaseException:
            connected.close()
            raise
        self.sock: _BoundedSocket = _BoundedSocket(connected, self._deadline)
        self.is_open = True

    def bound(self, seconds: float) -> None:
        """Give all reads and writes from now on these seconds together."""
        self.sock.deadline = time.monotonic() + seconds


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _dialled(host: str, port: int, deadline: float) -> socket.socket:
    """Return a socket that is connected to the first address of the host that can be reached."""
    failure: OSError = OSError("it has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        dialled = socket.socket(family, kind, protocol)
        try:
            dialled.settimeout(_left(deadline))
            dialled.connect(address)
        except OSError as error:
            dialled.close()
            failure = error
        else:
            return dialled
    raise failure


class _BoundedSocket:
    """Reads and writes a socket for `http.client` until a deadline."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket = connected
        self.deadline = deadline

    def sendall(self, content: bytes) -> None:
        self._socket.settimeout(_left(self.deadline))
        self._socket.sendall(content)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self, self._socket.makefile("rb", buffering=0)))

    def await_bytes(self) -> None:
        """Let the next read wait until the deadline."""
        self._socket.settimeout(_left(self.deadline))

    def close(self) -> None:
        self._socket.close()


class _BoundedReader(io.RawIOBase):
    def __init__(self, bounded: _BoundedSocket, raw: socket.SocketIO) -> None:
        self._bounded = bounded
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        self._bounded.await_bytes()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Proxy(NamedTuple):
    """Holds an HTTP proxy, and the words that it is told of its user; empty: none."""

    host: str
    port: int
    authorization: str


def _proxy(host: str) -> _Proxy | None:
    """Return the proxy that the environment names for https.

    Raises:
        ConfigError: it is no HTTP proxy. The text does not quote it: it may hold a password.
    """
    url = urllib.request.getproxies().get("https")
    if not url or is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise ConfigError("https_proxy is no URL") from None
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError("https_proxy must be an http:// URL: other kinds of proxies are not for token endpoints")
    return _Proxy(parts.hostname, port or PORTS["http"], _authorization(parts.username, parts.password))


def _authorization(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    login = f"{unquote(user)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _ask_for_tunnel(bounded: _BoundedSocket, authority: str, proxy: _Proxy) -> None:
    """Ask a proxy for a tunnel (CONNECT).

    Raises:
        ConnectionRefusedError: it does not make one; the text has its status.
    """
    known = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    bounded.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{known}\r\n".encode("ascii"))
    response = http.client.HTTPResponse(bounded, method="CONNECT")  # type: ignore[arg-type]
    try:
        response.begin()
        if response.status != http.HTTPStatus.OK:
            raise ConnectionRefusedError(0, f"the proxy answers {response.status}")
    finally:
        response.close()
