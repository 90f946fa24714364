"""The judge sees what it is there to see: clients that lie, in every way that a row forbids."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.errors import DeliveryError, Persisted
from aioproducer.testing.jumping import run_jumping

from .clients import Ours
from .judge import complaints
from .row import Holds, Row
from .stage import play

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aioproducer.testing import FakeCluster


class Liar(Ours):
    """Our producer, which does one thing wrong with the third record."""

    def __init__(self, lie: str) -> None:
        super().__init__()
        self._lie = lie
        self._count = 0
        self._kept: bytes | None = None

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        if self._lie == "does not start":
            raise ConnectionError("no")
        await super().start(cluster, options)

    async def send(self, topic: str, value: bytes, partition: int | None) -> Awaitable[tuple[int, int]]:
        self._count += 1
        if self._count == 3:
            return await getattr(self, "_" + self._lie.replace(" ", "_"))(topic, value, partition)  # type: ignore[no-any-return]
        return await super().send(topic, value, partition)

    async def _send_and_forget(self, *record: Any) -> None:
        self._forgotten = asyncio.ensure_future(await super().send(*record))

    async def _loses(self, *_record: Any) -> Awaitable[tuple[int, int]]:
        return _ended(0, 2)

    async def _sends_twice(self, *record: Any) -> Awaitable[tuple[int, int]]:
        await self._send_and_forget(*record)
        return await super().send(*record)

    async def _swaps(self, topic: str, value: bytes, partition: int | None) -> Awaitable[tuple[int, int]]:
        async def later() -> tuple[int, int]:
            await asyncio.sleep(0.5)
            return await (await Ours.send(self, topic, value, partition))

        return asyncio.ensure_future(later())

    async def _tells_another_offset(self, *record: Any) -> Awaitable[tuple[int, int]]:
        await self._send_and_forget(*record)
        return _ended(0, 0)

    async def _never_ends(self, *record: Any) -> Awaitable[tuple[int, int]]:
        await self._send_and_forget(*record)
        return asyncio.get_running_loop().create_future()

    async def _ends_late(self, *record: Any) -> Awaitable[tuple[int, int]]:
        delivery = await super().send(*record)

        async def later() -> tuple[int, int]:
            await asyncio.sleep(2.5)
            return await delivery

        return later()

    async def _fails(self, *_record: Any) -> Awaitable[tuple[int, int]]:
        raise LookupError("no reason")

    async def _says_not_written(self, *record: Any) -> Awaitable[tuple[int, int]]:
        await self._send_and_forget(*record)
        raise DeliveryError("a lie", topic="orders", partition=0, persisted=Persisted.NO, attempts=1)

    async def stop(self) -> None:
        await super().stop()
        if self._lie == "does not stop":
            raise ConnectionError("no")

    async def _does_not_stop(self, *record: Any) -> Awaitable[tuple[int, int]]:
        return await super().send(*record)

    _tells_the_truth = _does_not_stop


async def _now(partition: int, offset: int) -> tuple[int, int]:
    return partition, offset


def _ended(partition: int, offset: int) -> Awaitable[tuple[int, int]]:
    return _now(partition, offset)


def told(lie: str, **holds: Any) -> list[str]:
    row = Row(
        number=0,
        name="",
        expected="",
        do=({"send": 5},),
        options={"delivery_timeout_ms": 1000, "request_timeout_ms": 1000},
        holds=Holds(**holds),
    )

    async def main() -> list[str]:
        return complaints(await play(row, Liar(lie), memory=True, patience=3), is_ours=True)

    return run_jumping(main())


LIES = {
    "tells the truth": [],
    "does not start": ["start failed: ConnectionError: no"],
    "does not stop": ["stop failed: ConnectionError: no"],
    "loses": ["1 acknowledged are not in the log"],
    "sends twice": ["1 are in the log twice"],
    "swaps": ["the log has them in another order"],
    "tells another offset": ["1 do not stand where their offset says"],
    "never ends": ["1 of 5 had not ended after 3 s", "4 of 5 acknowledged"],
    "ends late": ["1 ended later than delivery_timeout_ms and 1 s"],
    "fails": ["4 of 5 acknowledged: LookupError: no reason"],
    "says not written": [
        "4 of 5 acknowledged: DeliveryError: orders-0: a lie (the record was not written; sent once)",
        "1 failed for certain and are in the log",
    ],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_seen(lie: str) -> None:
    """Each by its own words, the truth by none."""
    assert told(lie) == LIES[lie]


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ({"within": (1, 2)}, ["it took 0.0 s"]),
        ({"requests": {"Produce": (2, 3)}}, ["1 Produce requests"]),
        ({"asks": {"Produce": 0}}, ["1 Produce requests"]),
        ({"starts": False}, ["it started"]),
        ({"acked": "none"}, ["5 of 5 acknowledged"]),
    ],
)
def test_what_a_row_asks_beside_that_is_asked(holds: dict[str, Any], words: list[str]) -> None:
    """Of a client that tells the truth."""
    assert told("tells the truth", **holds) == words


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ({"error": "LookupError"}, []),
        ({"error": "RecordTooLarge"}, ["failed as LookupError, not as RecordTooLarge"]),
        ({"persisted": "no"}, ["says persisted=None"]),
        ({"says": ("reason",)}, []),
        ({"says": ("9092",)}, ["the error does not say ['9092']: no reason"]),
    ],
)
def test_failures_are_looked_at(holds: dict[str, Any], words: list[str]) -> None:
    """Their names, words, and what they say of the log."""
    assert told("fails", acked=4, **holds) == words


def test_a_fault_that_did_not_happen_is_told() -> None:
    """The row tested nothing then."""
    row = Row(number=0, name="", expected="", do=({"fail": "Produce", "error": 6, "times": 2, "partition": 9}, {"send": 1}))

    async def main() -> list[str]:
        return complaints(await play(row, Ours(), memory=True), is_ours=True)

    assert run_jumping(main()) == ["did not happen: error on Produce (partition 9, times left 2)"]
