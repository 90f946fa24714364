"""Tells the type of a key store or trust store by its first bytes. JKS is refused with the commands that convert it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aioproducer.errors import ConfigError

__all__ = ["type_of"]

# JKS, and its sibling JCEKS.
_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
# A DER SEQUENCE of more than 127 bytes, or of indefinite length.
_DER: Final = (b"\x30\x80", b"\x30\x81", b"\x30\x82", b"\x30\x83", b"\x30\x84")


def type_of(option: str, path: str, given: str | None) -> str:
    """Return "PEM" or "PKCS12", by the first bytes of a file.

    Args:
        option: the option that names the file.
        path: the file.
        given: the type that the user gives; None: any.

    Raises:
        ConfigError: the file cannot be read, is a JKS store, or is of another type than the given one.
    """
    try:
        with Path(path).open("rb") as file:
            first = file.read(4)
    except OSError as error:
        raise ConfigError(f"{option}={path} cannot be read: {error.strerror or type(error).__name__}") from None
    if first in _JKS:
        stem = Path(path).with_suffix("")
        raise ConfigError(
            f"{option}={path} is a JKS store, which only Java reads. Convert it: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {stem}.p12 -deststoretype PKCS12, and then, for PEM: "
            f"openssl pkcs12 -in {stem}.p12 -out {stem}.pem"
        )
    kind = "PKCS12" if first[:2] in _DER else "PEM"
    if given is not None and given != kind:
        raise ConfigError(f"{option}={path} is no {given} file: its first bytes are those of {kind if kind == 'PKCS12' else 'a text'}")
    return kind
