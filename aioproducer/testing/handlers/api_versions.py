"""Handles ApiVersions 0-4: returns the versions that a broker speaks.

An unsupported version gets an answer in version 0 with the range of ApiVersions alone (KIP-511). As in Kafka, a broker that speaks
EndTxn 5 has the feature `transaction.version`. Its level appears only above 0. The supported levels appear from version 4 on, as
older clients refuse a lowest level of 0 (KAFKA-17011). Deviation: there is no other feature.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.broker import Call

__all__ = ["HANDLER", "unsupported"]

_MESSAGE: Final = "ApiVersions.response"
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN
_FIRST_WITH_SOFTWARE: Final = 3
_TARGET: Final = Target()
_FEATURE: Final = "transaction.version"
_FEATURE_LEVELS: Final = (0, 2)
_WITH_EPOCHS: Final = 5  # EndTxn
_WITH_LOWEST_0: Final = 4


def unsupported(lowest: int, highest: int) -> Sequence[Buffer]:
    """Return the body, in version 0, of the answer to a request in an unsupported version."""
    answer = message(
        "ApiVersions.response",
        error_code=broker_error("UNSUPPORTED_VERSION").code,
        api_keys=[message("ApiVersions.response.api_keys", api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)],
    )
    return codec("ApiVersions.response", 0).encode(answer)


def _answer(call: Call) -> None:
    code = call.code(_TARGET)
    if call.version >= _FIRST_WITH_SOFTWARE:
        software = (call.request.client_software_name, call.request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            code = code or broker_error("INVALID_REQUEST").code
    ranges = [
        message("ApiVersions.response.api_keys", api_key=key, min_version=lowest, max_version=highest)
        for key, (lowest, highest) in sorted(call.broker.versions.items())
    ]
    answer = message("ApiVersions.response", error_code=code, api_keys=[] if code else ranges)
    if not code:
        _tell_features(call, answer)
        call.connection.authenticator.versions_told()
    call.reply(answer)


def _tell_features(call: Call, answer: Any) -> None:
    """Write the supported and the finalized levels of transactions into an answer (KIP-584)."""
    _, highest = call.broker.versions.get(ApiKey.END_TXN, (0, -1))
    if highest < _WITH_EPOCHS:
        return
    low, high = _FEATURE_LEVELS
    if call.version >= _WITH_LOWEST_0:
        answer.supported_features = [message(f"{_MESSAGE}.supported_features", name=_FEATURE, min_version=low, max_version=high)]
    level = call.cluster.transaction_version
    answer.finalized_features_epoch = call.cluster.features_epoch
    if level:
        finalized = message(f"{_MESSAGE}.finalized_features", name=_FEATURE, max_version_level=level, min_version_level=level)
        answer.finalized_features = [finalized]


HANDLER: Final = Handler(ApiKey.API_VERSIONS, (0, 4), lambda _cluster, _request: (_TARGET,), _answer)
