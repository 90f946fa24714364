"""A real KDC and a real broker: aiokafka first, then our producer, read back by aiokafka; then what goes wrong with tickets (row 116).

It needs the package `gssapi` and MIT's KDC, which `nox -s kerberos` has. One KDC and one broker serve all of it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from secured import Way, write_by_aiokafka

from aioproducer import BootstrapFailed, Producer
from tests.support.kafka_security import KafkaSecurity, SecuredServerThread
from tests.support.kdc import Kdc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.kafka_security import Listener

MISSING = (
    f"{', '.join(Kdc.missing())} not found: apt-get install krb5-kdc krb5-admin-server krb5-user"
    if Kdc.missing()
    else ""
)
PACKAGE = (
    ""
    if find_spec("gssapi")
    else "gssapi is not installed: apt-get install gcc libkrb5-dev, then pip install 'aioproducer[kerberos]'"
)
# `integration`, too: what runs tests without Java runs none with other programs either. `nox -s kerberos` skips none.
pytestmark = [
    pytest.mark.kerberos,
    pytest.mark.integration,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.skipif(bool(PACKAGE), reason=PACKAGE),
]

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LISTENERS: tuple[Listener, ...] = ("SASL_PLAINTEXT", "SASL_SSL")
_FEW = 20
_PATIENCE = 30.0


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as kdc:
        kdc.add("alice")
        yield kdc


@pytest.fixture(scope="module")
def server(kdc: Kdc) -> Iterator[SecuredServerThread]:
    server = SecuredServerThread(
        KafkaSecurity(users={"bob": "canary-bob"}, session_ms=2000, kerberos=kdc.broker())
    )
    server.open()
    yield server
    server.close()


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.keytab("alice")


@pytest.fixture(scope="module")
def cache(kdc: Kdc) -> Path:
    return kdc.kinit("alice")


@pytest.fixture(autouse=True)
def no_tickets(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    """The realm is known, and the ticket cache is empty unless a test names one."""
    monkeypatch.setenv("KRB5_CONFIG", kdc.environment["KRB5_CONFIG"])
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.folder}/none.cache")


def fresh_topic(server: SecuredServerThread) -> str:
    topic = f"kerberos-{uuid.uuid4().hex[:8]}"
    server.create_topic(topic)
    return topic


def ours(
    server: SecuredServerThread, listener: Listener = "SASL_PLAINTEXT", **more: Any
) -> dict[str, Any]:
    return Way(listener).ours(server) | {"sasl_mechanism": "GSSAPI", **more}


class KerberosWay(Way):
    """A way of aiokafka's, which authenticates by GSSAPI, too."""

    def aiokafka(self, server: SecuredServerThread) -> dict[str, Any]:
        return super().aiokafka(server) | {
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_domain_name": "localhost",
        }


def check_read(
    server: SecuredServerThread, listener: Listener, topic: str, values: list[bytes]
) -> None:
    from secured import read_by_aiokafka

    assert read_by_aiokafka(server, KerberosWay(listener), topic, len(values)) == values


@pytest.mark.parametrize("listener", LISTENERS)
def test_aiokafka_writes_and_reads(
    server: SecuredServerThread, cache: Path, monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    """KDC and broker are what they say."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    topic = fresh_topic(server)
    asyncio.run(write_by_aiokafka(server, KerberosWay(listener), topic, [b"1", b"2"]))
    check_read(server, listener, topic, [b"1", b"2"])


async def write(options: dict[str, Any], topic: str, values: list[bytes]) -> None:
    """Write half of the values plainly, with idempotence, and half in a transaction, after one that is aborted."""
    half = len(values) // 2
    async with Producer(**options) as producer:
        told = await asyncio.gather(*[await producer.send(topic, value) for value in values[:half]])
    assert [one.offset for one in told] == list(range(half))
    async with Producer(**options, transactional_id=topic) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()
        async with producer.transaction():
            await asyncio.gather(*[await producer.send(topic, value) for value in values[half:]])


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("source", ["cache", "keytab"])
@pytest.mark.parametrize("listener", LISTENERS)
def test_ours_writes_and_aiokafka_reads(
    server: SecuredServerThread,
    cache: Path,
    keytab: Path,
    monkeypatch: pytest.MonkeyPatch,
    listener: Listener,
    source: str,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    topic, values = fresh_topic(server), [b"%d" % number for number in range(_FEW)]
    if source == "cache":
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
        options = ours(server, listener)
    else:
        options = ours(
            server,
            listener,
            sasl_kerberos_keytab=keytab,
            sasl_kerberos_principal="alice@EXAMPLE.TEST",
        )
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(write(options, topic, values))

    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    check_read(server, listener, topic, values)


def test_sessions_are_renewed_with_tickets_that_end_sooner(
    server: SecuredServerThread, kdc: Kdc, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keytab's tickets live for 4 s, and sessions are renewed for 6: the library fetches new tickets; nothing is lost or made anew."""
    kdc.add("brief", "-maxlife", "4s")
    topic = fresh_topic(server)

    async def stream() -> list[bytes]:
        sent: list[bytes] = []
        async with Producer(
            **ours(server, "SESSIONS_PLAINTEXT", sasl_kerberos_keytab=kdc.keytab("brief"))
        ) as producer:
            until = time.monotonic() + 6
            while time.monotonic() < until:
                sent.append(b"%d" % len(sent))
                await producer.send_and_wait(topic, sent[-1])
            assert producer.metrics().number("successful-reauthentication-total") >= 4
            assert producer.metrics().number("failed-reauthentication-total") == 0
            assert producer.metrics().number("successful-authentication-total") <= 3
        return sent

    values = asyncio.run(asyncio.wait_for(stream(), _PATIENCE))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    check_read(server, "SASL_PLAINTEXT", topic, values)


# Row 116: each fault by its name


def refused(options: dict[str, Any]) -> BootstrapFailed:
    """Return the error of a start that fails."""

    async def start() -> None:
        async with Producer(**options, max_block_ms=1500):
            pass

    with pytest.raises(BootstrapFailed) as caught:
        asyncio.run(start())
    return caught.value


def test_no_ticket(server: SecuredServerThread) -> None:
    told = str(refused(ours(server)))
    assert (
        "no Kerberos ticket for kafka@localhost as the principal of the ticket cache: No Kerberos credentials available"
        in told
    )
    assert "run kinit, or give sasl_kerberos_keytab" in told


def test_a_ticket_that_expired(
    server: SecuredServerThread, kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = kdc.kinit("alice", "-l", "1s")
    deadline = time.monotonic() + 10
    # `klist -s` fails from the end of the ticket on
    while subprocess.run(["klist", "-s", "-c", cache], env=os.environ, check=False).returncode == 0:
        assert time.monotonic() < deadline
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    told = str(refused(ours(server)))
    assert (
        "no Kerberos ticket for kafka@localhost as the principal of the ticket cache: The referenced credential has expired; run kinit"
        in told
    )


def test_a_kdc_that_is_there_later(
    server: SecuredServerThread, kdc: Kdc, caplog: pytest.LogCaptureFixture
) -> None:
    """Retried as a fault of the network: a record that waits is written when the KDC is there."""
    caplog.set_level("INFO", "aioproducer.events")
    kdc.add("early")
    options = ours(server, sasl_kerberos_keytab=kdc.keytab("early"))
    topic = fresh_topic(server)

    async def main() -> int:
        kdc.stop()
        async with asyncio.timeout(_PATIENCE):
            with pytest.raises(
                BootstrapFailed,
                match=r"Cannot contact any KDC for realm 'EXAMPLE.TEST'; check that the KDC runs",
            ):
                await Producer(**options, max_block_ms=1000).start()
            caplog.clear()
            producer: Producer[Any, Any] = Producer(**options)
            await producer.start(wait=False)
            sending = asyncio.ensure_future(producer.send_and_wait(topic, b"x"))
            while "cannot be reached: localhost" not in caplog.text:
                await asyncio.sleep(0.01)
            assert "no Kerberos ticket for kafka@localhost" in caplog.text
            kdc.start()
            told = await sending
            await producer.stop()
        return int(told.offset)

    try:
        assert asyncio.run(main()) == 0
    finally:
        kdc.stop()
        kdc.start()
