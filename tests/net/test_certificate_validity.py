"""Tests that the end of a certificate is what another reader finds, and that other bytes give None."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.net.certificate_validity import ends_at
from aioproducer.testing.certificates import EXPIRED, VALID, CertificateAuthority, Validity

AUTHORITY = CertificateAuthority()


@pytest.mark.parametrize("validity", [VALID, EXPIRED])
@pytest.mark.parametrize("key_type", ["rsa", "ecdsa"])
def test_the_end_is_what_cryptography_reads(validity: Validity, key_type: str) -> None:
    """The leaf stands before its issuer, and behind the key."""
    pem = AUTHORITY.client("alice", validity=validity, key_type=key_type).pem  # type: ignore[arg-type]
    assert ends_at(pem.decode()) == x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :]).not_valid_after_utc.timestamp()


def test_years_of_two_and_of_four_digits() -> None:
    """Dates from 2050 on are written with four digits (RFC 5280, 4.1.2.5)."""
    der = ssl.PEM_cert_to_DER_cert(AUTHORITY.pem.decode())
    end = x509.load_der_x509_certificate(der).not_valid_after_utc
    short, long = end.strftime("%y%m%d%H%M%SZ").encode(), b"20990101000000Z"
    assert b"\x17\x0d" + short in der
    grown = der.replace(b"\x17\x0d" + short, b"\x18\x0f" + long)
    # the enclosing lengths are two bytes too small, which this reader does not use
    assert ends_at(ssl.DER_cert_to_PEM_cert(grown)) == datetime(2099, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("text", ["", "-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"])
def test_other_text_has_no_end(text: str) -> None:
    """Text without a certificate gives None."""
    assert ends_at(text) is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_number_or_none(der: bytes) -> None:
    """Bytes that are no certificate raise nothing."""
    assert isinstance(ends_at(ssl.DER_cert_to_PEM_cert(der)), float | None)
