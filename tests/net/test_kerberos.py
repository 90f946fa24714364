"""Tests of `aioproducer.net.kerberos`, and of GSSAPI's slow steps in `sasl_login`, with a scripted package in place of `gssapi`."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from exchanges import authenticate
from jumping import jumping
from nodes import Tasks
from scripted import ScriptedDialer, ScriptedStream, api_versions, settings

from aioproducer.config.security_options import SecurityOptions
from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.errors import (
    BrokerNotTrusted,
    ConfigError,
    ConnectionLost,
    CredentialsRefused,
    TokenUnavailable,
)
from aioproducer.net.cluster import BrokerNode
from aioproducer.net.connection import Connection
from aioproducer.net.kerberos import Kerberos
from aioproducer.net.sasl_login import SaslLogin
from aioproducer.net.settings import Security
from aioproducer.testing.security.accounts import Accounts
from aioproducer.wire.api import CLIENT_VERSIONS, ApiKey
from aioproducer.wire.schema import message
from tests.support.kerberos import GssapiServer, ScriptedGssapi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.sasl.gssapi import Context

ALICE = "alice@EXAMPLE.TEST"


@pytest.fixture
def package() -> Iterator[ScriptedGssapi]:
    package = ScriptedGssapi(ALICE)
    with package.installed():
        yield package


def kerberos(**options: Any) -> Kerberos:
    return Kerberos(
        SecurityOptions(**{f"sasl_kerberos_{name}": value for name, value in options.items()})
    )


def opened(made: Kerberos, host: str = "broker") -> Context:
    """Return a context as the first slow step of an exchange opens it."""
    return next(made.mechanism(host).exchange()).function()


def test_a_context_of_the_ticket_cache(package: ScriptedGssapi) -> None:
    """Both sides prove their identity, and the ticket is not delegated."""
    assert opened(kerberos()).principal == ALICE
    [one] = package.opened
    assert (one.principal, one.service, one.store) == (ALICE, "kafka@broker", None)
    assert one.flags == {"mutual_authentication", "integrity"}


def test_a_service_of_another_name_on_one_host(package: ScriptedGssapi) -> None:
    opened(kerberos(service_name="ourkafka", domain_name="kafka.example.com"))
    assert package.opened[0].service == "ourkafka@kafka.example.com"


def test_a_context_of_a_keytab(package: ScriptedGssapi) -> None:
    """Tickets are kept in memory, apart from those of other keytabs and principals."""
    package.keytabs = {"/a.keytab": "bob@EXAMPLE.TEST", "/b.keytab": "carol@EXAMPLE.TEST"}
    for options in (
        {"keytab": "/a.keytab"},
        {"keytab": "/a.keytab", "principal": "bob"},
        {"keytab": "/b.keytab"},
        {"keytab": "/a.keytab"},
    ):
        opened(kerberos(**options))
    assert [one.principal.partition("@")[0] for one in package.opened] == [
        "bob",
        "bob",
        "carol",
        "bob",
    ]
    caches = [(one.store or {})["ccache"] for one in package.opened]
    assert all(cache.startswith("MEMORY:aioproducer-") for cache in caches)
    assert len(set(caches)) == 3
    assert caches[0] == caches[3]


@pytest.mark.parametrize(
    ("number", "error", "advice"),
    [
        (1, CredentialsRefused, "the account has expired"),
        (6, CredentialsRefused, "check sasl_kerberos_principal"),
        (7, CredentialsRefused, "check sasl_kerberos_service_name"),
        (12, CredentialsRefused, "policy"),
        (18, CredentialsRefused, "the account is locked"),
        (23, CredentialsRefused, "the password has expired"),
        (24, CredentialsRefused, "make the keytab anew"),
        (31, CredentialsRefused, "make the keytab anew"),
        (32, TokenUnavailable, "run kinit, or give sasl_kerberos_keytab"),
        (37, TokenUnavailable, "the clocks of this machine"),
        (147, TokenUnavailable, "the clocks of this machine"),
        (154, TokenUnavailable, "krb5.conf"),
        (156, TokenUnavailable, "check that the KDC runs"),
        (255, TokenUnavailable, "krb5.conf"),
        (-7, TokenUnavailable, "krb5.conf"),
    ],
)
def test_errors_of_a_ticket(
    package: ScriptedGssapi, number: int, error: type[Exception], advice: str
) -> None:
    """Row 116, SEC-06: what may pass is retried, what the KDC says of client and service is final. The texts name both, and what to do."""
    package.fail(number, "the library's own words")
    context = opened(kerberos())
    with pytest.raises(error) as caught:
        context.step(None)
    assert type(caught.value) is error
    text = str(caught.value)
    assert text.startswith(
        f"no Kerberos ticket for kafka@broker as {ALICE}: the library's own words; "
    )
    assert advice in text
    assert (caught.value.stage, caught.value.mechanism) == ("token", "GSSAPI")  # type: ignore[attr-defined]


def test_an_empty_ticket_cache(package: ScriptedGssapi) -> None:
    package.principal = None
    with pytest.raises(
        TokenUnavailable,
        match=r"as the principal of the ticket cache: No credentials.*; run kinit, or give sasl_kerberos_",
    ):
        opened(kerberos())
    with pytest.raises(TokenUnavailable, match=r"as bob@EXAMPLE.TEST: "):
        opened(kerberos(principal="bob@EXAMPLE.TEST"))


def test_credentials_that_expired(package: ScriptedGssapi) -> None:
    """GSSAPI says so without a number of Kerberos, when the credentials are looked at."""
    package.fail_credentials(11 << 16, 100_001, "Success")
    with pytest.raises(
        TokenUnavailable,
        match=r"the principal of the ticket cache: Unspecified GSS failure; run kinit",
    ):
        opened(kerberos())

    package.keytabs = {"/a.keytab": ALICE}
    package.fail_credentials(11 << 16, 100_001, "Success")
    with pytest.raises(
        TokenUnavailable,
        match=r"the first principal of the keytab: Unspecified GSS failure; the library fetches a new one",
    ):
        opened(kerberos(keytab="/a.keytab"))
    assert opened(kerberos(keytab="/a.keytab")).principal == ALICE


def test_keytabs_that_cannot_be_used(package: ScriptedGssapi, tmp_path: Any) -> None:
    """The library says no more of them than "No credentials cache found"."""
    with pytest.raises(
        TokenUnavailable, match=r"the keytab /nowhere/x cannot be read; check sasl_kerberos_keytab"
    ):
        opened(kerberos(keytab="/nowhere/x", principal=ALICE))
    there = tmp_path / "other.keytab"
    there.write_bytes(b"")
    for keytab in (str(there), f"FILE:{there}"):
        with pytest.raises(
            TokenUnavailable,
            match=f"as {ALICE}: the keytab {there} has no key of this principal; `klist -k`",
        ):
            opened(kerberos(keytab=keytab, principal=ALICE))


def test_answers_of_a_broker_without_the_service_key(package: ScriptedGssapi) -> None:
    """A token, or an offer of layers, whose proof is wrong is the broker's fault, and no ticket's."""
    context = opened(kerberos())
    context.step(None)
    with pytest.raises(
        BrokerNotTrusted, match="kafka@broker does not prove its identity: Unspecified GSS failure"
    ):
        context.step(b"x" * 32)

    context, server = opened(kerberos()), GssapiServer(Accounts({"alice": ""}, 4096))
    context.step(server.respond(context.step(None) or b""))
    assert context.complete
    with pytest.raises(BrokerNotTrusted, match="kafka@broker does not prove its identity"):
        context.unwrap(bytes((*server.respond(b"")[:-1], 0x00)) + b"\1")


def test_each_byte_of_the_broker_counts(package: ScriptedGssapi) -> None:
    """A token or an offer with any byte changed, cut off or added is noticed, and is the broker's fault."""
    for place in (0, 1):
        for spoil in (
            lambda data: bytes((data[0] ^ 1, *data[1:])),
            lambda data: data[:-1],
            lambda data: data + b"x",
            lambda data: b"",
        ):
            server = GssapiServer(Accounts({"alice": ""}, 4096))
            answers: list[Any] = [server.respond, server.respond]
            answers[place] = lambda token, server=server, spoil=spoil: spoil(server.respond(token))
            with pytest.raises(BrokerNotTrusted, match="does not prove its identity"):
                authenticate(kerberos().mechanism("broker"), *answers)
            # the client's own ticket was good
            assert server.claimed == ALICE


def test_the_package_cannot_be_imported(
    package: ScriptedGssapi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without the system's library."""
    made = kerberos()

    def failing(name: str) -> Any:
        raise ImportError("libgssapi_krb5.so.2: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", failing)
    with pytest.raises(
        ConfigError, match=r"libkrb5-dev.* Its import failed: libgssapi_krb5\.so\.2"
    ):
        opened(made)


def test_the_package_is_not_imported_before_a_connection_is_made(
    package: ScriptedGssapi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import takes 50 ms, so it is made in a thread."""
    monkeypatch.delitem(sys.modules, "gssapi")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail("it was imported"))
    kerberos().mechanism("broker")


@pytest.mark.parametrize(
    ("node_id", "canonical", "service"),
    [
        (1, False, "kafka@broker"),
        (1, True, "kafka@broker"),
        (-1, False, "kafka@broker"),
        (-1, True, "kafka@broker.example.com"),
    ],
)
@jumping
async def test_the_ticket_is_for_the_name_that_tls_checks(
    package: ScriptedGssapi, node_id: int, canonical: bool, service: str
) -> None:
    """The advertised name, not the address that is dialled; of a bootstrap address the canonical name, if it is looked up."""

    async def addresses(host: str, *_: Any, **__: Any) -> list[str]:
        return ["broker.example.com."]

    dialer = ScriptedDialer(answers=answers(GssapiServer(Accounts({"alice": ""}, 4096))))
    login = SaslLogin(kerberos().mechanism)
    told = settings(dialer, security=Security(sasl=login), canonical_bootstrap=canonical)
    tasks = Tasks()
    node = BrokerNode(Broker(node_id, "broker", 9092), told, addresses, tasks.spawn, lambda _: None)
    await node.control.connected(10)
    node.close()
    await tasks.end()
    assert package.opened[0].service == service


# Threads: in a loop with real time


def answers(server: GssapiServer) -> Any:
    """Return what answers SASL's requests of a scripted stream by a server of GSSAPI."""

    def answer(stream: ScriptedStream, asked: Any) -> None:
        if asked.key is ApiKey.API_VERSIONS:
            api_versions(stream, asked)
        elif asked.key is ApiKey.SASL_HANDSHAKE:
            stream.answer(asked, message("SaslHandshake.response"))
        else:
            stream.answer(
                asked,
                message(
                    "SaslAuthenticate.response", auth_bytes=server.respond(asked.message.auth_bytes)
                ),
            )

    return answer


def connection() -> Connection:
    made = Connection("broker:9092", "me", lambda _: None, lambda: None, max_in_flight=5)
    ScriptedStream(made, answers(GssapiServer(Accounts({"alice": ""}, 4096))))
    made.learn_versions(CLIENT_VERSIONS)
    made.host = "broker"
    return made


def test_a_kdc_that_stands_still(package: ScriptedGssapi) -> None:
    """Row 116: the loop is free, the attempt is bounded, and the text says what took so long. The next attempt has a context of its own."""
    package.hold = threading.Event()
    login = SaslLogin(kerberos().mechanism)

    async def main() -> float:
        one, ticks = connection(), []

        async def tick() -> None:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        with pytest.raises(
            ConnectionLost,
            match=r"it took longer than .* s to get a Kerberos ticket for kafka@broker",
        ):
            await login.authenticate(one, 0.2)
        ticking.cancel()
        assert len(ticks) > 20
        assert one.held is None
        assert package.hold is not None
        package.hold.set()
        return await login.authenticate(connection(), 30.0)

    assert asyncio.run(main()) == 0.0
    assert len(package.opened) == 2
