"""The names of cipher suites: IANA's, which Java uses, and OpenSSL's."""

from __future__ import annotations

from typing import Final

from aioproducer.errors import ConfigError

__all__ = ["openssl_ciphers"]

# The suites of TLS 1.2 with forward secrecy and authenticated encryption (RFC 5289, 7251, 7905).
_OPENSSL: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM": "ECDHE-ECDSA-AES128-CCM",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM": "ECDHE-ECDSA-AES256-CCM",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
}
# TLS 1.3's names are IANA's in both worlds (RFC 8446, B.4).
_TLS_1_3: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


def openssl_ciphers(names: tuple[str, ...]) -> str:
    """Return names of suites of TLS 1.2, which may be IANA's or OpenSSL's, as OpenSSL's list.

    Raises:
        ConfigError: a name is a suite of TLS 1.3, which Python's ssl cannot choose, or one of IANA's that is not in the table.
    """
    for name in names:
        if name in _TLS_1_3:
            raise ConfigError(
                f"ssl_cipher_suites has {name}, a suite of TLSv1.3, which Python's ssl cannot choose. Leave it out: "
                "TLSv1.3 has safe suites alone, and ssl_enabled_protocols=TLSv1.2 is without it"
            )
        if name.startswith("TLS_") and name not in _OPENSSL:
            raise ConfigError(f"ssl_cipher_suites has {name}: known are {', '.join(_OPENSSL)}, and OpenSSL's own names")
    return ":".join(_OPENSSL.get(name, name) for name in names)
