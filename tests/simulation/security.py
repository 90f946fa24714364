"""The security of a simulated cluster: protocol, mechanism and sessions of a seed, and the options of its producer.

TLS has a fixed length for each message, so that a seed repeats byte for byte in every process: RSA certificates, TLS 1.3, no tickets. Its
certificate needs the extra `crypto`; where that is not installed, a seed runs without TLS.

A bearer token names its end in the loop's time, so that calendars that jump do not make it good or bad.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.testing.security.listener import (
    MECHANISMS,
    WITH_TOKENS,
    ListenerSecurity,
    ListenerTls,
)
from aioproducer.testing.security.oauthbearer import ListenerTokens

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from aioproducer.testing.security.listener import SecurityProtocol

__all__ = [
    "EPOCH",
    "NO_TOKENS",
    "PASSWORD",
    "TOKENS",
    "USER",
    "Secured",
    "draw_security",
    "draw_tokens",
    "token_function",
]

EPOCH: Final = 1_700_000_000.0
"""Seconds since 1970 at the zero of the loop's time."""

USER: Final = "alice"
PASSWORD: Final = "canary-alice"
_WITH_TLS: Final = 0.05
_WITH_SASL: Final = 0.2
_SHARE_WITH_TOKENS: Final = 0.3  # of those with SASL
_TOKEN_SECONDS: Final = (2.0, 4.0, 10.0, 60.0)
_PREFIX: Final = "canary-"
_SESSIONS: Final = (0, 2_000, 3_000, 5_000)
_SERIAL_BITS: Final = (
    152  # of a serial number of 20 bytes in DER; shorter ones would make other lengths
)
_NAMES: Final = ("broker-1.memory", "broker-2.memory", "broker-3.memory")


class Secured(NamedTuple):
    """Holds what a cluster demands of its producer.

    Attributes:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        mechanism: of SASL.
        session_ms: length of a session; 0: sessions do not end.
        token_seconds: life of a bearer token; 0: the mechanism has none.
    """

    protocol: SecurityProtocol = "PLAINTEXT"
    mechanism: str = MECHANISMS[0]
    session_ms: int = 0
    token_seconds: float = 0.0

    @property
    def has_sasl(self) -> bool:
        """Return whether the producer authenticates."""
        return self.protocol.startswith("SASL")

    def listener(self) -> ListenerSecurity:
        """Return the security of the cluster."""
        tls = _tls()[0] if self.protocol.endswith("SSL") else None
        tokens = TOKENS if self.token_seconds else None
        return ListenerSecurity(
            self.protocol,
            users={USER: PASSWORD},
            session_ms=self.session_ms,
            tls=tls,
            tokens=tokens,
        )

    def options(self, tokens: Callable[[], Any]) -> dict[str, Any]:
        """Return the options of the producer; `tokens` gives its tokens, if it needs some."""
        options: dict[str, Any] = (
            {} if self.protocol == "PLAINTEXT" else {"security_protocol": self.protocol}
        )
        if self.protocol.endswith("SSL"):
            options["ssl_truststore_certificates"] = _tls()[1]
        if self.token_seconds:
            options |= {"sasl_mechanism": self.mechanism, "sasl_oauthbearer_token": tokens}
        elif self.has_sasl:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_username": USER,
                "sasl_password": PASSWORD,
            }
        return options


def draw_security(rng: random.Random, chosen: Collection[str]) -> Secured:
    """Draw TLS for one seed of twenty and SASL for one of five, if these are among the chosen faults."""
    has_tls = rng.random() < _WITH_TLS and "tls" in chosen and find_spec("cryptography") is not None
    has_sasl = rng.random() < _WITH_SASL and "sessions" in chosen
    mechanism, session_ms = rng.choices(MECHANISMS, (2, 1, 1))[0], rng.choice(_SESSIONS)
    if has_sasl:
        return Secured("SASL_SSL" if has_tls else "SASL_PLAINTEXT", mechanism, session_ms)
    return Secured("SSL" if has_tls else "PLAINTEXT")


def draw_tokens(rng: random.Random, secured: Secured) -> Secured:
    """Draw bearer tokens in place of a password for three clusters of ten with SASL."""
    seconds = rng.choice(_TOKEN_SECONDS)
    if not secured.has_sasl or rng.random() >= _SHARE_WITH_TOKENS:
        return secured
    return secured._replace(mechanism=WITH_TOKENS, token_seconds=seconds)


def token_function(
    seconds: float,
    now: Callable[[], float],
    wall_clock: Callable[[], float],
    trouble: Callable[[], str],
) -> Callable[[], Coroutine[Any, Any, tuple[str, float]]]:
    """Return the token function of a producer.

    Args:
        seconds: life of a token.
        now: returns the loop's time.
        wall_clock: returns the producer's time, which may jump.
        trouble: returns what is wrong with the source: "raises", "hangs" or "expired"; empty: nothing.
    """

    async def token() -> tuple[str, float]:
        wrong = trouble()
        if wrong == "raises":
            raise RuntimeError(f"{PASSWORD} is not quoted")
        while trouble() == "hangs":
            await asyncio.sleep(0.1)
        life = -1.0 if wrong == "expired" else seconds
        return f"{_PREFIX}{now() + life:.6f}", wall_clock() + life

    return token


def _verified(token: str) -> Mapping[str, Any] | None:
    """Return the claims of a token of `token_function`."""
    return (
        {"sub": USER, "exp": EPOCH + float(token.removeprefix(_PREFIX))}
        if token.startswith(_PREFIX)
        else None
    )


TOKENS: Final = ListenerTokens(unsecured=False, verify=_verified)
"""The tokens that a cluster takes."""
NO_TOKENS: Final = ListenerTokens(unsecured=False)
"""While the user is revoked."""


@cache
def _tls() -> tuple[ListenerTls, str]:
    """Return the TLS of all runs of this process, and the certificate that their producers trust."""
    from cryptography import x509

    from aioproducer.testing.certificates import CertificateAuthority

    authority = CertificateAuthority(key_type="rsa")
    while True:
        certificate = authority.server(*_NAMES)
        if (
            x509.load_pem_x509_certificate(certificate.certificate_pem).serial_number.bit_length()
            >= _SERIAL_BITS
        ):
            return ListenerTls(
                certificate, versions=("TLSv1.3", "TLSv1.3"), tickets=0
            ), authority.pem.decode()
