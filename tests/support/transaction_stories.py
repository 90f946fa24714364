"""Stories of producers with ids and transactions, step by step. The fake and real Kafka must answer alike."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from group_members import fetched, offsets_of
from group_members import named as told_name
from transactional import Hand

from aioproducer.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.testing.test_fake_alike import World

LAST = 2**31 - 1


def hand(world: World, name: str | None = "tx", version: int = 2) -> Hand:
    return Hand(world.client, world.name, name and f"{world.name}-{name}", version)


async def sequences(world: World) -> AsyncIterator[object]:
    """An idempotent producer writes sequences in and out of order, and the broker accepts or refuses each."""
    producer = hand(world, None)
    yield await producer.init(), producer.epoch
    yield await producer.write(b"a", sequence=5), await producer.write(b"a", sequence=5)
    for sequence, count in (
        (6, 1),
        (8, 1),
        (5, 1),
        (7, 2),
        (7, 1),
        (8, 1),
        (9, 3),
        (9, 2),
        (10, 2),
        (12, 1),
        (13, 1),
        (6, 1),
        (7, 2),
        (14, 1),
    ):
        yield sequence, await producer.write(*[b"b"] * count, sequence=sequence)
    for epoch, sequence in (
        (1, 1),
        (1, 0),
        (0, 15),
        (0, 14),
        (1, 0),
        (1, 1),
        (3, 0),
        (2, 0),
        (32767, 0),
        (32767, 1),
    ):
        yield epoch, sequence, await producer.write(b"c", epoch=epoch, sequence=sequence)
    yield await producer.write(b"d", partition=1, sequence=100)
    yield (
        await producer.write(b"e", producer_id=-1, epoch=-1, sequence=-1),
        await producer.write(b"e", epoch=0, sequence=-1),
    )


async def wrapping(world: World) -> AsyncIterator[object]:
    """After the last sequence comes 0, within a batch or between two."""
    between, within = hand(world, None), hand(world, None)
    yield await between.init(), await within.init(), within.producer_id != between.producer_id
    for sequence, count in ((LAST - 1, 2), (1, 1), (0, 2), (LAST - 1, 2), (0, 2), (1, 1), (2, 1)):
        yield await between.write(*[b"a"] * count, sequence=sequence)
    for sequence, count in ((LAST - 1, 4), (0, 1), (2, 1), (LAST - 1, 4), (LAST, 3), (3, 1)):
        yield await within.write(*[b"b"] * count, partition=1, sequence=sequence)


async def identities(world: World) -> AsyncIterator[object]:
    """InitProducerId: what is refused, and how epochs grow."""
    producer = hand(world)
    yield (
        await producer.init(transaction_timeout_ms=0),
        await producer.init(transaction_timeout_ms=900_001),
    )
    yield await hand(world, None).init(named=(5, -1)), await hand(world, None).init(named=(-1, 5))
    empty = Hand(world.client, world.name, "")
    yield await empty._ask(
        ApiKey.INIT_PRODUCER_ID, transactional_id="", transaction_timeout_ms=9000
    )
    yield await producer.init(), producer.epoch
    first = producer.producer_id
    for named, fields in (
        (None, {}),
        ((first, 1), {}),
        ((first, 1), {}),
        ((first, 0), {}),
        ((first, 7), {}),
        ((first, 2), {}),
        ((first, 0), {"version": 3}),
        ((first + 1000, 3), {}),
        (None, {}),
        ((first, 3), {}),
        ((first, 4), {}),
    ):
        yield (
            named and named[1],
            await producer.init(named=named, **fields),
            producer.producer_id == first,
            producer.epoch,
        )
    other = hand(world, None)
    yield await other.init(named=(first, 3)), other.producer_id != first, other.epoch


async def second_version(world: World) -> AsyncIterator[object]:
    """Each end of a transaction raises the epoch (KIP-890)."""
    producer = hand(world)
    await producer.init()
    yield await producer.end(commit=True), await producer.end(commit=False), producer.epoch
    yield (
        await producer.write(b"a", sequence=3),
        await producer.write(b"a"),
        await producer.write(b"b"),
        await producer.write(b"c", partition=1),
    )
    yield (
        await producer.read(),
        await producer.read(committed=False),
        await producer.last_offset(),
        await producer.last_offset(committed=False),
    )
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    yield await producer.end(commit=True), producer.epoch
    await producer.settle()
    await producer.settle(1)
    yield await producer.read(), await producer.last_offset(), await producer.read(1)
    yield await producer.end(commit=True, **who), await producer.end(commit=False, **who)
    yield (
        await producer.write(b"z", epoch=who["producer_epoch"], sequence=2),
        await producer.write(b"z", sequence=1),
    )
    yield await producer.write(b"d"), await producer.end(commit=False)
    await producer.settle()
    yield (
        await producer.read(),
        await producer.read(offset=3),
        await producer.last_offset(timestamp=0),
    )
    yield (
        await producer.end(commit=True),
        await producer.end(commit=False),
        await producer.end(commit=False),
        producer.epoch,
    )
    yield (
        await producer.write(b"e", transactional=False),
        await producer.write(b"f", transactional=False, sequence=7),
    )
    yield (
        await producer.end(commit=True, producer_epoch=producer.epoch + 1),
        await producer.end(commit=True, producer_id=123456),
    )
    yield (
        await producer.write(b"f", transactional_id=None),
        await producer.write(b"f", partition=7),
        await producer.write(b"f", name="nothing"),
    )
    yield (
        await producer.write(b"g", producer_id=123456, epoch=0, sequence=0),
        await producer.write(b"g", epoch=producer.epoch + 1, sequence=0),
    )
    yield (
        await producer.write(b"g"),
        await producer.write(b"h", transactional_id=None, sequence=2),
        await producer.write(b"h", transactional=False),
    )


async def first_version(world: World) -> AsyncIterator[object]:
    """Transactions that are told their partitions before they write."""
    producer = hand(world, version=1)
    await producer.init()
    for commit in (True, False):
        yield await producer.end(commit=commit)
    for version in (3, 9, 10, 11):
        yield version, await producer.write(b"a", version=version)
    yield (
        await producer.add(0, 7),
        await producer.add(0, name="nothing"),
        await producer.add(0),
        await producer.add(0, 1),
    )
    for version in (3, 9, 11, 12):
        yield version, await producer.write(b"a", version=version)
    yield (
        await producer.read(),
        await producer.end(commit=True),
        await producer.end(commit=True),
        await producer.end(commit=False),
    )
    await producer.grown(1, 1)
    await producer.settle()
    yield await producer.read(), await producer.read(1)
    yield await producer.write(b"b"), await producer.write(b"b", version=9)
    yield (
        await producer.add(0),
        await producer.write(b"c"),
        await producer.end(commit=False),
        await producer.end(commit=False),
    )
    yield (
        await producer.end(commit=True),
        await producer.init(named=(producer.producer_id, producer.epoch)),
        producer.epoch,
    )
    await producer.settle()
    yield await producer.read()
    for version in range(4):
        yield (
            await producer.add(0, version=version, producer_epoch=0),
            await producer.add(0, version=version),
        )
    for version in range(5):
        yield (
            await producer.end(commit=True, version=version, producer_epoch=0),
            await producer.end(commit=True, version=version),
        )
    for version in (0, 5):
        yield (
            await producer.add(0, producer_id=123456),
            await producer.add(0, transactional_id=""),
            await producer.add(0, transactional_id="no"),
        )
        yield (
            await producer.end(commit=True, version=version, transactional_id=""),
            await producer.end(commit=True, transactional_id="no"),
        )


async def both_versions(world: World) -> AsyncIterator[object]:
    """A producer that changes from one to the other and back."""
    producer = hand(world, version=1)
    await producer.init()
    yield await producer.add(0), await producer.write(b"a"), await producer.end(commit=True)
    yield await producer.init(named=(producer.producer_id, producer.epoch)), producer.epoch
    producer.version = 2
    yield await producer.write(b"b"), await producer.end(commit=True), producer.epoch
    producer.version = 1
    yield (
        await producer.add(0),
        await producer.write(b"c"),
        await producer.end(commit=False),
        producer.epoch,
    )
    producer.version = 2
    await producer.settle()
    yield (
        await producer.write(b"d"),
        await producer.write(b"e"),
        await producer.end(commit=True),
        producer.epoch,
    )
    await producer.settle()
    yield await producer.read()


async def zombies(world: World) -> AsyncIterator[object]:
    """A second producer with the same transactional id: the first writes no more, and what it wrote is aborted."""
    for version in (1, 2):
        old, new = hand(world, f"z{version}", version), hand(world, f"z{version}", version)
        await old.init()
        yield await old.add(0), await old.write(b"a")
        yield (
            await new.init(retries=False),
            await new.init(),
            new.producer_id == old.producer_id,
            new.epoch,
        )
        await old.settle()
        yield await old.read()
        for asked in (9, 11, 12):
            yield asked, await old.write(b"b", version=asked)
        yield (
            await old.write(b"b", partition=1),
            await old.add(0),
            await old.add(0, version=1),
            await old.add_offsets("g"),
        )
        yield [
            await old.end(commit=commit, version=asked)
            for asked in (1, 2, 4, 5)
            for commit in (True, False)
        ]
        yield (
            await old.commit_offsets(f"{world.name}-g", {0: 1}),
            await old.init(named=(old.producer_id, old.epoch)),
        )
        yield await old.init(named=(old.producer_id, old.epoch), version=3)
        yield await new.add(0), await new.write(b"c"), await new.end(commit=True)
        await new.settle()
        yield await new.read()


async def timed_out(world: World) -> AsyncIterator[object]:
    """A transaction that took too long: its producer is fenced, and in version 2 may abort all the same."""
    both = [hand(world, f"t{version}", version) for version in (1, 2)]
    for producer in both:
        await producer.init(transaction_timeout_ms=100)
        yield await producer.add(0), await producer.write(b"a")
    await both[0].settle()
    for producer in both:
        yield (
            await producer.write(b"b"),
            await producer.write(b"b", partition=1),
            await producer.add(0),
        )
        yield (
            await producer.end(commit=True),
            await producer.end(commit=False),
            await producer.end(commit=False),
        )
        yield await producer.init(), producer.epoch


async def interleaved(world: World) -> AsyncIterator[object]:
    """Several transactions in one partition: what is stable, what was aborted, what a read from the middle is told."""
    first, second, third = (hand(world, f"i{number}") for number in range(3))
    plain = hand(world, None)
    for producer in (first, second, third, plain):
        await producer.init()
    yield (
        await first.write(b"1"),
        await second.write(b"2"),
        await plain.write(b"p"),
        await third.write(b"3"),
        await first.write(b"1"),
    )
    yield await first.read(), await first.last_offset()
    yield await second.end(commit=False)
    # without this wait, markers come in any order
    await first.grown(6)
    yield await third.end(commit=True)
    await first.grown(7)
    yield await first.read()
    yield await second.write(b"2"), await plain.write(b"p")
    yield await first.end(commit=False)
    await first.grown(10)
    yield (await first.read()).aborted, (await first.read()).stable
    yield await second.end(commit=False)
    await second.settle()
    for offset in range(12):
        seen = await first.read(offset=offset)
        yield offset, seen.aborted, seen.batches[:1]


async def group_offsets(world: World) -> AsyncIterator[object]:
    """Offsets that a transaction commits."""
    group = f"{world.name}-g"
    reader = world.consumer("g")
    unstable: dict[str, Any] = {"require_stable": True}

    async def seen() -> list[Any]:
        asked = {world.name: [0, 1]}
        return [
            sorted(offsets_of(await fetched(reader, 8, topics=asked, **fields)).values())
            for fields in ({}, unstable)
        ]

    async def settled() -> None:
        asked = {world.name: [0, 1]}
        while any(
            part.error_code
            for part in (await fetched(reader, 8, topics=asked, **unstable)).topics[0].partitions
        ):
            await asyncio.sleep(0.02)

    for version in (1, 2):
        producer = hand(world, f"o{version}", version)
        await producer.init()
        yield await producer.commit_offsets(group, {0: version})
        yield (
            await producer.add_offsets(group),
            await producer.commit_offsets(group, {0: version, 7: 1}),
            await seen(),
        )
        yield (
            await producer.commit_offsets(group, {0: 1}, name="nothing"),
            await producer.commit_offsets(group, {0: 1}, metadata="x" * 4097),
        )
        yield await producer.end(commit=False)
        await settled()
        yield await seen()
        yield (
            await producer.add_offsets(group),
            await producer.commit_offsets(group, {0: version, 1: 9}),
            await producer.end(commit=True),
        )
        await settled()
        yield await seen()
    member = world.consumer("members", instance="i")
    await member.enter()
    here = f"{world.name}-members"
    known = {
        "member_id": member.member_id,
        "generation_id": member.generation,
        "group_instance_id": "i",
    }
    yield (
        await producer.add_offsets(here),
        await producer.commit_offsets(here, {0: 1}),
        await producer.commit_offsets(here, {0: 1}, **known),
    )
    for wrong in (
        {"member_id": "stranger"},
        {"generation_id": 7},
        {"group_instance_id": "other"},
        {"member_id": "stranger", "group_instance_id": None},
    ):
        yield wrong, await producer.commit_offsets(here, {0: 1}, **{**known, **wrong})
    yield await producer.commit_offsets(f"{world.name}-new", {0: 1}, generation_id=0, member_id="m")
    yield await producer.commit_offsets("", {0: 1}), await producer.add_offsets("")
    yield await producer.end(commit=False)


async def listing(world: World) -> AsyncIterator[object]:
    """ListTransactions and DescribeTransactions, at each step of a transaction's life."""
    for version in (1, 2):
        producer = hand(world, f"listed-{version}", version)
        yield await _listed(world, producer), await _described(world, producer)
        await producer.init()
        yield await _listed(world, producer), await _described(world, producer)
        if version == 1:
            await producer.add(1, 0)
            await producer.add_offsets(f"{world.name}-group")
        else:
            await producer.write(b"v", partition=1)
            await producer.write(b"v", partition=0)
            await producer.commit_offsets(f"{world.name}-group", {0: 1})
        yield await _listed(world, producer), await _described(world, producer)
        # A transaction that began in this millisecond is not longer than 0 ms.
        await asyncio.sleep(0.01)
        for filters in (
            {"state_filters": ["Ongoing", "Nothing"]},
            {"state_filters": ["Empty"]},
            {"producer_id_filters": [producer.producer_id]},
            {"producer_id_filters": [producer.producer_id + 1000]},
            {"duration_filter": 0},
            {"duration_filter": 60_000},
            {"transactional_id_pattern": f"{world.name}-list.*"},
            {"transactional_id_pattern": f"{world.name}-list"},
            {"transactional_id_pattern": "a("},
        ):
            yield filters.keys(), await _listed(world, producer, **filters)
        yield await _listed(world, producer, duration_filter=1)
        yield await producer.end(commit=True)
        async with asyncio.timeout(10):
            while "Prepare" in (await _listed(world, producer))[2][0][1]:
                await asyncio.sleep(0.01)
        yield await _listed(world, producer), await _described(world, producer)
        await producer.init()
        yield await _described(world, producer)
    answer = await world.client.ask(
        ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=["", f"{world.name}-unknown"]
    )
    yield [told_name(each.error_code) for each in answer.transaction_states]


async def _listed(
    world: World, producer: Hand, **filters: Any
) -> tuple[str, list[str], list[tuple[bool, str]]]:
    """The error, the unknown states, and of this producer whether the id is its own, and its state."""
    answer = await world.client.ask(ApiKey.LIST_TRANSACTIONS, **filters)
    found = [
        each
        for each in answer.transaction_states
        if each.transactional_id == producer.transactional_id
    ]
    states = [(each.producer_id == producer.producer_id, each.transaction_state) for each in found]
    return told_name(answer.error_code), answer.unknown_state_filters, states


async def _described(world: World, producer: Hand) -> tuple[object, ...]:
    """All but numbers that differ between two clusters."""
    assert producer.transactional_id is not None
    await world.client.ask(
        ApiKey.FIND_COORDINATOR, version=4, key_type=1, coordinator_keys=[producer.transactional_id]
    )
    (told,) = (
        await world.client.ask(
            ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[producer.transactional_id]
        )
    ).transaction_states
    topics = sorted(
        (each.topic == world.name, len(each.partitions), each.topic.startswith("__"))
        for each in told.topics
    )
    is_mine = (told.producer_id == producer.producer_id, told.producer_epoch - producer.epoch)
    return (
        told_name(told.error_code),
        is_mine,
        told.transaction_state,
        told.transaction_timeout_ms,
        told.transaction_start_time_ms > 0,
        told.transaction_start_time_ms < 0,
        topics,
    )


STORIES = (
    sequences,
    wrapping,
    identities,
    listing,
    second_version,
    first_version,
    both_versions,
    zombies,
    timed_out,
    interleaved,
    group_offsets,
)
