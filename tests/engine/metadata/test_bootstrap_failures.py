"""Tests of `aioproducer.engine.metadata.bootstrap_failures`: when a start is refused for good."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.engine.metadata.bootstrap_failures import BootstrapFailures
from aioproducer.errors import ConnectionLost, CredentialsRefused, KafkaError, broker_error

REFUSED, LOST, ANSWERED = CredentialsRefused("no", "sasl", "PLAIN", 58), ConnectionLost("gone"), broker_error(3)


def node(where: str, last_error: KafkaError | None = None) -> Any:
    return SimpleNamespace(where=where, control=SimpleNamespace(last_error=last_error))


@pytest.mark.parametrize(
    ("told", "final"),
    [
        ("", False),
        ("aR", False),
        ("aR aR", False),
        ("aR bR", False),
        ("aR bR aR", True),
        ("aL bL aL bL aL bL", False),
        ("aR bL aR", True),
        ("aR bL bL bL", False),
        ("aR aR bA", False),
        ("aR aR bA bL", True),
    ],
)
def test_when_it_is_final(told: str, final: bool) -> None:
    """Every address was tried, one refused twice, and none let us in. R: refused, L: lost, A: answered with an error."""
    nodes = {"a": node("a:1"), "b": node("b:1")}
    failures = BootstrapFailures(list(nodes.values()))
    for each in told.split():
        failures.note(nodes[each[0]], {"R": REFUSED, "L": LOST, "A": ANSWERED}[each[1]])
    assert failures.is_final is final


def test_the_errors_name_each_address() -> None:
    nodes = [node("a:1", CredentialsRefused("a:1: the broker refuses alice", "sasl")), node("b:1"), node("c:1")]
    failures = BootstrapFailures(nodes)
    failures.note(nodes[0], REFUSED)
    failures.note(nodes[1], LOST)
    assert str(failures.refused()) == "no broker let this client in. a:1: the broker refuses alice; b:1: gone; c:1: no answer yet"
    assert failures.refused().__cause__ is REFUSED
    assert str(failures.timed_out(3)).startswith("no broker could be reached within 3 s. a:1: the broker refuses alice; b:1: gone")
