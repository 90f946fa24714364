"""Tests of `aioproducer.testing.topics`."""

from __future__ import annotations

import pytest

from aioproducer.testing.topics import Topics


def make() -> Topics:
    return Topics([1, 2, 3, 4], verify=False)


def test_leaders_are_dealt_in_turn_with_three_replicas() -> None:
    """Every broker leads something; the leader is the first replica."""
    topic = make().create("t", 5, {})
    assert [partition.leader for partition in topic.partitions] == [1, 2, 3, 4, 1]
    assert [partition.replicas for partition in topic.partitions][:3] == [
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 1),
    ]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "a" * 250, "a\n"])
def test_names_that_kafka_refuses(name: str) -> None:
    """At most 249 of Kafka's characters."""
    with pytest.raises(ValueError, match="no name of a topic"):
        make().create(name, 1, {})


@pytest.mark.parametrize(
    ("partitions", "config"),
    [(0, {}), (1, {"message.timestamp.type": "Never"}), (1, {"max.message.bytes": "many"})],
)
def test_a_refused_topic_is_not_kept(partitions: int, config: dict[str, object]) -> None:
    """It can be made with better arguments."""
    topics = make()
    with pytest.raises(ValueError):
        topics.create("t", partitions, config)
    assert list(topics) == []


def test_a_topic_made_again_has_another_id() -> None:
    """Its old id finds nothing."""
    topics = make()
    old = topics.create("t", 1, {}).topic_id
    with pytest.raises(ValueError, match="already"):
        topics.create("t", 1, {})
    topics.delete("t")
    assert topics.named("t") is topics.identified(old) is None
    new = topics.create("t", 1, {})
    assert len(new.topic_id) == 16
    assert new.topic_id != old
    assert topics.identified(new.topic_id) is new


def test_partitions_only_grow() -> None:
    """The old ones keep their logs."""
    topics = make()
    topic = topics.create("t", 2, {})
    logs = [partition.log for partition in topic.partitions]
    topics.grow("t", 4)
    assert [partition.log for partition in topic.partitions][:2] == logs
    assert len(topic.partitions) == 4
    with pytest.raises(ValueError, match="only grows"):
        topics.grow("t", 4)


def test_a_partition_by_number() -> None:
    """A topic has no partition with a negative number."""
    topic = make().create("t", 2, {})
    assert topic.partition(1) is topic.partitions[1]
    assert topic.partition(2) is topic.partition(-1) is None


def test_an_unknown_topic_is_told_with_the_known() -> None:
    """A misspelt topic in a test."""
    topics = make()
    topics.create("orders", 1, {})
    with pytest.raises(ValueError, match=r"ordres.*orders"):
        topics.existing("ordres")
