"""Kerberos without a KDC: the server of GSSAPI (RFC 4752), and a stand-in for the package `gssapi` on the client's side.

    package = ScriptedGssapi("alice@EXAMPLE.TEST")
    with package.installed():                           # `import gssapi` gives it
        async with FakeCluster(security=ListenerSecurity("SASL_PLAINTEXT", users={"alice": ""}, mechanisms=("GSSAPI",))) as cluster:
            async with Producer(**cluster.client_options, sasl_mechanism="GSSAPI") as producer: ...
    package.fail(156, "Cannot contact any KDC")         # the next ticket is not given
    package.principal = None                            # the ticket cache is empty

Tokens look like nothing of Kerberos: each is text with a proof by HMAC, so that a spoilt one is noticed. A "ticket" is proved by a key that
both sides make of the service's name; there is no secret in it.

As Kafka does by default (`sasl.kerberos.principal.to.local.rules=DEFAULT`), the server takes the first part of a principal as the user.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import hmac
import itertools
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.testing.security.listener import SIMPLE_SERVERS
from aioproducer.testing.security.mechanisms import Refusal

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    from aioproducer.testing.security.accounts import Accounts

__all__ = ["ClientContext", "GssapiServer", "OpenedContext", "ScriptedGssError", "ScriptedGssapi"]


_PROOF_BYTES: Final = 32
_NO_LAYER: Final = b"\x01\0\0\0"
# The routine errors NO_CRED and FAILURE, and DEFECTIVE_TOKEN (RFC 2744 section 3.9.1).
_NO_CREDENTIALS: Final = 7 << 16
_DEFECTIVE_TOKEN: Final = 9 << 16
_FAILURE: Final = 13 << 16
# Error codes of MIT's Kerberos are counted from here, as 32 bits without a sign.
_FIRST_CODE: Final = (-1765328384) & 0xFFFF_FFFF
_NO_CACHE: Final = 195
_NO_PRINCIPAL: Final = 141


class ScriptedGssError(Exception):
    """Reports an error as `gssapi.exceptions.GSSError` does."""

    def __init__(self, major: int, minor: int, text: str) -> None:
        super().__init__(text)
        self.maj_code = major
        self.min_code = minor
        self.text = text

    def get_all_statuses(self, _code: int, is_major: bool) -> list[str]:
        """Return the words of a code."""
        return ["Unspecified GSS failure"] if is_major else [self.text]


class _Session:
    """Wraps and unwraps messages of one side; each has a number, so that none can be repeated or left out."""

    def __init__(self, key: bytes, *, is_client: bool) -> None:
        self._key = key
        self._sides = (b"client", b"server") if is_client else (b"server", b"client")
        self._sent = itertools.count()
        self._received = itertools.count()

    def wrap(self, data: bytes) -> bytes:
        return data + self._proof(self._sides[0], next(self._sent), data)

    def unwrap(self, message: bytes) -> bytes | None:
        """Return what was wrapped; None: the proof is wrong."""
        data, proof = message[:-_PROOF_BYTES], message[-_PROOF_BYTES:]
        return (
            data
            if hmac.compare_digest(proof, self._proof(self._sides[1], next(self._received), data))
            else None
        )

    def _proof(self, side: bytes, number: int, data: bytes) -> bytes:
        return _proof(self._key, side, b"%d" % number, data)


def _proof(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"\0".join(parts), "sha256")


def _service_key(service: str) -> bytes:
    """Return the key of a service, by the part of its name before the host."""
    return hashlib.sha256(f"service {service.partition('@')[0]}".encode()).digest()


class GssapiServer:
    """Authenticates one client by GSSAPI.

    Args:
        accounts: the users that have accounts; the passwords do not matter.
        offer: the layers, and the size of the longest message, which the server offers.
    """

    def __init__(self, accounts: Accounts, offer: bytes = _NO_LAYER) -> None:
        self.claimed: str | None = None
        self.principal: str | None = None
        self.ends: float | None = None
        self._accounts = accounts
        self._key = _service_key("kafka")
        self._offer = offer
        self._user = ""
        self._session: _Session | None = None
        self._has_offered = False

    def respond(self, token: bytes) -> bytes:
        """Take the client's ticket, its empty token, or its choice of a layer; return the server's next token.

        Raises:
            Refusal: the ticket is another service's, the user is unknown, or a proof is wrong.
        """
        if self._session is None:
            return self._take_ticket(token)
        if not self._has_offered:
            if token:
                raise Refusal
            self._has_offered = True
            return self._session.wrap(self._offer)
        choice = self._session.unwrap(token)
        # a client without a layer takes no message, and may name whom it acts for: itself alone
        if (
            choice is None
            or choice[:4] != _NO_LAYER
            or choice[4:].decode(errors="replace") not in {"", self.claimed}
        ):
            raise Refusal
        self.principal = self._user
        return b""

    def _take_ticket(self, token: bytes) -> bytes:
        body, proof = token[:-_PROOF_BYTES], token[-_PROOF_BYTES:]
        parts = body.split(b"\0")
        if len(parts) != 2 or not hmac.compare_digest(proof, _proof(self._key, b"ticket", body)):
            raise Refusal
        self.claimed = parts[0].decode()
        self._user = self.claimed.partition("@")[0].partition("/")[0]
        if not self._accounts.knows(self._user):
            raise Refusal
        key = _proof(self._key, b"session", body)
        self._session = _Session(key, is_client=False)
        return _proof(key, b"answer")


SIMPLE_SERVERS["GSSAPI"] = GssapiServer  # from here on `ListenerSecurity` takes the mechanism


class ClientContext:
    """Is the client's side of a security context, with tokens as bytes.

    Args:
        principal: the client's.
        service: the client has its ticket, such as "kafka@host".
        number: makes the ticket differ from others.
    """

    def __init__(self, principal: str, service: str, number: int = 1) -> None:
        self.principal = principal
        self._service_key = _service_key(service)
        self._ticket = b"%b\0%d" % (principal.encode(), number)
        self._key = _proof(self._service_key, b"session", self._ticket)
        self._session: _Session | None = None

    @property
    def complete(self) -> bool:
        """Return True if the server has answered the ticket."""
        return self._session is not None

    def step(self, token: bytes | None) -> bytes | None:
        """Return the ticket; then take the server's answer to it, and return None.

        Raises:
            ScriptedGssError: the answer has no proof.
        """
        if token is None:
            return self._ticket + _proof(self._service_key, b"ticket", self._ticket)
        if not hmac.compare_digest(token, _proof(self._key, b"answer")):
            raise ScriptedGssError(_DEFECTIVE_TOKEN, 0, "Invalid token was supplied")
        self._session = _Session(self._key, is_client=True)
        return None

    def wrap(self, data: bytes) -> bytes:
        """Return a message with its proof."""
        assert self._session is not None
        return self._session.wrap(data)

    def unwrap(self, message: bytes) -> bytes:
        """Return what the server wrapped.

        Raises:
            ScriptedGssError: its proof is wrong.
        """
        assert self._session is not None
        data = self._session.unwrap(message)
        if data is None:
            raise ScriptedGssError(
                _DEFECTIVE_TOKEN, 0, "A token had an invalid Message Integrity Check"
            )
        return data


class _Flag(enum.Flag):
    mutual_authentication = enum.auto()
    integrity = enum.auto()
    delegate_to_peer = enum.auto()


class _NameType(enum.Enum):
    hostbased_service = enum.auto()
    kerberos_principal = enum.auto()


class _MechType(enum.Enum):
    kerberos = enum.auto()


class _Name(NamedTuple):
    text: str
    kind: Any = None

    def __str__(self) -> str:
        return self.text


class _Credentials(NamedTuple):
    name: _Name


class _Wrapped(NamedTuple):
    message: bytes


class OpenedContext(NamedTuple):
    """Holds what a context was opened with. `store` is where credentials come from; None: the ticket cache."""

    principal: str
    service: str
    store: Mapping[str, str] | None
    flags: frozenset[str]


class _Exceptions:
    GSSError = ScriptedGssError


class ScriptedGssapi:
    """Stands in for the package `gssapi`, as far as a producer uses it.

    Args:
        principal: the ticket cache has its ticket; None: it has none.

    Attributes:
        principal: as given; it may change.
        keytabs: the principal of each keytab, by its path.
        opened: the contexts that were opened, in order.
        hold: while it is given and not set, each first step of a context waits for it, as for a KDC that stands still.
    """

    NameType = _NameType
    MechType = _MechType
    RequirementFlag = _Flag
    exceptions = _Exceptions
    Name = _Name

    def __init__(self, principal: str | None = "alice@EXAMPLE.TEST") -> None:
        self.principal = principal
        self.keytabs: dict[str, str] = {}
        self.opened: list[OpenedContext] = []
        self.hold: threading.Event | None = None
        self._store: Mapping[str, str] | None = None
        self._errors: list[ScriptedGssError] = []
        self._credential_errors: list[ScriptedGssError] = []
        self._numbers = itertools.count(1)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let `import gssapi` give this object within the body."""
        before = sys.modules.get("gssapi")
        sys.modules["gssapi"] = self  # type: ignore[assignment]
        try:
            yield
        finally:
            if before is None:
                del sys.modules["gssapi"]
            else:
                sys.modules["gssapi"] = before

    def fail(self, number: int, text: str, *, times: int = 1) -> None:
        """Let the next first steps fail. `number` is that of RFC 4120 section 7.5.9, or of MIT's own errors, which follow them."""
        self._errors += [ScriptedGssError(_FAILURE, _FIRST_CODE + number, text)] * times

    def fail_credentials(self, major: int, minor: int, text: str) -> None:
        """Let the next look for credentials fail, by the codes of GSSAPI."""
        self._credential_errors.append(ScriptedGssError(major, minor, text))

    def Credentials(
        self, *, name: _Name | None, usage: str, store: Mapping[str, str] | None = None
    ) -> _Credentials:
        """Return credentials of the ticket cache, or of a keytab.

        Raises:
            ScriptedGssError: there are none, or they are another principal's.
        """
        assert usage == "initiate"
        if self._credential_errors:
            raise self._credential_errors.pop(0)
        owner = self.principal if store is None else self.keytabs.get(store["client_keytab"])
        if owner is None or (
            name is not None and owner not in {name.text, f"{name.text}@EXAMPLE.TEST"}
        ):
            number = _NO_CACHE if store is not None else _NO_PRINCIPAL
            raise ScriptedGssError(
                _NO_CREDENTIALS, _FIRST_CODE + number, "No credentials cache found"
            )
        self._store = store
        return _Credentials(_Name(owner))

    def SecurityContext(
        self, *, name: _Name, creds: _Credentials, mech: _MechType, flags: _Flag, usage: str
    ) -> _SecurityContext:
        """Return a context."""
        assert (mech, usage, name.kind) == (
            _MechType.kerberos,
            "initiate",
            _NameType.hostbased_service,
        )
        asked = frozenset(str(flag.name) for flag in _Flag if flag in flags)
        self.opened.append(OpenedContext(creds.name.text, name.text, self._store, asked))
        return _SecurityContext(
            ClientContext(creds.name.text, name.text, next(self._numbers)), self._before_first_step
        )

    def _before_first_step(self) -> None:
        if self.hold is not None:
            self.hold.wait(60)
        if self._errors:
            raise self._errors.pop(0)


class _SecurityContext:
    def __init__(self, context: ClientContext, before_first_step: Callable[[], None]) -> None:
        self._context = context
        self._before_first_step = before_first_step

    @property
    def complete(self) -> bool:
        return self._context.complete

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            self._before_first_step()
        return self._context.step(token)

    def wrap(self, data: bytes, encrypt: bool) -> _Wrapped:
        assert not encrypt
        return _Wrapped(self._context.wrap(data))

    def unwrap(self, message: bytes) -> _Wrapped:
        return _Wrapped(self._context.unwrap(message))
