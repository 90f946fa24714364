"""Holds the options of Amazon MSK's IAM (AWS_MSK_IAM), as the base of the options of bearer tokens, and checks that they fit each other.

Names follow the options of Amazon's login module for Java: awsProfileName, awsRoleArn, awsRoleSessionName. The module has none for the
region, which it takes from the broker's name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aioproducer.endpoint_options import EndpointOptions
from aioproducer.errors import ConfigError
from aioproducer.option_classes import option_class
from aioproducer.option_kinds import Kind, option
from aioproducer.secure_kinds import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["AWS_MSK_IAM", "MskOptions", "check_msk", "regions_of"]

AWS_MSK_IAM: Final = "AWS_MSK_IAM"
# b-1.NAME.ID.c2.kafka.REGION.amazonaws.com, boot-ID.c1.kafka-serverless.REGION.amazonaws.com; in China .amazonaws.com.cn
_HOST: Final = r"(?:[\w-]+\.)+kafka(?:-serverless)?\.(?P<region>[a-z]+(?:-[a-z]+)+-\d+)\.amazonaws\.com(?:\.cn)?\.?"
_OWN: Final = "sasl_aws_"
# Options that tell when tokens are refreshed are those of any tokens.
_SHARED: Final = ("sasl_mechanism", "sasl_login_")


def _matching(pattern: str, values: str) -> Kind:
    """Return the kind of a text that a pattern matches."""

    def read(name: str, value: Any) -> str | None:
        text = read_text(name, value)
        if text is not None and re.fullmatch(pattern, text.strip()) is None:
            raise ConfigError(f"{name}={text!r}: it is {values}")
        return None if text is None else text.strip()

    return Kind(f"{values}; or None", read)


@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class MskOptions(EndpointOptions):
    """Holds which credentials of AWS are signed, and for which region."""

    sasl_aws_region: str | None = option(
        None,
        _matching(r"[a-z]+(-[a-z]+)+-\d+", "a region of AWS, such as eu-central-1"),
        "the region of the MSK cluster; None: the names in bootstrap_servers tell it",
        java=None,
    )
    sasl_aws_profile_name: str | None = option(
        None, _matching(r"[^\r\n]+", "a name"), "the profile of AWS's configuration files; None: AWS's default credentials", java=None
    )
    sasl_aws_role_arn: str | None = option(
        None,
        _matching(r"arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+", "a role as arn:aws:iam::123456789012:role/NAME"),
        "the IAM role that is assumed, with the default credentials",
        java=None,
    )
    sasl_aws_role_session_name: str | None = option(
        None,
        _matching(r"[\w+=,.@-]{2,64}", "2 to 64 letters, digits and +=,.@-_"),
        "the name of the assumed role's session; None: the signer's",
        java=None,
    )


def regions_of(addresses: Iterable[str]) -> list[str]:
    """Return the regions of AWS that the names of MSK's brokers have, each once. An address is `host:port`."""
    matches = (re.fullmatch(_HOST, address.rpartition(":")[0].lower()) for address in addresses)
    return list(dict.fromkeys(match["region"] for match in matches if match is not None))


def check_msk(config: Any, given: Iterable[str]) -> None:
    """Check the options of a config with `sasl_mechanism=AWS_MSK_IAM`.

    Args:
        config: the config, whose values have been read.
        given: the options of SASL that the user gave.

    Raises:
        ConfigError: an option is for another mechanism, two contradict each other, or the region is not known.
    """
    mechanism = f"sasl_mechanism={AWS_MSK_IAM}"
    if config.security_protocol != "SASL_SSL":
        raise ConfigError(f"{mechanism} needs security_protocol=SASL_SSL: MSK has IAM with TLS alone")
    for name in given:
        if not name.startswith((_OWN, *_SHARED)):
            raise ConfigError(f"{mechanism} has no {name}: credentials of AWS are signed. Leave {name} out, or choose another mechanism")
    if config.sasl_aws_profile_name is not None and config.sasl_aws_role_arn is not None:
        raise ConfigError("sasl_aws_profile_name and sasl_aws_role_arn are both given: keep one. A profile may name a role itself")
    if config.sasl_aws_role_session_name is not None and config.sasl_aws_role_arn is None:
        raise ConfigError("sasl_aws_role_session_name needs sasl_aws_role_arn, which is not given")
    if config.sasl_aws_region is None:
        _check_regions(mechanism, config.bootstrap_servers)


def _check_regions(mechanism: str, addresses: tuple[str, ...]) -> None:
    regions = regions_of(addresses)
    if not regions:
        raise ConfigError(f"{mechanism} needs sasl_aws_region: no name in bootstrap_servers={','.join(addresses)} has a region of AWS")
    if len(regions) > 1:
        raise ConfigError(f"bootstrap_servers has brokers in {' and '.join(regions)}: give those of one cluster, or sasl_aws_region")
