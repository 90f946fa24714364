"""Makes the server's `ssl.SSLContext` of a listener, and a certificate for a cluster that is given none."""

from __future__ import annotations

import ssl
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioproducer.testing.security.listener import ListenerTls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.testing.security.listener import ClientAuth, TlsVersion

__all__ = ["common_name", "new_tls", "server_context"]

_VERSIONS: Final[Mapping[TlsVersion, ssl.TLSVersion]] = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_VERIFY: Final[Mapping[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MEMORY_BROKERS: Final = 16


def server_context(tls: ListenerTls) -> ssl.SSLContext:
    """Return a context with a listener's certificate, versions and demands of clients.

    Raises:
        ssl.SSLError: the certificate or the key is malformed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TLS 1.0 and 1.1, which a test asks for
        context.minimum_version, context.maximum_version = (_VERSIONS[version] for version in tls.versions)
    if context.minimum_version < ssl.TLSVersion.TLSv1_2:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
    elif tls.ciphers is not None:
        context.set_ciphers(tls.ciphers)
    # ssl loads a key from a file alone
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(tls.certificate.pem)
        context.load_cert_chain(path)
    context.num_tickets = tls.tickets
    context.verify_mode = _VERIFY[tls.client_auth]
    if tls.client_authority is not None:
        context.load_verify_locations(cadata=tls.client_authority.pem.decode())
    return context


def new_tls() -> tuple[ListenerTls, bytes]:
    """Make an authority and a certificate for the brokers' addresses. Returns the TLS, and the authority's certificate in PEM.

    Raises:
        ModuleNotFoundError: the extra `crypto` is not installed.
    """
    from aioproducer.testing.certificates import LOOPBACK, CertificateAuthority

    authority = CertificateAuthority()
    names = (*LOOPBACK, *(f"broker-{number}.memory" for number in range(1, _MEMORY_BROKERS + 1)))
    return ListenerTls(authority.server(*names)), authority.pem


def common_name(tls: ssl.SSLObject) -> str | None:
    """Return the CN of the peer's certificate; None: it showed none."""
    certificate: Any = tls.getpeercert() or {}
    return next((value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"), None)
