"""Tests of `aioproducer.testing.security.kerberos`: what its server refuses, and what its stand-in for `gssapi` leaves behind."""

from __future__ import annotations

import sys

import pytest

from aioproducer.testing.security.accounts import Accounts
from aioproducer.testing.security.kerberos import ClientContext, GssapiServer, ScriptedGssapi, ScriptedGssError
from aioproducer.testing.security.mechanisms import Refusal

ALICE = "alice@EXAMPLE.TEST"
NO_LAYER = b"\x01\0\0\0"


def server() -> GssapiServer:
    return GssapiServer(Accounts({"alice": ""}, 4096))


def proved(principal: str = ALICE, number: int = 1) -> tuple[ClientContext, GssapiServer]:
    """Return a client and a server that have taken each other's proofs."""
    client, broker = ClientContext(principal, "kafka@host", number), server()
    client.step(broker.respond(client.step(None) or b""))
    return client, broker


@pytest.mark.parametrize(
    ("principal", "choice"),
    [(ALICE, NO_LAYER), (ALICE, NO_LAYER + ALICE.encode()), ("alice/admin@EXAMPLE.TEST", NO_LAYER)],
)
def test_clients_that_are_let_in(principal: str, choice: bytes) -> None:
    """A client may name whom it acts for, if that is itself; the user is the first part of the principal."""
    client, broker = proved(principal)
    assert client.unwrap(broker.respond(b"")) == NO_LAYER
    assert broker.principal is None
    assert broker.respond(client.wrap(choice)) == b""
    assert (broker.claimed, broker.principal) == (principal, "alice")


@pytest.mark.parametrize(
    "choice",
    [b"", b"\x01", b"\x02\0\0\0", b"\x04\0\xff\xff", b"\x01\0\xff\xff", NO_LAYER + b"bob@EXAMPLE.TEST", NO_LAYER + b"\xff"],
    ids=repr,
)
def test_choices_that_are_refused(choice: bytes) -> None:
    """Another layer, a size without a layer, and another identity."""
    client, broker = proved()
    broker.respond(b"")
    with pytest.raises(Refusal):
        broker.respond(client.wrap(choice))
    assert broker.principal is None


def test_tickets_that_are_refused() -> None:
    """Another service's, one that was changed, one of a user without an account, and none."""
    good = ClientContext(ALICE, "kafka@host").step(None) or b""
    for ticket in (
        ClientContext(ALICE, "http@host").step(None) or b"",
        b"A" + good[1:],
        good[:-1],
        ClientContext("mallory@EXAMPLE.TEST", "kafka@host").step(None) or b"",
        b"",
    ):
        broker = server()
        with pytest.raises(Refusal):
            broker.respond(ticket)
        assert broker.principal is None


def test_the_order_of_messages_counts() -> None:
    """A choice in place of the empty token, and a message that was wrapped before, or for another context, are refused."""
    client, broker = proved()
    with pytest.raises(Refusal):
        broker.respond(client.wrap(NO_LAYER))

    client, broker = proved()
    broker.respond(b"")
    client.wrap(NO_LAYER)
    with pytest.raises(Refusal):
        broker.respond(client.wrap(NO_LAYER))

    (client, _), (_, broker) = proved(number=1), proved(number=2)
    offer = broker.respond(b"")
    with pytest.raises(ScriptedGssError, match="Integrity"):
        client.unwrap(offer)
    with pytest.raises(Refusal):
        broker.respond(client.wrap(NO_LAYER))


def test_the_package_is_there_within_the_body_alone() -> None:
    before = sys.modules.get("gssapi")
    package = ScriptedGssapi()
    with pytest.raises(LookupError), package.installed():
        assert sys.modules["gssapi"] is package
        raise LookupError
    assert sys.modules.get("gssapi") is before
