"""The handshake of a new connection: it asks the broker for its API versions (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioproducer.errors import broker_error
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.net.connection import Connection

__all__ = ["negotiate_versions", "read_cluster_id"]

_UNSUPPORTED_VERSION: Final = 35
_SOFTWARE: Final = "aioproducer"
# The first ApiVersions version with which a broker lets the client wait; with older versions the broker waits (KIP-219).
_FIRST_WITH_MUTING: Final = 2
# The first Metadata version with a cluster id.
_FIRST_WITH_CLUSTER_ID: Final = 2
_FIRST_METADATA_WITH_MUTING: Final = 6
# Brokers refuse these characters in a software version; the + of a local version is one of them (PEP 440).
_STRANGE: Final = r"[^a-zA-Z0-9.-]"


async def negotiate_versions(connection: Connection, timeout: float, software_version: str, *, in_oldest_form: bool = False) -> int:
    """Ask the broker for its API versions and features, and keep them in `connection` (NET-02).

    The first request has this client's newest ApiVersions version. If the broker does not know it, one more request follows.

    Args:
        connection: a connection that has just been made.
        timeout: seconds for each answer.
        software_version: version of this client.
        in_oldest_form: use the oldest ApiVersions version, for a broker that closes the connection when it does not know a version.

    Returns:
        Milliseconds for which the broker throttles this client.

    Raises:
        TransportError: the connection ended.
        BrokerError: the broker refuses the request.
    """
    version = CLIENT_VERSIONS[ApiKey.API_VERSIONS][not in_oldest_form]
    software_version = re.sub(_STRANGE, "-", software_version)
    request = message("ApiVersions.request", client_software_name=_SOFTWARE, client_software_version=software_version)
    raw = await connection.ask(ApiKey.API_VERSIONS, version, request, timeout)
    if int.from_bytes(raw.frame[raw.offset : raw.offset + 2], "big") == _UNSUPPORTED_VERSION:
        # a broker that does not know the request's version answers with version 0
        refusal = raw.decode(version=0)
        offered = {api.api_key: api.max_version for api in refusal.api_keys}
        raw = await connection.ask(ApiKey.API_VERSIONS, max(0, min(version - 1, offered.get(ApiKey.API_VERSIONS, 0))), request, timeout)
    answer = raw.decode()
    if answer.error_code:
        raise broker_error(answer.error_code)
    connection.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    connection.features_epoch = answer.finalized_features_epoch
    offers = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys if api.min_version <= api.max_version}
    connection.learn_versions(offers)
    return int(answer.throttle_time_ms) if raw.version >= _FIRST_WITH_MUTING else 0


async def read_cluster_id(connection: Connection, timeout: float) -> tuple[str | None, int]:
    """Return the id of the cluster that a broker belongs to, and the milliseconds for which the broker throttles this client.

    The id is None if the broker gives none, or is older than Kafka 0.10.1.

    Args:
        connection: a connection whose versions are negotiated.
        timeout: seconds for the answer.

    Raises:
        TransportError: the connection ended.
    """
    version = connection.agreed.get(ApiKey.METADATA, 0)
    if version < _FIRST_WITH_CLUSTER_ID:
        return None, 0
    request = message("Metadata.request", topics=[], allow_auto_topic_creation=False)
    answer = (await connection.ask(ApiKey.METADATA, version, request, timeout)).decode()
    return answer.cluster_id, int(answer.throttle_time_ms) if version >= _FIRST_METADATA_WITH_MUTING else 0
