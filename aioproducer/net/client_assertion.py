"""Makes the assertions by which a client proves its identity to a token endpoint (RFC 7523): JWTs signed here, or read from a file.

1. The claims are those of the options, then those of the template file, then `iat`, `exp`, `nbf` and `jti`, which are made for each
   assertion: what is later takes precedence, as in Kafka's LayeredAssertionJwtTemplate.
2. The files are read at each use, so a key or an assertion that was replaced needs no restart.
3. `cryptography` (the extra `crypto`) signs. It is imported when it is used.
"""

from __future__ import annotations

import base64
import json
import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aioproducer.config.secret import Secret
from aioproducer.errors import ConfigError
from aioproducer.wall_clock import wall_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Assertion", "AssertionClaims", "AssertionFile", "SignedAssertion"]

_KEY_FILE: Final = "sasl_oauthbearer_assertion_private_key_file"
_KEY_PEM: Final = "sasl_oauthbearer_assertion_private_key_pem"
_PASSPHRASE: Final = "sasl_oauthbearer_assertion_private_key_passphrase"
_TEMPLATE: Final = "sasl_oauthbearer_assertion_template_file"
_FILE: Final = "sasl_oauthbearer_assertion_file"
_MAX_FILE_BYTES: Final = 1 << 20
_JTI_BYTES: Final = 16
# of r and of s, in a signature with a key on P-256
_ES256_BYTES: Final = 32


class Assertion(Protocol):
    """Gives assertions."""

    def make(self) -> Secret:
        """Return an assertion. The call may block.

        Raises:
            ConfigError: a file cannot be read, or is of another form; the text names its option.
        """


class AssertionFile:
    """Gives the assertion that a file holds, which another program renews.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def make(self) -> Secret:
        """Return the content of the file, without blanks around it.

        Raises:
            ConfigError: the file cannot be read, or is empty.
        """
        text = _read(_FILE, self._path).strip()
        if not text:
            raise ConfigError(f"{_FILE}={self._path} is empty")
        assertion = Secret(text)
        if assertion.reference is not None:
            raise ConfigError(f"{_FILE}={self._path} has a reference, which is read in options alone")
        return assertion


class AssertionClaims(NamedTuple):
    """Holds the claims of assertions, as the options give them.

    Attributes:
        static: `aud`, `iss` and `sub`, as far as they are given.
        exp_seconds: how long an assertion is valid.
        nbf_seconds: for how long it has been valid when it is made, for a server whose clock is behind.
        jti_include: whether it has an id of its own.
    """

    static: Mapping[str, str] = {}
    exp_seconds: int = 300
    nbf_seconds: int = 60
    jti_include: bool = False


class SignedAssertion:
    """Signs assertions with a private key.

    Args:
        key_file: the file of the key, PEM; None: `key_pem` is given.
        key_pem: the key.
        passphrase: decrypts the key; None: it is not encrypted.
        algorithm: RS256 (a key of type RSA) or ES256 (a key on the curve P-256).
        claims: the claims of the options.
        template_file: a JSON object with the objects `header` and `payload`, or one of them; None: there is none.
        clock: returns the seconds since 1970.

    Raises:
        ConfigError: `cryptography` is not installed.
    """

    def __init__(
        self,
        key_file: str | None,
        key_pem: Secret | None = None,
        passphrase: Secret | None = None,
        *,
        algorithm: str = "RS256",
        claims: AssertionClaims,
        template_file: str | None = None,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        # its import takes 60 ms, and waits for the first use
        if find_spec("cryptography") is None:
            raise ConfigError(f"{_KEY_FILE} and {_KEY_PEM} sign by cryptography: pip install 'aioproducer[crypto]'")
        self._key_file = key_file
        self._key_pem = key_pem
        self._passphrase = passphrase
        self._algorithm = algorithm
        self._claims = claims
        self._template_file = template_file
        self._clock = clock

    def make(self) -> Secret:
        """Return a new assertion.

        Raises:
            ConfigError: the key or the template cannot be read or used. No frame of the traceback holds what was read.
        """
        outcome = self._outcome()
        if isinstance(outcome, Secret):
            return outcome
        raise ConfigError(outcome)

    def _outcome(self) -> Secret | str:
        """Return an assertion, or why there is none."""
        try:
            header, payload = self._content()
        except ConfigError as error:
            return str(error)
        unsigned = f"{_encoded(header)}.{_encoded(payload)}"
        signature = self._signature(unsigned.encode("ascii"))
        return signature if isinstance(signature, str) else Secret(f"{unsigned}.{_base64url(signature)}")

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header and the payload."""
        template = {} if self._template_file is None else _template(self._template_file)
        now = int(self._clock())
        payload = {
            **self._claims.static,
            **template.get("payload", {}),
            "iat": now,
            "exp": now + self._claims.exp_seconds,
            "nbf": now - self._claims.nbf_seconds,
        }
        if self._claims.jti_include:
            payload["jti"] = secrets.token_hex(_JTI_BYTES)
        return {**template.get("header", {}), "alg": self._algorithm, "typ": "JWT"}, payload

    def _signature(self, unsigned: bytes) -> bytes | str:
        """Return the signature, or why there is none."""
        # an extra
        from cryptography.hazmat.primitives.asymmetric import ec, rsa

        where = _KEY_PEM if self._key_file is None else f"{_KEY_FILE}={self._key_file}"
        try:
            key = self._key()
        except ConfigError as error:
            return str(error)
        # cryptography's errors may quote what they read
        except Exception as error:
            return f"{where} {self._fault(error)}"
        if self._algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            return _rs256(key, unsigned)
        if self._algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
            return _es256(key, unsigned)
        wanted = "of type RSA" if self._algorithm == "RS256" else "on the curve P-256"
        return f"sasl_oauthbearer_assertion_algorithm={self._algorithm} needs a key {wanted}, and that of {where} is another"

    def _fault(self, error: Exception) -> str:
        """Return why the key cannot be read."""
        # of a key that is encrypted, and of one that is not, each by itself
        if isinstance(error, TypeError):
            return f"is encrypted, and there is no {_PASSPHRASE}" if self._passphrase is None else "is not encrypted"
        return "is no private key in PEM" + ("" if self._passphrase is None else f", or {_PASSPHRASE} is not its passphrase")

    def _key(self) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        pem = self._key_pem.reveal() if self._key_pem is not None else _read(_KEY_FILE, self._key_file or "")
        return load_pem_private_key(pem.encode(), None if self._passphrase is None else self._passphrase.reveal().encode())


def _rs256(key: Any, unsigned: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    signature: bytes = key.sign(unsigned, padding.PKCS1v15(), hashes.SHA256())
    return signature


def _es256(key: Any, unsigned: bytes) -> bytes:
    """Return r and s, each of 32 bytes (RFC 7518, 3.4)."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    return b"".join(part.to_bytes(_ES256_BYTES, "big") for part in decode_dss_signature(key.sign(unsigned, ec.ECDSA(hashes.SHA256()))))


def _template(path: str) -> dict[str, dict[str, Any]]:
    """Return the objects `header` and `payload` of a template file."""
    text = _read(_TEMPLATE, path)
    try:
        template = json.loads(text)
    except ValueError:
        template = None
    if not isinstance(template, dict) or not set(template) <= {"header", "payload"}:
        raise ConfigError(f"{_TEMPLATE}={path} is no JSON object of `header` and `payload`")
    for name, part in template.items():
        if not isinstance(part, dict):
            raise ConfigError(f"{_TEMPLATE}={path}: `{name}` is no JSON object")
    return template


def _read(option: str, path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{option}={path} cannot be read: {error.strerror or type(error).__name__}") from None
    # the error holds the bytes of the file
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise ConfigError(f"{option}={path} is no UTF-8 text")
    if len(text) > _MAX_FILE_BYTES:
        raise ConfigError(f"{option}={path} is larger than {_MAX_FILE_BYTES >> 20} MiB")
    return text


def _encoded(part: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(part, separators=(",", ":")).encode())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")
