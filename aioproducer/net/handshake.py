"""From a new connection to a usable one: which versions the broker speaks (KIP-35, KIP-511). Knows nothing of what is asked later."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioproducer.errors import broker_error
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.net.connection import Connection

__all__ = ["negotiate_versions"]

_UNSUPPORTED_VERSION: Final = 35
_SOFTWARE: Final = "aioproducer"
_FIRST_WITH_MUTING: Final = 2  # before it, brokers waited themselves (KIP-219)
_STRANGE: Final = re.compile(r"[^a-zA-Z0-9.-]")  # what brokers refuse in a version: the + of a local one (PEP 440)


async def negotiate_versions(connection: Connection, timeout: float, software_version: str, *, in_oldest_form: bool = False) -> int:
    """Ask which versions the broker speaks, our newest form first, and at most twice (NET-02).

    Args:
        connection: which has just been made.
        timeout: seconds for each answer.
        software_version: of this client.
        in_oldest_form: ask as the first clients did, of brokers that close the connection when they do not know a form.

    Returns:
        Milliseconds for which the broker wants to be left alone.

    Raises:
        TransportError: the connection ended.
        BrokerError: the broker refuses.
    """
    version = CLIENT_VERSIONS[ApiKey.API_VERSIONS][not in_oldest_form]
    software_version = _STRANGE.sub("-", software_version)
    request = message("ApiVersions.request", client_software_name=_SOFTWARE, client_software_version=software_version)
    raw = await connection.ask(ApiKey.API_VERSIONS, version, request, timeout)
    if int.from_bytes(raw.frame[raw.offset : raw.offset + 2], "big") == _UNSUPPORTED_VERSION:
        refusal = raw.decode(version=0)  # a broker that does not know our version answers in the oldest form
        offered = {api.api_key: api.max_version for api in refusal.api_keys}
        raw = await connection.ask(ApiKey.API_VERSIONS, max(0, min(version - 1, offered.get(ApiKey.API_VERSIONS, 0))), request, timeout)
    answer = raw.decode()
    if answer.error_code:
        raise broker_error(answer.error_code)
    connection.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    connection.features_epoch = answer.finalized_features_epoch
    connection.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys if api.min_version <= api.max_version}
    return int(answer.throttle_time_ms) if raw.version >= _FIRST_WITH_MUTING else 0
