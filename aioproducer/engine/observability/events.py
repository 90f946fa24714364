"""Reports each change of state as one structured log record of `aioproducer.events`, and counts it.

There is no event for a Kafka record, and none contains keys, values or header values. A log record has the name of the event as `event`
and its values as `facts`, for handlers that write JSON. Its text says the same to people.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aioproducer.guarded_log import GuardedLog
from aioproducer.named_tuples import NamedTuple

if TYPE_CHECKING:
    from aioproducer.metrics.registry import Metrics

__all__ = ["EVENTS", "Events"]

_log = GuardedLog("aioproducer.events")


class _Event(NamedTuple):
    level: int
    text: str


_INFO: Final = logging.INFO
_WARNING: Final = logging.WARNING

EVENTS: Final[dict[str, _Event]] = {
    "producer-started": _Event(_INFO, "the producer runs"),
    "producer-stopped": _Event(_INFO, "the producer has stopped; batches that had not ended: {unfinished}"),
    "producer-failed": _Event(_INFO, "the producer failed: {cause}"),
    "broker-connected": _Event(logging.DEBUG, "broker {node_id} at {where}: a {lane} connection stands"),
    "broker-lost": _Event(logging.DEBUG, "broker {node_id} at {where}: the {lane} connection is gone: {cause}"),
    "broker-unreachable": _Event(_WARNING, "broker {node_id} at {where} cannot be reached: {cause}"),
    "broker-authenticated": _Event(
        logging.DEBUG,
        "broker {node_id} at {where}: the {lane} connection is authenticated; its session lasts {seconds:g} s (0: it does not end)",
    ),
    "authentication-failed": _Event(_INFO, "broker {node_id} at {where}: the {lane} connection could not be authenticated: {cause}"),
    "session-renewed": _Event(logging.DEBUG, "broker {node_id} at {where}: the session of the {lane} connection goes on for {seconds:g} s"),
    "session-not-renewed": _Event(_INFO, "broker {node_id} at {where}: the session of the {lane} connection was not renewed: {cause}"),
    "broker-throttles": _Event(logging.DEBUG, "broker {node_id} at {where} wants to be left alone for {milliseconds} ms"),
    "broker-late": _Event(_INFO, "broker {node_id} took nothing for {seconds:g} s: records without a key avoid it"),
    "broker-in-time": _Event(_INFO, "broker {node_id} is avoided no more"),
    "cluster-forgotten": _Event(_INFO, "no known broker answers: the producer starts over at bootstrap_servers"),
    "producer-id-granted": _Event(logging.DEBUG, "the producer id is {producer_id}, epoch {epoch}"),
    "topic-forgotten": _Event(logging.DEBUG, "topic {topic} was not produced to for {seconds:g} s: it is forgotten"),
    "certificate-expires": _Event(_WARNING, "the certificate of {what} ends in {days:.1f} days"),
    "token-fetched": _Event(logging.DEBUG, "{source} gave a token, which lives for {seconds:.0f} s"),
    "token-unavailable": _Event(_WARNING, "no token, at attempt {failures} in a row: {cause}"),
    "breaker-opened": _Event(_WARNING, "{what} fails: its circuit breaker is open for {seconds:g} s"),
    "breaker-probing": _Event(_INFO, "{what}: a batch is sent to see whether it works again"),
    "breaker-closed": _Event(_INFO, "{what} works again: its circuit breaker is closed"),
}


class Events:
    """Logs and counts the events of one producer.

    Args:
        client_id: of the producer; a fact of each event.
    """

    def __init__(self, client_id: str, metrics: Metrics) -> None:
        self._client_id = client_id
        self._metrics = metrics

    def tell(self, event: str, **facts: object) -> None:
        """Log and count an event; `facts` are the values that its text names."""
        level, text = EVENTS[event]
        self._metrics.count("events-total", event)
        if _log.isEnabledFor(level):
            told = text.format(**facts)
            _log.log(level, "%s: %s", self._client_id, told, extra={"event": event, "facts": {"client_id": self._client_id, **facts}})
