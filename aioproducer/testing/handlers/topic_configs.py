"""The topic options of Kafka, with types and defaults; a topic's own values override the defaults."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.testing.topics import Topic

__all__ = ["DEFAULT", "DEFAULTS", "DYNAMIC", "Option", "options"]

DYNAMIC: Final = 1  # Kafka's ConfigSource: set on the topic
DEFAULT: Final = 5  # Kafka's ConfigSource: not set anywhere
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7  # Kafka's ConfigType

# Kafka's TopicConfig and LogConfig
DEFAULTS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "cleanup.policy": (_LIST, "delete"),
        "compression.gzip.level": (_INT, "-1"),
        "compression.lz4.level": (_INT, "9"),
        "compression.type": (_STRING, "producer"),
        "compression.zstd.level": (_INT, "3"),
        "delete.retention.ms": (_LONG, "86400000"),
        "file.delete.delay.ms": (_LONG, "60000"),
        "flush.messages": (_LONG, "9223372036854775807"),
        "flush.ms": (_LONG, "9223372036854775807"),
        "follower.replication.throttled.replicas": (_LIST, ""),
        "index.interval.bytes": (_INT, "4096"),
        "leader.replication.throttled.replicas": (_LIST, ""),
        "local.retention.bytes": (_LONG, "-2"),
        "local.retention.ms": (_LONG, "-2"),
        "max.compaction.lag.ms": (_LONG, "9223372036854775807"),
        "max.message.bytes": (_INT, "1048588"),
        "message.timestamp.after.max.ms": (_LONG, "3600000"),
        "message.timestamp.before.max.ms": (_LONG, "9223372036854775807"),
        "message.timestamp.type": (_STRING, "CreateTime"),
        "min.cleanable.dirty.ratio": (_DOUBLE, "0.5"),
        "min.compaction.lag.ms": (_LONG, "0"),
        "min.insync.replicas": (_INT, "1"),
        "preallocate": (_BOOLEAN, "false"),
        "remote.log.copy.disable": (_BOOLEAN, "false"),
        "remote.log.delete.on.disable": (_BOOLEAN, "false"),
        "remote.storage.enable": (_BOOLEAN, "false"),
        "retention.bytes": (_LONG, "-1"),
        "retention.ms": (_LONG, "604800000"),
        "segment.bytes": (_INT, "1073741824"),
        "segment.index.bytes": (_INT, "10485760"),
        "segment.jitter.ms": (_LONG, "0"),
        "segment.ms": (_LONG, "604800000"),
        "unclean.leader.election.enable": (_BOOLEAN, "false"),
    }
)


class Option(NamedTuple):
    """Holds one option's current value. `source` and `kind` are Kafka's numbers."""

    name: str
    value: str
    source: int
    kind: int


def options(topic: Topic) -> list[Option]:
    """Return all options of a topic, sorted by name."""
    names = sorted({*DEFAULTS, *topic.config})
    return [_option(topic.config, name) for name in names]


def _option(config: Mapping[str, str], name: str) -> Option:
    kind, default = DEFAULTS.get(name, (_STRING, ""))
    return Option(name, config.get(name, default), DYNAMIC if name in config else DEFAULT, kind)
