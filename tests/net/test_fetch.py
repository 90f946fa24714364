"""Tests of `aioproducer.net.fetch` and of the token endpoints of `net.tokens`: what an endpoint answers, over HTTP on loopback (row 111)."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from canary_plugin import is_shown

from aioproducer import ProducerConfig
from aioproducer.errors import TokenUnavailable
from aioproducer.net.fetch import MAX_ANSWER_BYTES, FetchFailed, fetch
from aioproducer.net.tls_contexts import endpoint_context
from aioproducer.net.tokens import OidcSource
from aioproducer.testing.certificates import EXPIRED, CertificateAuthority
from tests.support.token_server import TokenServer

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

    from aioproducer.sasl.tokens import Token

CA = CertificateAuthority()
SECRET = "canary-orders"
_SHORT = 0.15


@pytest.fixture(scope="module")
def running() -> Iterator[TokenServer]:
    with TokenServer({"orders": SECRET, "a:b c": "canary-%:+ ü"}) as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(running: TokenServer) -> TokenServer:
    running.heal()
    running.requests.clear()
    return running


def source(
    url: str,
    *,
    secret: str = SECRET,
    client: str = "orders",
    timeout: float = 5.0,
    clock: Any = time.time,
    **options: Any,
) -> OidcSource:
    config: Any = ProducerConfig(
        bootstrap_servers="b:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_credentials_client_id=client,
        sasl_oauthbearer_client_credentials_client_secret=secret,
        sasl_login_connect_timeout_ms=timeout * 500,
        sasl_login_read_timeout_ms=timeout * 500,
        **options,
    )
    return OidcSource(config, clock)


def why(asked: OidcSource) -> str:
    """Return why there is no token, without the endpoint's name. No secret is told."""
    with pytest.raises(TokenUnavailable) as caught:
        asked.fetch()
    error = caught.value
    assert (error.stage, error.mechanism, error.code) == ("token", "OAUTHBEARER", None)
    text = str(error)
    assert not is_shown(f"{error!r} {text} {error.__cause__!r} {error.__context__!r}")
    assert text.startswith(f"{asked.name} ")
    return text.removeprefix(f"{asked.name} ")


# Row 111: each fault of an endpoint, and the words for it


@pytest.mark.parametrize("fault", ["slow", "hanging"])
def test_row_111_an_endpoint_that_does_not_answer(endpoint: TokenServer, fault: Any) -> None:
    """Neither silence nor a body of a byte now and then takes longer than the time for the whole answer."""
    endpoint.fail(fault, times=1)
    began = time.monotonic()
    assert why(source(endpoint.url, timeout=_SHORT)) == "does not answer within 0.15 s"
    assert time.monotonic() - began < 10 * _SHORT


def test_row_111_nobody() -> None:
    gone = TokenServer({"orders": SECRET})
    gone.start()
    gone.stop()
    assert why(source(gone.url)) == "cannot be reached: Connection refused"
    assert why(source("https://nobody.invalid/")).startswith(
        "cannot be reached: its name cannot be looked up"
    )


def test_row_111_silence_in_the_handshake() -> None:
    """A server that takes the connection and says nothing to TLS: the time for the connection ends it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        assert why(source(url, timeout=_SHORT)) == "does not answer within 0.15 s"


@pytest.mark.parametrize(
    ("names", "more", "is_trusted", "reason"),
    [
        (("elsewhere.test",), {}, True, "it is not for the address 127.0.0.1"),
        (
            (),
            {"validity": EXPIRED},
            True,
            "it has expired: are this machine's clock and the certificate right?",
        ),
        (
            (),
            {},
            False,
            "(unable to get the local issuer certificate)",
        ),
    ],
    ids=["name", "expired", "authority"],
)
def test_row_111_a_wrong_certificate(
    tmp_path: pathlib.Path,
    names: tuple[str, ...],
    more: dict[str, Any],
    reason: str,
    *,
    is_trusted: bool,
) -> None:
    """The client refuses a certificate before it sends anything, and says why."""
    ca = CA.write(tmp_path / "ca.pem")
    with TokenServer({"orders": SECRET}, tls=CA.server(*names, **more)) as endpoint:
        told = why(source(endpoint.url, **({"https_ca_location": str(ca)} if is_trusted else {})))
        assert told.startswith("has a certificate that is refused: ")
        assert told.endswith(reason)
        assert endpoint.requests == []


@pytest.mark.parametrize("is_file", [True, False])
def test_https(tmp_path: pathlib.Path, *, is_file: bool) -> None:
    """The authority is given as a file or as PEM."""
    trust = (
        {"https_ca_location": str(CA.write(tmp_path / "ca.pem"))}
        if is_file
        else {"https_ca_pem": CA.pem.decode()}
    )
    with TokenServer({"orders": SECRET}, tls=CA.server()) as endpoint:
        assert source(endpoint.url, **trust).fetch().principal == "orders"


def test_an_authority_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with TokenServer(tls=CA.server()) as endpoint:
        told = why(source(endpoint.url, https_ca_location=str(tmp_path / "none.pem")))
        assert (
            told
            == f"is not asked: https_ca_location={tmp_path / 'none.pem'} cannot be read: No such file or directory"
        )


def test_http_on_a_port_of_https_and_the_other_way(endpoint: TokenServer) -> None:
    with TokenServer(tls=CA.server()) as encrypted:
        assert why(source(encrypted.url.replace("https", "http"))).startswith(
            ("closed the connection", "cannot be reached")
        )
    assert why(source(endpoint.url.replace("http", "https"))).startswith(
        "cannot be reached: TLS failed ("
    )


def test_http_elsewhere_is_refused() -> None:
    """tests/config/test_endpoint_options.py has the URLs that options refuse."""
    with pytest.raises(FetchFailed, match="it is http, which would send secrets unencrypted"):
        fetch("http://id.example.com/token", b"", {}, context=None, timeout=1.0)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://id.example.com/token?tenant=canary-a", "id.example.com"),
        ("https://id.example.com:8443", "id.example.com:8443"),
        ("http://[::1]:8080/", "[::1]:8080"),
    ],
)
def test_the_name_is_that_of_the_host_alone(url: str, name: str) -> None:
    assert source(url).name == f"the token endpoint {name}"


# Answers


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Listen, and answer each connection by the next bytes. Yields the URL and the requests."""
    requests: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listening.accept()
            with connection:
                requests.append(connection.recv(65536))
                while b"\r\n\r\n" not in requests[-1] or b"grant_type" not in requests[-1]:
                    requests[-1] += connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/token?tenant=7", requests
    finally:
        thread.join(5)
        listening.close()


def http_answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def jwt(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims)
    return (
        ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
            for part in parts
        )
        + "."
    )


def fetched(body: bytes) -> Token:
    with answering(http_answer(body)) as (url, _):
        return source(url, clock=lambda: 1000.0).fetch()


def answer_of(**fields: Any) -> bytes:
    return json.dumps({"access_token": "canary-opaque", **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "expires_at", "principal"),
    [
        ({"expires_in": 60}, 1060.0, "orders"),
        ({"expires_in": 60.5}, 1060.5, "orders"),
        ({"expires_in": "3599"}, 4599.0, "orders"),
        ({}, None, "orders"),
        ({"expires_in": None}, None, "orders"),
        ({"access_token": jwt(exp=1300, sub="alice")}, 1300.0, "alice"),
        ({"access_token": jwt(exp=1300, sub="alice"), "expires_in": 60}, 1060.0, "alice"),
        ({"access_token": jwt(exp=1030), "expires_in": 60}, 1030.0, "orders"),
        # this machine's clock is ahead by more than the token's life
        ({"access_token": jwt(exp=400, sub=""), "expires_in": 60}, 1060.0, "orders"),
        ({"access_token": "a.canary-b.c"}, None, "orders"),
        ({"access_token": None, "id_token": "canary-id", "expires_in": 1}, 1001.0, "orders"),
    ],
)
def test_what_a_token_is_known_to_be(
    fields: dict[str, Any], expires_at: float | None, principal: str
) -> None:
    """Its end is the earlier of `expires_in` and the claim `exp`, if that is not past; its principal is the claim `sub`, or the client."""
    token = fetched(answer_of(**fields))
    assert (token.expires_at, token.principal) == (expires_at, principal)
    assert token.text.reveal() == (fields.get("access_token", "canary-opaque") or "canary-id")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "answers what is no JSON object"),
        (b"[]", "answers what is no JSON object"),
        (b"\xff\xfe", "answers what is no JSON object"),
        (b"[" * 200_000, "answers what is no JSON object"),
        (b'{"token_type": "Bearer"}', "answers without an access_token"),
        (
            b'{"error": "invalid_scope", "error_description": "ask for orders/.default"}',
            "answers 200: invalid_scope (ask for orders/.default)",
        ),
        (answer_of(access_token=7), "answers without an access_token"),
        (answer_of(access_token=" "), "answers without an access_token"),
        (answer_of(access_token="${file:/etc/passwd}"), "answers without an access_token"),
        (answer_of(expires_in=0), "answers expires_in=0: the token has expired"),
        (answer_of(expires_in=-5), "answers expires_in=-5: the token has expired"),
        (answer_of(expires_in=True), "answers an expires_in that is no number of seconds (bool)"),
        (answer_of(expires_in=[60]), "answers an expires_in that is no number of seconds (list)"),
        (answer_of(expires_in="soon"), "answers an expires_in that is no number of seconds (str)"),
        (
            answer_of(expires_in="9" * 5000),
            "answers an expires_in that is no number of seconds (str)",
        ),
        (answer_of(expires_in=10**400), "answers an expires_in that is no number of seconds (int)"),
        (
            answer_of(expires_in=float("nan")),
            "answers an expires_in that is no number of seconds (float)",
        ),
    ],
    ids=range(17),
)
def test_answers_that_are_no_token(body: bytes, reason: str) -> None:
    with answering(http_answer(body)) as (url, _):
        assert why(source(url)) == reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "answers what is no HTTP (BadStatusLine)"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}",
            "closed the connection within its answer",
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200, "answers what is no HTTP (HTTPException)"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "answers what is no HTTP (IncompleteRead)",
        ),
        (b"HTTP/1.1 " + b"2" * 70_000, "answers what is no HTTP (LineTooLong)"),
        (http_answer(b"x" * 100, "500 Oops"), "answers 500"),
        (
            http_answer(
                b'{"error": "no\\u0007\\nway", "error_description": "%b"}' % (b"y" * 300),
                "400 Bad Request",
            ),
            f"answers 400: no  way ({'y' * 200}...)",
        ),
        (
            http_answer(b'{"error": 7, "error_description": "locked"}', "400 Bad Request"),
            "answers 400: locked",
        ),
        (http_answer(b'{"error": {"code": "canary-a"}}', "403 Forbidden"), "answers 403"),
        (
            http_answer(
                b'{"error": "e", "error_description": "canary-orders is no secret"}', "401 No"
            ),
            "answers 401: e",
        ),
        (
            http_answer(b"", "304 Not Modified"),
            "answers 304, a redirect, which is not followed: give the URL that it leads to",
        ),
        (
            http_answer(
                b"", "302 Found\r\nLocation: https://elsewhere.test/token?code=canary-in-a-redirect"
            ),
            "answers 302, a redirect, which is not followed: give the URL that it leads to",
        ),
    ],
    ids=range(13),
)
def test_answers_that_are_no_success(answer: bytes, reason: str) -> None:
    """What the server says is printable, cut, and left out where it repeats a secret."""
    with answering(answer) as (url, _):
        assert why(source(url)) == reason


def test_an_answer_of_the_most_bytes_is_taken() -> None:
    body = answer_of(padding="")
    assert (
        fetched(answer_of(padding="x" * (MAX_ANSWER_BYTES - len(body)))).text.reveal()
        == "canary-opaque"
    )
    with answering(http_answer(answer_of(padding="x" * (MAX_ANSWER_BYTES - len(body) + 1)))) as (
        url,
        _,
    ):
        assert why(source(url)) == "answers more than 1 MiB"


def test_the_request(endpoint: TokenServer) -> None:
    """One POST with the path, the query and the form of RFC 6749; the connection ends with it."""
    with answering(http_answer(answer_of())) as (url, requests):
        source(url, sasl_oauthbearer_scope="a b").fetch()
    [request] = requests
    head, _, form = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    basic = base64.b64encode(f"orders:{SECRET}".encode()).decode()
    assert lines[0] == "POST /token?tenant=7 HTTP/1.1"
    assert {
        "Accept: application/json",
        "Content-Type: application/x-www-form-urlencoded",
        "Connection: close",
    } <= set(lines)
    assert f"Authorization: Basic {basic}" in lines
    assert [line for line in lines if line.startswith("Host:")] == [f"Host: {url.split('/')[2]}"]
    assert form == b"grant_type=client_credentials&scope=a+b"


def test_a_client_and_a_secret_are_urlencoded_on_demand(endpoint: TokenServer) -> None:
    """As in a form, which a client id with a colon needs (RFC 6749, 2.3.1)."""
    asked = source(
        endpoint.url, client="a:b c", secret="canary-%:+ ü", sasl_oauthbearer_header_urlencode=True
    )
    assert asked.fetch().principal == "a:b c"


def test_a_secret_that_cannot_be_read(
    endpoint: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference is read at each fetch."""
    asked = source(endpoint.url, secret="${env:T2_CLIENT_SECRET}")
    assert (
        why(asked)
        == "is not asked: ${env:T2_CLIENT_SECRET}: there is no environment variable T2_CLIENT_SECRET"
    )
    monkeypatch.setenv("T2_CLIENT_SECRET", SECRET)
    assert asked.fetch().principal == "orders"


# Proxies


class Proxy:
    """An HTTP proxy that makes each tunnel to one port, or refuses."""

    def __init__(self, port: int, status: str = "200 Connection established") -> None:
        self.heads: list[bytes] = []
        self._port = port
        self._status = status
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        near, _ = self._listening.accept()
        head = b""
        while b"\r\n\r\n" not in head:
            head += near.recv(4096)
        self.heads.append(head)
        near.sendall(f"HTTP/1.1 {self._status}\r\n\r\n".encode())
        if self._status.startswith("200"):
            with socket.create_connection(("127.0.0.1", self._port)) as far:
                back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
                back.start()
                self._copy(near, far)
                back.join()
        near.close()
        self._listening.close()

    @staticmethod
    def _copy(near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := near.recv(65536):
                far.sendall(content)
            far.shutdown(socket.SHUT_WR)


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what sets the variables of proxies; others are unset."""
    for name in (
        "https_proxy",
        "HTTPS_PROXY",
        "http_proxy",
        "HTTP_PROXY",
        "no_proxy",
        "NO_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    return lambda **variables: (
        [monkeypatch.setenv(name, value) for name, value in variables.items()] and None
    )


TRUST = {"https_ca_pem": CA.pem.decode()}


def test_a_proxy_makes_a_tunnel(behind: Callable[..., None]) -> None:
    """The proxy is told the host and its own user; it looks up the name, and the certificate that is checked is the endpoint's."""
    with TokenServer({"orders": SECRET}, tls=CA.server("id.example.test")) as endpoint:
        proxy = Proxy(int(endpoint.url.split(":")[2].split("/")[0]))
        behind(https_proxy=f"http://alice:canary-%70roxy@{proxy.address}")
        assert source("https://id.example.test/token", **TRUST).fetch().principal == "orders"
    [head] = proxy.heads
    known = base64.b64encode(b"alice:canary-proxy").decode()
    assert head.startswith(b"CONNECT id.example.test:443 HTTP/1.")
    assert f"Proxy-Authorization: Basic {known}" in head.decode().split("\r\n")


def test_a_proxy_that_refuses(behind: Callable[..., None]) -> None:
    """The error has the proxy's status, and not what it knows its user by."""
    proxy = Proxy(0, "407 Proxy Authentication Required")
    behind(https_proxy=f"http://alice:canary-proxy@{proxy.address}")
    told = why(source("https://id.example.test/token"))
    assert told == "cannot be reached: Tunnel connection failed: 407 Proxy Authentication Required"


def test_hosts_without_a_proxy(behind: Callable[..., None], endpoint: TokenServer) -> None:
    """Loopback is dialled itself, and so are the hosts of `no_proxy`."""
    behind(
        https_proxy="http://nobody.invalid:1",
        http_proxy="http://nobody.invalid:1",
        no_proxy=".example.invalid",
    )
    assert source(endpoint.url).fetch().principal == "orders"
    with TokenServer({"orders": SECRET}, tls=CA.server()) as encrypted:
        assert source(encrypted.url, **TRUST).fetch().principal == "orders"
    assert "proxy" not in why(source("https://id.example.invalid/"))


def test_a_proxy_that_is_silent(behind: Callable[..., None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        behind(HTTPS_PROXY=address)
        told = why(source("https://id.example.test/", timeout=_SHORT))
        assert told == "does not answer within 0.15 s"


def test_the_context_is_strict() -> None:
    context = endpoint_context(None, CA.pem.decode())
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
