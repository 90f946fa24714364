"""Exchanges with answers that are mutated as bytes: 5,000 here, `AIOPRODUCER_MUTATED_EXCHANGES` of them elsewhere."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from exchanges import VERSIONS, plain, scram
from sasl_peers import HASHES, ScramServer
from wire_samples import mutated

from aioproducer.errors import AuthenticationFailed, ProtocolError
from aioproducer.sasl import scram as module
from aioproducer.sasl.handshake import handshake
from aioproducer.sasl.mechanism import SlowStep
from aioproducer.wire.api import NAMES, ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    import pytest

    from aioproducer.sasl.mechanism import AskBroker, Mechanism

COUNT = int(os.environ.get("AIOPRODUCER_MUTATED_EXCHANGES", "5000"))


class Server:
    """Answers one exchange in bytes; one of the answers is mutated."""

    def __init__(self, mechanism: str, chance: random.Random) -> None:
        self.scram = (
            ScramServer(mechanism, {"alice": "canary-alice"}) if mechanism in HASHES else None
        )
        self.chance = chance
        self.spoilt = chance.randrange(3)
        self.asked = 0

    def answer(self, asked: AskBroker) -> Any:
        name = f"{NAMES[asked.key]}.response"
        if asked.key is ApiKey.SASL_HANDSHAKE:
            told = message(name, mechanisms=["PLAIN"])
        elif self.scram is None:
            told = message(name, session_lifetime_ms=3000)
        else:
            made = self.scram.first if self.scram.user is None else self.scram.last
            said = made(asked.message.auth_bytes)
            told = message(name, error_code=58) if said is None else message(name, auth_bytes=said)
        is_spoilt, self.asked = self.asked == self.spoilt, self.asked + 1
        if (
            is_spoilt
            and asked.key is ApiKey.SASL_AUTHENTICATE
            and told.auth_bytes
            and self.chance.randrange(4)
        ):
            told.auth_bytes = mutated(told.auth_bytes, self.chance)
            is_spoilt = False
        data = b"".join(codec(name, asked.version).encode(told))
        if is_spoilt:
            data = mutated(data, self.chance)
        return codec(name, asked.version).decode(data)


def played(mechanism: Mechanism, server: Server) -> tuple[str, float]:
    """Play one exchange. Returns its outcome, and the CPU seconds without slow steps and without the server."""
    steps, result, spent = handshake(mechanism, VERSIONS), None, 0.0
    try:
        while True:
            began = time.thread_time()
            step = steps.send(result)
            spent += time.thread_time() - began
            result = step.function() if isinstance(step, SlowStep) else server.answer(step)
    except StopIteration as end:
        return "authenticated", spent + 0 * end.value
    except AuthenticationFailed as error:
        return type(error).__name__, spent
    except ProtocolError:
        return "ProtocolError", spent


def test_mutated_exchanges_end_with_an_error_of_ours_or_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is derived out of bounds, and none takes 20 ms of the loop's thread."""
    counts: Counter[int] = Counter()

    def derive(name: str, password: bytes, salt: bytes, count: int) -> bytes:
        counts[count] += 1
        return hashlib.new(name, password + salt + b"%d" % count).digest()

    monkeypatch.setattr(module.hashlib, "pbkdf2_hmac", derive)
    chance = random.Random("mutated exchanges")
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    # the collector's time is that of the whole test run
    gc.collect()
    gc.disable()
    for _ in range(COUNT):
        name = chance.choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
        outcome, spent = played(plain() if name == "PLAIN" else scram(name), Server(name, chance))
        outcomes[outcome] += 1
        slowest = max(slowest, spent)
    gc.enable()
    assert outcomes.keys() == {
        "authenticated",
        "AuthenticationFailed",
        "BrokerNotTrusted",
        "CredentialsRefused",
        "ProtocolError",
    }
    assert outcomes["BrokerNotTrusted"] > COUNT // 4
    assert slowest < 0.02
    assert all(4096 <= count <= 1_000_000 for count in counts)
