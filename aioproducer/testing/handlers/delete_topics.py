"""Handles DeleteTopics 1-6: by name, from version 6 on by id too.

Deviation: a topic disappears on every broker at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import Handler
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.topics import Topic

__all__ = ["HANDLER"]

_MESSAGE: Final = "DeleteTopics.response"
_NO_ID: Final = bytes(16)


def _asked(cluster: FakeCluster, request: Any) -> Iterator[tuple[str | None, bytes, Topic | None]]:
    """Yield the requested name and id of each topic, and the topic."""
    for name in request.topic_names:
        yield name, _NO_ID, cluster.topics.named(name)
    for asked in request.topics:
        if asked.name is None:
            yield None, asked.topic_id, cluster.topics.identified(asked.topic_id)
        else:
            yield asked.name, _NO_ID, cluster.topics.named(asked.name)


def _targets(cluster: FakeCluster, request: Any) -> list[Target]:
    return [Target(topic.name if topic else name) for name, _, topic in _asked(cluster, request)]


def _answer(call: Call) -> None:
    responses = []
    for name, topic_id, topic in _asked(call.cluster, call.request):
        error = broker_error(call.code(Target(topic.name if topic else name)))
        if not error.code and topic is None:
            error = broker_error("UNKNOWN_TOPIC_ID" if name is None else "UNKNOWN_TOPIC_OR_PARTITION", "there is no such topic")
        if topic is not None:
            name, topic_id = topic.name, topic.topic_id
            if not error.code:
                call.cluster.delete_topic(name)
        responses.append(message(f"{_MESSAGE}.responses", name=name, topic_id=topic_id, error_code=error.code, error_message=error.message))
    call.reply(message(_MESSAGE, responses=responses))


HANDLER: Final = Handler(ApiKey.DELETE_TOPICS, (1, 6), _targets, _answer)
