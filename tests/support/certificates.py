"""Certificates and stores beyond those of `aioproducer.testing.certificates`: intermediates, odd certificates, encrypted keys, PKCS#12.

A test's authority issues most; here is what OpenSSL, Java or the client's options have to be shown besides.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from aioproducer.testing.certificates import LOOPBACK, VALID, Certificate, CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

    from aioproducer.testing.certificates import CertificateFiles

# Java and OpenSSL read it, and a test does not wait for many rounds of key derivation
_PKCS12_ROUNDS: Final = 2000


def intermediate(above: CertificateAuthority) -> CertificateAuthority:
    """An authority below another. The chains of its certificates hold its own certificate."""
    below = CertificateAuthority()
    below._ca = above._ca.create_child_ca()
    return below


def without_intermediate(root: CertificateAuthority, *names: str) -> Certificate:
    """A server's certificate that an intermediate issued, and whose chain lacks the intermediate's."""
    below = intermediate(root).server(*names)
    return Certificate(below.key_pem, below.certificate_pem, below.certificate_pem, below.not_after)


def self_signed(*names: str) -> Certificate:
    return _by_hand(names or LOOPBACK, None)


def without_key_identifiers(authority: CertificateAuthority) -> Certificate:
    """A server's certificate as Strimzi issues them: OpenSSL's VERIFY_X509_STRICT refuses it."""
    return _by_hand(LOOPBACK, authority)


def signing_key(authority: CertificateAuthority) -> Any:
    return load_pem_private_key(authority._ca.private_key_pem.bytes(), None)


def _by_hand(names: tuple[str, ...], authority: CertificateAuthority | None) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    issuer, signer = subject, (key if authority is None else signing_key(authority))
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority.pem).subject
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now + VALID.begins)
        .not_valid_after(now + VALID.ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([_identity(name) for name in names]), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    pem = made.public_bytes(Encoding.PEM)
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(key_pem, pem, pem, made.not_valid_after_utc)


def _identity(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def encrypted_key_pem(
    certificate: Certificate, password: str, *, traditional: bool = False
) -> bytes:
    """The key as PKCS#8 ("BEGIN ENCRYPTED PRIVATE KEY"), or in the form of OpenSSL before 1.0, which Java does not read."""
    form = PrivateFormat.TraditionalOpenSSL if traditional else PrivateFormat.PKCS8
    return _key(certificate).private_bytes(
        Encoding.PEM, form, BestAvailableEncryption(password.encode())
    )


def write_encrypted(
    certificate: Certificate, folder: Path, name: str, password: str
) -> CertificateFiles:
    """Write what `Certificate.write` does, with an encrypted key."""
    files = certificate.write(folder, name)
    key = encrypted_key_pem(certificate, password)
    files.key.write_bytes(key)
    files.pem.write_bytes(key + certificate.chain_pem)
    return files


def pkcs12_keystore(certificate: Certificate, password: str) -> bytes:
    """A key store with the key and the chain, encrypted with AES-256."""
    leaf, *others = x509.load_pem_x509_certificates(certificate.chain_pem)
    return pkcs12.serialize_key_and_certificates(
        b"key", _key(certificate), leaf, others or None, _encryption(password)
    )


def pkcs12_truststore(password: str, *authorities: CertificateAuthority) -> bytes:
    """A trust store, with the attribute that Java asks of a trusted certificate."""
    trusted = [
        pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(one.pem), f"ca{number}".encode())
        for number, one in enumerate(authorities)
    ]
    return pkcs12.serialize_java_truststore(trusted, _encryption(password))


def _key(certificate: Certificate) -> Any:
    return load_pem_private_key(certificate.key_pem, None)


def _encryption(password: str) -> KeySerializationEncryption:
    return (
        PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(_PKCS12_ROUNDS)
        .key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC)
        .hmac_hash(hashes.SHA256())
        .build(password.encode())
    )
