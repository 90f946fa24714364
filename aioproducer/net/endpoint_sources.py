"""Makes the source of tokens that the options of a token endpoint describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.config.secret import Secret
from aioproducer.config.security_options import file_of
from aioproducer.net.client_assertion import AssertionClaims, AssertionFile, SignedAssertion
from aioproducer.net.oidc import AssertedClient, ClientSecret, JwtBearer, OidcSource
from aioproducer.net.token_endpoint import EndpointTrust, TokenEndpoint
from aioproducer.net.token_sources import TextSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.config.security_options import EndpointOptions, TokenOptions
    from aioproducer.net.client_assertion import Assertion
    from aioproducer.net.oidc import Grant
    from aioproducer.sasl.tokens import TokenSource

__all__ = ["endpoint_source", "endpoint_timeouts"]

# Seconds for the connection, and for the answer.
_TIMEOUT: Final = 10.0


def endpoint_source(config: TokenOptions, wall_clock: Callable[[], float]) -> TokenSource:
    """Return the source for a config that names a token endpoint.

    Args:
        config: the options, which fit each other.
        wall_clock: returns the seconds since 1970.

    Raises:
        ConfigError: `cryptography` is not installed, and an assertion is to be signed.
    """
    url = config.sasl_oauthbearer_token_endpoint_url or ""
    path = file_of(url)
    if path is not None:
        return TextSource(Secret(f"${{file:{path}}}"), f"the token file {path}")
    connect_timeout, read_timeout = endpoint_timeouts(config)
    trust = EndpointTrust(config.https_ca_location, config.https_ca_pem)
    endpoint = TokenEndpoint(url, trust, connect_timeout=connect_timeout, read_timeout=read_timeout)
    return OidcSource(endpoint, _grant(config, wall_clock), config.sasl_oauthbearer_scope or "", clock=wall_clock)


def endpoint_timeouts(config: TokenOptions) -> tuple[float, float]:
    """Return the seconds for the connection to the endpoint, and for its answer."""
    given = (config.sasl_login_connect_timeout_ms, config.sasl_login_read_timeout_ms)
    connect_timeout, read_timeout = (_TIMEOUT if one is None else one / 1000 for one in given)
    return connect_timeout, read_timeout


def _grant(config: EndpointOptions, wall_clock: Callable[[], float]) -> Grant:
    client = config.sasl_oauthbearer_client_credentials_client_id or ""
    secret: Any = config.sasl_oauthbearer_client_credentials_client_secret
    if secret is not None:
        return ClientSecret(client, secret, is_urlencoded=config.sasl_oauthbearer_header_urlencode)
    assertion = _assertion(config, wall_clock)
    is_bearer = config.sasl_oauthbearer_jwt_retriever_class == "JwtBearerJwtRetriever"
    return JwtBearer(assertion) if is_bearer else AssertedClient(client, assertion)


def _assertion(config: EndpointOptions, wall_clock: Callable[[], float]) -> Assertion:
    if config.sasl_oauthbearer_assertion_file is not None:
        return AssertionFile(config.sasl_oauthbearer_assertion_file)
    static = {
        "aud": config.sasl_oauthbearer_assertion_claim_aud,
        "iss": config.sasl_oauthbearer_assertion_claim_iss,
        "sub": config.sasl_oauthbearer_assertion_claim_sub,
    }
    claims = AssertionClaims(
        {name: value for name, value in static.items() if value is not None},
        config.sasl_oauthbearer_assertion_claim_exp_seconds,
        config.sasl_oauthbearer_assertion_claim_nbf_seconds,
        config.sasl_oauthbearer_assertion_claim_jti_include,
    )
    key: Any = config.sasl_oauthbearer_assertion_private_key_pem
    passphrase: Any = config.sasl_oauthbearer_assertion_private_key_passphrase
    return SignedAssertion(
        config.sasl_oauthbearer_assertion_private_key_file,
        key,
        passphrase,
        algorithm=config.sasl_oauthbearer_assertion_algorithm,
        claims=claims,
        template_file=config.sasl_oauthbearer_assertion_template_file,
        clock=wall_clock,
    )
