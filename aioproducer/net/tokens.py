"""Bearer tokens (OAUTHBEARER): the sources that give them, and the keeper that has a valid one for all connections of a producer.

A source is what the user gives as an option (a text, a reference, a function, a coroutine function, an object), a token endpoint of OpenID
Connect (client credentials, KIP-768), or Amazon's signer (`net.msk`). No text quotes what a user's code raises or returns, as that may hold
the token; of a refusal of a token endpoint a text has its fields `error` and `error_description`, unless these repeat a secret.

The keeper:

1. One task fetches tokens, one at a time, for any number of connections. It refreshes the token by its own timer, without any call of the
   user's. It belongs to the producer's supervisor and ends with it.
2. The old token is used until a new one is there, as long as it lives. A failed fetch changes nothing but the time of the next one.
3. Fetches are at least a second apart. Pauses after failures grow.
4. A call that blocks runs in a thread. One that takes too long is abandoned there; while four calls hang, none is added.
5. A token's end is converted to the loop's time when the token comes, so a wall clock that jumps later changes nothing.
6. A token in a file is read anew when its file has changed, which is looked for at each authentication.
7. A broker that refuses the token makes the next authentication wait for a new one, if there is one.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import quote_plus, urlencode, urlsplit

from aioproducer.config.secret import Secret
from aioproducer.config.security_options import extension_fault, file_of
from aioproducer.errors import ConfigError, TokenUnavailable
from aioproducer.interfaces import USER_FAILURES, is_cancelled, is_coroutine_function
from aioproducer.model import is_number
from aioproducer.net.fetch import FetchFailed, fetch
from aioproducer.net.threads import SlowCalls
from aioproducer.net.tls_contexts import endpoint_context
from aioproducer.sasl.oauthbearer import NAME
from aioproducer.sasl.tokens import Token, jwt_claims

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config.security_options import SecurityOptions
    from aioproducer.core.retries import Backoff
    from aioproducer.net.observer import Observer
    from aioproducer.sasl.tokens import RefreshPolicy, TokenSource

# What users give

# A time since 1970 that is larger is in milliseconds: in seconds it would be in the year 5138.
_LARGEST_SECONDS: Final = 1e11
# A time since 1970 that is smaller is a duration: the year 1973.
_SMALLEST_SECONDS: Final = 1e8
_KINDS: Final = "a str, or (str, its end in seconds or milliseconds since 1970), and then its principal and its extensions, if there are any"
_LONGEST_TUPLE: Final = 4


class _NoToken(Exception):
    """What was given is no token. The text is the end of a sentence that begins with the source's name, and does not quote it."""


def source_of(given: Any) -> TokenSource | AsyncFunctionSource:
    """Return the source of tokens for the value of an option: a `Secret`, a function, or an object with `token()`.

    An object's `extensions()`, if it has one, returns the extensions of its tokens. A function that takes one argument, as librdkafka's
    `oauth_cb`, gets an empty text.
    """
    if isinstance(given, Secret):
        return TextSource(given)
    function = getattr(given, "token", given)
    name = "the token function" if function is given else f"token() of {type(given).__name__}"
    extensions = getattr(given, "extensions", None) if function is not given else None
    call = _with_its_argument(function)
    kind = AsyncFunctionSource if is_coroutine_function(function) else FunctionSource
    return kind(name, call, extensions)


def _with_its_argument(function: Callable[..., Any]) -> Callable[[], Any]:
    """Return a call of a function that takes no argument, or the configuration text of librdkafka's `oauth_cb`."""
    try:
        signature = inspect.signature(function)
    # a builtin without a signature
    except ValueError:
        return function
    try:
        signature.bind()
    except TypeError:
        return partial(function, "")
    return function


class TextSource:
    """Gives one token, as an option holds it. A reference is read at each fetch.

    Args:
        text: the token, or a reference to it.
        name: names the source in error texts.
    """

    def __init__(self, text: Secret, name: str = "sasl_oauthbearer_token") -> None:
        self.name = name
        self._text = text

    def stamp(self) -> object:
        """Return what changes when the file changes that a reference names; None: there is no such file. The call may block."""
        file = self._text.file
        try:
            status = None if file is None else file.stat()
        except OSError:
            return None
        # a swap of symlinks, as Kubernetes makes, changes the inode
        return None if status is None else (status.st_mtime_ns, status.st_ino, status.st_size)

    def fetch(self) -> Token:
        """Return the token. Raises ConfigError, whose text names the reference that cannot be read."""
        try:
            return _token_of(self._text.reveal(), None)
        except _NoToken as error:
            raise TokenUnavailable(f"{self.name} {error}", "token", NAME) from None


class _FunctionSource:
    """Gives the tokens of a function of the user's.

    Args:
        name: names the source in error texts.
        function: returns a token.
        extensions: returns the extensions of its tokens; None: they have none.
    """

    def __init__(
        self, name: str, function: Callable[[], Any], extensions: Callable[[], Any] | None = None
    ) -> None:
        self.name = name
        self._function = function
        self._extensions = extensions

    def _token(self, given: Any) -> Token:
        return _token_of(given, None if self._extensions is None else self._extensions())

    def _failed(self, error: BaseException) -> TokenUnavailable:
        told = str(error) if isinstance(error, _NoToken) else f"raised {type(error).__name__}"
        return TokenUnavailable(f"{self.name} {told}", "token", NAME)


class FunctionSource(_FunctionSource):
    """Gives the tokens of a plain function, which a thread calls."""

    def fetch(self) -> Token:
        """Call the function and return its token."""
        try:
            given = self._function()
            if inspect.isawaitable(given):
                if inspect.iscoroutine(given):
                    given.close()
                raise _NoToken("returned an awaitable: give the coroutine function itself")
            return self._token(given)
        except USER_FAILURES as error:
            raise self._failed(error) from None


class AsyncFunctionSource(_FunctionSource):
    """Gives the tokens of a coroutine function, which runs in the producer's loop."""

    async def fetch_async(self) -> Token:
        """Run the coroutine function and return its token. Cancellation ends the coroutine."""
        try:
            return self._token(await self._function())
        except USER_FAILURES as error:
            if is_cancelled():
                raise
            raise self._failed(error) from None


def _token_of(given: Any, extensions: Any) -> Token:
    """Return the token that a function returned. Raises _NoToken."""
    if isinstance(given, Token):
        return given
    parts = given if isinstance(given, tuple) else (given,)
    if not 0 < len(parts) <= _LONGEST_TUPLE or not isinstance(parts[0], (str, Secret)):
        raise _NoToken(f"returned {_shape(given)}; a token is {_KINDS}")
    secret = parts[0] if isinstance(parts[0], Secret) else Secret(parts[0])
    # it would be read at each use, in the loop
    if secret.reference is not None:
        raise _NoToken("returned a reference, not a token")
    lifetime, principal, own_extensions = [*parts[1:], None, None, None][: _LONGEST_TUPLE - 1]
    claims = jwt_claims(secret.reveal())
    ends = _end_of(lifetime) if lifetime is not None else claims.expires_at
    pairs = _pairs(extensions if own_extensions is None else own_extensions)
    if principal is not None and not isinstance(principal, str):
        raise _NoToken(f"returned a principal that is {type(principal).__name__}, not str")
    return Token(secret, ends, principal or claims.principal, pairs)


def _shape(given: Any) -> str:
    if given is None:
        return "None"
    if isinstance(given, tuple):
        return (
            f"a tuple of ({', '.join(type(part).__name__ for part in given[: _LONGEST_TUPLE + 1])})"
        )
    return f"a value of type {type(given).__name__}"


def _end_of(lifetime: Any) -> float:
    """Return the end of a token in seconds since 1970."""
    if isinstance(lifetime, bool) or not is_number(lifetime):
        raise _NoToken(
            f"returned the end of a token as {type(lifetime).__name__}: it is a number of seconds or milliseconds since 1970"
        )
    ends = float(lifetime)
    if not math.isfinite(ends) or ends < _SMALLEST_SECONDS:
        raise _NoToken(
            "returned an end of the token that is no time since 1970: a duration is added to time.time()"
        )
    return ends / 1000 if ends > _LARGEST_SECONDS else ends


def _pairs(extensions: Any) -> tuple[tuple[str, str], ...]:
    """Return extensions as pairs."""
    if extensions is None:
        return ()
    if not isinstance(extensions, Mapping) or not all(
        isinstance(one, str) for pair in extensions.items() for one in pair
    ):
        raise _NoToken("returned extensions that are no mapping of str to str")
    pairs = tuple(extensions.items())
    fault = extension_fault(pairs)
    if fault:
        raise _NoToken(f"returned extensions that cannot be sent: {fault}")
    return pairs


# Token endpoints

# Seconds for the connection, and for the answer.
_TIMEOUT: Final = 10.0
_HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_MAX_QUOTED: Final = 200
# A part of a secret that is shorter says too little to be searched in an answer.
_MIN_SEARCHED: Final = 4
_DIGITS: Final = re.compile("[0-9]{1,11}")


def endpoint_source(config: SecurityOptions, wall_clock: Callable[[], float]) -> TokenSource:
    """Return the source for a config that names a token endpoint, or a file in its place. `wall_clock`: seconds since 1970."""
    path = file_of(config.sasl_oauthbearer_token_endpoint_url or "")
    if path is not None:
        return TextSource(Secret(f"${{file:{path}}}"), f"the token file {path}")
    return OidcSource(config, wall_clock)


def endpoint_timeout(config: SecurityOptions) -> float:
    """Return the seconds for a whole request: those for the connection and those for the answer."""
    given = (config.sasl_login_connect_timeout_ms, config.sasl_login_read_timeout_ms)
    return sum(_TIMEOUT if one is None else one / 1000 for one in given)


class OidcSource:
    """Fetches tokens from a token endpoint by client credentials (KIP-768). The secret and the trusted certificates are read at each fetch.

    Attributes:
        name: "the token endpoint HOST".
    """

    def __init__(self, config: SecurityOptions, wall_clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = wall_clock
        self.name: str = f"the token endpoint {urlsplit(config.sasl_oauthbearer_token_endpoint_url or '').netloc}"

    def fetch(self) -> Token:
        """Return a new token.

        Raises:
            TokenUnavailable: the endpoint cannot be reached, refuses, or answers no token.
        """
        try:
            return self._fetch()
        except ConfigError as error:
            reason = f"is not asked: {error}"
        except (FetchFailed, _NoToken) as error:
            reason = str(error)
        raise TokenUnavailable(f"{self.name} {reason}", "token", NAME)

    def _fetch(self) -> Token:
        config = self._config
        url = config.sasl_oauthbearer_token_endpoint_url or ""
        client = config.sasl_oauthbearer_client_credentials_client_id or ""
        secret = cast("Secret", config.sasl_oauthbearer_client_credentials_client_secret).reveal()
        # encoded as in a form before they are joined (RFC 6749, 2.3.1), which not every server expects
        login = (
            f"{quote_plus(client)}:{quote_plus(secret)}"
            if config.sasl_oauthbearer_header_urlencode
            else f"{client}:{secret}"
        )
        basic = base64.b64encode(login.encode()).decode("ascii")
        form = {"grant_type": "client_credentials"}
        if scope := (config.sasl_oauthbearer_scope or "").strip():
            form["scope"] = scope
        asked_at = self._clock()
        context = (
            endpoint_context(config.https_ca_location, config.https_ca_pem)
            if url.startswith("https")
            else None
        )
        headers = {**_HEADERS, "Authorization": f"Basic {basic}"}
        answer = fetch(
            url,
            urlencode(form).encode("ascii"),
            headers,
            context=context,
            timeout=endpoint_timeout(config),
        )
        try:
            fields = json.loads(answer.body)
        # RecursionError: many brackets
        except (ValueError, RecursionError):
            fields = None
        told = fields if isinstance(fields, dict) else {}
        # some endpoints refuse with 200
        if not 200 <= answer.status < 300 or told.get("error"):
            raise _NoToken(_refusal(answer.status, told, (secret, quote_plus(secret), basic)))
        if told is not fields:
            raise _NoToken("answers what is no JSON object")
        return _answered(told, asked_at, client)


def _refusal(status: int, fields: dict[str, Any], secrets: tuple[str, ...]) -> str:
    """Return the words of an answer that is no success."""
    error, description = (
        _quoted(fields.get(name), secrets) for name in ("error", "error_description")
    )
    told = f"{error} ({description})" if error and description else error or description
    return f"answers {status}" + (f": {told}" if told else "")


def _quoted(value: Any, secrets: tuple[str, ...]) -> str:
    """Return the printable characters of a text, cut; empty if it is no text, or repeats a secret."""
    if not isinstance(value, str) or any(
        one in value for one in secrets if len(one) >= _MIN_SEARCHED
    ):
        return ""
    shown = "".join(one if one.isprintable() else " " for one in value).strip()
    return shown if len(shown) <= _MAX_QUOTED else f"{shown[:_MAX_QUOTED]}..."


def _answered(fields: dict[str, Any], asked_at: float, client: str) -> Token:
    """Return the token of an answer."""
    text = fields.get("access_token") or fields.get("id_token")
    token = Secret(text.strip()) if isinstance(text, str) else Secret("")
    # a reference would be read: a server must not choose a file of this machine
    if not token or token.reference is not None:
        raise _NoToken("answers without an access_token")
    claims = jwt_claims(token.reveal())
    seconds = _lifetime(fields.get("expires_in"))
    ends = [
        one
        for one in (claims.expires_at, None if seconds is None else asked_at + seconds)
        if one is not None
    ]
    # this machine's clock may be wrong, and then `exp` means little: `expires_in` is relative
    ends = [end for end in ends if end > asked_at] or ends
    return Token(token, min(ends, default=None), claims.principal or client)


def _lifetime(value: Any) -> float | None:
    """Return what `expires_in` says; None: nothing. Some servers write the number as a text."""
    if value is None:
        return None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not abs(value) <= _LARGEST_SECONDS
    ):
        raise _NoToken(
            f"answers an expires_in that is no number of seconds ({type(value).__name__})"
        )
    if value <= 0:
        raise _NoToken(f"answers expires_in={value:g}: the token has expired")
    return float(value)


# The keeper

# Seconds between the starts of two fetches.
_MIN_INTERVAL: Final = 1.0
# An authentication waits for a refresh that is under way for this part of the old token's remaining life, and not longer than these seconds.
_PATIENCE_SHARE: Final = 0.25
_PATIENCE: Final = 2.0
# Assumed life, in seconds, of a token without a known end.
_ASSUMED_LIFE: Final = 3600.0
# Failures in a row after which `start` waits no longer: some four seconds, if each comes at once.
_MANY: Final = 5
_STOPPED: Final = "the producer does not run"


class KeeperSettings(NamedTuple):
    """Holds when tokens are fetched.

    Attributes:
        policy: when a token is refreshed.
        backoff: pauses after failures, in seconds.
        timeout: seconds after which a fetch has failed.
        wall_clock: returns the seconds since 1970.
        chance: returns a random number in [0, 1).
    """

    policy: RefreshPolicy
    backoff: Backoff
    timeout: float
    wall_clock: Callable[[], float]
    chance: Callable[[], float]


class _Kept(NamedTuple):
    """Holds a token, and its times in the loop's time."""

    token: Token
    fetched_at: float
    ends_at: float
    refresh_at: float


class TokenKeeper:
    """Keeps the token of one producer.

    Args:
        source: gives tokens.
        check: raises TokenUnavailable for a token that cannot be sent.

    Attributes:
        failures: fetches that failed since the last success.
        last_error: the error of the latest fetch; None: it succeeded, or there was none.
    """

    def __init__(
        self,
        source: TokenSource | AsyncFunctionSource,
        check: Callable[[Token], object],
        settings: KeeperSettings,
    ) -> None:
        self.failures: int = 0
        self.last_error: TokenUnavailable | None = None
        self._source = source
        self._check = check
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._kept: _Kept | None = None
        # A broker refused the token that is kept.
        self._is_doubted = False
        self._not_before = 0.0
        # Of a source in a file: returns what changes with the file; and what it was at the latest fetch.
        self._stamp: Callable[[], object] | None = getattr(source, "stamp", None)
        self._stamped: object = None
        self._changed = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._calls = SlowCalls()

    # For connections

    async def token(self, timeout: float) -> Token:
        """Return a token that is valid now. While there is none, wait for the next fetch.

        Args:
            timeout: seconds that the call waits at most.

        Raises:
            TokenUnavailable: that fetch failed, or the time is over; the fetch goes on.
        """
        if self._stamp is not None and self._kept is not None:
            await self._look(self._stamp)
        kept = self._kept
        now = self._loop.time()
        if kept is None or now >= kept.ends_at or self._is_doubted:
            await self._outcome(timeout)
        # A renewal of a session gets the new token, unless that takes long. After a failed refresh the old one does.
        elif now >= kept.refresh_at and not self.failures:
            await self._outcome(min(timeout, _PATIENCE, (kept.ends_at - now) * _PATIENCE_SHARE))
        kept = self._kept
        if kept is not None and self._loop.time() < kept.ends_at:
            return kept.token
        if self.last_error is None:
            raise self._unavailable(f"no token from {self._source.name} within {timeout:.1f} s")
        raise self._unavailable(str(self.last_error)) from self.last_error

    async def _look(self, stamp: Callable[[], object]) -> None:
        """Let the token be fetched anew if its file has changed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                seen = await self._calls.run(stamp)
                if seen not in {None, self._stamped}:
                    # also if it cannot be read: it is read once for each change
                    self._stamped = seen
                    self._is_doubted = True
                    self._changed.set()

    async def _outcome(self, timeout: float) -> None:
        """Wait until a fetch has succeeded or failed, or the time is over."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await future

    def refused(self, token: Token) -> None:
        """Note that a broker refused a token: a new one is fetched, if the keeper still has this one."""
        if self._kept is not None and self._kept.token is token:
            self._is_doubted = True
            self._changed.set()

    def accepted(self, token: Token, session: float) -> None:
        """Note that a broker accepted a token, for a session of so many seconds (0: without an end), which tells the token's life."""
        kept = self._kept
        if kept is None or kept.token is not token:
            return
        if token.expires_at is None and session:
            after = self._settings.policy.refresh_after(session, self._settings.chance())
            self._kept = kept._replace(refresh_at=min(kept.refresh_at, self._loop.time() + after))
            self._changed.set()

    # For people

    @property
    def principal(self) -> str | None:
        """Return the principal that the token names; None: it names none."""
        return (self._kept.token.principal or None) if self._kept is not None else None

    @property
    def is_failing(self) -> bool:
        """Return True if there has been no token yet, and the source failed at each of five attempts."""
        return self._kept is None and self.failures >= _MANY

    @property
    def absence(self) -> TokenUnavailable | None:
        """Return why there is no valid token; None: there is one, or the first fetch has not ended."""
        has_one = self._kept is not None and self._loop.time() < self._kept.ends_at
        return None if has_one else self.last_error

    @property
    def age(self) -> float | None:
        """Return the seconds since the token was fetched; None: there is no token."""
        return self._loop.time() - self._kept.fetched_at if self._kept is not None else None

    @property
    def expires_at(self) -> float | None:
        """Return the end of the token, in seconds since 1970 as its source counts; None: there is no token, or its end is not known."""
        return self._kept.token.expires_at if self._kept is not None else None

    # The task

    async def run(self, observer: Observer) -> None:
        """Fetch a token, and refresh it before it ends. The body of the task. `observer` is told how each fetch ended."""
        try:
            while True:
                await self._pause()
                began_at = self._loop.time()
                found = await self._fetched()
                self._is_doubted = False
                if isinstance(found, TokenUnavailable):
                    self.failures += 1
                    self.last_error = found
                    observer.token_failed(self._source.name, found, self.failures)
                else:
                    self.failures = 0
                    self.last_error = None
                    self._kept = found
                    observer.token_fetched(self._source.name, found.ends_at - found.fetched_at)
                pause = (
                    self._settings.backoff.after(self.failures, self._settings.chance())
                    if self.failures
                    else 0.0
                )
                self._not_before = began_at + max(_MIN_INTERVAL, pause)
                self._notify()
        finally:
            if not self._loop.is_closed():
                self.last_error = self.last_error or self._unavailable(_STOPPED)
                self._notify()

    def _notify(self) -> None:
        """Wake the calls that wait for the end of a fetch."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _pause(self) -> None:
        """Wait until a fetch is due."""
        while (left := self._due_at() - self._loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left if left < math.inf else None):
                    await self._changed.wait()
            self._changed.clear()

    def _due_at(self) -> float:
        if self._kept is None or self._is_doubted:
            return self._not_before
        return max(self._kept.refresh_at, self._not_before)

    async def _fetched(self) -> _Kept | TokenUnavailable:
        """Fetch a token. Returns it, or why there is none."""
        try:
            token = await self._call()
            self._check(token)
        except TokenUnavailable as error:
            text = str(error)
        # its text names the reference that cannot be read
        except ConfigError as error:
            text = f"it cannot be read: {error}"
        # asyncio.CancelledError is none: it ends the task
        except Exception as error:
            text = f"it raised {type(error).__name__}"
        else:
            return self._kept_of(token)
        return self._unavailable(
            text if self._source.name in text else f"{self._source.name}: {text}"
        )

    def _kept_of(self, token: Token) -> _Kept | TokenUnavailable:
        now = self._loop.time()
        policy, chance = self._settings.policy, self._settings.chance()
        if token.expires_at is None:
            return _Kept(token, now, math.inf, now + policy.refresh_after(_ASSUMED_LIFE, chance))
        life = token.expires_at - self._settings.wall_clock()
        if life <= 0:
            return self._unavailable(
                f"{self._source.name}: the token expired {-life:.0f} s ago. Is the clock of this machine right?"
            )
        return _Kept(token, now, now + life, now + policy.refresh_after(life, chance))

    async def _call(self) -> Token:
        """Call the source, in a thread or in the loop, for as long as one fetch may take."""
        timeout = self._settings.timeout
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                if hasattr(self._source, "fetch_async"):
                    return await self._source.fetch_async()
                # a file that changes while it is read is read once more
                self._stamped, token = await self._calls.run(
                    partial(_stamped, self._stamp, self._source.fetch)
                )
                return token
        raise self._unavailable(f"no answer within {timeout:g} s")

    def _unavailable(self, reason: str) -> TokenUnavailable:
        return TokenUnavailable(reason, "token", "OAUTHBEARER")


def _stamped(
    stamp: Callable[[], object] | None, fetch: Callable[[], Token]
) -> tuple[object, Token]:
    """Return the stamp of a file, and the token that was read after it."""
    return (None if stamp is None else stamp()), fetch()
