"""Tests of `aioproducer.config.producer_config`, by the `client_id` of producers."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aioproducer import Producer, ProducerConfig
from aioproducer.config.producer_config import ClientIdNumber
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def first() -> Iterator[int]:
    """The number that the next producer has: other tests may have left producers that nothing has collected yet."""
    gc.collect()
    number = ClientIdNumber()
    value = number.value
    number.release()
    yield value
    gc.collect()


def number_of(producer: Producer[bytes, bytes]) -> int:
    name, _, number = producer.config.client_id.rpartition("-")
    assert name == "aioproducer"
    return int(number)


@pytest.mark.asyncio
async def test_numbers_are_given_in_turn_and_used_again(first: int) -> None:
    """The lowest free one, from construction to the end of `stop`; brokers see it, and metrics have it."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        one, two, three = (Producer[bytes, bytes](**cluster.client_options) for _ in range(3))
        assert [number_of(each) for each in (one, two, three)] == sorted({number_of(each) for each in (one, two, three)})
        assert number_of(one) == first
        await two.start()
        await two.send_and_wait("orders", b"v")
        assert {request.client_id for request in cluster.requests()} == {two.config.client_id}
        assert {dict(metric.tags)["client-id"] for metric in two.metrics()} == {two.config.client_id}
        await two.stop()
        await two.stop()
        four, five = (Producer[bytes, bytes](**cluster.client_options) for _ in range(2))
        assert number_of(four) == number_of(two)
        assert number_of(five) > number_of(three)
        await one.stop()
        assert number_of(Producer()) == first


def test_a_producer_that_is_gone_gives_its_number_back(first: int) -> None:
    """Without `stop`, and also where its options were bad."""
    producer: Producer[bytes, bytes] = Producer()
    assert number_of(producer) == first
    del producer
    gc.collect()
    assert number_of(Producer()) == first


@pytest.mark.parametrize("given", [{}, {"client_id": None}, {"client_id": ""}], ids=repr)
def test_what_leaves_the_choice_to_the_producer(given: dict[str, str | None], first: int) -> None:
    assert Producer(**given).config.client_id == f"aioproducer-{first}"


def test_a_client_id_that_is_given_is_kept() -> None:
    """A client id that is given is kept, for each producer that gets it."""
    config = ProducerConfig(client_id="mine", transactional_id="bank")
    assert Producer(config).config is config
    assert Producer(config).config.client_id == "mine"


def test_producers_of_one_config_have_their_own(first: int) -> None:
    """Also of the config that another producer shows; a chosen id is none that was given."""
    config = ProducerConfig(acks=1)
    one: Producer[bytes, bytes] = Producer(config)
    two: Producer[bytes, bytes] = Producer(one.config)
    assert (one.config.client_id, two.config.client_id) == (f"aioproducer-{first}", f"aioproducer-{first + 1}")
    assert config.client_id == ""
    assert two.config.acks == config.acks


def test_a_transactional_producer_has_its_name() -> None:
    """A transactional producer's client id has its name, as in Java. A name that no request's header can hold is cut."""
    assert Producer(transactional_id="bank").config.client_id == "aioproducer-bank"
    long: Producer[bytes, bytes] = Producer(transactional_id="ü" * 16_383)
    assert long.config.client_id == "aioproducer-" + "ü" * 16_377


FORKED = """
import os
from aioproducer import Producer

parents = [Producer() for _ in range(3)]
child = os.fork()
if not child:
    mine = Producer()
    del parents  # does not give back the child's number
    print(mine.config.client_id, Producer().config.client_id, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(Producer().config.client_id)
"""


def test_a_forked_child_counts_anew() -> None:
    """The parent's producers do not run in it."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["aioproducer-1 aioproducer-2", "aioproducer-4"]
