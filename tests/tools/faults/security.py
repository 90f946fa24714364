"""Makes the security of a row: what the brokers' listeners demand, and what the clients are given for it.

A row says in `security` what the listeners have, and in `options` what the client has; what it leaves out is right on both sides:

    security = { protocol = "SASL_SSL", certificate = "expired" }    # a field of ListenerSecurity or ListenerTls, or one of `CERTIFICATES`
    options = { sasl_mechanism = "PLAIN", sasl_password = "canary-wrong", client_certificate = "another CA's" }
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from aioproducer.testing import ListenerSecurity
from aioproducer.testing.certificates import EXPIRED, LOOPBACK, NOT_YET_VALID, CertificateAuthority
from aioproducer.testing.security.listener import ListenerTls
from tests.support.certificates import self_signed, without_intermediate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer.testing.certificates import Certificate

__all__ = ["CERTIFICATES", "SECRET", "client_options", "listener"]

SECRET: Final = "canary"  # each secret of a row begins with it
_USERS: Final = {"alice": "canary-alice", "bob": "canary-bob"}
_LOGIN: Final = {
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "canary-alice",
}
_NAMES: Final = (*LOOPBACK, *(f"broker-{number}.memory" for number in range(1, 13)))


@functools.cache
def _authority(name: str = "aioproducer test CA") -> CertificateAuthority:
    return CertificateAuthority(name)


@functools.cache
def _rsa_authority() -> CertificateAuthority:
    return CertificateAuthority(key_type="rsa")


CERTIFICATES: Final[Mapping[str, Callable[[], Certificate]]] = {
    "right": lambda: _authority().server(*_NAMES),
    "expired": lambda: _authority().server(*_NAMES, validity=EXPIRED),
    "not yet valid": lambda: _authority().server(*_NAMES, validity=NOT_YET_VALID),
    "another CA's": lambda: _authority("another CA").server(*_NAMES),
    "self-signed": lambda: self_signed(*_NAMES),
    "without its intermediate": lambda: without_intermediate(_authority(), *_NAMES),
    "RSA": lambda: _rsa_authority().server(*_NAMES),  # which TLS 1.0 and 1.1 want
    "of another name": lambda: _authority().server("elsewhere.test"),
}
_CLIENTS: Final[Mapping[str, Callable[[], Certificate]]] = {
    "right": lambda: _authority().client("alice"),
    "expired": lambda: _authority().client("alice", validity=EXPIRED),
    "another CA's": lambda: _authority("another CA").client("alice"),
}


def listener(protocol: str = "PLAINTEXT", **given: Any) -> ListenerSecurity:
    """Return the security of the listeners of a row."""
    lists = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    fields = {name: lists.pop(name) for name in ("mechanisms", "session_ms") if name in lists}
    if protocol in {"SSL", "SASL_SSL"}:
        authority = _authority() if "client_auth" in lists else None
        fields["tls"] = ListenerTls(
            CERTIFICATES[lists.pop("certificate", "right")](), client_authority=authority, **lists
        )
    return ListenerSecurity(protocol, users=_USERS, **fields)  # type: ignore[arg-type]  # the class checks it


def client_options(security: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a client: those of the row, and what it needs besides to reach the listeners."""
    given = dict(options)
    protocol = given.setdefault("security_protocol", security.get("protocol", "PLAINTEXT"))
    certificate = given.pop("client_certificate", "none")
    if protocol in {"SSL", "SASL_SSL"}:
        given["ssl_truststore_certificates"] = (_authority().pem + _rsa_authority().pem).decode()
    if certificate != "none":
        made = _CLIENTS[certificate]()
        given["ssl_keystore_key"], given["ssl_keystore_certificate_chain"] = (
            made.key_pem.decode(),
            made.chain_pem.decode(),
        )
    if protocol.startswith("SASL"):
        given = {**_LOGIN, **given}
    return given
