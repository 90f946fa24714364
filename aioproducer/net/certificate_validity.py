"""Reads the end of a certificate's validity from its DER form (RFC 5280, section 4.1), for a certificate that OpenSSL has accepted."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

__all__ = ["ends_at"]

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
# The tags of a SEQUENCE, of the optional version, and of a time with a year of two digits.
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
# A year of two digits from this one on is in the 20th century.
_CENTURY: Final = 50


def ends_at(pem: str) -> float | None:
    """Return the end of the first certificate of a PEM text, in seconds since 1970; None: there is none that can be read."""
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if begin < 0 or end < begin:
        return None
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)]))
    # bytes that are no certificate: an index outside of them, a wrong tag, no date
    except (ValueError, IndexError):
        return None


def _not_after(der: bytes) -> float:
    _, certificate, _ = _element(der, 0)
    _, at, _ = _element(der, certificate)
    tag, _, after = _element(der, at)
    if tag == _VERSION:
        at = after
    # the serial number, the algorithm of the signature, and the issuer
    for _ in range(3):
        at = _element(der, at)[2]
    tag, validity, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    tag, text, end = _element(der, _element(der, validity)[2])
    digits = der[text:end].decode("ascii").removesuffix("Z")
    if tag == _UTC_TIME:
        digits = ("19" if int(digits[:2]) >= _CENTURY else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the element at `at`, and the begin and the end of its content."""
    tag, length, at = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(der[at : at + size], "big"), at + size
    if at + length > len(der):
        raise ValueError("truncated")
    return tag, at, at + length
