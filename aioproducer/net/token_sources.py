"""Sources of bearer tokens that users give as an option: a text, a reference, a function, a coroutine function, or an object.

No text quotes what a user's code raises or returns, as that may hold the token. No frame of a raised error holds a token as text.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config.secret import Secret
from aioproducer.config.security_options import extension_fault
from aioproducer.errors import TokenUnavailable
from aioproducer.model import is_number
from aioproducer.net.task_cancellation import is_cancelled
from aioproducer.sasl.oauthbearer import NAME
from aioproducer.sasl.tokens import Token, jwt_claims

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.sasl.tokens import AsyncTokenSource, TokenSource

__all__ = ["AsyncFunctionSource", "FunctionSource", "TextSource", "source_of"]

# A time since 1970 that is larger is in milliseconds: in seconds it would be in the year 5138.
_LARGEST_SECONDS: Final = 1e11
# A time since 1970 that is smaller is a duration: the year 1973.
_SMALLEST_SECONDS: Final = 1e8
_KINDS: Final = (
    "a str, or (str, its end in seconds or milliseconds since 1970), and then its principal and its extensions, if there are any"
)
_LONGEST_TUPLE: Final = 4


def source_of(given: Any) -> TokenSource | AsyncTokenSource:
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
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    return AsyncFunctionSource(name, call, extensions) if is_async else FunctionSource(name, call, extensions)


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
        return lambda: function("")
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
        """Return the token.

        Raises:
            ConfigError: the reference cannot be read; the text names it.
            TokenUnavailable: it has no token.
        """
        return _token_or_raise(self.name, _read(self._text.reveal(), {}))


class FunctionSource:
    """Gives the tokens of a plain function, which a daemon thread calls.

    Args:
        name: names the source in error texts.
        function: returns a token.
        extensions: returns the extensions of its tokens; None: they have none.
    """

    def __init__(self, name: str, function: Callable[[], Any], extensions: Any = None) -> None:
        self.name = name
        self._function = function
        self._extensions = extensions

    def fetch(self) -> Token:
        """Call the function and return its token.

        Raises:
            TokenUnavailable: it raised an error, or did not return a token.
        """
        return _token_or_raise(self.name, _called(self._function, self._extensions))


class AsyncFunctionSource:
    """Gives the tokens of a coroutine function, which runs in the producer's loop.

    Args:
        name: names the source in error texts.
        function: returns a token.
        extensions: returns the extensions of its tokens; None: they have none.
    """

    def __init__(self, name: str, function: Callable[[], Any], extensions: Any = None) -> None:
        self.name = name
        self._function = function
        self._extensions = extensions

    async def fetch_async(self) -> Token:
        """Run the coroutine function and return its token.

        Raises:
            TokenUnavailable: it raised an error, or did not return a token.
        Cancellation ends the coroutine.
        """
        return _token_or_raise(self.name, await _awaited(self._function, self._extensions))


def _token_or_raise(name: str, found: Token | str) -> Token:
    if isinstance(found, str):
        raise TokenUnavailable(f"{name} {found}", "token", NAME)
    return found


def _called(function: Callable[[], Any], extensions: Any) -> Token | str:
    """Return the token of a call, or why there is none, behind the name of the source."""
    try:
        given = function()
        if inspect.isawaitable(given):
            return _not_awaited(given)
        return _read(given, extensions() if extensions is not None else {})
    except BaseException as error:
        return f"raised {type(error).__name__}"


async def _awaited(function: Callable[[], Any], extensions: Any) -> Token | str:
    """Return the token of a coroutine function, or why there is none, behind the name of the source."""
    try:
        given = await function()
        return _read(given, extensions() if extensions is not None else {})
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        return f"raised {type(error).__name__}"
    except Exception as error:
        return f"raised {type(error).__name__}"


def _not_awaited(given: Any) -> str:
    if inspect.iscoroutine(given):
        given.close()
    return "returned an awaitable: give the coroutine function itself"


def _read(given: Any, extensions: Any) -> Token | str:
    """Return the token that a function returned, or why it is none. The text does not quote it."""
    if isinstance(given, Token):
        return given
    parts = given if isinstance(given, tuple) else (given,)
    if not 0 < len(parts) <= _LONGEST_TUPLE or not isinstance(parts[0], (str, Secret)):
        return f"returned {_shape(given)}; a token is {_KINDS}"
    secret = parts[0] if isinstance(parts[0], Secret) else Secret(parts[0])
    # it would be read at each use, in the loop
    if secret.reference is not None:
        return "returned a reference, not a token"
    lifetime, principal, own_extensions = [*parts[1:], None, None, None][: _LONGEST_TUPLE - 1]
    return _token(secret, lifetime, principal, extensions if own_extensions is None else own_extensions)


def _token(secret: Secret, lifetime: Any, principal: Any, extensions: Any) -> Token | str:
    """Return a token with what was returned beside it, or why that is not valid."""
    claims = jwt_claims(secret.reveal())
    ends = _end(lifetime) if lifetime is not None else claims.expires_at
    if isinstance(ends, str):
        return f"returned {ends}"
    pairs = _pairs(extensions)
    if isinstance(pairs, str):
        return f"returned {pairs}"
    if principal is not None and not isinstance(principal, str):
        return f"returned a principal that is {type(principal).__name__}, not str"
    return Token(secret, ends, principal or claims.principal, pairs)


def _shape(given: Any) -> str:
    if given is None:
        return "None"
    if isinstance(given, tuple):
        return f"a tuple of ({', '.join(type(part).__name__ for part in given[: _LONGEST_TUPLE + 1])})"
    return f"a value of type {type(given).__name__}"


def _end(lifetime: Any) -> float | str:
    """Return the end of a token in seconds since 1970, or why it is none."""
    if isinstance(lifetime, bool) or not is_number(lifetime):
        return f"the end of a token as {type(lifetime).__name__}: it is a number of seconds or milliseconds since 1970"
    ends = float(lifetime)
    if not math.isfinite(ends) or ends < _SMALLEST_SECONDS:
        return "an end of the token that is no time since 1970: a duration is added to time.time()"
    return ends / 1000 if ends > _LARGEST_SECONDS else ends


def _pairs(extensions: Any) -> tuple[tuple[str, str], ...] | str:
    """Return extensions as pairs, or why they are none."""
    if extensions is None:
        return ()
    if not isinstance(extensions, Mapping) or not all(isinstance(one, str) for pair in extensions.items() for one in pair):
        return "extensions that are no mapping of str to str"
    pairs = tuple(extensions.items())
    fault = extension_fault(pairs)
    return f"extensions that cannot be sent: {fault}" if fault else pairs
