"""Kafka's API keys, the versions of each request that this client knows, and version negotiation."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from aioproducer.wire.messages import SPECS


class ApiKey(IntEnum):
    """Holds the API keys: each request's number on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


NAMES: Final[Mapping[ApiKey, str]] = {
    key: "".join(map(str.capitalize, key.name.split("_"))) for key in ApiKey
}
_REQUESTS: Final = {key: SPECS[f"{name}.request"] for key, name in NAMES.items()}
CLIENT_VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    key: (spec.versions.start, spec.versions.stop - 1) for key, spec in _REQUESTS.items()
}
_FLEXIBLE: Final[Mapping[int, int]] = {int(key): spec.flexible for key, spec in _REQUESTS.items()}
# Above every version: the first flexible version of an unknown request.
_NEVER: Final = 32_768


def negotiate(key: ApiKey, theirs: Mapping[int, tuple[int, int]]) -> int | None:
    """Return the highest version of a request that this client and a broker know, or None.

    Args:
        key: the request.
        theirs: the broker's (lowest, highest) version by API key.
    """
    if key not in theirs:
        return None
    lowest, highest = CLIENT_VERSIONS[key]
    their_lowest, their_highest = theirs[key]
    version = min(highest, their_highest)
    return version if version >= max(lowest, their_lowest) else None


def is_flexible(key: int, version: int) -> bool:
    """Return True if a request's header has tagged fields (KIP-482). Returns False for an unknown request."""
    return version >= _FLEXIBLE.get(key, _NEVER)
