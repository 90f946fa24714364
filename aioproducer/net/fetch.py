"""One HTTP request, within bounds of time and size: `urllib.request` in the calling thread.

1. https, or http of this machine: a request has secrets.
2. No redirect is followed: it would take the secrets to another server.
3. `https_proxy` and `no_proxy` are honoured, as urllib reads them. The address of a loopback endpoint is never given to a proxy.
4. An answer has at most 1 MiB, and `timeout` bounds each step of it. A server that sends a byte now and then takes longer within its headers,
   and a resolver may hang: whoever calls this in a thread waits for `timeout` seconds, and abandons the thread then (`net.threads`).
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from aioproducer.config.security_options import is_loopback
from aioproducer.net.tls_contexts import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ANSWER_BYTES: Final = 1 << 20
_PIECE: Final = 65_536


class FetchFailed(Exception):
    """There is no answer. The text is the end of a sentence that begins with the server's name, and has nothing of the request."""


class Answer(NamedTuple):
    """Holds the status and the body of an HTTP answer."""

    status: int
    body: bytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: urllib then raises the answer as an error."""


def fetch(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    context: ssl.SSLContext | None,
    timeout: float,
) -> Answer:
    """Return the answer to a POST. It blocks.

    Args:
        url: https://..., or http://... of this machine.
        body: of the request.
        headers: of the request.
        context: for https; None: urllib's own.
        timeout: seconds.

    Raises:
        FetchFailed: there is no answer, or a redirect, or one that is larger than 1 MiB or cut.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not is_loopback(host):
        raise FetchFailed("is not asked: it is http, which would send secrets unencrypted")
    handlers: list[Any] = [_NoRedirect, urllib.request.HTTPSHandler(context=context)]
    if is_loopback(host):
        handlers.append(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + timeout
    try:
        request = urllib.request.Request(url, body, dict(headers), method="POST")
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as response:
                return Answer(response.status, _content(response, deadline))
        except urllib.error.HTTPError as refused:
            if 300 <= refused.code < 400:
                raise FetchFailed(
                    f"answers {refused.code}, a redirect, which is not followed: give the URL that it leads to"
                ) from None
            with refused:
                return Answer(refused.code, _content(refused, deadline))
    except (OSError, http.client.HTTPException, ValueError) as error:
        # urllib wraps what goes wrong before the answer
        cause = (
            getattr(error, "reason", None) if isinstance(error, urllib.error.URLError) else error
        )
        raise FetchFailed(_reason(cause, host, timeout)) from None


def _content(response: Any, deadline: float) -> bytes:
    content = b""
    while piece := response.read1(_PIECE):
        content += piece
        if len(content) > MAX_ANSWER_BYTES:
            raise FetchFailed(f"answers more than {MAX_ANSWER_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError
    if response.length:
        raise FetchFailed("closed the connection within its answer")
    return content


def _reason(error: Any, host: str, timeout: float) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"has a certificate that is refused: {refusal(error, host)}"
        case ssl.SSLError():
            return f"cannot be reached: TLS failed ({(error.reason or 'no reason').replace('_', ' ').lower()})"
        case socket.gaierror():
            return f"cannot be reached: its name cannot be looked up ({error.strerror})"
        case TimeoutError():
            return f"does not answer within {timeout:g} s"
        case ConnectionResetError():
            return "closed the connection without an answer"
        case http.client.HTTPException():
            return f"answers what is no HTTP ({type(error).__name__})"
        case OSError():
            # that of a proxy has no number: "Tunnel connection failed: 407 ..."
            return f"cannot be reached: {error.strerror or error or type(error).__name__}"
    return f"cannot be reached: {type(error).__name__}"
