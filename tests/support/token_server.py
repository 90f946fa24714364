"""A token endpoint for tests (OpenID Connect), over HTTP on loopback in a thread of its own. It needs the extra `crypto`.

    with TokenServer({"orders": "canary-orders"}) as endpoint:
        endpoint.url                                         # "http://127.0.0.1:40123/token"
        endpoint.jwks_url                                    # its public key, for the validator of a real Kafka
        endpoint.requests                                    # what clients asked, without secrets
        endpoint.token("orders", lifetime=20)                # a token that no client asked for
        endpoint.fail("unavailable", times=2)                # a fault for the next two requests; without times: until `heal`

    TokenServer(tls=ca.server())                             # https; a wrong certificate: ca.server("elsewhere.test")
    TokenServer(assertion_key=public_key_pem)                # clients prove their identity by assertions that this key verifies
    endpoint.stop()                                          # nothing listens there; `start` listens on the same port again

Tokens are JWTs that an RSA key signs (RS256). The server has the grants of client credentials, with a secret or an assertion, and of
JWT bearers (RFC 7523). It shares no code with the client.
"""

from __future__ import annotations

import base64
import binascii
import http.server
import json
import ssl
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, get_args
from urllib.parse import parse_qsl, unquote_plus

from aioproducer.model import counted
from aioproducer.testing.security.listener import ServerCertificate

__all__ = ["TokenFault", "TokenRequest", "TokenServer"]


try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aioproducer.testing.TokenServer needs cryptography: pip install 'aioproducer[crypto]'", name="cryptography"
    ) from missing


TokenFault: TypeAlias = Literal[
    "refused",
    "unavailable",
    "redirect",
    "not-json",
    "no-token",
    "no-expiry",
    "wrong-expiry",
    "too-large",
    "slow",
    "hanging",
    "cut",
]
"""What `TokenServer.fail` takes: 401, 503, 302, a page, JSON without a token, an answer without or with a wrong `expires_in`, 2 MB,
a byte every 0.1 s, no answer, and a connection that ends without one."""

_HOST: Final = "127.0.0.1"
_KEY_ID: Final = "token-server"
_RSA_BITS: Final = 2048
_MAX_REQUEST_BYTES: Final = 64 * 1024
_MAX_CONNECTIONS: Final = 64
_CONNECTION_SECONDS: Final = 30.0
_SLOW_SECONDS: Final = 0.1
_REDIRECTED: Final = "https://elsewhere.test/token?code=canary-in-a-redirect"
_LARGE_BYTES: Final = 2_000_000
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True)
class TokenRequest:
    """Holds what a client asked of the endpoint, without secrets.

    Attributes:
        grant: the `grant_type`.
        client: the client that was recognized; None: it was refused.
        scope: the `scope`; None: it gave none.
        authentication: "basic", "assertion" or "none".
        assertion: the header and the claims of the assertion, merged; empty: there was none.
        at: seconds of `time.monotonic`.
    """

    grant: str
    client: str | None
    scope: str | None
    authentication: Literal["basic", "assertion", "none"]
    assertion: Mapping[str, Any] = field(repr=False)
    at: float


class TokenServer:
    """Listens for requests for tokens: `with TokenServer(...) as endpoint: ...`.

    Args:
        clients: the secret of each client.
        issuer: the claim `iss` of tokens.
        audience: the claim `aud` of tokens.
        lifetime: the seconds for which tokens are valid.
        tls: the certificate of the server, for https; None: http.
        assertion_key: the public key that verifies assertions, PEM; None: no assertion is taken.
        clock: returns the seconds since 1970, for the dates of tokens and assertions; it is called in threads of the server.
    """

    def __init__(
        self,
        clients: Mapping[str, str] | None = None,
        *,
        issuer: str = "https://issuer.test",
        audience: str = "kafka",
        lifetime: float = 300.0,
        tls: ServerCertificate | None = None,
        assertion_key: bytes | None = None,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._tls = None if tls is None else _server_context(tls)
        self._issuer = _Issuer(dict(clients or {}), {"iss": issuer, "aud": audience}, lifetime, assertion_key, clock)
        self._port = 0
        self._listening: _Listening | None = None

    def __repr__(self) -> str:
        return f"<TokenServer {self.url if self._port else 'not started'}: {counted(len(self.requests), 'request')}>"

    @property
    def url(self) -> str:
        """Return the URL of the token endpoint."""
        return f"{'http' if self._tls is None else 'https'}://{_HOST}:{self._port}/token"

    @property
    def jwks_url(self) -> str:
        """Return the URL of the public key (RFC 7517)."""
        return f"{self.url.removesuffix('/token')}/jwks"

    @property
    def requests(self) -> list[TokenRequest]:
        """Return the requests so far, a list that may be cleared."""
        return self._issuer.requests

    def start(self) -> None:
        """Listen, on the same port as before if it was stopped.

        Raises:
            OSError: the port is taken.
        """
        if self._listening is None:
            self._listening = _Listening(self._port, self._tls, partial(_Handler, self._issuer))
            self._port = self._listening.server_port

    def stop(self) -> None:
        """End the thread and the connections; safe twice."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def fail(self, fault: TokenFault, *, times: int | None = None) -> None:
        """Answer the next requests for a token by a fault, in place of one that is there.

        Args:
            fault: which one.
            times: for how many requests; None: until `heal`.

        Raises:
            ValueError: there is no such fault.
        """
        if fault not in get_args(TokenFault):
            raise ValueError(f"there is no fault {fault!r}; there are {', '.join(get_args(TokenFault))}")
        self._issuer.set_fault(fault, times)

    def heal(self) -> None:
        """End the fault."""
        self._issuer.set_fault(None, None)

    def token(self, subject: str, *, lifetime: float | None = None, scope: str | None = None, **claims: Any) -> str:
        """Return a signed token.

        Args:
            subject: the claim `sub`, which becomes the principal.
            lifetime: seconds from now on; negative: it has expired; None: the server's `lifetime`.
            scope: the claim `scope`; None: it has none.
            claims: other claims, in place of the usual ones.
        """
        return self._issuer.token(subject, lifetime, claims if scope is None else {"scope": scope, **claims})

    def verify(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a token that this server signed, for `ListenerTokens(verify=...)` of a fake cluster; None: it is another."""
        return self._issuer.verified_token(token)


class _Issuer:
    """Recognizes clients and signs tokens, in any thread. Arguments are as of `TokenServer`.

    Attributes:
        requests: the requests so far.
    """

    def __init__(
        self,
        clients: Mapping[str, str],
        claims: Mapping[str, str],
        lifetime: float,
        assertion_key: bytes | None,
        clock: Callable[[], float],
    ) -> None:
        self.requests: list[TokenRequest] = []
        self._clients = clients
        self._claims = claims
        self._lifetime = lifetime
        self._clock = clock
        self._assertion_key = None if assertion_key is None else serialization.load_pem_public_key(assertion_key)
        self._key = rsa.generate_private_key(65537, _RSA_BITS)
        self._lock = threading.Lock()
        self._fault: TokenFault | None = None
        self._fault_times: int | None = None

    def token(self, subject: str, lifetime: float | None, claims: Mapping[str, Any]) -> str:
        """Return a signed token."""
        now = int(self._clock())
        payload = {**self._claims, "sub": subject, "iat": now, "jti": str(uuid.uuid4())}
        payload["exp"] = now + int(self._lifetime if lifetime is None else lifetime)
        unsigned = f"{_encoded({'alg': 'RS256', 'kid': _KEY_ID, 'typ': 'JWT'})}.{_encoded({**payload, **claims})}"
        return f"{unsigned}.{_base64url(self._key.sign(unsigned.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def jwks(self) -> dict[str, Any]:
        """Return the public key as a set of keys."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (_base64url(one.to_bytes((one.bit_length() + 7) // 8, "big")) for one in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": _KEY_ID, "n": modulus, "e": exponent}]}

    def set_fault(self, fault: TokenFault | None, times: int | None) -> None:
        """Set the fault, and for how many requests; None: for all."""
        with self._lock:
            self._fault, self._fault_times = fault, times

    def take_fault(self) -> TokenFault | None:
        """Return the fault of a request, which counts it."""
        with self._lock:
            fault = self._fault
            if fault is not None and self._fault_times is not None:
                self._fault_times -= 1
                self._fault = fault if self._fault_times > 0 else None
            return fault

    def answer(self, form: Mapping[str, str], authorization: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return the status and the fields of the answer to a request, and record it."""
        asked = self._recognized(form, authorization)
        self.requests.append(asked)
        if asked.grant not in {"client_credentials", _JWT_BEARER}:
            return HTTPStatus.BAD_REQUEST, {"error": "unsupported_grant_type", "error_description": "there is no such grant here"}
        if "client_assertion" in form and form.get("client_assertion_type") != _ASSERTION_TYPE:
            return HTTPStatus.BAD_REQUEST, {"error": "invalid_request", "error_description": "client_assertion_type is not that of JWTs"}
        if asked.client is None and asked.grant == _JWT_BEARER:
            return HTTPStatus.BAD_REQUEST, {"error": "invalid_grant", "error_description": "the assertion is not valid"}
        if asked.client is None:
            return HTTPStatus.UNAUTHORIZED, {"error": "invalid_client", "error_description": "no such client, or another secret"}
        token = self.token(asked.client, None, {} if asked.scope is None else {"scope": asked.scope})
        return HTTPStatus.OK, {"access_token": token, "token_type": "Bearer", "expires_in": int(self._lifetime)}

    def _recognized(self, form: Mapping[str, str], authorization: str) -> TokenRequest:
        """Return what a request asks, with the client that it proves to come from."""
        grant, scope, now = form.get("grant_type", ""), form.get("scope"), time.monotonic()
        if authorization:
            return TokenRequest(grant, self._basic(authorization), scope, "basic", {}, now)
        assertion = form.get("client_assertion") or form.get("assertion")
        if not assertion:
            return TokenRequest(grant, None, scope, "none", {}, now)
        claims = self._verified_assertion(assertion)
        if claims is None:
            return TokenRequest(grant, None, scope, "assertion", {}, now)
        client = form.get("client_id") or claims.get("sub") or claims.get("iss")
        return TokenRequest(grant, client, scope, "assertion", claims, now)

    def _basic(self, authorization: str) -> str | None:
        """Return the client of a header `Authorization: Basic`; None: its secret is another."""
        kind, _, encoded = authorization.partition(" ")
        try:
            client, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        for name, word in ((client, secret), (unquote_plus(client), unquote_plus(secret))):
            if kind == "Basic" and self._clients.get(name) == word:
                return name
        return None

    def verified_token(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token that this key signed; None: it is another, or has expired."""
        parts = _verified(token, self._key.public_key(), self._clock())
        return None if parts is None else parts[1]

    def _verified_assertion(self, assertion: str) -> dict[str, Any] | None:
        """Return the header and the claims of an assertion, merged; None: it is not valid."""
        parts = _verified(assertion, self._assertion_key, self._clock())
        return None if parts is None else {**parts[0], **parts[1]}


def _verified(jwt: str, key: Any, now: float) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the header and the claims of a JWT that a key verifies, and that is valid now; else None."""
    unsigned, _, signature = jwt.rpartition(".")
    try:
        header, claims = (json.loads(_decoded(part)) for part in unsigned.split("."))
        _verify(key, header["alg"], unsigned.encode(), _decoded(signature))
        is_valid = claims.get("nbf", 0) <= now < claims["exp"]
    except (ValueError, KeyError, TypeError, InvalidSignature):
        return None
    return (header, claims) if is_valid else None


def _verify(key: Any, algorithm: str, unsigned: bytes, signature: bytes) -> None:
    if algorithm == "RS256" and isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, unsigned, padding.PKCS1v15(), hashes.SHA256())
    elif algorithm == "ES256" and isinstance(key, ec.EllipticCurvePublicKey):
        half = len(signature) // 2
        numbers = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
        key.verify(encode_dss_signature(*numbers), unsigned, ec.ECDSA(hashes.SHA256()))
    else:
        raise InvalidSignature


class _Listening(http.server.ThreadingHTTPServer):
    """Listens on loopback, with one thread for connections to come and one for each that has."""

    # another server may have been here a moment ago
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, tls: ssl.SSLContext | None, handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__((_HOST, port), handler)
        self.stopping = threading.Event()
        self._tls = tls
        self._connections = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._thread = threading.Thread(target=partial(self.serve_forever, 0.02), name="TokenServer", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(_CONNECTION_SECONDS)
            if self._tls is not None:
                request = self._tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        # the client refused the certificate, or went away
        except OSError:
            self.shutdown_request(request)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client went away."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listening

    def __init__(self, issuer: _Issuer, *arguments: Any) -> None:
        self._issuer = issuer
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the endpoint records its requests."""

    def do_GET(self) -> None:
        """Answer with the public key."""
        if self.path == "/jwks":
            self._reply(HTTPStatus.OK, self._issuer.jwks())
        else:
            self._reply(HTTPStatus.NOT_FOUND, {"error": "not_found"})

    def do_POST(self) -> None:
        """Answer with a token, a refusal or the fault."""
        length = int(self.headers.get("Content-Length", 0))
        if self.path != "/token" or length > _MAX_REQUEST_BYTES:
            self._reply(HTTPStatus.NOT_FOUND, {"error": "not_found"})
            return
        form = dict(parse_qsl(self.rfile.read(length).decode()))
        status, fields = self._issuer.answer(form, self.headers.get("Authorization", ""))
        fault = self._issuer.take_fault()
        if fault is None:
            self._reply(status, fields)
        elif fault in _ANSWERS:
            self._reply(*_ANSWERS[fault](fields))
        elif fault == "redirect":
            self._reply(HTTPStatus.FOUND, {}, {"Location": _REDIRECTED})
        else:
            self._fail_to_answer(fault)

    def _fail_to_answer(self, fault: TokenFault) -> None:
        self.close_connection = True
        if fault == "hanging":
            self.server.stopping.wait(_CONNECTION_SECONDS)
        elif fault == "slow":
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Length", str(_LARGE_BYTES // 2))
            self.end_headers()
            ends_at = time.monotonic() + _CONNECTION_SECONDS
            while time.monotonic() < ends_at and not self.server.stopping.wait(_SLOW_SECONDS):
                self.wfile.write(b" ")

    def _reply(self, status: HTTPStatus, body: dict[str, Any] | bytes, headers: Mapping[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


# The answers of faults, of the fields that the endpoint would have answered.
_ANSWERS: Final[Mapping[str, Callable[[dict[str, Any]], tuple[HTTPStatus, dict[str, Any] | bytes]]]] = {
    "refused": lambda _: (HTTPStatus.UNAUTHORIZED, {"error": "invalid_client", "error_description": "this client is locked"}),
    "unavailable": lambda _: (HTTPStatus.SERVICE_UNAVAILABLE, {"error": "temporarily_unavailable"}),
    "not-json": lambda _: (HTTPStatus.OK, b"<html>Sign in</html>"),
    "no-token": lambda _: (HTTPStatus.OK, {"token_type": "Bearer"}),
    "no-expiry": lambda fields: (HTTPStatus.OK, {name: value for name, value in fields.items() if name != "expires_in"}),
    "wrong-expiry": lambda fields: (HTTPStatus.OK, {**fields, "expires_in": "soon"}),
    "too-large": lambda fields: (HTTPStatus.OK, {**fields, "padding": "x" * _LARGE_BYTES}),
}


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
