"""The texts of TLS failures: what happened, and which option to look at; by what a real Kafka and OpenSSL answer.

A certificate that one side refuses is an `AuthenticationFailed`, which is not retried as a fault of the network. Anything else is a
`ConnectionLost`.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from aioproducer.errors import AuthenticationFailed, CertificateNotTrusted, ConnectionLost, CredentialsRefused

if TYPE_CHECKING:
    from aioproducer.errors import TransportError
    from aioproducer.net.tls_contexts import TlsContexts

__all__ = ["after_handshake", "in_handshake", "no_name", "refusal"]

# OpenSSL's numbers (X509_V_ERR_*), by the reason; {name} is the name that was checked.
_VERIFICATION: Final = {
    3: "there is no CRL of its CA in ssl_crl_location",
    9: "it is not yet valid: are this machine's clock and the certificate right?",
    10: "it has expired: are this machine's clock and the certificate right?",
    12: "the CRL in ssl_crl_location has expired",
    18: "it is self-signed, and not among the trusted ones",
    19: "its chain ends in a CA that is not trusted (self-signed certificate in the chain)",
    20: "its CA is not trusted, or an intermediate certificate is missing (unable to get the local issuer certificate)",
    21: "its CA is not trusted, or an intermediate certificate is missing (unable to verify the first certificate)",
    23: "it was revoked",
    62: "it is not for the name {name!r}",
    64: "it is not for the address {name}",
}
# Alerts of the broker about this client's certificate, by what OpenSSL calls them. Java answers no certificate by bad_certificate, and one
# of another CA by certificate_unknown; OpenSSL by certificate_required (TLS 1.3) and unknown_ca.
_CERTIFICATE_ALERTS: Final = {
    "SSLV3_ALERT_BAD_CERTIFICATE": "bad certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "unsupported certificate",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "certificate revoked",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "certificate expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "certificate unknown",
    "TLSV1_ALERT_UNKNOWN_CA": "unknown CA",
    "TLSV1_ALERT_ACCESS_DENIED": "access denied",
    "TLSV1_ALERT_DECRYPT_ERROR": "decrypt error",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "certificate required",
    # from Python 3.13 on
    "TLSV1_ALERT_CERTIFICATE_REQUIRED": "certificate required",
}
_OLD_VERSIONS: Final = frozenset(
    {
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "NO_PROTOCOLS_AVAILABLE",
        "VERSION_TOO_LOW",
        "BAD_PROTOCOL_VERSION_NUMBER",
        "WRONG_SSL_VERSION",
    }
)
_NO_TLS: Final = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "UNKNOWN_PROTOCOL",
    }
)
_NO_COMMON: Final = frozenset({"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY"})
_UNKNOWN_NAME: Final = frozenset({"TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_UNRECOGNIZED_NAME"})


def no_name(host: str, reason: object) -> CertificateNotTrusted:
    """Return the error of a broker's host that no certificate can be checked against."""
    return CertificateNotTrusted(f"{host!r} is no name that a certificate can be checked against: {reason}", "tls")


def refusal(error: ssl.SSLCertVerificationError, name: str) -> str:
    """Return why a certificate is refused that was checked against `name`."""
    return _VERIFICATION.get(error.verify_code, f"{error.verify_message} ({error.verify_code})").format(name=name)


def in_handshake(error: Exception, name: str, tls: TlsContexts, without_tls: str) -> TransportError:
    """Return the error of a handshake that failed, without the address; its cause is to be `error`.

    Args:
        error: what `ssl` or the stream reported.
        name: the name that the broker's certificate was checked against.
        tls: names the sources of certificates.
        without_tls: the value of security_protocol for the same listener without TLS, for hints.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateNotTrusted(f"the broker's certificate is refused: {refusal(error, name)}. Trusted: {tls.trust}", "tls")
    hint = f"is it a listener without TLS (security_protocol={without_tls})?"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if reason in _NO_TLS:
            return ConnectionLost(f"the other side does not speak TLS: {hint}")
        return _of_tls(error, name, tls)
    if isinstance(error, ValueError):
        return no_name(name, error)
    end = str(error)
    if not end.startswith("the connection was"):
        end = f"the connection was lost during the TLS handshake ({end or type(error).__name__})"
    return ConnectionLost(f"{end}: {hint}")


def after_handshake(error: BaseException | None, name: str, tls: TlsContexts) -> TransportError | None:
    """Return the error of a connection that ended before its first answer; None: TLS has nothing to do with it.

    TLS 1.3 reports a client certificate that is refused only when the handshake is over. A reset may overtake that alert.
    """
    if isinstance(error, ssl.SSLError):
        return _of_tls(error, name, tls)
    if isinstance(error, ConnectionResetError):
        wanted = "wants a client certificate (ssl_keystore_location)" if tls.certificate is None else f"refuses ours ({tls.certificate})"
        return ConnectionLost(f"reset before the first answer; perhaps the broker {wanted}: {error}")
    return None


def _of_tls(error: ssl.SSLError, name: str, tls: TlsContexts) -> TransportError:
    """Return the error of an alert, or of a breach of TLS."""
    reason = error.reason or ""
    if reason in _CERTIFICATE_ALERTS:
        return _refused(_CERTIFICATE_ALERTS[reason], tls)
    if reason in _OLD_VERSIONS:
        return AuthenticationFailed(f"the broker takes none of TLSv1.2 and TLSv1.3, or none of ssl_enabled_protocols ({reason})", "tls")
    if reason in _NO_COMMON:
        wanted = (
            "a client certificate (ssl_keystore_location)" if tls.certificate is None else f"another certificate than {tls.certificate}"
        )
        return CredentialsRefused(
            f"the broker refuses the handshake: it shares no cipher suite (ssl_cipher_suites), or wants {wanted}", "tls"
        )
    if reason in _UNKNOWN_NAME:
        return AuthenticationFailed(f"the broker has no certificate for the name {name!r}", "tls")
    return ConnectionLost(f"TLS failed: {reason.replace('_', ' ').lower() or error}")


def _refused(alert: str, tls: TlsContexts) -> CredentialsRefused:
    if tls.certificate is None:
        text = f"the broker wants a client certificate: ssl_keystore_location, or ssl_keystore_key (alert: {alert})"
    else:
        text = f"the broker does not take this client's certificate, {tls.certificate} (alert: {alert})"
    return CredentialsRefused(text, "tls")
