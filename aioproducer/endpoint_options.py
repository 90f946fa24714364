"""Holds the options of token endpoints (KIP-768, KIP-1139, KIP-1258), as the base of the options of bearer tokens.

Names are Java's with underscores; what Java has no name for is named after librdkafka's option.
"""

from __future__ import annotations

import os
from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.option_classes import Frozen, option_class
from aioproducer.option_kinds import FLAG, Kind, number, option
from aioproducer.secret import Secret
from aioproducer.secure_kinds import PATH, SECRET, TEXT, read_secret, read_text, type_name

__all__ = ["ALGORITHMS", "RETRIEVERS", "EndpointOptions"]

ALGORITHMS: Final = ("RS256", "ES256")
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
# It chooses client credentials or a file, by the URL.
_DEFAULT: Final = "DefaultJwtRetriever"
RETRIEVERS: Final = (_DEFAULT, "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever", "FileJwtRetriever")
# librdkafka names the grant; the first is its default, and Java's for a server.
_GRANTS: Final = {
    "client_credentials": _DEFAULT,
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "JwtBearerJwtRetriever",
}


def _url(name: str, value: Any) -> str | None:
    # Only a config with a path or a URL imports the code that reads them.
    if isinstance(value, os.PathLike):
        from pathlib import Path

        value = Path(value).absolute().as_uri()
    text = read_text(name, value)
    if text is not None:
        from aioproducer.endpoint_urls import check_endpoint

        text = text.strip()
        check_endpoint(name, text)
    return text


def _retriever(name: str, value: Any) -> str:
    word = value.strip() if isinstance(value, str) else type_name(value)
    word = _GRANTS.get(word.lower(), word.removeprefix(_PACKAGE))
    if word in RETRIEVERS:
        return word
    known = ", ".join((*RETRIEVERS, *_GRANTS))
    raise ConfigError(f"{name}={word!r}: it is one of {known}. In place of another class, give sasl_oauthbearer_token a function")


def _algorithm(name: str, value: Any) -> str:
    word = value.strip().upper() if isinstance(value, str) else ""
    if word not in ALGORITHMS:
        raise ConfigError(f"{name}={value!r}: it is {' or '.join(ALGORITHMS)}")
    return word


@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class EndpointOptions(Frozen):
    """Holds the token endpoint, and what proves the client's identity to it."""

    sasl_oauthbearer_token_endpoint_url: str | None = option(
        None,
        Kind("https://..., http:// of this machine, file:///path, a pathlib.Path, or None", _url),
        "where tokens of OAUTHBEARER are fetched: a token endpoint of OpenID Connect, or a file that another program renews",
    )
    sasl_oauthbearer_jwt_retriever_class: str = option(
        _DEFAULT,
        Kind(", ".join((*RETRIEVERS, *_GRANTS)), _retriever),
        "how tokens are fetched: by client credentials, as JWT bearer, or from a file; by default a file or client credentials, by the URL",
        librdkafka=("sasl.oauthbearer.grant.type",),
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        None, TEXT, "the client's id at the token endpoint", librdkafka=("sasl.oauthbearer.client.id",)
    )
    sasl_oauthbearer_client_credentials_client_secret: Secret | str | None = option(
        None, SECRET, "the client's secret at the token endpoint", librdkafka=("sasl.oauthbearer.client.secret",)
    )
    sasl_oauthbearer_scope: str | None = option(None, TEXT, "the scope of the tokens; None: the endpoint decides")
    sasl_oauthbearer_header_urlencode: bool = option(
        False, FLAG, "whether id and secret are URL-encoded before they are joined by a colon (RFC 6749)"
    )
    sasl_oauthbearer_assertion_algorithm: str = option(
        "RS256", Kind(" or ".join(ALGORITHMS), _algorithm), "how assertions are signed: with a key of type RSA, or on the curve P-256"
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = option(None, TEXT, "the claim aud of assertions")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = option(300, number(1, 86_400, unit="s"), "seconds for which an assertion is valid")
    sasl_oauthbearer_assertion_claim_iss: str | None = option(None, TEXT, "the claim iss of assertions")
    sasl_oauthbearer_assertion_claim_jti_include: bool = option(False, FLAG, "whether each assertion has an id of its own (jti)")
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = option(
        60, number(0, 86_400, unit="s"), "seconds before its making from which an assertion is valid, for clocks that are behind"
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = option(None, TEXT, "the claim sub of assertions")
    sasl_oauthbearer_assertion_file: str | None = option(
        None, PATH, "file of a ready assertion, which another program renews; it is read at each fetch"
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = option(
        None, PATH, "file of the key that signs assertions, PEM; it is read at each fetch, and needs the extra crypto"
    )
    sasl_oauthbearer_assertion_private_key_pem: Secret | str | None = option(
        None,
        Kind("PEM or a reference to it, or None", read_secret),
        "the key that signs assertions; it needs the extra crypto",
        java=None,
        librdkafka=("sasl.oauthbearer.assertion.private.key.pem",),
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | str | None = option(
        None, SECRET, "the passphrase of the key that signs assertions, if it is encrypted"
    )
    sasl_oauthbearer_assertion_template_file: str | None = option(
        None,
        PATH,
        "file of claims and header fields of assertions: a JSON object of header and payload",
        librdkafka=("sasl.oauthbearer.assertion.jwt.template.file",),
    )
    https_ca_location: str | None = option(
        None,
        PATH,
        "file of the certificates that are trusted of the token endpoint, PEM; None: the system's",
        java=None,
        librdkafka=("https.ca.location",),
    )
    https_ca_pem: str | None = option(
        None,
        Kind("PEM, or None", read_text),
        "the certificates that are trusted of the token endpoint",
        java=None,
        librdkafka=("https.ca.pem",),
    )
