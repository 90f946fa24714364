"""Tests of `aioproducer.core.metadata.cluster_metadata`: how an answer changes what is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from batches import whole
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.metadata.cluster_metadata import (
    NO_ID,
    STRIDE,
    Broker,
    ClusterMetadata,
    PartitionView,
    TopicView,
)
from aioproducer.wire.schema import message

ID, OTHER_ID = b"one topic's id..", b"another topic id"
NOBODY = PartitionView(-1, -1)


def broker(node_id: int, host: str = "host", port: int = 9092) -> Any:
    return message("Metadata.response.brokers", node_id=node_id, host=host, port=port)


def told(
    name: str | None,
    partitions: dict[int, tuple[int, int]],
    *,
    topic_id: bytes = ID,
    error: int = 0,
) -> Any:
    """A topic of an answer; partitions are leader and epoch by index."""
    listed = [partition(index, leader, epoch) for index, (leader, epoch) in partitions.items()]
    return message(
        "Metadata.response.topics",
        name=name,
        topic_id=topic_id,
        error_code=error,
        partitions=listed,
    )


def partition(index: int, leader: int, epoch: int, error: int = 0) -> Any:
    return message(
        "Metadata.response.topics.partitions",
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        error_code=error,
    )


def answer(
    *topics: Any, brokers: tuple[Any, ...] = (broker(1), broker(2)), cluster_id: str | None = "c"
) -> Any:
    return message(
        "Metadata.response", brokers=list(brokers), topics=list(topics), cluster_id=cluster_id
    )


class Merged(NamedTuple):
    """A view, and what the last answer changed of its topics."""

    view: ClusterMetadata
    changed: tuple[TopicView, ...]


def take(
    view: ClusterMetadata, told: Any, *, has_epochs: bool = True, is_urged: bool = False
) -> tuple[TopicView, ...]:
    """The whole of an answer."""
    if not view.take_cluster(told):
        return ()
    topics = [
        whole(view.taking(topic, has_epochs=has_epochs, is_urged=is_urged)) for topic in told.topics
    ]
    return tuple(topic for topic in topics if topic is not None)


def merged(*answers: Any) -> Merged:
    """All of them in their order; the last one's outcome."""
    view, changed = ClusterMetadata(), ()
    for each in answers:
        changed = take(view, each)  # type: ignore[assignment]
    return Merged(view, changed)


def state(view: ClusterMetadata) -> tuple[Any, ...]:
    return dict(view.brokers), dict(view.topics), view.cluster_id


def leaders(outcome: Merged, name: str = "t") -> list[int]:
    return [partition.leader for partition in outcome.view.topics[name].partitions]


# The whole


def test_a_first_answer() -> None:
    """Brokers, the cluster's id and topics."""
    view, changed = merged(answer(told("t", {0: (1, 5), 1: (2, 6)})))
    assert view.brokers == {1: Broker(1, "host", 9092), 2: Broker(2, "host", 9092)}
    assert view.cluster_id == "c"
    assert view.topics == {"t": TopicView("t", ID, (PartitionView(1, 5), PartitionView(2, 6)))}
    assert changed == (view.topics["t"],)
    assert not whole(view.topics["t"].may_settle())


def test_the_same_answer_changes_nothing() -> None:
    """The merge of an equal answer reports no changed topic, so no part of the producer is notified."""
    same = answer(told("t", {0: (1, 5)}))
    assert merged(same, same).changed == ()


def test_a_partial_answer_changes_only_its_topics() -> None:
    """MET-03; brokers are the newest answer's."""
    outcome = merged(
        answer(told("t", {0: (1, 5)})), answer(told("u", {0: (3, 1)}), brokers=(broker(3, "new"),))
    )
    assert sorted(outcome.view.topics) == ["t", "u"]
    assert leaders(outcome) == [1]
    assert outcome.view.brokers == {3: Broker(3, "new", 9092)}
    assert [topic.name for topic in outcome.changed] == ["u"]


@pytest.mark.parametrize(
    "useless",
    [
        broker(1, port=0),
        broker(1, port=-1),
        broker(1, port=65_536),
        broker(1, host=""),
        broker(1, host="h" * 255),
        broker(1, host="h:1\nERROR forged"),
        broker(-1),
        broker(-2),
    ],
    ids=str,
)
def test_a_broker_without_an_address_or_number_is_none(useless: Any) -> None:
    """The client could not connect to such a broker. Negative ids belong to the bootstrap addresses."""
    assert merged(answer(brokers=(useless, broker(2)))).view.brokers == {2: Broker(2, "host", 9092)}
    assert state(merged(answer(brokers=(useless,))).view) == state(ClusterMetadata())


def test_the_highest_port_is_one() -> None:
    """The range has two ends."""
    assert merged(
        answer(brokers=(broker(0, port=65_535), broker(1, port=1)))
    ).view.brokers.keys() == {0, 1}


def test_a_broker_that_is_named_twice_alike_is_one() -> None:
    """There is no doubt about its address."""
    assert merged(answer(brokers=(broker(1), broker(1)))).view.brokers == {
        1: Broker(1, "host", 9092)
    }


def test_another_cluster_id_is_another_cluster() -> None:
    """Its topics of the same name are others: neither their epochs nor their partitions are to be compared."""
    view = merged(answer(told("t", {0: (1, 5), 1: (1, 5)}), told("u", {0: (1, 1)}))).view
    assert [view.is_of(cluster_id) for cluster_id in ("c", None, "d")] == [True, True, False]
    take(view, answer(told("t", {0: (2, 1)}), cluster_id="d"))
    assert view.topics == {"t": TopicView("t", ID, (PartitionView(2, 1),))}
    assert view.cluster_id == "d"


def test_a_broker_that_knows_no_cluster_id_is_of_the_same_cluster() -> None:
    """Metadata tells it since Kafka 0.10.1."""
    view = merged(answer(told("t", {0: (1, 5)})), answer(cluster_id=None)).view
    assert (view.cluster_id, list(view.topics)) == ("c", ["t"])
    assert merged(answer(cluster_id=None), answer()).view.cluster_id == "c"


def test_a_topic_without_a_name_is_passed_over() -> None:
    """It was asked for by its id, not by us."""
    assert merged(answer(told(None, {0: (1, 1)}), told("t", {0: (1, 1)}))).view.topics.keys() == {
        "t"
    }


def test_a_topic_that_is_told_twice_is_what_was_told_last() -> None:
    """The view has one of it."""
    assert leaders(merged(answer(told("t", {0: (1, 1)}), told("t", {0: (2, 2)})))) == [2]


# Leaders and epochs


@pytest.mark.parametrize(
    ("epoch", "leader"), [(4, 1), (5, 2), (6, 2)], ids=["older", "equal", "newer"]
)
def test_an_older_leader_epoch_is_a_stale_brokers(epoch: int, leader: int) -> None:
    """MET-07: the view keeps the leader with the latest election. Between answers about the same election, the newest answer holds."""
    assert leaders(merged(answer(told("t", {0: (1, 5)})), answer(told("t", {0: (2, epoch)})))) == [
        leader
    ]


def test_five_answers_in_a_row_outdo_an_epoch_that_does_not_work() -> None:
    """Some broker told an epoch that no election had. Each partition has a count of its own, and an answer counts once."""
    view = merged(answer(told("t", {0: (1, 500), 1: (1, 5)}))).view
    twice = told("t", {0: (2, 4), 1: (1, 5)})
    twice.partitions.append(partition(0, 2, 4))
    for _ in range(4):
        assert take(view, answer(twice), is_urged=True) == ()
    (topic,) = take(view, answer(told("t", {0: (2, 6), 1: (2, 4)})), is_urged=True)
    assert (
        topic == view.topics["t"] == TopicView("t", ID, (PartitionView(2, 6), PartitionView(1, 5)))
    )
    assert take(view, answer(told("t", {0: (2, 6), 1: (2, 4)})), is_urged=True) == ()


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(
            lambda view: take(view, answer(told("t", {0: (1, 5)})), is_urged=True),
            id="an answer with the known epoch",
        ),
        pytest.param(
            lambda view: take(view, answer(told("t", {0: (1, 6)})), is_urged=True),
            id="an answer with a newer one",
        ),
        pytest.param(lambda view: view.take_leader("t", 0, 2, 7), id="a hint of a newer election"),
        pytest.param(
            lambda view: view.forget("t") or take(view, answer(told("t", {0: (1, 5)}))),
            id="the topic is forgotten",
        ),
        pytest.param(
            lambda view: take(view, answer(told("t", {0: (1, 5)}), cluster_id="d")),
            id="another cluster",
        ),
    ],
)
def test_older_answers_count_in_a_row(between: Any) -> None:
    """What shows that some broker knows better begins the count anew."""
    view = merged(answer(told("t", {0: (1, 5)}))).view
    for _ in range(4):
        take(view, answer(told("t", {0: (2, 4)})), is_urged=True)
    between(view)
    known = view.topics["t"]
    for _ in range(4):
        assert take(view, answer(told("t", {0: (2, 4)}), cluster_id=None), is_urged=True) == ()
    assert view.topics["t"] is known


def test_older_answers_do_not_count_while_the_known_leader_works() -> None:
    """A refresh may ask the same stale broker each time."""
    view = merged(answer(told("t", {0: (1, 5)}))).view
    for _ in range(20):
        assert take(view, answer(told("t", {0: (2, 4)}))) == ()


def test_older_answers_about_a_large_topic_are_counted_in_steps() -> None:
    view = ClusterMetadata()
    view.take_cluster(answer())
    numbers = range(4 * STRIDE)
    whole(view.taking(told("t", dict.fromkeys(numbers, (1, 5)))))
    for _ in range(4):
        assert len(list(view.taking(told("t", dict.fromkeys(numbers, (2, 4))), is_urged=True))) >= 8
    assert len(list(view.taking(told("t", dict.fromkeys(numbers, (2, 4))), is_urged=True))) >= 8
    assert set(view.topics["t"].partitions) == {PartitionView(2, 4)}


def test_epochs_are_compared_by_partition() -> None:
    """One stale partition does not spoil the others."""
    before = answer(told("t", {0: (1, 5), 1: (1, 5)}))
    assert leaders(merged(before, answer(told("t", {0: (2, 4), 1: (2, 6)})))) == [1, 2]


def test_a_broker_that_knows_no_topic_ids_tells_of_the_same_topic() -> None:
    """In a cluster that is being upgraded: a stale leader does not come back through it, and the id stays known."""
    outcome = merged(answer(told("t", {0: (1, 5)})), answer(told("t", {0: (2, 4)}, topic_id=NO_ID)))
    assert outcome.view.topics["t"] == TopicView("t", ID, (PartitionView(1, 5),))


def test_a_topic_gets_an_id() -> None:
    """When the first broker is upgraded."""
    outcome = merged(answer(told("t", {0: (1, 5)}, topic_id=NO_ID)), answer(told("t", {0: (2, 5)})))
    assert outcome.view.topics["t"] == TopicView("t", ID, (PartitionView(2, 5),))


def test_a_broker_that_knows_no_epochs_is_believed() -> None:
    """There is nothing to compare; else the known leader would stay for ever."""
    assert leaders(merged(answer(told("t", {0: (1, 5)})), answer(told("t", {0: (2, -1)})))) == [2]


@pytest.mark.parametrize("leader", [-1, -2, 7], ids=["none", "nonsense", "not among the brokers"])
def test_a_leader_that_is_no_broker_is_none(leader: int) -> None:
    """It cannot be dialled; the topic is not settled."""
    outcome = merged(answer(told("t", {0: (leader, 5), 1: (1, 5)})))
    assert leaders(outcome) == [-1, 1]
    assert whole(outcome.view.topics["t"].may_settle())


def test_a_partition_with_an_error_is_kept() -> None:
    """MET-08: without a leader, until one is elected."""
    topic = told("t", {0: (1, 5)})
    topic.partitions.append(partition(1, -1, 5, error=5))
    outcome = merged(answer(topic))
    assert leaders(outcome) == [1, -1]
    take(outcome.view, answer(told("t", {1: (2, 5)})))
    assert leaders(outcome) == [1, 2]


# Leaders that Produce answers tell


def endpoint(node_id: int, host: str = "new", port: int = 9093) -> Any:
    return message("Produce.response.node_endpoints", node_id=node_id, host=host, port=port)


HINTED = answer(told("t", {0: (1, 5), 1: (1, 5)}))


@pytest.mark.parametrize(
    ("endpoints", "where"),
    [([], "host"), ([endpoint(2)], "new")],
    ids=["a known broker", "an address that is told"],
)
def test_a_hint_is_followed(endpoints: list[Any], where: str) -> None:
    """LDR-01: of that partition only; the topic's id stays (LDR-04)."""
    view = merged(HINTED).view
    told = view.take_leader("t", 0, 2, 6, endpoints)
    assert (
        told == TopicView("t", ID, (PartitionView(2, 6), PartitionView(1, 5))) == view.topics["t"]
    )
    assert view.brokers[2].host == where
    assert view.brokers[1] == Broker(1, "host", 9092)


def test_a_hint_may_tell_of_a_broker_that_is_new() -> None:
    """It joined after the last answer."""
    view = merged(HINTED).view
    before = view.brokers
    assert view.take_leader("t", 1, 9, 6, [endpoint(9), endpoint(8)]) is not None
    assert view.brokers == {**before, 9: Broker(9, "new", 9093)}, "who leads nothing is left out"
    assert 9 not in before, "who holds a view's brokers may go on reading them"


@pytest.mark.parametrize(
    ("name", "partition", "leader", "epoch", "endpoints"),
    [
        ("other", 0, 2, 6, []),
        ("t", 2, 2, 6, []),
        ("t", -1, 2, 6, []),
        ("t", 0, 2, 5, []),
        ("t", 0, 2, 4, []),
        ("t", 0, 2, -1, []),
        ("t", 0, -1, 6, []),
        ("t", 0, 9, 6, []),
        ("t", 0, 9, 6, [endpoint(8)]),
        ("t", 0, 9, 6, [endpoint(9, port=0)]),
        ("t", 0, 9, 6, [endpoint(9, host="")]),
        ("t", 0, -1, 6, [endpoint(-1)]),
    ],
    ids=[
        "unknown topic",
        "unknown partition",
        "below zero",
        "same epoch",
        "older epoch",
        "no epoch",
        "no leader",
        "unknown broker",
        "another's endpoint",
        "no port",
        "no host",
        "nobody's endpoint",
    ],
)
def test_a_hint_that_is_no_news_or_cannot_be_followed(
    name: str, partition: int, leader: int, epoch: int, endpoints: list[Any]
) -> None:
    """Nothing changes."""
    view = merged(HINTED).view
    before = state(view)
    assert view.take_leader(name, partition, leader, epoch, endpoints) is None
    assert state(view) == before


def test_metadata_that_is_older_than_a_hint_does_not_undo_it() -> None:
    """As with any older epoch."""
    outcome = merged(HINTED)
    outcome.view.take_leader("t", 0, 2, 7)
    take(outcome.view, answer(told("t", {0: (1, 6), 1: (1, 6)})))
    assert outcome.view.topics["t"].partitions == (PartitionView(2, 7), PartitionView(1, 6))


# Which partitions there are


def test_partitions_come_in_any_order() -> None:
    """Brokers promise none."""
    assert leaders(merged(answer(told("t", {2: (1, 1), 0: (2, 1), 1: (1, 1)})))) == [2, 1, 1]


def test_what_lies_beyond_a_gap_is_not_usable_yet() -> None:
    """The count would be wrong, and keys would go astray."""
    assert leaders(merged(answer(told("t", {0: (1, 1), 2: (1, 1)})))) == [1]


def test_a_partition_below_zero_is_none() -> None:
    """Python would take it for the last one."""
    outcome = merged(answer(told("t", {0: (1, 9), 1: (1, 9)})), answer(told("t", {-1: (2, 10)})))
    assert leaders(outcome) == [1, 1]
    assert outcome.changed == ()


@pytest.mark.parametrize(
    "partitions", [{}, {1: (1, 1)}, {-1: (1, 1)}], ids=["none", "not the first", "below zero"]
)
def test_a_topic_without_its_first_partition_cannot_be_used_yet(
    partitions: dict[int, tuple[int, int]],
) -> None:
    """No key has a place among no partitions: it counts as a topic that is being made."""
    topic = merged(answer(told("t", partitions))).view.topics["t"]
    assert topic.error is not None
    assert (topic.error.name, topic.error.retriable, whole(topic.may_settle())) == (
        "LEADER_NOT_AVAILABLE",
        True,
        True,
    )


def test_no_partitions_told_of_a_topic_that_has_some() -> None:
    """They stay."""
    assert leaders(merged(answer(told("t", {0: (1, 1)})), answer(told("t", {})))) == [1]


# Errors


@pytest.mark.parametrize("code", [3, 5], ids=["UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE"])
def test_an_error_that_passes_leaves_what_is_known(code: int) -> None:
    """The topic may be new to that broker only; if it is gone, the partitions' leaders say so."""
    outcome = merged(
        answer(told("t", {0: (1, 5)})), answer(told("t", {}, topic_id=NO_ID, error=code))
    )
    assert outcome == (outcome.view, ())
    assert leaders(outcome) == [1]


def test_an_error_of_a_topic_that_is_not_known_stands_in_its_place() -> None:
    """The view holds the topic with its error, so that the sends that wait for it can fail with it."""
    topic = merged(answer(told("t", {}, topic_id=NO_ID, error=3))).view.topics["t"]
    assert topic.error is not None
    assert (topic.error.code, topic.partitions, whole(topic.may_settle())) == (3, (), True)


def test_a_large_topic_is_taken_in_steps() -> None:
    """It changes in the last one, whole; equal partitions are one object, and those that stay are the same: they are compared at once."""
    view = ClusterMetadata()
    view.take_cluster(answer())
    numbers = range(4 * STRIDE)
    for epoch in (5, 6):
        before = view.topics.get("t")
        steps = 0
        for _ in view.taking(
            told(
                "t", {index: (1 + index % 2, epoch if index else 5) for index in reversed(numbers)}
            )
        ):
            steps += 1
            assert view.topics.get("t") is before
        assert steps >= 4
        partitions = view.topics["t"].partitions
        assert partitions == tuple(
            PartitionView(1 + index % 2, epoch if index else 5) for index in numbers
        )
        assert len(set(map(id, partitions))) <= 3
        assert before is None or partitions[0] is before.partitions[0]
    assert len(list(view.topics["t"].may_settle())) >= 3
    assert list(TopicView("t", partitions=partitions[:STRIDE]).may_settle()) == []


@pytest.mark.parametrize("index", [0, STRIDE - 1, STRIDE, 3 * STRIDE])
def test_a_missing_leader_among_many_is_seen(index: int) -> None:
    """Wherever it is."""
    partitions = [PartitionView(1, 5)] * (3 * STRIDE + 1)
    assert not whole(TopicView("t", ID, tuple(partitions)).may_settle())
    partitions[index] = NOBODY
    assert whole(TopicView("t", ID, tuple(partitions)).may_settle())


# Anything


_ids = st.integers(-3, 4)
_partitions = st.builds(
    partition, st.integers(-2, 5), _ids, st.integers(-1, 3), st.sampled_from([0, 5, 9])
)
_topics = st.builds(
    lambda name, topic_id, error, partitions: message(
        "Metadata.response.topics",
        name=name,
        topic_id=topic_id,
        error_code=error,
        partitions=partitions,
    ),
    st.sampled_from([None, "t", "u"]),
    st.sampled_from([NO_ID, ID, OTHER_ID]),
    st.sampled_from([0, 0, 3, 29, -1, 9999]),
    st.lists(_partitions, max_size=5),
)
_answers = st.builds(
    lambda topics, brokers: answer(*topics, brokers=tuple(brokers)),
    st.lists(_topics, max_size=3),
    st.lists(
        st.builds(
            broker, _ids, st.sampled_from(["", "a", "b"]), st.sampled_from([0, 1, 9092, 70_000])
        ),
        max_size=4,
    ),
)


@given(st.lists(_answers, max_size=6))
def test_whatever_brokers_tell_a_view_can_be_used(answers: list[Any]) -> None:
    """Brokers can be dialled; a topic has an error or partitions, never neither; what is told as changed is what is known."""
    view = ClusterMetadata()
    for each in answers:
        before = dict(view.topics)
        changed = take(view, each)
        for node_id, known in view.brokers.items():
            assert node_id == known.node_id >= 0
            assert known.host
            assert 0 < known.port < 65_536
        for name, topic in view.topics.items():
            assert topic.name == name
            assert (topic.error is None) == bool(topic.partitions)
            assert topic is before.get(name) or topic in changed


def test_a_broker_beside_metadata() -> None:
    """A coordinator that an answer named: known from then on, under that address; without one, what was known stays."""
    view = merged(answer()).view
    assert view.take_broker(Broker(1, "host", 9092))
    assert len(view.brokers) == 2
    assert view.take_broker(Broker(7, "coordinator", 9093))
    assert view.take_broker(Broker(1, "moved", 9094))
    assert view.brokers[7][:3] == (7, "coordinator", 9093)
    assert view.brokers[1][:3] == (1, "moved", 9094)
    before = dict(view.brokers)
    for bad in (
        Broker(8, "", 9092),
        Broker(8, "host", 0),
        Broker(8, "host", 70_000),
        Broker(-1, "host", 9092),
    ):
        assert not view.take_broker(bad)
    assert view.brokers == before
