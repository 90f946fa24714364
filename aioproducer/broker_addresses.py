"""Reads the forms in which `bootstrap_servers` may be written into `host:port`.

Java, librdkafka, aiokafka and the tools that write environment files (Terraform, docker-compose) each write a list of brokers in their
own form. Examples are a listener's scheme before the host, blanks or semicolons between addresses, a JSON list, and no port. This module
reads every form that names brokers unambiguously. It refuses text that cannot be an address, because a producer would look that up as a
host name until `max_block_ms` is over. A scheme is the security protocol, which `security_protocol` need not repeat.
"""

from __future__ import annotations

import re
from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.named_tuples import NamedTuple

__all__ = ["DEFAULT_PORT", "PROTOCOLS", "BrokerAddresses", "read_addresses"]

# The default of aiokafka and librdkafka, for an address without a port.
DEFAULT_PORT: Final = 9092
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAX_PORT: Final = 65_535
_BETWEEN: Final = r"[\s,;]+"
_SCHEME: Final = r"([^:/]*)://"
_HOST: Final = r"[\w.-]+"
_FORMS: Final = "'host:port,...' or a sequence of 'host:port'"


class BrokerAddresses(NamedTuple):
    """Holds what a text names.

    Attributes:
        addresses: distinct `host:port`, in the given order.
        is_repeated: True if one of them was named twice.
        protocol: the security protocol, one of `PROTOCOLS`, that schemes before the hosts name; None: there is none.
    """

    addresses: tuple[str, ...]
    is_repeated: bool
    protocol: str | None


def read_addresses(option: str, given: Any) -> BrokerAddresses:
    """Read the value of `option` into distinct addresses.

    Raises:
        ConfigError: there is no address, a part is none, or schemes contradict each other. The error's text never has the text before an
            `@`.
    """
    if isinstance(given, str):
        given = _listed(option, given)
    if not isinstance(given, (list, tuple)) or not all(isinstance(part, str) for part in given):
        raise ConfigError(f"{option} must be {_FORMS}")
    parts = [part for text in given for part in re.split(_BETWEEN, _without_user(option, text)) if part]
    if not parts:
        raise ConfigError(f"{option} is empty: name at least one broker as host:port")
    protocol = _protocol_of_all(option, parts)
    named = [_address(option, part) for part in parts]
    addresses = tuple(dict.fromkeys(named))
    return BrokerAddresses(addresses, len(addresses) < len(named), protocol)


def _protocol_of_all(option: str, parts: list[str]) -> str | None:
    """Return the security protocol that the schemes name; None: no part has a scheme."""
    protocols = list(dict.fromkeys(protocol for part in parts if (protocol := _protocol(option, part)) is not None))
    if len(protocols) > 1:
        raise ConfigError(f"{option} has the schemes {' and '.join(protocols)}: a producer has one security_protocol. Name one of them")
    return protocols[0] if protocols else None


def _listed(option: str, text: str) -> Any:
    """Return the parts of a list as JSON, Python or YAML write it on one text line; any other text unchanged, in a list."""
    inner = text.strip()
    # An environment file of Docker keeps the quotes around a value.
    if len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "\"'":
        inner = inner[1:-1].strip()
    if not (inner.startswith("[") and inner.endswith("]")) or _is_ipv6(inner[1:-1]):
        return [inner]
    # Few users write a list in this way.
    import json

    try:
        read = json.loads(inner)
    except ValueError:
        return [inner[1:-1].replace('"', " ").replace("'", " ")]
    if not all(isinstance(part, str) for part in read):
        raise ConfigError(f"{option} must be {_FORMS}")
    return read


def _without_user(option: str, text: str) -> str:
    if "@" in text:
        where = text.rpartition("@")[2].strip()
        raise ConfigError(f"{option}: a user stands before '@{where}'. Give host:port alone: users are sasl_username and sasl_password")
    return text


def _protocol(option: str, part: str) -> str | None:
    """Return the security protocol that the scheme of an address names; None: it has no scheme."""
    scheme = re.match(_SCHEME, part)
    if scheme is None:
        return None
    if scheme[1].upper() not in PROTOCOLS:
        raise ConfigError(f"{option}: {part!r} has the scheme {scheme[1]!r}: it is one of {', '.join(PROTOCOLS)}, or left out")
    return scheme[1].upper()


def _address(option: str, part: str) -> str:
    """Return one address as `host:port`."""
    scheme = re.match(_SCHEME, part)
    text = part[scheme.end() :] if scheme is not None else part
    if "/" in text:
        raise ConfigError(f"{option}: {part!r} is not host:port: a broker's address has no path")
    if text.upper() in PROTOCOLS:
        raise ConfigError(
            f"{option}: {part!r} is a security protocol, not host:port: name it by security_protocol, or as {text}://host:port"
        )
    host, port = _host_and_port(text)
    if not _is_host(host) or not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise ConfigError(f"{option}: {part!r} is not host:port")
    return f"{host}:{int(port)}"


def _host_and_port(text: str) -> tuple[str, str]:
    """Return the host and the port. The port is `DEFAULT_PORT` if none is given; an IPv6 address has brackets."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        is_address = _is_ipv6(host) and rest[:1] in {"", ":"}
        return (f"[{host}]" if is_address else ""), rest[1:] if rest else str(DEFAULT_PORT)
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, str(DEFAULT_PORT)
    return (f"[{host}]" if _is_ipv6(host) else host), port


def _is_host(host: str) -> bool:
    if host.startswith("["):
        return True
    # No top-level domain is a number, so a text of digits is a port without its host.
    return re.fullmatch(_HOST, host) is not None and not host.isdigit()


def _is_ipv6(host: str) -> bool:
    if ":" not in host:
        return False
    # Only such addresses need it.
    import ipaddress

    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
