"""Checks that the options of a token endpoint fit each other. Each error names both options; no error shows a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import ConfigError
from aioproducer.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from aioproducer.endpoint_options import EndpointOptions

__all__ = ["OF_ENDPOINTS", "check_endpoint_options"]

# The beginnings of options that are for OAUTHBEARER alone, and that begin otherwise than its other options.
OF_ENDPOINTS: Final = ("https_ca_",)

_URL: Final = "sasl_oauthbearer_token_endpoint_url"
_RETRIEVER: Final = "sasl_oauthbearer_jwt_retriever_class"
_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"
_URLENCODE: Final = "sasl_oauthbearer_header_urlencode"
_DEFAULT: Final = "DefaultJwtRetriever"
_SCOPE: Final = "sasl_oauthbearer_scope"
_ASSERTION: Final = "sasl_oauthbearer_assertion_"
_CA: Final = ("https_ca_location", "https_ca_pem")
_KEYS: Final = (f"{_ASSERTION}private_key_file", f"{_ASSERTION}private_key_pem")
_ASSERTIONS: Final = (f"{_ASSERTION}file", *_KEYS)
_SIGNED: Final = tuple(
    _ASSERTION + name
    for name in (
        "algorithm",
        "claim_aud",
        "claim_exp_seconds",
        "claim_iss",
        "claim_jti_include",
        "claim_nbf_seconds",
        "claim_sub",
        "private_key_passphrase",
        "template_file",
    )
)
_OF_SERVERS: Final = (_ID, _SECRET, _SCOPE, _URLENCODE, *_CA, *_ASSERTIONS, *_SIGNED)


class _Way(NamedTuple):
    """Holds a way to fetch tokens.

    Attributes:
        retriever: Java's class for it.
        what: names it in texts.
        needs: groups of options, of each of which one must be given.
        excludes: options that have no effect.
    """

    retriever: str
    what: str
    needs: tuple[tuple[str, ...], ...]
    excludes: tuple[str, ...]


# The class, or the options of the client's identity, choose one.
_FILE: Final = _Way("FileJwtRetriever", "a file of a token", (), _OF_SERVERS)
_JWT_BEARER: Final = _Way("JwtBearerJwtRetriever", "the grant of JWT bearers", (_ASSERTIONS,), (_ID, _SECRET, _URLENCODE))
_ASSERTED: Final = _Way("ClientCredentialsJwtRetriever", "client credentials with an assertion", (), (_SECRET, _URLENCODE))
_WITH_SECRET: Final = _Way("ClientCredentialsJwtRetriever", "client credentials", ((_ID,), (_SECRET, *_ASSERTIONS)), ())

# Options of which one may be given.
_EXCLUDES: Final = (_CA, (_ASSERTIONS[0], _KEYS[0]), (_ASSERTIONS[0], _KEYS[1]), _KEYS)


def check_endpoint_options(config: EndpointOptions, given: Collection[str]) -> None:
    """Check the options of a token endpoint.

    Args:
        config: options; each value has been read on its own.
        given: the names of those that have another value than the default.

    Raises:
        ConfigError: two options contradict each other, or one that another needs is missing.
    """
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is None:
        for name in (_RETRIEVER, *_OF_SERVERS):
            if name in given:
                raise ConfigError(f"{name} needs {_URL}, which is not given")
        return
    for first, second in _EXCLUDES:
        if first in given and second in given:
            raise ConfigError(f"{first} and {second} are both given: keep one")
    # Only token endpoints have URLs.
    from aioproducer.endpoint_urls import file_of

    _check_way(_way(config, given, is_file=file_of(url) is not None), given)
    _check_values(config, given, url)


def _way(config: EndpointOptions, given: Collection[str], *, is_file: bool) -> _Way:
    retriever = config.sasl_oauthbearer_jwt_retriever_class
    if retriever != _DEFAULT and is_file != (retriever == _FILE.retriever):
        raise ConfigError(f"{_RETRIEVER}={retriever} is not for {_URL} with {'a file' if is_file else 'a server'}: leave {_RETRIEVER} out")
    if is_file:
        return _FILE
    if retriever == _JWT_BEARER.retriever:
        return _JWT_BEARER
    return _ASSERTED if any(name in given for name in _ASSERTIONS) else _WITH_SECRET


def _check_way(way: _Way, given: Collection[str]) -> None:
    for name in way.excludes:
        if name in given:
            raise ConfigError(f"{name} has no place beside {way.what}: leave one of the two out")
    for names in way.needs:
        if not any(name in given for name in names):
            raise ConfigError(f"{_URL} with {way.what} needs {' or '.join(names)}, which is not given")
    for name in _SIGNED:
        if name in given and not any(key in given for key in _KEYS):
            raise ConfigError(f"{name} needs {' or '.join(_KEYS)}, which is not given")


def _check_values(config: EndpointOptions, given: Collection[str], url: str) -> None:
    """Check values that other values restrict."""
    if _SECRET in given and not config.sasl_oauthbearer_client_credentials_client_secret:
        raise ConfigError(f"{_SECRET} is empty")
    # RFC 7617: the first colon ends the id
    if _SECRET in given and ":" in (config.sasl_oauthbearer_client_credentials_client_id or "") and _URLENCODE not in given:
        raise ConfigError(f"{_ID} has a colon, which ends it in the header: give {_URLENCODE}=True")
    for name in _CA:
        if name in given and not url.startswith("https:"):
            raise ConfigError(f"{name} needs TLS, and {_URL} is http: leave {name} out")
