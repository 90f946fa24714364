"""Reads the URL of a token endpoint: https, http of this machine, or a file. No error quotes the URL, as it may hold a secret."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from aioproducer.errors import ConfigError
from aioproducer.secret import is_reference

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["PORTS", "check_endpoint", "file_of", "is_loopback", "parts_of"]

PORTS: Final = {"https": 443, "http": 80}
_FILE: Final = "file:"
# As file:///C:/path has it, on Windows.
_DRIVE: Final = r"/[A-Za-z]:"


def check_endpoint(option: str, url: str) -> None:
    """Check the URL that an option gives.

    Raises:
        ConfigError: it is none, or one that secrets are not sent to.
    """
    path = file_of(url)
    if path is None:
        parts_of(option, url)
    elif not path.startswith("/") and path[1:2] != ":":
        raise ConfigError(f"{option} must name its file by the whole path, as file:///path/to/token")
    elif not is_reference(f"${{{_FILE}{path}}}"):
        raise ConfigError(f"{option} names a file with a brace in its path")


def file_of(url: str) -> str | None:
    """Return the path of a `file:` URL; None: the URL is of another kind."""
    if not url.lower().startswith(_FILE):
        return None
    place = url[len(_FILE) :]
    if place.startswith("//"):
        host, slash, place = place[2:].partition("/")
        place = slash + place if host in {"", "localhost"} else host
    path = unquote(place)
    return path[1:] if re.match(_DRIVE, path) else path


def parts_of(option: str, url: str) -> SplitResult:
    """Return the parts of the URL of a server.

    Raises:
        ConfigError: as of `check_endpoint`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{option} is no URL") from None
    if parts.scheme not in PORTS or not parts.hostname or port == 0 or any(not "!" <= one <= "~" for one in url):
        raise ConfigError(f"{option} must be an https:// URL with a host, in ASCII, or file:///path/to/token")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{option} has a user or password, which it cannot: give sasl_oauthbearer_client_credentials_client_id and _client_secret"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(f"{option} is http, which would send secrets to {parts.hostname} unencrypted: give an https:// URL")
    return parts


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, without looking up its name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
