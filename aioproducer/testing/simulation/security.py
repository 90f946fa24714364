"""The security of a simulated cluster: protocol, mechanism and sessions of a seed, and the options of its producer.

TLS has a fixed length for each message, so that a seed repeats byte for byte in every process: RSA certificates, TLS 1.3, no tickets. Its
certificate needs the extra `crypto`; where that is not installed, a seed runs without TLS.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.testing.security.listener import MECHANISMS, ListenerSecurity, ListenerTls

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from aioproducer.testing.security.listener import SecurityProtocol

__all__ = ["PASSWORD", "USER", "Secured", "draw_security"]

USER: Final = "alice"
PASSWORD: Final = "canary-alice"  # noqa: S105  (of a fake cluster)
_WITH_TLS: Final = 0.05
_WITH_SASL: Final = 0.2
_SESSIONS: Final = (0, 2_000, 3_000, 5_000)
_SERIAL_BITS: Final = 152  # of a serial number of 20 bytes in DER; shorter ones would make other lengths
_NAMES: Final = ("broker-1.memory", "broker-2.memory", "broker-3.memory")


class Secured(NamedTuple):
    """Holds what a cluster demands of its producer.

    Attributes:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        mechanism: of SASL.
        session_ms: length of a session; 0: sessions do not end.
    """

    protocol: SecurityProtocol = "PLAINTEXT"
    mechanism: str = MECHANISMS[0]
    session_ms: int = 0

    @property
    def has_sasl(self) -> bool:
        """Return whether the producer authenticates."""
        return self.protocol.startswith("SASL")

    def listener(self) -> ListenerSecurity:
        """Return the security of the cluster."""
        tls = _tls()[0] if self.protocol.endswith("SSL") else None
        return ListenerSecurity(self.protocol, users={USER: PASSWORD}, session_ms=self.session_ms, tls=tls)

    def options(self) -> dict[str, Any]:
        """Return the options of the producer."""
        options: dict[str, Any] = {} if self.protocol == "PLAINTEXT" else {"security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            options["ssl_truststore_certificates"] = _tls()[1]
        if self.has_sasl:
            options |= {"sasl_mechanism": self.mechanism, "sasl_username": USER, "sasl_password": PASSWORD}
        return options


def draw_security(rng: random.Random, chosen: Collection[str]) -> Secured:
    """Draw TLS for one seed of twenty and SASL for one of five, if these are among the chosen faults."""
    has_tls = rng.random() < _WITH_TLS and "tls" in chosen and find_spec("cryptography") is not None
    has_sasl = rng.random() < _WITH_SASL and "sessions" in chosen
    mechanism, session_ms = rng.choices(MECHANISMS, (2, 1, 1))[0], rng.choice(_SESSIONS)
    if has_sasl:
        return Secured("SASL_SSL" if has_tls else "SASL_PLAINTEXT", mechanism, session_ms)
    return Secured("SSL" if has_tls else "PLAINTEXT")


@cache
def _tls() -> tuple[ListenerTls, str]:
    """Return the TLS of all runs of this process, and the certificate that their producers trust."""
    from cryptography import x509  # noqa: PLC0415  (an extra)

    from aioproducer.testing.certificates import CertificateAuthority  # noqa: PLC0415  (an extra)

    authority = CertificateAuthority(key_type="rsa")
    while True:
        certificate = authority.server(*_NAMES)
        if x509.load_pem_x509_certificate(certificate.certificate_pem).serial_number.bit_length() >= _SERIAL_BITS:
            return ListenerTls(certificate, versions=("TLSv1.3", "TLSv1.3"), tickets=0), authority.pem.decode()
