"""Certificates, authorities, passwords, tokens and users that change while a producer runs: row 102 of the catalogue of faults, end to end.

What is read of files and references at one dial stands in tests/net/test_tls_contexts.py; here whole producers send on.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from certificates import encrypted_key_pem
from tls_peers import client_context
from whole import jumping, running

from aioproducer import BootstrapFailed, DeliveryError, Persisted, Producer
from aioproducer.testing import (
    FakeCluster,
    ListenerSecurity,
    ListenerTls,
    ListenerTokens,
    unsecured_token,
)
from aioproducer.testing.certificates import CertificateAuthority

if TYPE_CHECKING:
    import pathlib
    import ssl
    from collections.abc import AsyncIterator, Mapping

CA = CertificateAuthority()
NEW_CA = CertificateAuthority("the CA of next year")
NAMES = tuple(f"broker-{number}.memory" for number in range(1, 4))
MUTUAL = ListenerTls(CA.server(*NAMES), client_auth="required", client_authority=CA)
SESSION_MS = 3000


@contextlib.asynccontextmanager
async def secured(
    protocol: Any, tls: ListenerTls | None = None, **more: Any
) -> AsyncIterator[FakeCluster]:
    async with FakeCluster(
        memory=True, security=ListenerSecurity(protocol, tls=tls, **more)
    ) as cluster:
        cluster.create_topic("orders")
        yield cluster


async def sending(producer: Producer[Any, Any], seconds: float, every: float = 0.1) -> int:
    """Send a record each `every` seconds. Returns their number; each is acknowledged."""
    loop = asyncio.get_running_loop()
    until, sent = loop.time() + seconds, []
    while loop.time() < until:
        sent.append(await producer.send("orders", b"%d" % len(sent)))
        await asyncio.sleep(every)
    await asyncio.gather(*sent)
    return len(sent)


def assert_whole(cluster: FakeCluster, count: int) -> None:
    assert cluster.values("orders") == [b"%d" % number for number in range(count)]


def users(cluster: FakeCluster) -> list[str | None]:
    """Return the users that authenticated, in order, without repetitions."""
    names = [login.principal for login in cluster.security.authentications if not login.error]
    return [name for at, name in enumerate(names) if not at or names[at - 1] != name]


def pair(certificate: Any) -> dict[str, bytes]:
    return {"tls.crt": certificate.chain_pem, "tls.key": certificate.key_pem}


# Certificates


class MountedFiles:
    """Writes a volume as the kubelet's atomic writer does.

    The volume has a link for each file, `password -> ..data/password`, and `..data` is a link to a folder with the contents. A new version
    is a new folder: one rename of `..data` swaps all files at once.

    Args:
        folder: of the volume; it is made.
        contents: the first version, by the files' names.
    """

    def __init__(self, folder: pathlib.Path, contents: Mapping[str, bytes]) -> None:
        self.folder = folder
        self._versions = itertools.count(1)
        folder.mkdir(parents=True)
        self.swap(contents)
        for name in contents:
            (folder / name).symlink_to(f"..data/{name}")

    def swap(self, contents: Mapping[str, bytes]) -> None:
        """Replace all files. Their times and sizes tell nothing: the times are the same in each version."""
        data = self.folder / "..data"
        before = data.resolve() if data.exists() else None
        version = self.folder / f"..2026_11_26_{next(self._versions):02}"
        version.mkdir()
        for name, content in contents.items():
            (version / name).write_bytes(content)
            os.utime(version / name, (1_000_000, 1_000_000))
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(data)
        if before is not None:
            shutil.rmtree(before)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a client with this certificate."""
        return {
            "ssl_truststore_certificates": CA.pem.decode(),
            "ssl_certificate_location": self.folder / "tls.crt",
            "ssl_key_location": self.folder / "tls.key",
        }


@jumping
async def test_a_certificate_that_kubernetes_swaps(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 102: key and certificate change at once. Connections that exist stay; the next ones have the new pair, and no warning is logged."""
    mounted = MountedFiles(tmp_path / "user", pair(CA.client("orders-1")))
    async with (
        secured("SSL", MUTUAL) as cluster,
        running(cluster, **mounted.options) as (_, producer),
    ):
        streaming = asyncio.ensure_future(sending(producer, 6))
        await asyncio.sleep(2)
        mounted.swap(pair(CA.client("orders-2")))
        await asyncio.sleep(2)
        assert users(cluster) == ["orders-1"]
        cluster.disconnect_all()
        assert_whole(cluster, await streaming)
        assert users(cluster) == ["orders-1", "orders-2"]
    assert "the former ones stay in use" not in caplog.text


@jumping
async def test_a_key_whose_password_changes_with_it(tmp_path: pathlib.Path) -> None:
    """Row 102: an encrypted key and the password that a reference names are swapped together."""

    def contents(user: str, password: str) -> dict[str, bytes]:
        made = CA.client(user)
        return {
            "client.pem": encrypted_key_pem(made, password) + made.chain_pem,
            "password": password.encode(),
        }

    mounted = MountedFiles(tmp_path / "user", contents("orders-1", "canary-one"))
    options = {
        "ssl_truststore_certificates": CA.pem.decode(),
        "ssl_keystore_location": mounted.folder / "client.pem",
        "ssl_key_password": f"${{file:{mounted.folder}/password}}",
    }
    async with secured("SSL", MUTUAL) as cluster, running(cluster, **options) as (_, producer):
        streaming = asyncio.ensure_future(sending(producer, 2))
        await asyncio.sleep(1)
        mounted.swap(contents("orders-2", "canary-two"))
        cluster.disconnect_all()
        assert_whole(cluster, await streaming)
        assert users(cluster) == ["orders-1", "orders-2"]


# Authorities


@jumping
async def test_a_bundle_of_authorities_that_is_replaced(tmp_path: pathlib.Path) -> None:
    """Row 102: the bundle has both authorities before the brokers change, and the old one goes after: no connection is refused."""
    mounted = MountedFiles(tmp_path / "ca", {"ca.crt": CA.pem})
    async with (
        secured("SSL", ListenerTls(CA.server(*NAMES))) as cluster,
        running(cluster, ssl_truststore_location=mounted.folder / "ca.crt") as (_, producer),
    ):
        streaming = asyncio.ensure_future(sending(producer, 5))
        steps: list[Any] = [
            lambda: mounted.swap({"ca.crt": CA.pem + NEW_CA.pem}),
            lambda: cluster.security.change(tls=ListenerTls(NEW_CA.server(*NAMES))),
            lambda: mounted.swap({"ca.crt": NEW_CA.pem}),
        ]
        for step in steps:
            await asyncio.sleep(1)
            step()
            cluster.disconnect_all()
        assert_whole(cluster, await streaming)
        assert cluster.security.tls_failures == []
        # the old authority is no longer trusted
        cluster.security.change(tls=ListenerTls(CA.server(*NAMES)))
        cluster.disconnect_all()
        await producer.send("orders", b"later")
        await asyncio.sleep(5)
        assert b"later" not in cluster.values("orders")
        assert cluster.security.tls_failures
        cluster.security.change(tls=ListenerTls(NEW_CA.server(*NAMES)))


@jumping
async def test_brokers_that_change_before_the_bundle_does(tmp_path: pathlib.Path) -> None:
    """Row 102: records wait while the brokers' new authority is not trusted yet, and arrive when the bundle has it."""
    mounted = MountedFiles(tmp_path / "ca", {"ca.crt": CA.pem})
    async with (
        secured("SSL", ListenerTls(CA.server(*NAMES))) as cluster,
        running(cluster, ssl_truststore_location=mounted.folder / "ca.crt") as (_, producer),
    ):
        await producer.send_and_wait("orders", b"0")
        cluster.security.change(tls=ListenerTls(NEW_CA.server(*NAMES)))
        cluster.disconnect_all()
        waiting = await producer.send("orders", b"1")
        await asyncio.sleep(30)
        assert not waiting.done()
        mounted.swap({"ca.crt": NEW_CA.pem})
        await waiting
        assert_whole(cluster, 2)


# Passwords and users


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@jumping
async def test_a_password_in_a_file(mechanism: str, tmp_path: pathlib.Path) -> None:
    """The next renewal of the session has the new password: no connection is made anew, no record fails."""
    mounted = MountedFiles(tmp_path / "user", {"password": b"canary-one\n"})
    options = {
        "sasl_mechanism": mechanism,
        "sasl_username": "orders",
        "sasl_password": f"${{dir:{mounted.folder}:password}}",
    }
    async with (
        secured("SASL_PLAINTEXT", users={"orders": "canary-one"}, session_ms=SESSION_MS) as cluster,
        running(cluster, **options) as (_, producer),
    ):
        streaming = asyncio.ensure_future(sending(producer, 20))
        await asyncio.sleep(4)
        dials = len(cluster.security.dials)
        cluster.security.grant("orders", "canary-two")
        mounted.swap({"password": b"canary-two\n"})
        assert_whole(cluster, await streaming)
        assert len(cluster.security.dials) == dials
        assert [login.error for login in cluster.security.authentications if login.error] == []


@jumping
async def test_a_password_that_changes_in_the_file_first(tmp_path: pathlib.Path) -> None:
    """Brokers learn it later (Amazon says 10 minutes): records wait, the brokers see few attempts, and none fails."""
    mounted = MountedFiles(tmp_path / "user", {"password": b"canary-one"})
    options = {
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "orders",
        "sasl_password": f"${{file:{mounted.folder}/password}}",
    }
    async with (
        secured("SASL_PLAINTEXT", users={"orders": "canary-one"}, session_ms=SESSION_MS) as cluster,
        running(cluster, **options, delivery_timeout_ms=900_000) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"0")
        mounted.swap({"password": b"canary-two"})
        await asyncio.sleep(5)
        waiting = await producer.send("orders", b"1")
        await asyncio.sleep(600)
        assert not waiting.done()
        refused = [login for login in cluster.security.authentications if login.error]
        assert 2 <= len(refused) <= 40
        cluster.security.grant("orders", "canary-two")
        await waiting
        assert_whole(cluster, 2)


@jumping
async def test_a_user_who_is_renamed(tmp_path: pathlib.Path) -> None:
    """Name and password change at once: the broker refuses another name on this connection, and a new one is made for it, without a loss."""

    def contents(user: str) -> dict[str, bytes]:
        return {"username": user.encode(), "password": f"canary-{user}".encode()}

    mounted = MountedFiles(tmp_path / "user", contents("orders-1"))
    options = {
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": f"${{dir:{mounted.folder}:username}}",
        "sasl_password": f"${{dir:{mounted.folder}:password}}",
    }
    known = {user: f"canary-{user}" for user in ("orders-1", "orders-2")}
    async with (
        secured("SASL_PLAINTEXT", users=known, session_ms=SESSION_MS) as cluster,
        running(cluster, **options) as (_, producer),
    ):
        streaming = asyncio.ensure_future(sending(producer, 20))
        await asyncio.sleep(4)
        mounted.swap(contents("orders-2"))
        await asyncio.sleep(SESSION_MS / 1000)
        cluster.security.revoke("orders-1")
        assert_whole(cluster, await streaming)
        assert users(cluster) == ["orders-1", "orders-2"]


# Tokens


EPOCH = 1_900_000_000.0
"""Seconds since 1970 at the zero of the loop's clock."""


def wall() -> float:
    return asyncio.get_running_loop().time() + EPOCH


def token(seconds: float) -> dict[str, bytes]:
    return {
        "token": unsecured_token("orders", seconds, now=wall(), canary="canary-claim").encode()
        + b"\n"
    }


@contextlib.asynccontextmanager
async def with_tokens() -> AsyncIterator[FakeCluster]:
    security = ListenerSecurity("SASL_PLAINTEXT", mechanisms=(), tokens=ListenerTokens())
    async with FakeCluster(memory=True, security=security, wall_clock=wall) as cluster:
        cluster.create_topic("orders")
        yield cluster


def by_reference(path: pathlib.Path) -> dict[str, Any]:
    return {"sasl_oauthbearer_token": f"${{file:{path}}}"}


def by_url(path: pathlib.Path) -> dict[str, Any]:
    return {"sasl_oauthbearer_token_endpoint_url": path.absolute().as_uri()}


@pytest.mark.parametrize("named", [by_reference, by_url])
@jumping
async def test_a_token_in_a_file(named: Any, tmp_path: pathlib.Path) -> None:
    """Kubernetes renews a service account's token at 80 % of its life: each renewal of a session has the new one, and no connection is lost."""
    mounted = MountedFiles(tmp_path / "tokens", token(600))
    options = {
        "sasl_mechanism": "OAUTHBEARER",
        "wall_clock": wall,
        **named(mounted.folder / "token"),
    }
    async with with_tokens() as cluster, running(cluster, **options) as (_, producer):
        streaming = asyncio.ensure_future(sending(producer, 3600, 10))
        await asyncio.sleep(1)
        dials = len(cluster.security.dials)
        for _ in range(7):
            await asyncio.sleep(480)
            mounted.swap(token(600))
        assert_whole(cluster, await streaming)
        logins = cluster.security.authentications
        assert {(login.principal, login.error) for login in logins} == {("orders", 0)}
        assert sum(login.is_renewal for login in logins) >= 6
        assert cluster.security.expired_sessions == []
        assert len(cluster.security.dials) == dials


@jumping
async def test_a_token_in_a_file_that_is_renewed_late(tmp_path: pathlib.Path) -> None:
    """After its end records wait, and arrive when the file has a token again; the reason says since when it has expired."""
    mounted = MountedFiles(tmp_path / "tokens", token(100))
    options = {
        "sasl_mechanism": "OAUTHBEARER",
        "wall_clock": wall,
        **by_reference(mounted.folder / "token"),
    }
    async with with_tokens() as cluster, running(cluster, **options) as (_, producer):
        await producer.send_and_wait("orders", b"0")
        await asyncio.sleep(130)
        waiting = await producer.send("orders", b"1")
        await asyncio.sleep(60)
        assert not waiting.done()
        told = producer.explain()
        mounted.swap(token(100))
        await waiting
        assert_whole(cluster, 2)
    assert "the token expired" in told
    assert "canary-" not in told


# Functions that give a context


class Vault:
    """Gives a context with a fresh certificate for each connection, as a SPIFFE workload API or Vault's PKI does; or fails.

    Attributes:
        given: the users of the certificates.
        is_sealed: whether a call raises an error, with a secret in its text.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.given: list[str] = []
        self.is_sealed = False
        self._file = folder / "issued.pem"

    def __call__(self) -> ssl.SSLContext:
        if self.is_sealed:
            raise PermissionError("canary-token is in this text")
        self.given.append(f"orders-{len(self.given) + 1}")
        made = CA.client(self.given[-1])
        self._file.write_bytes(made.key_pem + made.chain_pem)
        context = client_context(CA)
        context.load_cert_chain(self._file)
        return context


@jumping
async def test_a_workload_api_gives_each_connection_a_fresh_certificate(
    tmp_path: pathlib.Path,
) -> None:
    """As with SPIFFE: the function is called once for each connection, and what it returns is used at once."""
    vault = Vault(tmp_path)
    async with (
        secured("SSL", MUTUAL) as cluster,
        running(cluster, ssl_context=vault) as (_, producer),
    ):
        streaming = asyncio.ensure_future(sending(producer, 4))
        for _ in range(3):
            await asyncio.sleep(1)
            cluster.disconnect_all()
        assert_whole(cluster, await streaming)
        assert users(cluster) == vault.given
        assert len(vault.given) == len(cluster.security.dials) >= 4


@jumping
async def test_a_vault_that_is_sealed_for_a_minute(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The function raises: records wait, and arrive when it gives certificates again; what it raised is quoted nowhere."""
    vault = Vault(tmp_path)
    async with (
        secured("SSL", MUTUAL) as cluster,
        running(cluster, ssl_context=vault) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"0")
        vault.is_sealed = True
        cluster.disconnect_all()
        waiting = await producer.send("orders", b"1")
        await asyncio.sleep(60)
        assert not waiting.done()
        told = producer.explain()
        vault.is_sealed = False
        await waiting
        assert_whole(cluster, 2)
    assert "PermissionError" in told
    assert "canary-" not in told + caplog.text


@jumping
async def test_a_vault_that_stays_sealed(tmp_path: pathlib.Path) -> None:
    """Records fail by their deadline as not written; the reason names the function's error by its type alone."""
    vault = Vault(tmp_path)
    async with (
        secured("SSL", MUTUAL) as cluster,
        running(cluster, ssl_context=vault, delivery_timeout_ms=31_000) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"0")
        vault.is_sealed = True
        cluster.disconnect_all()
        with pytest.raises(DeliveryError) as failed:
            await producer.send_and_wait("orders", b"1")
        told = str(failed.value) + failed.value.explain()
        assert failed.value.persisted is Persisted.NO
        assert "the function given as ssl_context raised PermissionError" in told
        assert "canary-" not in told


def change_password(cluster: FakeCluster) -> None:
    cluster.security.grant("alice", "canary-new")


def revoke_certificate(cluster: FakeCluster) -> None:
    cluster.security.change(tls=dataclasses.replace(MUTUAL, client_authority=NEW_CA))


def end_broker(cluster: FakeCluster) -> None:
    asyncio.get_running_loop().create_task(cluster.brokers[1].stop())


@pytest.mark.parametrize(
    ("change", "now_told"),
    [
        (change_password, "the broker refuses user 'alice' by SCRAM-SHA-256"),
        (revoke_certificate, "the broker does not take this client's certificate"),
        (end_broker, "nobody listens on broker-1.memory:9092"),
    ],
)
@jumping
async def test_a_record_in_flight_tells_why_it_could_not_be_sent_again(
    tmp_path: pathlib.Path, change: Any, now_told: str
) -> None:
    """Its error says both: how the connection that had the record ended, and what its broker says now."""
    mounted = MountedFiles(tmp_path / "user", pair(CA.client("orders-1")))
    options = {
        **mounted.options,
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "alice",
        "sasl_password": "canary-old",
        "delivery_timeout_ms": 8_000,
        "request_timeout_ms": 5_000,
        "close_timeout_ms": 100,
    }
    async with (
        secured("SASL_SSL", MUTUAL, users={"alice": "canary-old"}) as cluster,
        running(cluster, **options) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"0")
        hang = cluster.hang("Produce", times=1)
        delivery = await producer.send("orders", b"1")
        await hang.reached()
        change(cluster)
        cluster.disconnect_all()
        with pytest.raises(DeliveryError) as failed:
            await delivery
    assert failed.value.persisted is Persisted.MAYBE
    sent_once, _, since_then = str(failed.value).partition("; since then: ")
    assert "(broker-1.memory:9092 closed the connection" in sent_once
    assert now_told in since_then


def test_a_function_that_hangs_delays_nothing_else(tmp_path: pathlib.Path) -> None:
    """The set-up's time bounds a call, which hangs in a thread (four at most); the next attempt calls anew; stop() does not wait."""
    release = threading.Event()
    vault = Vault(tmp_path)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        hanging: asyncio.Queue[None] = asyncio.Queue()
        hangs = True

        def sometimes() -> ssl.SSLContext:
            if not hangs:
                return vault()
            loop.call_soon_threadsafe(hanging.put_nowait, None)
            release.wait(60)
            raise PermissionError("too late")

        async def until_it_was_asked_twice() -> None:
            async with asyncio.timeout(30):
                await hanging.get()
                await hanging.get()

        async with secured("SSL", MUTUAL) as cluster:
            producer = Producer(
                **cluster.client_options,
                ssl_context=sometimes,
                socket_connection_setup_timeout_ms=100,
            )
            await producer.start(wait=False)
            delivery = asyncio.ensure_future(producer.send_and_wait("orders", b"0"))
            await until_it_was_asked_twice()
            hangs = False
            await delivery
            assert_whole(cluster, 1)
            began = time.monotonic()
            await producer.stop()
            assert time.monotonic() - began < 5

    asyncio.run(main())
    release.set()


def test_a_function_that_always_hangs_fails_the_start() -> None:
    """`start` fails by `max_block_ms`, and `stop` returns at once."""
    release = threading.Event()

    def hang() -> ssl.SSLContext:
        release.wait(60)
        return client_context(CA)

    async def main() -> None:
        async with secured("SSL", MUTUAL) as cluster:
            producer = Producer(
                **cluster.client_options,
                ssl_context=hang,
                max_block_ms=200,
                socket_connection_setup_timeout_ms=50,
            )
            with pytest.raises(BootstrapFailed):
                await producer.start()
            async with asyncio.timeout(5):
                await producer.stop()

    asyncio.run(main())
    release.set()
