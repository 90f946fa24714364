"""Tests of `aioproducer.sasl.gssapi` against the fake's server, which is written apart from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from exchanges import VERSIONS, authenticate, say

from aioproducer.errors import BrokerNotTrusted, CredentialsRefused, TokenUnavailable
from aioproducer.sasl.gssapi import Gssapi
from aioproducer.sasl.handshake import handshake
from aioproducer.testing.security.accounts import Accounts
from tests.support.kerberos import ClientContext, GssapiServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioproducer.sasl.gssapi import Context

PRINCIPAL = "alice@EXAMPLE.TEST"
SERVICE = "kafka@broker"


def gssapi(
    open_context: Callable[[], Context] = lambda: ClientContext(PRINCIPAL, SERVICE),
) -> Gssapi:
    return Gssapi(SERVICE, "the principal of the ticket cache", open_context)


def server(offer: bytes = b"\x01\0\0\0") -> GssapiServer:
    return GssapiServer(Accounts({"alice": "canary"}, 4096), offer=offer)


def test_the_exchange() -> None:
    """Ticket, empty token, choice of no layer with a size of 0; the user is then the ticket's principal."""
    mechanism, broker = gssapi(), server()
    sent: list[bytes] = []

    def answer(token: bytes) -> bytes:
        sent.append(token)
        return broker.respond(token)

    assert authenticate(mechanism, answer, answer, answer) == 0.0
    assert (broker.claimed, broker.principal) == (PRINCIPAL, "alice")
    assert [len(token) > 0 for token in sent] == [True, False, True]
    assert sent[2][:-32] == b"\x01\0\0\0"
    assert mechanism.user == PRINCIPAL


@pytest.mark.parametrize(
    "offer", [b"", b"\x01", b"\x01\0\0\0\0", b"\x06\0\xff\xff", b"\0\0\0\0"], ids=repr
)
def test_a_broker_without_connections_that_have_no_layer(offer: bytes) -> None:
    broker = server(offer)
    with pytest.raises(
        BrokerNotTrusted, match="offers no connection without a security layer"
    ) as caught:
        authenticate(gssapi(), broker.respond, broker.respond)
    assert (caught.value.stage, caught.value.mechanism) == ("sasl", "GSSAPI")


@pytest.mark.parametrize("offer", [b"\x07\0\xff\xff", b"\x01\0\xff\xff"], ids=repr)
def test_layers_and_sizes_besides_are_not_chosen(offer: bytes) -> None:
    broker = server(offer)
    authenticate(gssapi(), broker.respond, broker.respond, broker.respond)
    assert broker.principal == "alice"


def test_a_broker_that_goes_on() -> None:
    broker = server()
    with pytest.raises(BrokerNotTrusted, match="the broker goes on with 'more'"):
        authenticate(
            gssapi(), broker.respond, broker.respond, lambda token: broker.respond(token) + b"more"
        )


class Raises:
    """A context that fails in its step."""

    principal = PRINCIPAL
    complete = False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def step(self, token: bytes | None) -> bytes | None:
        raise self.error

    wrap = unwrap = step


@pytest.mark.parametrize(
    "error",
    [TokenUnavailable("none", "token", "GSSAPI"), CredentialsRefused("no", "token", "GSSAPI")],
    ids=repr,
)
def test_what_the_context_raises_comes_before_any_request(error: Exception) -> None:
    """So a renewal without a ticket leaves its connection as it was."""
    steps = handshake(gssapi(open_context=lambda: Raises(error)), VERSIONS)
    with pytest.raises(type(error)):
        say(steps, None)


class Silent:
    """A context that has no token to send at first, and three tokens in all."""

    principal = PRINCIPAL

    def __init__(self) -> None:
        self.seen: list[bytes | None] = []

    @property
    def complete(self) -> bool:
        return len(self.seen) == 3

    def step(self, token: bytes | None) -> bytes | None:
        self.seen.append(token)
        return b"last" if self.complete else None

    def wrap(self, data: bytes) -> bytes:
        return b"wrapped " + data

    def unwrap(self, data: bytes) -> bytes:
        return data


def test_no_token_is_sent_as_an_empty_one_and_the_last_one_is_sent() -> None:
    context, sent = Silent(), list[bytes]()
    answers = iter([b"one", b"two", b"\x01\0\0\0", b""])

    def answer(token: bytes) -> bytes:
        sent.append(token)
        return next(answers)

    authenticate(gssapi(open_context=lambda: context), *[answer] * 4)
    assert sent == [b"", b"", b"last", b"wrapped \x01\0\0\0"]
    assert context.seen == [None, b"one", b"two"]


def test_steps_show_no_ticket() -> None:
    """With a ticket's token, its holder may pose as the client for some minutes."""

    class Canary(Silent):
        def step(self, token: bytes | None) -> bytes | None:
            super().step(token)
            return b"canary-ticket"

    steps: Any = gssapi(open_context=Canary).exchange()
    step = next(steps)
    step = steps.send(step.function())
    result = step.function()
    assert "canary" not in repr(step) + repr(result) + repr(steps.send(result))
