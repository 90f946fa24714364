"""A subclass that keeps attributes of its own, as programs for aiokafka do: none of the usual names is one of the producer's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeCluster

# What subclasses of AIOKafkaProducer, and wrappers, call their attributes in public programs, and what is as likely.
WORDS = """
_bootstrap_servers _client _closed _config _connected _event _flush _headers _is_closed _is_connected _is_running _is_started _is_stopped
_key_serializer _lock _log _logger _loop _metrics _name _pause _pending _producer _queue _ready _retries _running _schema _send _serialize
_serializer _settings _start _started _starting _state _stop _stopped _stopping _task _tasks _timeout _topic _topics _tracer _value_serializer
"""
USUAL = frozenset(WORDS.split())


class Kept(Producer[bytes, bytes]):
    """Keeps flags, an event and settings of its own, under each of the usual names."""

    def __init__(self, **options: Any) -> None:
        self._settings = options
        super().__init__(**options)
        for name in USUAL:
            setattr(self, name, None)

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    async def start(self, *, wait: bool = True) -> None:
        self._starting = True
        await super().start(wait=wait)
        self._starting, self._running, self._stop = False, True, asyncio.Event()

    async def stop(self) -> None:
        await super().stop()
        self._running = False
        self._stop.set()


def test_no_private_name_is_a_usual_one() -> None:
    """A subclass that sets such an attribute would change the producer; the error would come from within, and later."""
    names = {
        name
        for name in (*dir(Producer), *vars(Producer()))
        if name.startswith("_") and not name.startswith("__")
    }
    assert "_engine" in names
    assert names & USUAL == set()


@pytest.mark.asyncio
async def test_a_subclass_with_attributes_of_its_own() -> None:
    """Every call goes on: those that need the engine, a transaction, a second attempt at one, and a start that was cancelled."""
    attempts: list[int] = []
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        producer = Kept(**cluster.client_options, transactional_id="kept", linger_ms=0)
        assert not producer.is_running
        async with producer.running(wait=True):
            assert producer.is_running

            async def write() -> None:
                attempts.append(len(attempts))
                if len(attempts) == 1:
                    cluster.fail("Produce", "POLICY_VIOLATION")
                await producer.send("orders", b"1", partition=0)
                await (await producer.send_many("orders", [b"2", b"3"]))

            with pytest.raises(Exception, match="POLICY_VIOLATION"):
                await producer.run_in_transaction(write)
            await producer.run_in_transaction(write)
            assert await producer.partitions_for("orders") == {0}
            assert (await producer.flush()).pending == 0
            assert producer.health()
        assert not producer.is_running
        assert cluster.values("orders", isolation="read_committed") == [b"1", b"2", b"3"]
