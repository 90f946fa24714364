"""Certificates for tests: OpenSSL takes those that are right, and refuses each that is wrong for the reason that it was made for."""

from __future__ import annotations

import ssl
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from certificates import self_signed, without_key_identifiers

from aioproducer.testing.certificates import (
    ENDS_SOON,
    EXPIRED,
    NOT_YET_VALID,
    CertificateAuthority,
)

if TYPE_CHECKING:
    from pathlib import Path

    from aioproducer.testing.certificates import Certificate


def server_context(
    folder: Path, certificate: Certificate, client_ca: CertificateAuthority | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.write(folder, "server").pem)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.pem.decode())
    return context


def client_context(ca: CertificateAuthority, flags: int = 0) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca.pem.decode())
    context.verify_flags |= flags
    return context


def shake_hands(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost"
) -> ssl.SSLObject:
    """Let both sides talk through memory until both are done; return the server's side."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    ]
    waiting = list(sides)
    for _ in range(10):
        for side in tuple(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    assert not waiting
    return sides[1]


@pytest.mark.parametrize("key_type", ["ecdsa", "rsa"])
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_server_is_trusted_by_name_and_address(tmp_path: Path, key_type: str, name: str) -> None:
    """Its client need not be known, and Python's strict check has no objection."""
    ca = CertificateAuthority(key_type=key_type)
    side = shake_hands(
        client_context(ca, ssl.VERIFY_X509_STRICT), server_context(tmp_path, ca.server()), name
    )
    assert side.version() == "TLSv1.3"


def test_a_client_is_known_by_its_subject(tmp_path: Path) -> None:
    ca = CertificateAuthority()
    client = client_context(ca)
    client.load_cert_chain(ca.client("alice").write(tmp_path, "alice").pem)
    seen = shake_hands(client, server_context(tmp_path, ca.server(), client_ca=ca)).getpeercert()
    assert seen is not None
    assert seen["subject"] == (
        (("organizationName", "test"),),
        (("organizationalUnitName", "clients"),),
        (("commonName", "alice"),),
    )


CA, OTHER = CertificateAuthority(), CertificateAuthority("another CA")


@pytest.mark.parametrize(
    ("certificate", "trusted", "reason"),
    [
        (CA.server(validity=EXPIRED), CA, "certificate has expired"),
        (CA.server(validity=NOT_YET_VALID), CA, "certificate is not yet valid"),
        (CA.server("kafka.elsewhere.test"), CA, "Hostname mismatch"),
        (OTHER.server(), CA, "unable to get local issuer certificate"),
        (self_signed(), CA, "self-signed certificate"),
        (
            without_key_identifiers(CA),
            CA,
            "Missing Authority Key Identifier|Missing Subject Key Identifier",
        ),
    ],
    ids=[
        "expired",
        "not yet valid",
        "wrong name",
        "another CA",
        "self-signed",
        "no key identifiers",
    ],
)
def test_a_wrong_certificate_is_refused_for_its_reason(
    tmp_path: Path, certificate: Certificate, trusted: CertificateAuthority, reason: str
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        shake_hands(
            client_context(trusted, ssl.VERIFY_X509_STRICT), server_context(tmp_path, certificate)
        )


def test_dates_are_relative_to_now() -> None:
    ends = [
        CA.server(validity=validity).not_after for validity in (EXPIRED, ENDS_SOON, NOT_YET_VALID)
    ]
    assert (ends[1] - ends[0]).days == 11
    assert ends[0] < ends[2] < ends[1]


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    alice = CA.client("alice")
    files = alice.write(tmp_path, "alice")
    assert files.pem.read_bytes() == alice.pem == files.key.read_bytes() + files.chain.read_bytes()
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert alice.key_pem.startswith(b"-----BEGIN PRIVATE KEY-----"), "PKCS#8, as Java wants it"


def test_the_key_is_in_no_repr() -> None:
    assert "PRIVATE" not in repr(CA.client("alice"))


def test_another_type_of_key_is_refused() -> None:
    with pytest.raises(ValueError, match="ecdsa"):
        CertificateAuthority(key_type="dsa")  # type: ignore[arg-type]


def test_a_missing_library_is_named_with_the_extra() -> None:
    """In a process of its own, where trustme cannot be imported."""
    program = "import sys; sys.modules['trustme'] = None; import aioproducer.testing.certificates"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "pip install 'aioproducer[crypto]'" in ended.stderr
