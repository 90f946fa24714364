"""Tests of `tests.tools.faults.judge`: it finds every wrong result that a row forbids."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.errors import DeliveryError, Persisted
from aioproducer.testing.jumping import run_jumping

from .judge import complaints
from .row import Holds, Row
from .stage import Client, play

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aioproducer.testing import FakeCluster


class Liar(Client):
    """Our producer, with one defect at the third record."""

    def __init__(self, lie: str) -> None:
        super().__init__()
        self._lie = lie
        self._count = 0
        self._kept: bytes | None = None

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        if self._lie == "does not start":
            raise ConnectionError("no")
        await super().start(cluster, options)

    async def send(
        self, topic: str, value: bytes, partition: int | None
    ) -> Awaitable[tuple[int, int]]:
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

    async def _swaps(
        self, topic: str, value: bytes, partition: int | None
    ) -> Awaitable[tuple[int, int]]:
        async def later() -> tuple[int, int]:
            await asyncio.sleep(0.5)
            return await (await Client.send(self, topic, value, partition))

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
        raise DeliveryError(
            "a lie", topic="orders", partition=0, persisted=Persisted.NO, attempts=1
        )

    async def commit(self) -> None:
        if self._lie == "commits nothing":
            await super().abort()
        elif self._lie == "never commits":
            await asyncio.sleep(1000)
        else:
            await super().commit()

    async def abort(self) -> None:
        await (super().commit() if self._lie == "aborts nothing" else super().abort())

    async def offsets(self, group: str, topic: str, offset: int) -> None:
        await super().offsets(
            group, topic, offset + (self._lie == "tells another offset of a group")
        )

    async def stop(self) -> None:
        await super().stop()
        if self._lie == "does not stop":
            raise ConnectionError("no")

    async def _does_not_stop(self, *record: Any) -> Awaitable[tuple[int, int]]:
        return await super().send(*record)

    _tells_the_truth = _commits_nothing = _aborts_nothing = _never_commits = (
        _tells_another_offset_of_a_group
    ) = _does_not_stop


async def _ended(partition: int, offset: int) -> tuple[int, int]:
    return partition, offset


def judged(row: Row, client: Client) -> list[str]:
    async def main() -> list[str]:
        return complaints(await play(row, client))

    return run_jumping(main())


def told(lie: str, *steps: dict[str, Any], **holds: Any) -> list[str]:
    options = {"delivery_timeout_ms": 1000, "request_timeout_ms": 1000, "max_block_ms": 1000} | (
        {"transactional_id": "tx"} if steps else {}
    )
    row = Row(
        number=0,
        name="",
        expected="",
        do=steps or ({"send": 5},),
        options=options,
        holds=Holds(**holds),
    )
    return judged(row, Liar(lie))


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
    """The judge names each wrong result in its own words, and has no complaint of a client that reports the right ones."""
    assert told(lie) == LIES[lie]


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ({"within": (1, 2)}, ["it took 0.0 s"]),
        ({"requests": {"Produce": (2, 3)}}, ["1 Produce requests"]),
        ({"asks": {"Produce": 0}}, ["1 Produce requests"]),
        ({"starts": False}, ["it started"]),
        ({"acked": "none"}, ["5 of 5 acknowledged"]),
        ({"lasts": (1, 2)}, ["it lasted 0.0 s"]),
        ({"epochs": 1}, []),
        ({"epochs": 2}, ["1 epochs"]),
        ({"offsets": {"group": 5}}, ["the offset of group is None"]),
    ],
)
def test_what_a_row_asks_beside_that_is_asked(holds: dict[str, Any], words: list[str]) -> None:
    """The judge checks a row's other expected results too, here with a client that reports the right results."""
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
    """The judge checks the names and texts of failures, and what they say of the log."""
    assert told("fails", acked=4, **holds) == words


COMMITS = ({"begin": 1}, {"send": 5}, {"offsets": "group", "at": 5}, {"commit": 1})
ABORTS = ({"begin": 1}, {"send": 5}, {"settle": 5}, {"abort": 1})


@pytest.mark.parametrize(
    ("lie", "steps", "words"),
    [
        ("tells the truth", COMMITS, []),
        ("tells the truth", ABORTS, []),
        (
            "commits nothing",
            COMMITS,
            [
                "5 of transaction 1, which was committed, are not visible",
                "the offset of group is None",
            ],
        ),
        ("aborts nothing", ABORTS, ["5 of transaction 1, which was not committed, are visible"]),
        ("never commits", COMMITS, ["commit failed: TimeoutError: "]),
        ("tells another offset of a group", COMMITS, ["the offset of group is 6"]),
        (
            "tells the truth",
            (*ABORTS[:3], {"commit": 1, "fails": "ProducerFenced"}),
            ["commit did not fail"],
        ),
        ("tells the truth", (*ABORTS, {"abort": 1, "fails": "TransactionMisuse"}), []),
    ],
)
def test_transactions_are_looked_at(
    lie: str, steps: tuple[dict[str, Any], ...], words: list[str]
) -> None:
    """The judge checks which records became visible, and whether each call ended as it should."""
    offsets = {"group": 5} if steps is COMMITS else {}
    assert told(lie, *steps, offsets=offsets) == words


def test_a_fault_that_did_not_happen_is_told() -> None:
    """The judge complains of a fault that affected no request, as the row then tested nothing."""
    row = Row(
        number=0,
        name="",
        expected="",
        do=({"fail": "Produce", "error": 6, "times": 2, "partition": 9}, {"send": 1}),
    )
    assert judged(row, Client()) == ["did not happen: error on Produce (partition 9, times left 2)"]


class Indiscreet(Client):
    """Our producer, always over SASL_PLAINTEXT. It may fail to start, with its password as the reason."""

    def __init__(self, *, tells: bool) -> None:
        super().__init__()
        self._tells = tells

    async def start(self, cluster: FakeCluster, options: dict[str, Any]) -> None:
        if self._tells:
            raise ConnectionError(f"refused: {options['sasl_password']}")
        given = {name: value for name, value in options.items() if not name.startswith("ssl_")}
        await super().start(cluster, {**given, "security_protocol": "SASL_PLAINTEXT"})


@pytest.mark.parametrize(
    ("tells", "protocol", "holds", "words"),
    [
        (False, "SASL_PLAINTEXT", {}, []),
        (False, "SASL_SSL", {}, ["it logs in without TLS"]),
        (True, "SASL_PLAINTEXT", {"starts": False}, ["an error tells a secret"]),
        (False, "SASL_PLAINTEXT", {"dials": 0}, ["1 connections"]),
        (False, "SASL_PLAINTEXT", {"starts_within": (60, 61)}, ["the start took 0.0 s"]),
    ],
)
def test_secrets_and_connections(
    *, tells: bool, protocol: str, holds: dict[str, Any], words: list[str]
) -> None:
    """The judge looks for secrets, logins without TLS and connections, and at the time of the start."""
    row = Row(
        number=0,
        name="",
        expected="",
        do=({"send": 5},),
        security={"protocol": "SASL_PLAINTEXT"},
        options={"security_protocol": protocol},
        holds=Holds(**holds),
    )
    assert judged(row, Indiscreet(tells=tells)) == words
