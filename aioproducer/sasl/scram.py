"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as Kafka speaks them (KIP-84, KIP-48).

1. The password is used as plain UTF-8. RFC 5802 asks for SASLprep; Kafka does without, so a prepared password would be refused.
2. There is no channel binding: Kafka offers no -PLUS mechanism.
3. All of the broker's first message is checked before anything is derived from the password: a hostile broker must not choose a cheap
   derivation, which gives the password away, nor one that takes minutes.
4. Derived keys are kept for each salt and iteration count. All brokers of a cluster have the same ones for a user.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import BrokerNotTrusted, CredentialsRefused, printable
from aioproducer.sasl.mechanism import SecretBytes, SlowStep, read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioproducer.config.secret import Secret
    from aioproducer.sasl.mechanism import Exchange

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# RFC 7677 and Kafka ask for 4,096 at least. A million take a second or two; Kafka itself allows 16,384.
MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 1_000_000
# Bytes of a broker's message.
_LONGEST: Final = 4_096
_MOST_KEYS: Final = 16
# Printable ASCII without the comma, which separates attributes.
_VALUE: Final = rb"[\x20-\x2b\x2d-\x7e]"
_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/]+={0,2}),i=(?P<count>[1-9][0-9]*)"
    rb"(?P<more>(?:,[A-Za-z]=" + _VALUE + rb"+)*)"
)
_FINAL: Final = re.compile(
    rb"(?:e=(?P<error>"
    + _VALUE
    + rb"+)|v=(?P<signature>[A-Za-z0-9+/]+={0,2}))(?P<more>(?:,[A-Za-z]="
    + _VALUE
    + rb"+)*)"
)
_NAMES: Final = re.compile(rb"(?:^|,)([A-Za-z])=")


class ScramKeys(NamedTuple):
    """Holds the keys that are derived from a password, a salt and an iteration count."""

    client: SecretBytes
    server: SecretBytes


class _Known(NamedTuple):
    password: SecretBytes
    keys: ScramKeys


class KeyCache:
    """Keeps derived keys by hash, salt and iteration count; not more than 16 of them. Threads may use it at the same time."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes, int], _Known] = {}

    def find(
        self, hash_name: str, password: SecretBytes, salt: bytes, count: int
    ) -> ScramKeys | None:
        """Return the keys if they are kept; None: they must be derived. A rotated password has no kept keys."""
        known = self._known.get((hash_name, salt, count))
        return (
            known.keys
            if known is not None and hmac.compare_digest(known.password, password)
            else None
        )

    def derive(self, hash_name: str, password: SecretBytes, salt: bytes, count: int) -> ScramKeys:
        """Derive the keys, which takes milliseconds to seconds, and keep them."""
        keys = self.find(hash_name, password, salt, count)
        if keys is not None:
            return keys
        salted = hashlib.pbkdf2_hmac(hash_name, password, salt, count)
        keys = ScramKeys(
            SecretBytes(hmac.digest(salted, b"Client Key", hash_name)),
            SecretBytes(hmac.digest(salted, b"Server Key", hash_name)),
        )
        for oldest in list(self._known)[: 1 - _MOST_KEYS]:
            self._known.pop(oldest, None)
        self._known[hash_name, salt, count] = _Known(password, keys)
        return keys


class _First(NamedTuple):
    """Holds the broker's first message."""

    nonce: bytes
    salt: bytes
    iterations: int


class Scram:
    """Is a SCRAM mechanism with one user's credentials.

    Args:
        name: a key of `SCRAM_HASHES`.
        user: names the user in error texts.
        username: or the id of a delegation token.
        password: or the HMAC of a delegation token, in base64 as Kafka's tools print it.
        nonce: returns a fresh random text of printable ASCII characters other than the comma.
        is_token: the credentials are a delegation token (KIP-48).
    """

    def __init__(
        self,
        name: str,
        user: str,
        username: Secret,
        password: Secret,
        nonce: Callable[[], str],
        *,
        is_token: bool = False,
    ) -> None:
        self.name = name
        self.user = user
        self._hash_name = SCRAM_HASHES[name]
        self._username = username
        self._password = password
        self._nonce = nonce
        self._is_token = is_token
        self._cache = KeyCache()

    def exchange(self) -> Exchange:
        """Begin the exchange of one authentication.

        Raises:
            BrokerNotTrusted: a message of the broker breaks the rules, or the broker does not prove that it knows the password.
            CredentialsRefused: the broker's last message is an error.
        """
        username = yield from read_secret(self._username)
        password = yield from read_secret(self._password)
        nonce = self._nonce().encode("ascii")
        extension = b",tokenauth=true" if self._is_token else b""
        bare = (
            b"n="
            + username.replace(b"=", b"=3D").replace(b",", b"=2C")
            + b",r="
            + nonce
            + extension
        )
        answer: bytes = yield b"n,," + bare
        first = self._read_first(answer, nonce)
        keys = yield from self._keys(password, first)
        # c: the header "n,," in base64
        unproved = b"c=biws,r=" + first.nonce
        signed = b",".join((bare, answer, unproved))
        answer = yield unproved + b",p=" + _proof(self._hash_name, keys, signed)
        self._check_final(answer, keys, signed)

    def _keys(
        self, password: SecretBytes, first: _First
    ) -> Generator[SlowStep, ScramKeys, ScramKeys]:
        arguments = (self._hash_name, password, first.salt, first.iterations)
        keys = self._cache.find(*arguments)
        if keys is None:
            keys = yield SlowStep(
                f"derive the {self.name} keys of salt {first.salt.hex()}",
                partial(self._cache.derive, *arguments),
            )
        return keys

    # The broker's messages

    def _read_first(self, data: bytes, nonce: bytes) -> _First:
        match = self._match(_FIRST, data, b"rsi", "first")
        if not match["nonce"].startswith(nonce) or len(match["nonce"]) == len(nonce):
            raise self._not_trusted("the broker's nonce does not continue the client's")
        salt = self._decoded(match["salt"])
        # a number of many digits takes long to convert
        count = int(match["count"][:12])
        if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
            raise self._not_trusted(
                f"the broker asks for {count} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed"
            )
        return _First(match["nonce"], salt, count)

    def _check_final(self, data: bytes, keys: ScramKeys, signed: bytes) -> None:
        match = self._match(_FINAL, data, b"ve", "last")
        if match["error"] is not None:
            told = printable(match["error"].decode("ascii"))
            raise CredentialsRefused(
                f"the broker refuses user {self.user!r} by {self.name}: {told}", "sasl", self.name
            )
        signature = self._decoded(match["signature"])
        if not hmac.compare_digest(hmac.digest(keys.server, signed, self._hash_name), signature):
            raise self._not_trusted(
                f"the broker's signature is wrong: it does not know the password of user {self.user!r}"
            )

    def _match(
        self, pattern: re.Pattern[bytes], data: bytes, known: bytes, which: str
    ) -> re.Match[bytes]:
        """Return the match of a message; its extensions are unknown attributes, each at most once."""
        match = pattern.fullmatch(data) if len(data) <= _LONGEST else None
        if match is None:
            told = (
                f"{len(data)} bytes"
                if len(data) > _LONGEST
                else repr(printable(data[:100].decode(errors="replace")))
            )
            raise self._not_trusted(f"the broker's {which} message breaks the rules: {told}")
        names = b"".join(_NAMES.findall(match["more"]))
        # m announces a mandatory extension (RFC 5802)
        if len(set(names)) < len(names) or set(names) & {*known, *b"m"}:
            raise self._not_trusted(
                f"the broker's {which} message has an attribute twice, or a mandatory extension"
            )
        return match

    def _decoded(self, text: bytes) -> bytes:
        try:
            data = base64.b64decode(text, validate=True)
        except binascii.Error:
            data = b""
        # also refuses bits that base64 leaves unused and that are set
        if base64.b64encode(data) != text:
            raise self._not_trusted("a value in the broker's message is not base64")
        return data

    def _not_trusted(self, reason: str) -> BrokerNotTrusted:
        return BrokerNotTrusted(f"{self.name}: {reason}", "sasl", self.name)


def _proof(hash_name: str, keys: ScramKeys, signed: bytes) -> bytes:
    """Return the client's proof in base64: its key, hidden by a signature of the exchange."""
    signature = hmac.digest(hashlib.new(hash_name, keys.client).digest(), signed, hash_name)
    return base64.b64encode(
        bytes(one ^ other for one, other in zip(keys.client, signature, strict=True))
    )
