"""Certificate authorities, certificates and keys for tests of TLS, by trustme. It needs the extra `crypto`.

    ca = CertificateAuthority()
    server = ca.server()                                     # for localhost, 127.0.0.1 and ::1
    alice = ca.client("alice")                               # CN=alice,OU=clients,O=test
    expired = ca.server(validity=EXPIRED)                    # or NOT_YET_VALID, ENDS_SOON, or a `Validity` of your own
    elsewhere = ca.server("kafka.elsewhere.test")            # a wrong name, for clients that dial localhost
    stranger = CertificateAuthority("another CA").client("mallory")

A certificate is held as bytes in PEM: `key_pem` (PKCS#8, as Java wants it), `certificate_pem`, `chain_pem`, and `pem` (the key, then the
chain: the form of a Kafka key store of type PEM):

    files = alice.write(folder, "alice")                     # paths: files.pem, files.key, files.chain
    ca.write(folder / "ca.pem")

Keys are ECDSA on P-256, made within 1 ms. `CertificateAuthority(key_type="rsa")` makes RSA keys of 2048 bits within 0.1 s, for itself and its
certificates; their signatures have one length: tests that must repeat byte for byte need it, as do servers of TLS 1.0.

All dates are relative to the system's clock when the certificate is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

try:
    import trustme
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aioproducer.testing.certificates needs trustme: pip install 'aioproducer[crypto]'",
        name=missing.name,
    ) from missing

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
]

KeyType: TypeAlias = Literal["ecdsa", "rsa"]
_KEY_TYPES: Final = {"ecdsa": trustme.KeyType.ECDSA, "rsa": trustme.KeyType.RSA}
_DAY: Final = timedelta(days=1)

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Validity(NamedTuple):
    """Tells when a certificate begins and ends, relative to the moment at which it is made."""

    begins: timedelta
    ends: timedelta


VALID: Final = Validity(-_DAY, 365 * _DAY)
EXPIRED: Final = Validity(-9 * _DAY, -_DAY)
NOT_YET_VALID: Final = Validity(_DAY, 9 * _DAY)
ENDS_SOON: Final = Validity(-_DAY, 10 * _DAY)


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
        chain_pem: the certificate, then its intermediates (if there are any), without the root.
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

    def write(self, folder: Path, name: str) -> CertificateFiles:
        """Write NAME.pem (key and chain), NAME.key and NAME.crt (chain) for their owner alone; return their paths.

        Args:
            folder: an existing folder; files of these names are replaced.
            name: the files' name, without its ending.
        """
        files = CertificateFiles(
            folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}.crt"
        )
        for path, content in zip(files, (self.pem, self.key_pem, self.chain_pem), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        return files


class CertificateAuthority:
    """Issues certificates.

    Args:
        name: its name (the OU of its subject).
        key_type: "ecdsa" or "rsa": of its own key, and of those of its certificates.

    Attributes:
        pem: its certificate, for a trust store.
    """

    def __init__(self, name: str = "aioproducer test CA", *, key_type: KeyType = "ecdsa") -> None:
        if key_type not in _KEY_TYPES:
            raise ValueError(f'key_type={key_type!r}: it is "ecdsa" or "rsa"')
        self._key_type = _KEY_TYPES[key_type]
        self._ca = trustme.CA(organization_unit_name=name, key_type=self._key_type)

    @property
    def pem(self) -> bytes:
        """Return its certificate."""
        return self._ca.cert_pem.bytes()

    def write(self, path: Path) -> Path:
        """Write its certificate to a file; return its path."""
        path.write_bytes(self.pem)
        return path

    def server(self, *names: str, validity: Validity = VALID) -> Certificate:
        """Issue a server's certificate.

        Args:
            names: DNS names ("*.test" is a wildcard; a name with an underscore is refused) and IP addresses; without any, `LOOPBACK`.
            validity: when it begins and ends.
        """
        return self._issue(names or LOOPBACK, "broker", "test", "servers", validity)

    def client(
        self, user: str, *, organization: str = "test", validity: Validity = VALID
    ) -> Certificate:
        """Issue a client's certificate with the subject CN=user,OU=clients,O=organization."""
        # Java cannot read a certificate without a name in its SubjectAlternativeName; nobody checks a client's
        return self._issue(("client.test",), user, organization, "clients", validity)

    def _issue(
        self, names: tuple[str, ...], user: str, organization: str, unit: str, validity: Validity
    ) -> Certificate:
        now = datetime.now(UTC).replace(microsecond=0)
        # trustme gives every subject an OU: a random one unless it is told
        issued = self._ca.issue_cert(
            *names,
            common_name=user,
            organization_name=organization,
            organization_unit_name=unit,
            not_before=now + validity.begins,
            not_after=now + validity.ends,
            key_type=self._key_type,
        )
        # trustme's form of the key is OpenSSL's of old, which Java does not read
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = [one.bytes() for one in issued.cert_chain_pems]
        return Certificate(key_pem, chain[0], b"".join(chain), now + validity.ends)
