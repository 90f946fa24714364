"""The contexts of TLS connections, made from a producer's options in a thread, and anew when their files have changed.

1. The flags are this library's own, not those of `ssl.create_default_context`: at least TLS 1.2; a trusted certificate need not be a root
   (PARTIAL_CHAIN), as in Java's trust stores; no VERIFY_X509_STRICT, which refuses the certificates of Strimzi's CAs; no renegotiation;
   no key log.
2. Each dial looks at the files' `stat`. A change makes a whole new context, as a context that is loaded again may have no certificate
   between its key and its certificate. While the new one does not load, the old one is used, and one warning tells why.
3. A given `ssl_context` is used as it is. A function that gives one is called at each dial: a plain one in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.config.security_options import type_of
from aioproducer.errors import (
    AuthenticationFailed,
    CertificateNotTrusted,
    ConfigError,
    ConnectionLost,
    CredentialsRefused,
)
from aioproducer.interfaces import USER_FAILURES, is_cancelled, is_coroutine_function
from aioproducer.net.key_stores import load_key, load_trust, pem_blocks, read_pkcs12
from aioproducer.net.threads import SlowCalls
from aioproducer.net.tls import HandshakeTurns

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from aioproducer.config.secret import Secret
    from aioproducer.errors import TransportError

_log = logging.getLogger(__name__)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsSettings(NamedTuple):
    """Holds the values of the `ssl_*` options of a producer, by their names."""

    ssl_context: ssl.SSLContext | Callable[[], Any] | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_truststore_type: str | None = None
    ssl_truststore_password: Secret | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_type: str | None = None
    ssl_keystore_password: Secret | None = None
    ssl_keystore_key: Secret | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_key_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_password: Secret | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()
    ssl_crl_location: str | None = None


class _Loaded(NamedTuple):
    """Holds a context, the stamp of what it was made from, and the end of the client's certificate."""

    context: ssl.SSLContext
    stamp: Hashable
    certificate_ends_at: float | None


class TlsContexts:
    """Gives the context of each TLS connection of a producer.

    Args:
        settings: the options.

    Attributes:
        turns: runs the steps of the connections' handshakes.
        trust: the source of the trusted certificates, for error texts.
        certificate: the source of the client's certificate, for error texts; None: there is none.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.turns: HandshakeTurns = HandshakeTurns()
        self.trust: str = _trust(settings)
        self.certificate: str | None = _certificate(settings)
        self._settings = settings
        self._loaded: _Loaded | None = None
        # The stamp of what did not load, which was warned of.
        self._warned_of: Hashable = None
        self._calls = SlowCalls()
        self._lock = asyncio.Lock()

    @property
    def certificate_ends_at(self) -> float | None:
        """Return the end of this client's certificate, in seconds since 1970; None: there is none, or an `ssl_context` was given."""
        return None if self._loaded is None else self._loaded.certificate_ends_at

    async def context(self) -> ssl.SSLContext:
        """Return the context for the next connection. One call at a time looks at the files. Cancellation changes no state.

        Raises:
            ConfigError: no context could be made so far; the text names the option.
        """
        given = self._settings.ssl_context
        if isinstance(given, ssl.SSLContext):
            return given
        if given is not None:
            return await self._asked(given)
        async with self._lock:
            self._loaded = await self._calls.run(partial(self._refresh, self._loaded))
            return self._loaded.context

    async def prepare(self) -> None:
        """Make the first context, unless a function gives it: that may fail for a while, as any service.

        Raises:
            ConfigError: no context could be made; the text names the option.
        """
        if self._settings.ssl_context is None:
            await self.context()

    async def _asked(self, function: Callable[[], Any]) -> ssl.SSLContext:
        """Return the context that a user's function gives. What the function raises is not quoted, as it may hold a secret."""
        try:
            context = await (
                function() if is_coroutine_function(function) else self._calls.run(function)
            )
            if inspect.isawaitable(context):
                context = await context
        except USER_FAILURES as error:
            if is_cancelled():
                raise
            raise ConfigError(
                f"the function given as ssl_context raised {type(error).__name__}"
            ) from None
        if not isinstance(context, ssl.SSLContext):
            raise ConfigError(
                f"the function given as ssl_context returned {type(context).__name__}, not an ssl.SSLContext"
            )
        return context

    # In the thread

    def _refresh(self, loaded: _Loaded | None) -> _Loaded:
        """Return `loaded` if nothing has changed, or a new context; also `loaded` if the new one cannot be made."""
        stamp = _stamp(self._settings)
        if loaded is not None and loaded.stamp == stamp:
            return loaded
        try:
            return _Loaded(
                make_context(self._settings), stamp, _certificate_ends_at(self._settings)
            )
        # OSError: a file is gone since a look before
        except (ConfigError, OSError) as error:
            if loaded is None:
                raise
            if stamp != self._warned_of:
                self._warned_of = stamp
                _log.warning(
                    "the TLS files have changed and cannot be loaded; the former ones stay in use: %s",
                    error,
                )
            return loaded


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make a context from the options. It may block.

    Raises:
        ConfigError: a file cannot be read, a password is wrong, or an option is not possible; the text names it.
    """
    try:
        return _make(settings)
    except ConfigError:
        raise
    # its text may hold what was read
    except Exception as error:
        raise ConfigError(f"the TLS options cannot be used: {type(error).__name__}") from None


def endpoint_context(ca_location: str | None, ca_pem: str | None) -> ssl.SSLContext:
    """Make the context of a connection to a token endpoint, with the flags of those to brokers. It may block.

    Raises:
        ConfigError: the trusted certificates cannot be read; the text names the option.
    """
    tls_context = _empty_context()
    tls_context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_location is not None:
        type_of("https_ca_location", ca_location, "PEM")
        load_trust(tls_context, f"https_ca_location={ca_location}", path=ca_location)
    elif ca_pem is not None:
        load_trust(tls_context, "https_ca_pem", pem=ca_pem)
    else:
        tls_context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return tls_context


def _empty_context() -> ssl.SSLContext:
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    tls_context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    tls_context.options |= ssl.OP_NO_RENEGOTIATION
    return tls_context


def _make(settings: TlsSettings) -> ssl.SSLContext:
    tls_context = _empty_context()
    tls_context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    tls_context.minimum_version, tls_context.maximum_version = min(versions), max(versions)
    if settings.ssl_cipher_suites:
        try:
            tls_context.set_ciphers(":".join(settings.ssl_cipher_suites))
        except ssl.SSLError:
            suites = ",".join(settings.ssl_cipher_suites)
            raise ConfigError(
                f"ssl_cipher_suites={suites}: OpenSSL knows none of them as a suite of TLSv1.2; its names are like ECDHE-RSA-AES128-GCM-SHA256"
            ) from None
    _load_trust(tls_context, settings)
    _load_certificate(tls_context, settings)
    return tls_context


def _load_trust(tls_context: ssl.SSLContext, settings: TlsSettings) -> None:
    path, option = settings.ssl_truststore_location, "ssl_truststore_location"
    if path is not None:
        if type_of(option, path, settings.ssl_truststore_type) == "PEM":
            load_trust(tls_context, f"{option}={path}", path=path)
        else:
            store = read_pkcs12(option, path, settings.ssl_truststore_password)
            load_trust(tls_context, f"{option}={path}", pem=store.certificates.decode("ascii"))
    elif settings.ssl_truststore_certificates is not None:
        load_trust(
            tls_context, "ssl_truststore_certificates", pem=settings.ssl_truststore_certificates
        )
    else:
        tls_context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.ssl_crl_location is not None:
        load_trust(
            tls_context,
            f"ssl_crl_location={settings.ssl_crl_location}",
            path=settings.ssl_crl_location,
        )
        if not tls_context.cert_store_stats()["crl"]:
            raise ConfigError(f"ssl_crl_location={settings.ssl_crl_location} has no CRL in PEM")
        tls_context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    source, password = _certificate(settings), settings.ssl_key_password
    path, option = settings.ssl_keystore_location, "ssl_keystore_location"
    if source is None:
        return
    if path is not None and type_of(option, path, settings.ssl_keystore_type) == "PKCS12":
        store = read_pkcs12(option, path, settings.ssl_keystore_password)
        if not store.key:
            raise ConfigError(f"{source} has no key")
        load_key(context, source, store.key + store.certificates)
    elif path is not None:
        load_key(context, source, path, password=password)
    elif settings.ssl_keystore_key is not None:
        key = settings.ssl_keystore_key
        load_key(
            context,
            source,
            pem_blocks(f"{key.reveal()}\n{settings.ssl_keystore_certificate_chain or ''}").encode(),
            password=password,
        )
    else:
        for option in ("ssl_certificate_location", "ssl_key_location"):
            if (path := getattr(settings, option)) is not None:
                type_of(option, path, "PEM")
        # the key may be beside the certificate, in either file
        certificate = settings.ssl_certificate_location or settings.ssl_key_location or ""
        load_key(context, source, certificate, settings.ssl_key_location, password=password)


def _certificate_ends_at(settings: TlsSettings) -> float | None:
    """Return the end of the client's certificate; None: there is none, or `cryptography` (the extra `crypto`) is not installed."""
    path, option = settings.ssl_keystore_location, "ssl_keystore_location"
    if path is not None and type_of(option, path, settings.ssl_keystore_type) == "PKCS12":
        return _ends_at(read_pkcs12(option, path, settings.ssl_keystore_password).certificates)
    path = path or settings.ssl_certificate_location or settings.ssl_key_location
    if path is not None:
        return _ends_at(Path(path).read_bytes())
    return _ends_at(pem_blocks(settings.ssl_keystore_certificate_chain or "").encode())


def _ends_at(pem: bytes) -> float | None:
    try:
        from cryptography.x509 import load_pem_x509_certificates  # an extra
    except ImportError:
        return None
    try:
        return load_pem_x509_certificates(pem)[0].not_valid_after_utc.timestamp()
    # OpenSSL has read the certificate, so this is a certificate's time or form that `cryptography` does not take
    except ValueError:
        return None


def _stamp(settings: TlsSettings) -> Hashable:
    """Return a value that changes when a file, or what a secret refers to, has changed."""
    options: dict[str, Any] = settings._asdict()
    paths = [
        value for name, value in options.items() if name.endswith("_location") and value is not None
    ]
    secrets = [value for value in options.values() if getattr(value, "reference", None) is not None]
    return tuple(map(_stat, paths)), tuple(hash(secret.reveal()) for secret in secrets)


def _stat(path: str) -> Hashable:
    try:
        stat = Path(path).stat()
    except OSError as error:
        return error.errno
    return stat.st_mtime_ns, stat.st_ino, stat.st_dev, stat.st_size


def _trust(settings: TlsSettings) -> str:
    if settings.ssl_context is not None:
        return "the given ssl_context"
    if settings.ssl_truststore_location is not None:
        return f"ssl_truststore_location={settings.ssl_truststore_location}"
    if settings.ssl_truststore_certificates is not None:
        return "ssl_truststore_certificates"
    return "the system's trust store, as there is no ssl_truststore_location"


def _certificate(settings: TlsSettings) -> str | None:
    """Return the options that give the client's certificate."""
    if settings.ssl_context is not None:
        return "the given ssl_context"
    for option in ("ssl_keystore_location", "ssl_certificate_location", "ssl_key_location"):
        if (path := getattr(settings, option)) is not None:
            return f"{option}={path}"
    return None if settings.ssl_keystore_key is None else "ssl_keystore_key"


# The texts of TLS failures: what happened, and which option to look at; by what a real Kafka and OpenSSL answer.
#
# A certificate that one side refuses is an `AuthenticationFailed`, which is not retried as a fault of the network. Anything else is a
# `ConnectionLost`.


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
_NO_COMMON: Final = frozenset(
    {"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY"}
)
_UNKNOWN_NAME: Final = frozenset({"TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_UNRECOGNIZED_NAME"})


def no_name(host: str, reason: object) -> CertificateNotTrusted:
    """Return the error of a broker's host that no certificate can be checked against."""
    return CertificateNotTrusted(
        f"{host!r} is no name that a certificate can be checked against: {reason}", "tls"
    )


def refusal(error: ssl.SSLCertVerificationError, name: str) -> str:
    """Return why a certificate is refused that was checked against `name`."""
    return _VERIFICATION.get(
        error.verify_code, f"{error.verify_message} ({error.verify_code})"
    ).format(name=name)


def in_handshake(error: Exception, name: str, tls: TlsContexts, without_tls: str) -> TransportError:
    """Return the error of a handshake that failed, without the address; its cause is to be `error`.

    Args:
        error: what `ssl` or the stream reported.
        name: the name that the broker's certificate was checked against.
        tls: names the sources of certificates.
        without_tls: the value of security_protocol for the same listener without TLS, for hints.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateNotTrusted(
            f"the broker's certificate is refused: {refusal(error, name)}. Trusted: {tls.trust}",
            "tls",
        )
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


def after_handshake(
    error: BaseException | None, name: str, tls: TlsContexts
) -> TransportError | None:
    """Return the error of a connection that ended before its first answer; None: TLS has nothing to do with it.

    TLS 1.3 reports a client certificate that is refused only when the handshake is over. A reset may overtake that alert.
    """
    if isinstance(error, ssl.SSLError):
        return _of_tls(error, name, tls)
    if isinstance(error, ConnectionResetError):
        wanted = (
            "wants a client certificate (ssl_keystore_location)"
            if tls.certificate is None
            else f"refuses ours ({tls.certificate})"
        )
        return ConnectionLost(
            f"reset before the first answer; perhaps the broker {wanted}: {error}"
        )
    return None


def _of_tls(error: ssl.SSLError, name: str, tls: TlsContexts) -> TransportError:
    """Return the error of an alert, or of a breach of TLS."""
    reason = error.reason or ""
    if reason in _CERTIFICATE_ALERTS:
        return _refused(_CERTIFICATE_ALERTS[reason], tls)
    if reason in _OLD_VERSIONS:
        return AuthenticationFailed(
            f"the broker takes none of TLSv1.2 and TLSv1.3, or none of ssl_enabled_protocols ({reason})",
            "tls",
        )
    if reason in _NO_COMMON:
        wanted = (
            "a client certificate (ssl_keystore_location)"
            if tls.certificate is None
            else f"another certificate than {tls.certificate}"
        )
        return CredentialsRefused(
            f"the broker refuses the handshake: it shares no cipher suite (ssl_cipher_suites), or wants {wanted}",
            "tls",
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
