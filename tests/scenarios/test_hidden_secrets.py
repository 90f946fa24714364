"""Tests that no secret is shown while producers log in, are refused, renew and lose connections, not even by asyncio's debug mode.

The loop finds every callback slow, so that asyncio writes down the repr of everything that it runs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from canary_plugin import WORD, is_shown

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.testing import FakeCluster
from aioproducer.testing.security.listener import ListenerSecurity
from aioproducer.testing.security.oauthbearer import ListenerTokens
from tests.support.jumping import JumpingLoop

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

SECRET = f"{WORD}alice"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
TROUBLES: dict[str, Callable[[FakeCluster], object]] = {
    "none": lambda _: None,
    "revoked": lambda cluster: cluster.security.revoke("alice"),
    "another password": lambda cluster: cluster.security.grant("alice", f"{WORD}another"),
    "cut in the exchange": lambda cluster: cluster.fail(
        "SaslAuthenticate", disconnect="before", times=3
    ),
    "garbage in the exchange": lambda cluster: cluster.garbage("SaslAuthenticate", times=3),
    "silence in the exchange": lambda cluster: cluster.hang("SaslAuthenticate"),
}


async def go_on(producer: Producer[Any, Any], seconds: float) -> list[str]:
    """Send for some time. Returns what is shown of the producer and of each error."""
    shown = []
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        try:
            await producer.send_and_wait("orders", b"v")
        except KafkaError as error:
            shown += traceback.format_exception(error)
        shown += [
            repr(producer),
            repr(producer.config),
            producer.explain(),
            repr(producer.health()),
            repr(producer.metrics()),
        ]
        await asyncio.sleep(0.5)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return [*shown, repr(tasks)]


def vars_of(thing: object) -> dict[str, object]:
    """Return the attributes of an object, those in slots, too."""
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return {
        **getattr(thing, "__dict__", {}),
        **{name: getattr(thing, name) for name in slots if hasattr(thing, name)},
    }


def run(act: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Run it in debug mode. Returns what it returns, and what was logged and warned of."""
    caplog.set_level(logging.DEBUG)
    with (
        warnings.catch_warnings(record=True) as warned,
        asyncio.Runner(debug=True, loop_factory=JumpingLoop) as runner,
    ):
        warnings.simplefilter("always")
        shown = runner.run(act)
        gc.collect()
    assert "Executing <" in caplog.text
    logged = [f"{record.getMessage()} {record.__dict__.get('facts')}" for record in caplog.records]
    return [*shown, caplog.text, *logged, *map(str, warned)]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_life_shows_no_secret(
    mechanism: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Sessions of two seconds, which are renewed; then the trouble, of which errors tell."""

    async def act() -> list[str]:
        asyncio.get_running_loop().slow_callback_duration = 0
        security = ListenerSecurity("SASL_PLAINTEXT", users={"alice": SECRET}, session_ms=2000)
        async with FakeCluster(memory=True, security=security) as cluster:
            cluster.create_topic("orders")
            options = {
                "sasl_mechanism": mechanism,
                "sasl_username": "alice",
                "sasl_password": SECRET,
                "delivery_timeout_ms": 3000,
            }
            options |= {"request_timeout_ms": 1000, "close_timeout_ms": 1000}
            async with Producer(**cluster.client_options, **options) as producer:
                shown = await go_on(producer, 5)
                TROUBLES[trouble](cluster)
                shown += await go_on(producer, 8)
            asked = cluster.requests("SaslAuthenticate")
            assert len(asked) > 1
            return [
                *shown,
                repr(producer),
                *map(repr, cluster.requests()),
                *[repr(vars_of(one)) for one in asked],
                repr(cluster.violations),
            ]

    shown = run(act(), caplog)
    assert len(shown) > 60
    if trouble in {"revoked", "another password"}:
        assert any("CredentialsRefused" in text for text in shown)
    assert [text for text in shown if is_shown(text)] == []


class Source:
    """A token function with secrets in its errors and results."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.secret = f"{WORD}state"

    def __call__(self) -> Any:
        answer = self.answers[0] if self.answers else SECRET
        if isinstance(answer, BaseException):
            raise answer
        return answer, None, "alice"


TOKEN_TROUBLES: dict[str, tuple[Any, str]] = {
    "none": (SECRET, ""),
    "raises": (ConnectionError(f"{WORD}text"), "the token function raised ConnectionError"),
    "gives nonsense": (
        [f"{WORD}list"],
        "the token function returned a tuple of (list, NoneType, str)",
    ),
    "cannot be sent": (f"{WORD}a b", "the token has a blank or a line break"),
    "refused": (f"{WORD}another", "CredentialsRefused"),
}


@pytest.mark.parametrize("trouble", TOKEN_TROUBLES)
def test_a_life_with_tokens_shows_no_secret(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    """Sessions of two seconds; then the broker knows the token no more, and the source has its trouble."""
    source = Source()
    answer, told = TOKEN_TROUBLES[trouble]

    async def act() -> list[str]:
        asyncio.get_running_loop().slow_callback_duration = 0
        tokens = ListenerTokens(unsecured=False, opaque={SECRET: "alice"})
        security = ListenerSecurity("SASL_PLAINTEXT", session_ms=2000, tokens=tokens)
        async with FakeCluster(memory=True, security=security) as cluster:
            cluster.create_topic("orders")
            options: dict[str, Any] = {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token": source,
                "delivery_timeout_ms": 3000,
            }
            options |= {"request_timeout_ms": 1000, "close_timeout_ms": 1000}
            async with Producer(**cluster.client_options, **options) as producer:
                shown = await go_on(producer, 5)
                source.answers = [answer]
                if trouble != "none":
                    cluster.security.change(tokens=ListenerTokens(unsecured=False))
                    cluster.disconnect_all()
                shown += await go_on(producer, 12)
            return [
                *shown,
                repr(producer),
                repr(producer.config),
                *map(repr, cluster.requests()),
                repr(cluster.violations),
            ]

    shown = run(act(), caplog)
    assert len(shown) > 60
    assert any(told in text for text in shown)
    assert [text for text in shown if is_shown(text)] == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("source", ["text", "file", "nothing"])
def test_a_start_that_is_refused_shows_no_secret(
    mechanism: str, source: str, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    """The error names user and mechanism, or the file that is not there."""
    (tmp_path / "file").write_text(f"{WORD}wrong")
    password = f"{WORD}wrong" if source == "text" else f"${{file:{tmp_path / source}}}"

    async def act() -> list[str]:
        asyncio.get_running_loop().slow_callback_duration = 0
        async with FakeCluster(
            memory=True, security=ListenerSecurity("SASL_PLAINTEXT", users={"alice": SECRET})
        ) as cluster:
            options = {
                "sasl_mechanism": mechanism,
                "sasl_username": "alice",
                "sasl_password": password,
                "max_block_ms": 5000,
            }
            producer: Producer[Any, Any] = Producer(**cluster.client_options, **options)
            with pytest.raises(KafkaError) as caught:
                await producer.start()
            text = str(caught.value)
            assert (
                f"{tmp_path / source} cannot be read" in text
                if source == "nothing"
                else "'alice'" in text
            )
            shown = [
                *traceback.format_exception(caught.value),
                json.dumps(text),
                producer.explain(),
            ]
            await producer.stop()
            return shown

    assert [text for text in run(act(), caplog) if is_shown(text)] == []
