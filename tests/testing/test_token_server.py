"""`TokenServer` by clients that are not ours: what it answers, what it records, and how it ends."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest
from canary_plugin import is_shown
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from aioproducer.testing import TokenServer

if TYPE_CHECKING:
    from collections.abc import Iterator

BASIC = {"Authorization": f"Basic {base64.b64encode(b'orders:canary-orders').decode()}"}


@pytest.fixture(scope="module")
def running() -> Iterator[TokenServer]:
    with TokenServer({"orders": "canary-orders"}) as server:
        yield server


@pytest.fixture
def endpoint(running: TokenServer) -> TokenServer:
    running.heal()
    running.requests.clear()
    return running


def ask(url: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Return the status and the fields of an answer: to a GET, or to a POST of a form."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=5)
    try:
        if form is None:
            connection.request("GET", parts.path)
        else:
            connection.request("POST", parts.path, urlencode(form), headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "==")


def test_a_token_is_signed_by_the_key_that_it_publishes(endpoint: TokenServer) -> None:
    """A validator that knows the URL of the keys alone verifies it."""
    status, fields = ask(endpoint.url, {"grant_type": "client_credentials", "scope": "produce"}, BASIC)
    assert (status, fields["token_type"], fields["expires_in"]) == (200, "Bearer", 300)
    unsigned, _, signature = fields["access_token"].rpartition(".")
    header, claims = (json.loads(decoded(part)) for part in unsigned.split("."))
    _, keys = ask(endpoint.jwks_url)
    [key] = [one for one in keys["keys"] if one["kid"] == header["kid"]]
    exponent, modulus = (int.from_bytes(decoded(key[name]), "big") for name in ("e", "n"))
    rsa.RSAPublicNumbers(exponent, modulus).public_key().verify(decoded(signature), unsigned.encode(), padding.PKCS1v15(), hashes.SHA256())
    assert (claims["iss"], claims["aud"], claims["sub"], claims["scope"]) == ("https://issuer.test", "kafka", "orders", "produce")
    assert claims["exp"] - claims["iat"] == 300
    assert json.loads(decoded(endpoint.token("bob", lifetime=-5, aud="other").split(".")[1]))["aud"] == "other"


@pytest.mark.parametrize(
    ("form", "headers", "status", "error"),
    [
        ({"grant_type": "password"}, BASIC, 400, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, {}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": "Basic canary"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials"}, {"Authorization": BASIC["Authorization"].replace("Basic", "Bearer")}, 401, "invalid_client"),
        ({"grant_type": "client_credentials", "client_assertion": "a.b.c"}, {}, 400, "invalid_request"),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "a.b.c"}, {}, 400, "invalid_grant"),
    ],
    ids=range(6),
)
def test_what_it_refuses(endpoint: TokenServer, form: dict[str, str], headers: dict[str, str], status: int, error: str) -> None:
    told, fields = ask(endpoint.url, form, headers)
    assert (told, fields["error"]) == (status, error)
    assert endpoint.requests[-1].client == ("orders" if error == "unsupported_grant_type" else None)


def test_other_paths(endpoint: TokenServer) -> None:
    assert ask(endpoint.url.replace("token", "other"))[0] == 404
    assert ask(endpoint.url.replace("token", "other"), {"grant_type": "client_credentials"}, BASIC)[0] == 404
    assert endpoint.requests == []


def test_no_repr_has_a_secret(endpoint: TokenServer) -> None:
    ask(endpoint.url, {"grant_type": "client_credentials"}, BASIC)
    assert repr(endpoint) == f"<TokenServer {endpoint.url}: 1 request>"
    assert not is_shown(repr(endpoint.requests))


def test_faults_end(endpoint: TokenServer) -> None:
    """After as many requests as was said, or by `heal`; a new one replaces the old one."""
    form = {"grant_type": "client_credentials"}
    endpoint.fail("unavailable", times=2)
    assert [ask(endpoint.url, form, BASIC)[0] for _ in range(3)] == [503, 503, 200]
    endpoint.fail("unavailable")
    endpoint.fail("refused")
    assert [ask(endpoint.url, form, BASIC)[0] for _ in range(2)] == [401, 401]
    endpoint.heal()
    assert ask(endpoint.url, form, BASIC)[0] == 200
    with pytest.raises(ValueError, match="there is no fault 'tired'; there are refused, unavailable"):
        endpoint.fail("tired")  # type: ignore[arg-type]


def test_it_ends_while_clients_wait() -> None:
    """At once, with its threads and sockets; it starts again on the same port, with the same key."""
    server = TokenServer({"orders": "canary-orders"})
    assert "not started" in repr(server)
    before = threading.active_count()
    server.start()
    server.start()
    url = server.url
    keys = ask(server.jwks_url)[1]
    server.fail("hanging")
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port or 0)) as waiting:
        waiting.sendall(b"POST /token HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        while not server.requests:
            time.sleep(0.001)
        began = time.monotonic()
        server.stop()
        server.stop()
        assert waiting.recv(100) == b""
    assert time.monotonic() - began < 2
    while threading.active_count() > before:
        time.sleep(0.001)
    with pytest.raises(ConnectionRefusedError):
        ask(url)
    with server:
        server.heal()
        assert (server.url, ask(server.jwks_url)[1]) == (url, keys)
