"""Tests of `aioproducer.engine.metadata.metadata_updater`: when a start is refused for good."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.engine.metadata.metadata_updater import BootstrapFailures
from aioproducer.errors import ConnectionLost, CredentialsRefused, KafkaError, broker_error

REFUSED, LOST, ANSWERED = (
    CredentialsRefused("no", "sasl", "PLAIN", 58),
    ConnectionLost("gone"),
    broker_error(3),
)


def node(where: str, last_error: KafkaError | None = None, refusals: int = 0) -> Any:
    return SimpleNamespace(
        where=where,
        control=SimpleNamespace(last_error=last_error, delay=str, failures=0, refusals=refusals),
    )


@pytest.mark.parametrize(
    ("addresses", "told", "final"),
    [
        ("ab", "", False),
        ("ab", "aR", False),
        ("ab", "aR aR", False),
        ("ab", "aR bR", False),
        ("ab", "aR bR aR", True),
        ("ab", "aL bL aL bL aL bL", False),
        ("ab", "aR bL aR", True),
        ("ab", "aR bL bL bL", False),
        ("ab", "aR aR bA", False),
        ("ab", "aR aR bA bL", True),
        ("ab", "aR bL aS", True),
        ("ab", "aR bS aR", True),
        ("abc", "aR bR", False),
        ("abc", "aR bR cR", True),
        ("abc", "aR bR cS", True),
        ("abc", "aR bR cL", False),
        ("abc", "aR bR cA", False),
        ("abcd", "aR bR cR", False),
        ("abcd", "aR bR cR dL", True),
    ],
)
def test_when_it_is_final(addresses: str, told: str, final: bool) -> None:
    """Every address was tried, one refused twice or three refused, and none let us in. R: refused, L: lost, A: answered with an error.

    S: refused while no request waited for it.
    """
    nodes = {address: node(f"{address}:1") for address in addresses}
    failures = BootstrapFailures(list(nodes.values()))
    for each in told.split():
        tried, error = (
            nodes[each[0]],
            {"R": REFUSED, "L": LOST, "A": ANSWERED, "S": REFUSED}[each[1]],
        )
        tried.control.refusals += error is REFUSED
        tried.control.failures += error is not ANSWERED
        if each[1] != "S":
            failures.note(tried, error)
    assert failures.is_final is final


def test_the_errors_name_each_address() -> None:
    told = CredentialsRefused("a:1: the broker refuses alice", "sasl")
    nodes = [node("a:1", told, 2), node("b:1"), node("c:1")]
    failures = BootstrapFailures(nodes)
    failures.note(nodes[0], REFUSED)
    failures.note(nodes[1], LOST)
    assert (
        str(failures.refused())
        == "no broker let this client in. a:1: the broker refuses alice; b:1: gone; c:1: no answer yet"
    )
    assert failures.refused().__cause__ is told
    assert str(failures.timed_out(3)).startswith(
        "no broker could be reached within 3 s. a:1: the broker refuses alice; b:1: gone"
    )
