"""Which partition Kafka's own class gives a key, and how it weighs queues: ours are the same (PAR-01, PAR-06)."""

from __future__ import annotations

import json
import random

import pytest

from aioproducer.core.metadata.cluster_metadata import NO_ID
from aioproducer.core.producer_batch import PartitionQueue
from aioproducer.core.topic_routing import TopicRouting, weighed
from tests.vectors.generate import run

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("compiler")]
PARTITIONS = (1, 2, 3, 7, 12, 50, 1000, 65_537)


def test_keys_go_where_java_sends_them() -> None:
    """We send keys of every length up to 70 bytes, some longer ones and the empty key to Java's partitions, for any number of
    partitions.
    """
    random_ = random.Random(794)
    keys = [random_.randbytes(size) for size in (*range(71), 255, 256, 1000) for _ in range(8)]
    keys += [b"key-%d" % number for number in range(500)]
    asked = [(key, random_.choice(PARTITIONS)) for key in keys]
    told = run("place", "".join(f"{partitions} {key.hex()}\n" for key, partitions in asked))
    routings = {partitions: routing(partitions) for partitions in PARTITIONS}
    assert [routings[partitions].by_key[key].partition for key, partitions in asked] == list(
        map(int, told)
    )


def test_queues_weigh_what_java_gives_them() -> None:
    """Our weights of queues of any lengths are Java's. Where Java makes no table, the queues stay as they were."""
    random_ = random.Random(6)
    queues = [
        [random_.randrange(most) for _ in range(random_.randint(1, 20))]
        for most in (1, 2, 5, 100)
        for _ in range(50)
    ]
    told = run("weigh", "".join(f"{' '.join(map(str, depths))}\n" for depths in queues))
    assert [weighed(depths) or depths for depths in queues] == [json.loads(line) for line in told]


def routing(partitions: int) -> TopicRouting:
    made = TopicRouting("t", NO_ID)
    made.queues += [PartitionQueue(made, partition, 1, None) for partition in range(partitions)]
    return made
