"""The requests of every client: versions, authentication, coordinators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import WHOLE
from aioproducer.testing.handlers.handler import answers, coordinator
from aioproducer.testing.security.authenticator import Ending, Outcome
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.interfaces import Buffer
    from aioproducer.testing.call import Call


# --- ApiVersions


_SOFTWARE: Final = re.compile(
    r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"
)  # ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN
_FIRST_WITH_SOFTWARE: Final = 3
_FEATURE: Final = "transaction.version"
_FEATURE_LEVELS: Final = (0, 2)
_WITH_EPOCHS: Final = 5  # EndTxn
_WITH_LOWEST_0: Final = 4


def unsupported(lowest: int, highest: int) -> Sequence[Buffer]:
    """Return the body, in version 0, of the answer to a request in an unsupported version."""
    answer = message(
        "ApiVersions.response",
        error_code=broker_error("UNSUPPORTED_VERSION").code,
        api_keys=[
            message(
                "ApiVersions.response.api_keys",
                api_key=ApiKey.API_VERSIONS,
                min_version=lowest,
                max_version=highest,
            )
        ],
    )
    return codec("ApiVersions.response", 0).encode(answer)


@answers(ApiKey.API_VERSIONS, (0, 4))
def api_versions(call: Call) -> None:
    """Versions 0-4: returns the versions that a broker speaks.

    An unsupported version gets an answer in version 0 with the range of ApiVersions alone (KIP-511). As in Kafka, a broker that speaks
    EndTxn 5 has the feature `transaction.version`. Its level appears only above 0. The supported levels appear from version 4 on, as
    older clients refuse a lowest level of 0 (KAFKA-17011). Deviation: there is no other feature.
    """
    code = call.code()
    if call.version >= _FIRST_WITH_SOFTWARE:
        software = (call.request.client_software_name, call.request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            code = code or broker_error("INVALID_REQUEST").code
    ranges = [
        message(
            "ApiVersions.response.api_keys", api_key=key, min_version=lowest, max_version=highest
        )
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
        answer.supported_features = [
            message(
                "ApiVersions.response.supported_features",
                name=_FEATURE,
                min_version=low,
                max_version=high,
            )
        ]
    level = call.cluster.transaction_version
    answer.finalized_features_epoch = call.cluster.features_epoch
    if level:
        finalized = message(
            "ApiVersions.response.finalized_features",
            name=_FEATURE,
            max_version_level=level,
            min_version_level=level,
        )
        answer.finalized_features = [finalized]


# --- SaslHandshake


_ILLEGAL: Final = broker_error("ILLEGAL_SASL_STATE").code


@answers(ApiKey.SASL_HANDSHAKE, (0, 1))
def sasl_handshake(call: Call) -> None:
    """Versions 0-1: chooses the mechanism of an authentication, at first or again (KIP-368).

    As in Kafka: a mechanism that is not enabled is answered with the list of the enabled ones after 300 ms, and ends the connection; when a
    client authenticates again, it is not even answered. A listener without SASL answers ILLEGAL_SASL_STATE, and the connection stays.
    """
    connection, scripted = call.connection, call.code()
    if scripted:
        outcome = Outcome(
            scripted, ending=Ending.STAYS if scripted == _ILLEGAL else Ending.REFUSED, is_end=True
        )
    else:
        outcome = connection.authenticator.handshake(
            call.request.mechanism, call.version, call.broker.loop.time()
        )
    mechanisms = [] if outcome.code == _ILLEGAL else list(call.broker.security.listener.mechanisms)
    call.authenticate(
        outcome, message("SaslHandshake.response", error_code=outcome.code, mechanisms=mechanisms)
    )


# --- SaslAuthenticate


@answers(ApiKey.SASL_AUTHENTICATE, (0, 2))
def sasl_authenticate(call: Call) -> None:
    """Versions 0-2: one token of a SASL exchange (KIP-152), and from version 1 on the session's lifetime (KIP-368).

    As in Kafka: a refusal is answered after 300 ms, and ends the connection; its text does not tell whether the user exists. On a connection
    that is authenticated, or needs no SASL, the request is answered with ILLEGAL_SASL_STATE.
    """
    rule = call.verdict.errors.get(WHOLE)
    if rule is not None:
        outcome = Outcome(rule.code, rule.message, ending=Ending.REFUSED, is_end=True)
    else:
        outcome = call.connection.authenticator.authenticate(
            bytes(call.request.auth_bytes), call.broker.loop.time()
        )
    answer = message(
        "SaslAuthenticate.response",
        error_code=outcome.code,
        # as Kafka's: empty, not null, where there is no error
        error_message=outcome.text if outcome.code else "",
        auth_bytes=outcome.token,
        session_lifetime_ms=outcome.lifetime_ms,
    )
    call.authenticate(outcome, answer)


# --- FindCoordinator


_FIND_SEVERAL: Final = 4
_GROUP: Final = 0


@answers(ApiKey.FIND_COORDINATOR, (0, 6))
def find_coordinator(call: Call) -> None:
    """Versions 0-6 for groups and transactional ids.

    As in Kafka: a denied `Describe` is answered with GROUP_AUTHORIZATION_FAILED or TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    The coordinator is the first known broker, or the one that `move_coordinator` set.
    """
    if call.version < _FIND_SEVERAL:
        call.reply(message("FindCoordinator.response", **_node(call, call.request.key)))
    else:
        found = [
            message("FindCoordinator.response.coordinators", key=key, **_node(call, key))
            for key in call.request.coordinator_keys
        ]
        call.reply(message("FindCoordinator.response", coordinators=found))


def _node(call: Call, key: str) -> dict[str, object]:
    try:
        call.check_scripted()
        call.check_may(
            "Describe", "group" if call.request.key_type == _GROUP else "transactional_id", key
        )
        found = coordinator(call.cluster, key)
        if found is None:
            raise broker_error("COORDINATOR_NOT_AVAILABLE")
    except BrokerError as error:
        return {"error_code": error.code, "node_id": -1, "host": "", "port": -1}
    return {"error_code": 0, "node_id": found.node_id, "host": found.host, "port": found.port}
