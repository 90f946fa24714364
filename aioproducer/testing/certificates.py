"""Makes certificate authorities, certificates and keys for tests of TLS. It needs the extra `crypto`.

    ca = CertificateAuthority()
    server = ca.server()                                     # for localhost, 127.0.0.1 and ::1
    alice = ca.client("alice")                               # CN=alice, O=test
    expired = ca.server(validity=EXPIRED)                    # or NOT_YET_VALID, ENDS_SOON, or a `Validity` of your own
    elsewhere = ca.server("kafka.elsewhere.test")            # a wrong name, for clients that dial localhost
    stranger = CertificateAuthority("another CA").client("mallory")
    below = ca.intermediate().server()                       # `chain_pem` holds the certificate, then the intermediate's
    alone = self_signed("localhost")
    strimzi = CertificateAuthority(key_identifiers=False)    # certificates that OpenSSL's VERIFY_X509_STRICT refuses

A certificate is held as bytes in PEM: `key_pem` (PKCS#8, as Java wants it), `certificate_pem`, `chain_pem` (the certificate and the
intermediates, without the root), and `pem` (the key, then the chain: the form of a Kafka key store of type PEM). Other forms:

    alice.encrypted_key_pem("canary-key")                    # PKCS#8; traditional=True: "Proc-Type: 4,ENCRYPTED"
    alice.pkcs12("canary-store")                             # a key store
    pkcs12_truststore("canary-store", ca)                    # a trust store that Java reads, too
    files = alice.write(folder, "alice")                     # paths: files.pem, files.key, files.chain
    ca.write(folder / "ca.pem")

Keys are ECDSA on P-256, made within 1 ms. `key_type="rsa"` makes RSA keys of 2048 bits within 0.1 s; their signatures have one length:
tests that must repeat byte for byte need it, as do servers of TLS 1.0.

All dates are relative to the system's clock when the certificate is made. Every certificate has an identity in its SubjectAlternativeName,
as Java cannot parse an empty one.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aioproducer.testing.certificates needs cryptography: pip install 'aioproducer[crypto]'", name="cryptography"
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

__all__ = [
    "ENDS_SOON",
    "EXPIRED",
    "LOOPBACK",
    "NOT_YET_VALID",
    "VALID",
    "Certificate",
    "CertificateAuthority",
    "CertificateFiles",
    "Validity",
    "pkcs12_truststore",
    "self_signed",
]

KeyType: TypeAlias = Literal["ecdsa", "rsa"]
_Key: TypeAlias = "ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey"

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_DAY: Final = timedelta(days=1)
_RSA_BITS: Final = 2048
_PEM: Final = serialization.Encoding.PEM
# Java and OpenSSL read it, and a test does not wait for many rounds of key derivation
_PKCS12_ROUNDS: Final = 2000


class Validity(NamedTuple):
    """Tells when a certificate begins and ends, relative to the moment at which it is made."""

    begins: timedelta
    ends: timedelta


VALID: Final = Validity(-_DAY, 365 * _DAY)
EXPIRED: Final = Validity(-9 * _DAY, -_DAY)
NOT_YET_VALID: Final = Validity(_DAY, 9 * _DAY)
ENDS_SOON: Final = Validity(-_DAY, 10 * _DAY)


class _Issuer(NamedTuple):
    subject: x509.Name
    key: _Key
    chain: tuple[bytes, ...]  # it and the authorities above it, without the root
    key_identifiers: bool


class CertificateFiles(NamedTuple):
    """Holds the paths of a certificate's files: the key and the chain in one file, and each in its own."""

    pem: Path
    key: Path
    chain: Path


@dataclass(frozen=True)
class Certificate:
    """Holds a certificate and its private key, as PEM.

    Attributes:
        key_pem: the private key, PKCS#8, not encrypted.
        certificate_pem: the certificate alone.
        chain_pem: the certificate, then its intermediates, without the root.
        not_after: the end of its validity, in UTC.
    """

    key_pem: bytes = field(repr=False)
    certificate_pem: bytes = field(repr=False)
    chain_pem: bytes = field(repr=False)
    not_after: datetime

    @property
    def pem(self) -> bytes:
        """Return the key, then the chain: one file's content."""
        return self.key_pem + self.chain_pem

    def encrypted_key_pem(self, password: str, *, traditional: bool = False) -> bytes:
        """Return the key encrypted: PKCS#8 ("BEGIN ENCRYPTED PRIVATE KEY"), or the form of OpenSSL before 1.0, which Java does not read."""
        form = serialization.PrivateFormat.TraditionalOpenSSL if traditional else serialization.PrivateFormat.PKCS8
        return _key_pem(self._key(), serialization.BestAvailableEncryption(password.encode()), form)

    def pkcs12(self, password: str, *, name: str = "key") -> bytes:
        """Return a PKCS#12 key store with the key and the chain, encrypted with AES-256."""
        leaf, *others = x509.load_pem_x509_certificates(self.chain_pem)
        return pkcs12.serialize_key_and_certificates(name.encode(), self._key(), leaf, others or None, _pkcs12_encryption(password))

    def write(self, folder: Path, name: str, *, password: str | None = None) -> CertificateFiles:
        """Write NAME.pem (key and chain), NAME.key and NAME.crt (chain) for their owner alone; return their paths.

        Args:
            folder: an existing folder; files of these names are replaced.
            name: the files' name, without its ending.
            password: encrypts the key in both files; None: it is not encrypted.
        """
        key = self.key_pem if password is None else self.encrypted_key_pem(password)
        files = CertificateFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.crt")
        for path, content in zip(files, (key + self.chain_pem, key, self.chain_pem), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        return files

    def _key(self) -> _Key:
        key = serialization.load_pem_private_key(self.key_pem, None)
        assert isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey))
        return key


class CertificateAuthority:
    """Issues certificates: a root that signed itself, or an intermediate that another authority signed.

    Args:
        name: the common name.
        key_type: "ecdsa" or "rsa": of its own key, and of those of its certificates, unless they say otherwise.
        key_identifiers: whether it and its certificates name their keys (SubjectKeyIdentifier, AuthorityKeyIdentifier).

    Attributes:
        pem: its certificate, for a trust store.
    """

    def __init__(
        self,
        name: str = "aioproducer test CA",
        *,
        key_type: KeyType = "ecdsa",
        key_identifiers: bool = True,
        _issuer: _Issuer | None = None,
    ) -> None:
        self.key_type: KeyType = key_type
        key, subject = _new_key(key_type), _name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        above = _issuer or _Issuer(subject, key, (), key_identifiers)
        self._certificate = _signed(above, subject, key, VALID, [_CA_USAGE, constraints])
        self._issuer = _Issuer(subject, key, above.chain if _issuer is None else (self.pem, *above.chain), key_identifiers)

    @property
    def pem(self) -> bytes:
        """Return its certificate."""
        return self._certificate.public_bytes(_PEM)

    def write(self, path: Path) -> Path:
        """Write its certificate to a file; return its path."""
        path.write_bytes(self.pem)
        return path

    def intermediate(self, name: str = "aioproducer test intermediate CA") -> CertificateAuthority:
        """Return an authority below this one. The chains of its certificates hold its own certificate."""
        return CertificateAuthority(name, key_type=self.key_type, key_identifiers=self._issuer.key_identifiers, _issuer=self._issuer)

    def server(self, *names: str, validity: Validity = VALID, key_type: KeyType | None = None) -> Certificate:
        """Issue a server's certificate for names and addresses; without any, for `LOOPBACK`."""
        return self.issue(*(names or LOOPBACK), common_name="broker", validity=validity, key_type=key_type)

    def client(self, user: str, *, organization: str = "test", validity: Validity = VALID, key_type: KeyType | None = None) -> Certificate:
        """Issue a client's certificate with the subject CN=user,O=organization."""
        return self.issue(f"{user}.test", common_name=user, organization=organization, validity=validity, key_type=key_type)

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        organization: str | None = None,
        validity: Validity = VALID,
        key_type: KeyType | None = None,
    ) -> Certificate:
        """Issue a certificate, for servers and clients alike.

        Args:
            names: DNS names ("*.test" is a wildcard) and IP addresses: at least one.
            common_name: of the subject; clients check names alone.
            organization: of the subject.
            validity: when it begins and ends.
            key_type: "ecdsa" or "rsa"; None: as the authority's.

        Raises:
            ValueError: there is no name.
        """
        if not names:
            raise ValueError("a certificate needs a name: Java cannot read one without an identity")
        key = _new_key(key_type or self.key_type)
        subject = _name(common_name or names[0], organization)
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        extensions = [_LEAF_USAGE, _NO_CA, _identities(names), usages]
        return _held(_signed(self._issuer, subject, key, validity, extensions), key, self._issuer.chain)


def self_signed(*names: str, validity: Validity = VALID, key_type: KeyType = "ecdsa") -> Certificate:
    """Return a certificate that its own key signed, for names and addresses; without any, for `LOOPBACK`."""
    key, subject = _new_key(key_type), _name((names or LOOPBACK)[0])
    alone = _Issuer(subject, key, (), key_identifiers=False)
    return _held(_signed(alone, subject, key, validity, [_NO_CA, _identities(names or LOOPBACK)]), key, ())


def pkcs12_truststore(password: str, *authorities: CertificateAuthority) -> bytes:
    """Return a PKCS#12 trust store of these authorities, with the attribute that Java asks of a trusted certificate."""
    trusted = [
        pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(one.pem), f"ca{number}".encode()) for number, one in enumerate(authorities)
    ]
    return pkcs12.serialize_java_truststore(trusted, _pkcs12_encryption(password))


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


_CA_USAGE: Final = _usage(signs_certificates=True)
_NO_CA: Final = x509.BasicConstraints(ca=False, path_length=None)
_LEAF_USAGE: Final = _usage(signs_certificates=False)


def _new_key(key_type: KeyType) -> _Key:
    if key_type == "rsa":
        return rsa.generate_private_key(65537, _RSA_BITS)
    if key_type == "ecdsa":
        return ec.generate_private_key(ec.SECP256R1())
    raise ValueError(f'key_type={key_type!r}: it is "ecdsa" or "rsa"')


def _name(common_name: str, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        parts.insert(0, x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _signed(
    issuer: _Issuer, subject: x509.Name, key: _Key, validity: Validity, extensions: Sequence[x509.ExtensionType]
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + validity.begins)
        .not_valid_after(now + validity.ends)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, (x509.BasicConstraints, x509.KeyUsage)))
    if issuer.key_identifiers:
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    return builder.sign(issuer.key, hashes.SHA256())


def _identities(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_identity(name) for name in names])


def _identity(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: _Key, encryption: KeySerializationEncryption, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(_PEM, form, encryption)


def _held(certificate: x509.Certificate, key: _Key, above: tuple[bytes, ...]) -> Certificate:
    pem = certificate.public_bytes(_PEM)
    key_pem = _key_pem(key, serialization.NoEncryption(), serialization.PrivateFormat.PKCS8)
    return Certificate(key_pem, pem, b"".join((pem, *above)), certificate.not_valid_after_utc)


def _pkcs12_encryption(password: str) -> KeySerializationEncryption:
    return (
        serialization.PrivateFormat.PKCS12.encryption_builder()
        .kdf_rounds(_PKCS12_ROUNDS)
        .key_cert_algorithm(pkcs12.PBES.PBESv2SHA256AndAES256CBC)
        .hmac_hash(hashes.SHA256())
        .build(password.encode())
    )
