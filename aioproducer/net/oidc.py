"""Fetches tokens from a token endpoint (OpenID Connect): the grants, and what an answer is read into.

| grant | what proves the client's identity | KIP |
|---|---|---|
| client credentials | its id and its secret, in the header `Authorization: Basic` | 768 |
| client credentials | an assertion (RFC 7523, 2.2) | 1258 |
| JWT bearer | none but the assertion, which is the grant (RFC 7523, 2.1) | 1139 |

An error has the endpoint's host, the status, and the fields `error` and `error_description` of the answer, unless these repeat a secret.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import quote_plus, urlencode

from aioproducer.config.secret import Secret
from aioproducer.errors import ConfigError, TokenUnavailable
from aioproducer.sasl.oauthbearer import NAME
from aioproducer.sasl.tokens import Token, jwt_claims
from aioproducer.wall_clock import wall_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioproducer.net.client_assertion import Assertion
    from aioproducer.net.token_endpoint import Answer, TokenEndpoint

__all__ = ["AssertedClient", "ClientSecret", "Grant", "JwtBearer", "OidcSource"]

_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_HEADERS: Final = {"Accept": "application/json", "Cache-Control": "no-cache", "Content-Type": "application/x-www-form-urlencoded"}
_MAX_QUOTED: Final = 200
# A part of a secret that is shorter says too little to be searched in an answer.
_MIN_SEARCHED: Final = 4
_DIGITS: Final = re.compile("[0-9]{1,11}")
_MAX_SECONDS: Final = 1e11


class _Request(NamedTuple):
    """Holds a request for a token, and the secrets in it."""

    form: dict[str, str]
    headers: dict[str, str]
    secrets: tuple[str, ...]


class Grant(Protocol):
    """Says on what grounds a token is asked for.

    Attributes:
        client: the id of the client, for error texts; empty: not known.
    """

    client: str

    def request(self) -> _Request:
        """Return the request. The call may block.

        Raises:
            ConfigError: a secret or a file cannot be read.
        """


class ClientSecret:
    """The grant of client credentials, with a secret.

    Args:
        client: the id of the client.
        secret: its secret.
        is_urlencoded: whether both are encoded as in a form before they are joined (RFC 6749, 2.3.1), which not every server expects.
    """

    def __init__(self, client: str, secret: Secret, *, is_urlencoded: bool = False) -> None:
        self.client = client
        self._secret = secret
        self._encoded: Callable[[str], str] = quote_plus if is_urlencoded else str

    def request(self) -> _Request:
        """Return the request. Errors as `Grant.request`."""
        secret = self._secret.reveal()
        login = f"{self._encoded(self.client)}:{self._encoded(secret)}".encode()
        basic = base64.b64encode(login).decode("ascii")
        return _Request({"grant_type": "client_credentials"}, {"Authorization": f"Basic {basic}"}, (secret, quote_plus(secret), basic))


class AssertedClient:
    """The grant of client credentials, with an assertion.

    Args:
        client: the id of the client; empty: the assertion says it alone.
        assertion: gives the assertions.
    """

    def __init__(self, client: str, assertion: Assertion) -> None:
        self.client = client
        self._assertion = assertion

    def request(self) -> _Request:
        """Return the request. Errors as `Grant.request`."""
        assertion = self._assertion.make().reveal()
        form = {"grant_type": "client_credentials", "client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
        return _Request(form | ({"client_id": self.client} if self.client else {}), {}, (assertion,))


class JwtBearer:
    """The grant of an assertion.

    Args:
        assertion: gives the assertions.
    """

    client = ""

    def __init__(self, assertion: Assertion) -> None:
        self._assertion = assertion

    def request(self) -> _Request:
        """Return the request. Errors as `Grant.request`."""
        assertion = self._assertion.make().reveal()
        return _Request({"grant_type": _JWT_BEARER, "assertion": assertion}, {}, (assertion,))


class OidcSource:
    """Fetches tokens from a token endpoint: a `TokenSource`.

    Args:
        endpoint: the endpoint.
        grant: the grounds on which it gives tokens.
        scope: what the tokens are to be for; empty: the endpoint decides.
        clock: returns the seconds since 1970.

    Attributes:
        name: "the token endpoint HOST".
    """

    def __init__(self, endpoint: TokenEndpoint, grant: Grant, scope: str = "", *, clock: Callable[[], float] = wall_time) -> None:
        self.name: str = endpoint.name
        self._endpoint = endpoint
        self._grant = grant
        self._scope = scope.strip()
        self._clock = clock

    def fetch(self) -> Token:
        """Return a new token. It blocks, at most for the endpoint's time-outs together.

        Raises:
            TokenUnavailable: the endpoint cannot be reached, refuses, or answers no token.
        """
        outcome = self._outcome()
        if isinstance(outcome, Token):
            return outcome
        # raised here, the error has no frame with a secret among its locals, and no other error as its context
        raise TokenUnavailable(f"{self.name} {outcome}", "token", NAME)

    def _outcome(self) -> Token | str:
        """Return a token, or why there is none."""
        try:
            request = self._grant.request()
        except ConfigError as error:
            return f"is not asked: {error}"
        form = request.form | ({"scope": self._scope} if self._scope else {})
        asked_at = self._clock()
        answer = self._endpoint.post(urlencode(form).encode("ascii"), _HEADERS | request.headers)
        if isinstance(answer, str):
            return answer
        if not 200 <= answer.status < 300:
            return _refusal(answer, request.secrets)
        return _token(answer.body, asked_at, self._grant.client)


def _refusal(answer: Answer, secrets: Iterable[str]) -> str:
    """Return the words of an answer that is no success."""
    fields = _object(answer.body) or {}
    error, description = (_quoted(fields.get(name), secrets) for name in ("error", "error_description"))
    told = f"{error} ({description})" if error and description else error or description
    return f"answers {answer.status}" + (f": {told}" if told else "")


def _quoted(value: Any, secrets: Iterable[str]) -> str:
    """Return the printable characters of a text, cut; empty if it is no text, or repeats a secret."""
    if not isinstance(value, str) or any(one in value for one in secrets if len(one) >= _MIN_SEARCHED):
        return ""
    shown = "".join(one if one.isprintable() else " " for one in value).strip()
    return shown if len(shown) <= _MAX_QUOTED else f"{shown[:_MAX_QUOTED]}..."


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(body)
    # RecursionError: many brackets
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _token(body: bytes, asked_at: float, client: str) -> Token | str:
    """Return the token of an answer, or why there is none."""
    fields = _object(body)
    if fields is None:
        return "answers what is no JSON object"
    text = fields.get("access_token") or fields.get("id_token")
    token = Secret(text.strip()) if isinstance(text, str) else Secret("")
    # a reference would be read: a server must not choose a file of this machine
    if not token or token.reference is not None:
        return "answers without an access_token"
    seconds = _seconds(fields.get("expires_in"))
    if isinstance(seconds, str):
        return seconds
    claims = jwt_claims(token.reveal())
    return Token(token, _end(claims.expires_at, seconds, asked_at), claims.principal or client)


def _end(expires_at: float | None, seconds: float | None, asked_at: float) -> float | None:
    """Return the end of a token, by the claim `exp` and by `expires_in`; None: neither is known."""
    ends = [one for one in (expires_at, None if seconds is None else asked_at + seconds) if one is not None]
    # this machine's clock may be wrong, and then `exp` means little: `expires_in` is relative
    ends = [end for end in ends if end > asked_at] or ends
    return min(ends, default=None)


def _seconds(value: Any) -> float | str | None:
    """Return what `expires_in` says; None: nothing. Some servers write the number as a text."""
    if value is None:
        return None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _MAX_SECONDS:
        return f"answers an expires_in that is no number of seconds ({type(value).__name__})"
    return float(value) if value > 0 else f"answers expires_in={value:g}: the token has expired"
