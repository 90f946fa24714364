"""Handles DescribeConfigs 1-4: returns the options of topics, and a few of brokers.

Deviations: no synonyms and no documentation; of a broker's options only those that the fake knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target
from aioproducer.testing.handlers.handler import Handler
from aioproducer.testing.handlers.topic_configs import Option, options
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call
    from aioproducer.testing.cluster import FakeCluster

__all__ = ["HANDLER"]

_TOPIC, _BROKER = 2, 4  # Kafka's ConfigResource
_STATIC: Final = 4
_BOOLEAN, _INT = 1, 3
_MESSAGE: Final = "DescribeConfigs.response"


def _target(resource: Any) -> Target:
    return Target(resource.resource_name if resource.resource_type == _TOPIC else None)


def _targets(_cluster: FakeCluster, request: Any) -> list[Target]:
    return [_target(resource) for resource in request.resources]


def _answer(call: Call) -> None:
    results = []
    for resource in call.request.resources:
        kind, name = resource.resource_type, resource.resource_name
        answer = message(f"{_MESSAGE}.results", resource_type=kind, resource_name=name)
        try:
            code = call.code(_target(resource))
            if code:
                raise broker_error(code)
            answer.configs = [_config(kind, option) for option in _options(call, kind, name) if _is_asked(resource, option)]
        except BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    call.reply(message(_MESSAGE, results=results))


def _options(call: Call, kind: int, name: str) -> list[Option]:
    if kind == _TOPIC:
        topic = call.cluster.topics.named(name)
        if topic is None:
            raise broker_error("UNKNOWN_TOPIC_OR_PARTITION", "there is no such topic")
        return options(topic)
    if kind == _BROKER and name in {"", str(call.broker.node_id)}:
        cluster = call.cluster
        return [
            Option("auto.create.topics.enable", str(cluster.auto_create).lower(), _STATIC, _BOOLEAN),
            Option("broker.id", str(call.broker.node_id), _STATIC, _INT),
            Option("num.partitions", str(cluster.default_partitions), _STATIC, _INT),
        ]
    raise broker_error("INVALID_REQUEST", f"there is no resource {name!r} of type {kind} here; topics are 2, this broker is 4")


def _is_asked(resource: Any, option: Option) -> bool:
    return not resource.configuration_keys or option.name in resource.configuration_keys


def _config(kind: int, option: Option) -> Any:
    return message(
        f"{_MESSAGE}.results.configs",
        name=option.name,
        value=option.value,
        read_only=kind == _BROKER,
        config_source=option.source,
        config_type=option.kind,
    )


HANDLER: Final = Handler(ApiKey.DESCRIBE_CONFIGS, (1, 4), _targets, _answer)
