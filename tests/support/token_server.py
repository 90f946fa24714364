"""A token endpoint for tests (OpenID Connect), over HTTP on loopback in a thread of its own.

    with TokenServer({"orders": "canary-orders"}) as endpoint:
        endpoint.url                                         # "http://127.0.0.1:40123/token"
        endpoint.jwks_url                                    # its public key, for the validator of a real Kafka
        endpoint.requests                                    # what clients asked, without secrets
        endpoint.token("orders", lifetime=20)                # a token that no client asked for
        endpoint.fail("unavailable", times=2)                # a fault for the next two requests; without times: until `heal`

    TokenServer(tls=ca.server())                             # https; a wrong certificate: ca.server("elsewhere.test")
    endpoint.stop()                                          # nothing listens there; `start` listens on the same port again

Tokens are JWTs that an RSA key signs (RS256). The server has the grant of client credentials with a secret. It shares no code with the client.
"""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias
from urllib.parse import parse_qsl, unquote_plus

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from aioproducer.testing.security.listener import ServerCertificate

__all__ = ["TokenFault", "TokenRequest", "TokenServer"]

TokenFault: TypeAlias = Literal["refused", "unavailable", "not-json", "slow", "hanging"]
"""What `TokenServer.fail` takes: 401, 503, a page, a byte every 0.1 s, and no answer."""

_HOST: Final = "127.0.0.1"
_KEY_ID: Final = "token-server"
_CONNECTION_SECONDS: Final = 30.0
_ANSWERS: Final[Mapping[str, tuple[HTTPStatus, dict[str, Any] | bytes]]] = {
    "refused": (
        HTTPStatus.UNAUTHORIZED,
        {"error": "invalid_client", "error_description": "this client is locked"},
    ),
    "unavailable": (HTTPStatus.SERVICE_UNAVAILABLE, {"error": "temporarily_unavailable"}),
    "not-json": (HTTPStatus.OK, b"<html>Sign in</html>"),
}


class TokenRequest(NamedTuple):
    """What a client asked: the `grant_type`, the client by its Basic authorization (None: refused), and the `scope`."""

    grant: str
    client: str | None
    scope: str | None


class TokenServer:
    """Listens for requests for tokens: `with TokenServer(...) as endpoint: ...`.

    Args:
        clients: the secret of each client.
        lifetime: the seconds for which tokens are valid.
        tls: the certificate of the server, for https; None: http.
        clock: returns the seconds since 1970, for the dates of tokens; it is called in threads of the server.

    Attributes:
        requests: the requests so far, a list that may be cleared.
    """

    def __init__(
        self,
        clients: Mapping[str, str] | None = None,
        *,
        lifetime: float = 300.0,
        tls: ServerCertificate | None = None,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self.requests: list[TokenRequest] = []
        self._clients = dict(clients or {})
        self._lifetime = lifetime
        self._tls = None if tls is None else _server_context(tls)
        self._clock = clock
        self._key = rsa.generate_private_key(65537, 2048)
        self._faults: list[TokenFault] = []
        self._lasting_fault: TokenFault | None = None
        self._port = 0
        self._listening: _Listening | None = None

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{_HOST}:{self._port}/token"

    @property
    def jwks_url(self) -> str:
        """The URL of the public key (RFC 7517)."""
        return f"{self.url.removesuffix('/token')}/jwks"

    def start(self) -> None:
        """Listen, on the same port as before if it was stopped."""
        if self._listening is None:
            self._listening = _Listening(self._port, self._tls, partial(_Handler, self))
            self._port = self._listening.server_port

    def stop(self) -> None:
        """End the thread and the connections; safe twice."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def fail(self, fault: TokenFault, *, times: int | None = None) -> None:
        """Answer the next requests by a fault, in place of one that is there; without `times`, until `heal`."""
        self._faults = [fault] * (times or 0)
        self._lasting_fault = fault if times is None else None

    def heal(self) -> None:
        self._faults, self._lasting_fault = [], None

    def take_fault(self) -> TokenFault | None:
        # several threads may ask at once
        try:
            return self._faults.pop()
        except IndexError:
            return self._lasting_fault

    def token(self, subject: str, *, lifetime: float | None = None, **claims: Any) -> str:
        """Return a signed token.

        Args:
            subject: the claim `sub`, which becomes the principal.
            lifetime: seconds from now on; negative: it has expired; None: the server's `lifetime`.
            claims: other claims, in place of the usual ones.
        """
        now = int(self._clock())
        payload = {
            "iss": "https://issuer.test",
            "aud": "kafka",
            "sub": subject,
            "iat": now,
            "jti": str(uuid.uuid4()),
        }
        payload["exp"] = now + int(self._lifetime if lifetime is None else lifetime)
        unsigned = f"{_encoded({'alg': 'RS256', 'kid': _KEY_ID, 'typ': 'JWT'})}.{_encoded({**payload, **claims})}"
        return f"{unsigned}.{_base64url(self._key.sign(unsigned.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def verify(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a valid token of this server, for `ListenerTokens(verify=...)` of a fake cluster; None: it is another."""
        unsigned, _, signature = token.rpartition(".")
        try:
            self._key.public_key().verify(
                _decoded(signature), unsigned.encode(), padding.PKCS1v15(), hashes.SHA256()
            )
            claims: dict[str, Any] = json.loads(_decoded(unsigned.partition(".")[2]))
        except (ValueError, InvalidSignature):
            return None
        return claims if self._clock() < claims["exp"] else None

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a set of keys."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (
            _base64url(one.to_bytes((one.bit_length() + 7) // 8, "big"))
            for one in (numbers.n, numbers.e)
        )
        return {
            "keys": [
                {
                    "kty": "RSA",
                    "alg": "RS256",
                    "use": "sig",
                    "kid": _KEY_ID,
                    "n": modulus,
                    "e": exponent,
                }
            ]
        }

    def answer(
        self, form: Mapping[str, str], authorization: str
    ) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return the status and the fields of the answer to a request, and record it."""
        asked = TokenRequest(
            form.get("grant_type", ""), self._client(authorization), form.get("scope")
        )
        self.requests.append(asked)
        if asked.grant != "client_credentials":
            return HTTPStatus.BAD_REQUEST, {
                "error": "unsupported_grant_type",
                "error_description": "there is no such grant here",
            }
        if asked.client is None:
            return HTTPStatus.UNAUTHORIZED, {
                "error": "invalid_client",
                "error_description": "no such client, or another secret",
            }
        token = self.token(asked.client, **({} if asked.scope is None else {"scope": asked.scope}))
        return HTTPStatus.OK, {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": int(self._lifetime),
        }

    def _client(self, authorization: str) -> str | None:
        """Return the client of a header `Authorization: Basic`, plain or urlencoded; None: its secret is another."""
        client, _, secret = (
            base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        )
        for name, word in ((client, secret), (unquote_plus(client), unquote_plus(secret))):
            if self._clients.get(name) == word:
                return name
        return None


class _Listening(http.server.ThreadingHTTPServer):
    """Listens on loopback, with one thread for connections to come and one for each that has."""

    # another server may have been here a moment ago
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        port: int,
        tls: ssl.SSLContext | None,
        handler: Callable[..., http.server.BaseHTTPRequestHandler],
    ) -> None:
        super().__init__((_HOST, port), handler)
        self.stopping = threading.Event()
        self._tls = tls
        self._thread = threading.Thread(
            target=partial(self.serve_forever, 0.02), name="TokenServer", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(_CONNECTION_SECONDS)
            if self._tls is not None:
                request = self._tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        # the client refused the certificate, or went away
        except OSError:
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client went away."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listening

    def __init__(self, endpoint: TokenServer, *arguments: Any) -> None:
        self._endpoint = endpoint
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the endpoint records its requests."""

    def do_GET(self) -> None:
        if self.path == "/jwks":
            self._reply(HTTPStatus.OK, self._endpoint.jwks())
        else:
            self._reply(HTTPStatus.NOT_FOUND, {"error": "not_found"})

    def do_POST(self) -> None:
        """Answer with a token, a refusal or the fault."""
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        answer = self._endpoint.answer(form, self.headers.get("Authorization", ""))
        fault = self._endpoint.take_fault()
        if fault is None or fault in _ANSWERS:
            self._reply(*(answer if fault is None else _ANSWERS[fault]))
            return
        self.close_connection = True
        if fault == "hanging":
            self.server.stopping.wait(_CONNECTION_SECONDS)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        ends_at = time.monotonic() + _CONNECTION_SECONDS
        while time.monotonic() < ends_at and not self.server.stopping.wait(0.1):
            self.wfile.write(b" ")

    def _reply(self, status: HTTPStatus, body: dict[str, Any] | bytes) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _server_context(certificate: ServerCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _encoded(part: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(part).encode())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
