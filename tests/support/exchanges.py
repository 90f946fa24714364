"""Exchanges played by hand: the steps of a generator are taken, and the test says what the broker answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioproducer.config.secret import Secret
from aioproducer.sasl.handshake import handshake
from aioproducer.sasl.mechanism import SlowStep
from aioproducer.sasl.plain import Plain
from aioproducer.sasl.scram import Scram
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioproducer.sasl.mechanism import Mechanism

__all__ = ["VERSIONS", "authenticate", "plain", "say", "scram"]

VERSIONS = dict(CLIENT_VERSIONS)


def scram(
    name: str = "SCRAM-SHA-256",
    user: str = "alice",
    password: str = "canary-alice",
    *,
    is_token: bool = False,
) -> Scram:
    return Scram(name, user, Secret(user), Secret(password), lambda: "client", is_token=is_token)


def plain(user: str = "alice", password: str = "canary-alice") -> Plain:
    return Plain(user, Secret(user), Secret(password))


def say(exchange: Generator[Any, Any, Any], value: Any, slow: list[str] | None = None) -> Any:
    """Send a value and take slow steps. Returns the next step that is not slow."""
    step = exchange.send(value)
    while isinstance(step, SlowStep):
        if slow is not None:
            slow.append(step.name)
        step = exchange.send(step.function())
    return step


def authenticate(
    mechanism: Mechanism, *answers: Any | Callable[[bytes], Any], handshake_answer: Any = None
) -> float:
    """Run a whole handshake; each answer is a SaslAuthenticate response, its bytes, or makes them of the client's bytes."""
    steps = handshake(mechanism, VERSIONS)
    asked = say(steps, None)
    assert asked.key is ApiKey.SASL_HANDSHAKE
    told = handshake_answer or message("SaslHandshake.response")
    try:
        for answer in answers:
            asked = say(steps, told)
            assert asked.key is ApiKey.SASL_AUTHENTICATE
            told = answer(asked.message.auth_bytes) if callable(answer) else answer
            if isinstance(told, bytes):
                told = message("SaslAuthenticate.response", auth_bytes=told)
        say(steps, told)
    except StopIteration as end:
        return float(end.value)
    raise AssertionError("the exchange goes on")
