"""Reads key stores and trust stores: PEM, PKCS12 (by `cryptography`, the extra `crypto`).

Everything here may block: call it in a thread. Errors name the option and the file, never a password, nor a byte of a key.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.config.secret import Secret

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64


class KeyStore(NamedTuple):
    """Holds the content of a PKCS12 store: the key as PEM, empty if there is none, and the certificates as PEM, the key's first."""

    key: bytes
    certificates: bytes


def read_pkcs12(option: str, path: str, password: Secret | None) -> KeyStore:
    """Return the content of a PKCS12 store.

    Raises:
        ConfigError: `cryptography` is not installed, the password is wrong or missing, or the file is no PKCS12.
        OSError: it is gone since `type_of` has read its first bytes. `load_key` raises that, too.
    """
    try:
        # an extra; its import takes 60 ms
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError:
        raise ConfigError(
            f"{option}={path} is a PKCS12 store, which cryptography reads: pip install 'aioproducer[crypto]', or convert it: "
            f"openssl pkcs12 -in {path} -out {Path(path).with_suffix('.pem')}"
        ) from None
    data = Path(path).read_bytes()
    try:
        store: Any = pkcs12.load_pkcs12(
            data, None if password is None else password.reveal().encode()
        )
    # it raises a ValueError for a wrong password, and for a file that is no PKCS12; UnsupportedAlgorithm is an Exception of its own
    except ConfigError:
        raise
    except Exception as error:
        _refuse_store(option, path, password, error)
    pem = serialization.Encoding.PEM
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    certificates = [
        each.certificate for each in (store.cert, *store.additional_certs) if each is not None
    ]
    return KeyStore(key, b"".join(certificate.public_bytes(pem) for certificate in certificates))


def _refuse_store(option: str, path: str, password: Secret | None, error: Exception) -> NoReturn:
    name = option.replace("_location", "_password")
    if password is None:
        reason = f"it wants a password: {name}"
    elif isinstance(error, ValueError):
        reason = f"{name} is not its password, or it is damaged"
    else:
        reason = f"cryptography cannot read it ({type(error).__name__})"
    # a traceback with locals would show the password
    raise ConfigError(f"{option}={path}: {reason}") from None


def pem_blocks(text: str) -> str:
    """Return the PEM blocks of a text, with lines of 64 characters.

    Java reads a block with its lines joined by spaces, as a properties file with continuation lines gives them; OpenSSL does not. An
    environment file has a line's end as the two characters `\\n`.
    """
    blocks = []
    for label, body in _BLOCK.findall(text.replace("\\n", "\n")):
        # the headers of an encrypted key in the old form (RFC 1421)
        if ":" in body:
            lines = [line.strip() for line in body.strip().splitlines()]
        else:
            joined = "".join(body.split())
            lines = [joined[at : at + _LINE] for at in range(0, len(joined), _LINE)]
        blocks.append("\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----\n")))
    return "".join(blocks)


def load_trust(
    context: ssl.SSLContext, source: str, *, path: str | None = None, pem: str | None = None
) -> None:
    """Load certificates that are trusted into a context, from a file or a text.

    Raises:
        ConfigError: there is no certificate, or one is damaged; the text begins with `source`.
    """
    try:
        if path is not None:
            context.load_verify_locations(cafile=path)
        else:
            context.load_verify_locations(cadata=pem_blocks(pem or "") or "no certificate")
    # a TypeError reports characters that are not ASCII
    except (OSError, TypeError) as error:
        reason = "there is no certificate in it, or it is damaged"
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            reason = f"cannot be read: {error.strerror or type(error).__name__}"
        raise ConfigError(f"{source}: {reason}") from None


def load_key(
    context: ssl.SSLContext,
    source: str,
    certificate: str | bytes,
    key: str | None = None,
    *,
    password: Secret | None = None,
) -> None:
    """Load the client's certificate and key into a context.

    Args:
        context: a new context, as a failed load leaves it without a certificate.
        source: the options that name them, for errors.
        certificate: a file's path, or PEM that is never in a file of a disk where the system has memfd_create.
        key: a file's path; None: the key is beside the certificate.
        password: decrypts the key (`ssl_key_password`).

    Raises:
        ConfigError: the key is encrypted and the password wrong or missing, key and certificate do not belong together, or are damaged.
    """
    is_asked = False

    # without a function, OpenSSL asks on the terminal
    def ask() -> str:
        nonlocal is_asked
        is_asked = True
        if password is None:
            raise ConfigError(f"{source}: the key is encrypted, and there is no ssl_key_password")
        return password.reveal()

    try:
        with _path_of(certificate) as path:
            context.load_cert_chain(path, key, ask)
    except ssl.SSLError as error:
        raise ConfigError(f"{source}: {_reason(error, is_asked=is_asked)}") from None
    # a password that OpenSSL's callback cannot take: too long
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{source}: ssl_key_password is longer than OpenSSL takes, or not a text"
        ) from None


def _reason(error: ssl.SSLError, *, is_asked: bool) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    if is_asked:
        return "ssl_key_password is not the password of the key, or the key is damaged"
    return f"there is no certificate, or no key, in PEM in it, or it is damaged ({error.reason or 'PEM'})"


@contextlib.contextmanager
def _path_of(certificate: str | bytes) -> Iterator[str]:
    """Give the path of a file with the content, which is in memory, or else in a file that only this user reads and that is removed."""
    if isinstance(certificate, str):
        yield certificate
        return
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        number = os.memfd_create("aioproducer", os.MFD_CLOEXEC)
        try:
            with os.fdopen(number, "wb", closefd=False) as file:
                file.write(certificate)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    # made with mode 0600
    with tempfile.NamedTemporaryFile(delete=False) as file:
        path = Path(file.name)
    try:
        path.write_bytes(certificate)
        yield str(path)
    finally:
        path.unlink()
