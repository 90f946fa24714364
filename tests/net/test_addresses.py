"""Tests of `aioproducer.net.dialer`: which address of a name is next."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
from jumping import jumping

from aioproducer.net.dialer import Addresses, DnsResolver, Verbatim, canonical

if TYPE_CHECKING:
    from collections.abc import Sequence


class Table:
    """A resolver of one name; counts how often it was asked."""

    def __init__(self, *answers: Sequence[str] | OSError | None) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def resolve(self, host: str) -> Sequence[str]:
        assert host == "kafka.example"
        self.asked += 1
        answer = self._answers.pop(0)
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def canonical_name(self, address: str) -> str:
        return {"10.0.0.1": "kafka-1", "10.0.0.2": "kafka-2", "10.0.0.3": "kafka-2"}[address]


@pytest.mark.asyncio
async def test_each_address_until_it_fails_and_then_all_anew() -> None:
    """NET-32."""
    table = Table(["a", "b"], ["c"])
    addresses = Addresses("kafka.example", table.resolve)
    assert [await addresses.to_try() for _ in range(2)] == [("a", "b")] * 2
    addresses.failed("a")
    addresses.failed("a")
    addresses.failed("stranger")
    assert await addresses.to_try() == ("b",)
    assert table.asked == 1
    addresses.failed("b")
    assert await addresses.to_try() == ("c",)


@jumping
async def test_a_look_up_that_is_old_is_made_again() -> None:
    """Addresses that failed come again only when no other is left. A look-up that fails or hangs changes nothing while some are left."""
    table = Table(
        ["a", "b", "c"],
        ["d", "a", "b"],
        OSError("no answer"),
        [],
        None,
        ["b"],
        OSError("no answer"),
    )
    addresses = Addresses("kafka.example", table.resolve)
    assert await addresses.to_try() == ("a", "b", "c")
    addresses.failed("a")
    await asyncio.sleep(4.9)
    assert await addresses.to_try() == ("b", "c")
    await asyncio.sleep(0.2)
    assert await addresses.to_try() == ("d", "b")
    addresses.failed("d")
    await asyncio.sleep(6)
    for _ in range(3):
        assert await addresses.to_try() == ("b",)
    addresses.failed("b")
    assert await addresses.to_try() == ("b",)
    addresses.failed("b")
    with pytest.raises(OSError, match="no answer"):
        await addresses.to_try()


@pytest.mark.asyncio
async def test_a_name_that_is_forgotten_is_looked_up_again() -> None:
    """It may have moved."""
    addresses = Addresses("kafka.example", Table(["old"], ["new"]).resolve)
    await addresses.to_try()
    addresses.forget()
    assert await addresses.to_try() == ("new",)


@pytest.mark.parametrize(
    ("found", "lost", "tried"),
    [
        ("a b c", "a", "b c a"),
        ("a b c", "b", "c a b"),
        ("a b c", "c", "a b c"),
        ("a", "a", "a"),
        ("b c", "a", "b c"),
        (":a b :c d", "b", "d b :a :c"),
        (":a b :c d", ":a", ":c :a b d"),
        (":a b", "b", "b :a"),
    ],
)
@pytest.mark.asyncio
async def test_the_address_of_a_lost_connection_is_the_last_of_its_ip_version(
    found: str, lost: str, tried: str
) -> None:
    """Once: the look-up after that gives its own order."""
    addresses = Addresses("kafka.example", Table(found.split(), found.split()).resolve)
    addresses.forget(lost)
    assert " ".join(await addresses.to_try()) == tried
    addresses.forget()
    assert " ".join(await addresses.to_try()) == found


@pytest.mark.asyncio
async def test_a_name_that_stands_for_no_address() -> None:
    """An error, as if the look-up had failed; the next try asks again."""
    addresses = Addresses("kafka.example", Table([], ["late"]).resolve)
    with pytest.raises(OSError, match=r"'kafka\.example' stands for no address"):
        await addresses.to_try()
    assert await addresses.to_try() == ("late",)


def test_canonical_names_stand_in_the_place_of_addresses() -> None:
    """KIP-235; each once."""
    table = Table(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    assert asyncio.run(canonical(table)("kafka.example")) == ("kafka-1", "kafka-2")


def test_verbatim_knows_no_addresses() -> None:
    """The dialer does."""
    assert asyncio.run(Verbatim().resolve("any name")) == ("any name",)
    assert asyncio.run(Verbatim().canonical_name("any address")) == "any address"


def test_dns_gives_every_answer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the resolver's order, of both families."""
    told = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.2", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0)),
    ]
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda host, *_args: told if host == "kafka.example" else None
    )
    assert asyncio.run(DnsResolver().resolve("kafka.example")) == (
        "fd00::1",
        "10.0.0.1",
        "10.0.0.2",
    )


def test_dns_says_why_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's own text."""

    def fail(*_args: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", fail)
    with pytest.raises(OSError, match="Name or service not known"):
        asyncio.run(DnsResolver().resolve("nowhere.invalid"))


def test_dns_knows_the_name_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reverse look-up."""
    monkeypatch.setattr(
        "socket.getnameinfo",
        lambda address, _flags: ("kafka-1.example", "0") if address == ("10.0.0.1", 0) else None,
    )
    assert asyncio.run(DnsResolver().canonical_name("10.0.0.1")) == "kafka-1.example"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%1"])
def test_an_address_is_its_own_answer(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name server is asked, and no thread."""
    monkeypatch.delattr("socket.getaddrinfo")
    assert asyncio.run(DnsResolver().resolve(host)) == (host,)
