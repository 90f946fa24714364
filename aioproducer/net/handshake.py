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
_STRANGE: Final = re.compile(r"[^a-zA-Z0-9.-]")  # what brokers refuse in a version: the + of a local one (PEP 440)


async def negotiate_versions(connection: Connection, timeout: float, software_version: str) -> None:
    """Ask which versions the broker speaks, our newest form first, and at most twice (NET-02).

    Raises:
        TransportError: the connection ended.
        BrokerError: the broker refuses.
    """
    version = CLIENT_VERSIONS[ApiKey.API_VERSIONS][1]
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
    connection.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys if api.min_version <= api.max_version}
