"""Producers that authenticate by OAUTHBEARER on a fake cluster: sources of tokens, their refresh, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from whole import jumping, running

from aioproducer import BootstrapFailed, DeliveryError, Persisted, Producer, ProducerClosed
from aioproducer.errors import TokenUnavailable
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens, unsecured_token

if TYPE_CHECKING:
    import pathlib
    from collections.abc import AsyncIterator


EPOCH = 1_900_000_000.0
"""Seconds since 1970 at the zero of the loop's clock."""


def wall() -> float:
    return asyncio.get_running_loop().time() + EPOCH


class Tokens:
    """A token function that a test scripts.

    Attributes:
        calls: the loop's time of each call.
        results: what the next calls return or raise; then the function returns tokens of `seconds`.
    """

    def __init__(self, seconds: float = 100.0, user: str = "alice", **claims: Any) -> None:
        self.calls: list[float] = []
        self.results: list[Any] = []
        self.seconds = seconds
        self.user = user
        self.claims = claims

    def __call__(self) -> Any:
        self.calls.append(wall() - EPOCH)
        result = self.results.pop(0) if self.results else self.good()
        if isinstance(result, BaseException):
            raise result
        return result

    def good(self) -> str:
        return unsecured_token(
            self.user, self.seconds, now=wall(), canary="canary-claim", **self.claims
        )


@contextlib.asynccontextmanager
async def secured(
    brokers: int = 1, session_ms: int = 0, protocol: Any = "SASL_PLAINTEXT", **tokens: Any
) -> AsyncIterator[FakeCluster]:
    security = ListenerSecurity(protocol, session_ms=session_ms, tokens=ListenerTokens(**tokens))
    async with FakeCluster(brokers, memory=True, security=security, wall_clock=wall) as cluster:
        cluster.create_topic("orders", partitions=brokers)
        yield cluster


def login(source: Any, **options: Any) -> dict[str, Any]:
    return {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token": source,
        "wall_clock": wall,
        **options,
    }


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@jumping
async def test_records_arrive(protocol: str) -> None:
    async with (
        secured(protocol=protocol) as cluster,
        running(cluster, **login(Tokens())) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"x")
        assert cluster.values("orders") == [b"x"]
        assert {(done.mechanism, done.error) for done in cluster.security.authentications} == {
            ("OAUTHBEARER", 0)
        }


async def stream(producer: Producer[Any, Any], seconds: float) -> int:
    """Send a record each 20 ms. Returns their number; each is acknowledged."""
    loop = asyncio.get_running_loop()
    until, sent = loop.time() + seconds, []
    while loop.time() < until:
        sent.append(await producer.send("orders", b"%d" % len(sent), partition=0))
        await asyncio.sleep(0.02)
    await producer.flush()
    for delivery in sent:
        await delivery
    return len(sent)


def renewals(cluster: FakeCluster) -> int:
    return sum(done.is_renewal and not done.error for done in cluster.security.authentications)


@jumping
async def test_sessions_end_with_their_tokens_and_are_renewed_in_place() -> None:
    """Without `connections.max.reauth.ms`: tokens of 20 s, two minutes of records: no record fails, no connection is made anew."""
    async with secured() as cluster:
        tokens = Tokens(20.0)
        async with running(cluster, **login(tokens)) as (_, producer):
            dials = len(cluster.security.dials)
            sent = await stream(producer, 120)
            assert cluster.values("orders") == [b"%d" % number for number in range(sent)]
            assert renewals(cluster) >= 7
            assert 7 <= len(tokens.calls) <= 9
            assert len(cluster.security.dials) - dials <= 1
            assert cluster.security.expired_sessions == []
            (row,) = producer.health().security
            assert (row.mechanism, row.principal, row.last_refusal) == (
                "OAUTHBEARER",
                "alice",
                None,
            )
            assert row.session_seconds_left is not None
            assert 0 < row.session_seconds_left <= 20


@jumping
async def test_fault_100_no_token_for_30_s_fails_no_record() -> None:
    """While the old token lives, nothing but an event and a gauge tells of it. Tokens of 60 s; the source fails from 45 s to 75 s."""
    async with secured() as cluster:
        tokens = Tokens(60.0)
        async with running(cluster, **login(tokens)) as (_, producer):
            began = wall()
            sent = await stream(producer, 45)
            source = tokens.good
            tokens.good = lambda: (
                RuntimeError("canary-text") if 45 <= wall() - began < 52 else source()
            )  # type: ignore[method-assign,assignment,return-value]
            sent += await stream(producer, 6)
            assert producer.metrics().number("token-failures") > 0
            (row,) = producer.health().security
            assert row.last_refusal == "the token function raised RuntimeError"
            sent += await stream(producer, 60)
            assert producer.metrics().number("token-failures") == 0
            assert producer.metrics().number("token-expiry-ms") > 1000 * wall()
            assert 0 < producer.metrics().number("token-age-seconds") < 60
            assert len(cluster.values("orders")) == sent
            assert [done.error for done in cluster.security.authentications if done.error] == []


def shown_by(error: BaseException | None) -> str:
    """Return the texts of an error and of those behind it."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


@jumping
async def test_start_gives_up_a_source_that_fails_at_once() -> None:
    """After five failed fetches, some four seconds; the error has the source's words, and no broker was dialled."""
    async with secured() as cluster:
        tokens = Tokens()
        tokens.results = [RuntimeError("canary-text")] * 1000
        began = wall()
        producer: Producer[Any, Any] = Producer(**cluster.client_options, **login(tokens))
        with pytest.raises(
            BootstrapFailed, match="the token function raised RuntimeError"
        ) as caught:
            await producer.start()
        assert 4 <= wall() - began < 6
        assert len(tokens.calls) in {5, 6}
        assert isinstance(caught.value.__cause__, TokenUnavailable)
        assert "canary" not in shown_by(caught.value)
        assert cluster.security.dials == []


@jumping
async def test_start_waits_for_a_source_that_recovers() -> None:
    """As for a broker that starts; `start(wait=False)` waits for ever."""
    async with secured() as cluster:
        tokens = Tokens()
        tokens.results = [RuntimeError("canary-text")] * 3
        async with running(cluster, **login(tokens)) as (_, producer):
            await producer.send_and_wait("orders", b"x")
        late = Tokens()
        late.results = [None] * 6
        producer = Producer(**cluster.client_options, **login(late))
        await producer.start(wait=False)
        delivery = await producer.send("orders", b"y")
        await delivery
        await producer.stop()
        assert len(late.calls) == 7
        assert cluster.values("orders") == [b"x", b"y"]


@jumping
async def test_a_source_that_hangs_at_the_start() -> None:
    """The error comes after `max_block_ms`, and names the source."""

    async def hanging() -> str:
        await asyncio.Event().wait()
        return ""

    async with secured() as cluster:
        producer: Producer[Any, Any] = Producer(
            **cluster.client_options, **login(hanging, max_block_ms=20_000)
        )
        began = wall()
        with pytest.raises(BootstrapFailed, match="no token from the token function within"):
            await producer.start()
        assert wall() - began == pytest.approx(20)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ({"seconds": -5}, "the token expired 5 s ago. Is the clock of this machine right"),
        ({"nbf": EPOCH + 1e6}, '{"status":"invalid_token"}. Is the clock right'),
        (
            {"aud": "elsewhere"},
            '{"status":"invalid_token"}. Is the clock right, and are issuer and audience',
        ),
        ({"aud": "kafka", "scope": "consume"}, '{"status":"insufficient_scope","scope":"produce"}'),
        (
            {"aud": "kafka", "scope": "produce consume"},
            "1 extensions are invalid! They are: logicalCluster",
        ),
    ],
    ids=["expired", "not yet valid", "audience", "scope", "extension"],
)
@jumping
async def test_fault_100_tokens_that_are_refused(token: dict[str, Any], words: str) -> None:
    """By the producer or by the broker: the words tell why, and never quote the token."""
    async with secured(
        audience="kafka", scope=("produce",), extensions={"logicalCluster": "lkc-1"}
    ) as cluster:
        producer: Producer[Any, Any] = Producer(**cluster.client_options, **login(Tokens(**token)))
        began = wall()
        with pytest.raises(BootstrapFailed, match=re.escape(words)) as caught:
            await producer.start()
        assert wall() - began < 6
        assert "canary" not in shown_by(caught.value)
        assert Tokens(**token).good().split(".")[1] not in shown_by(caught.value)


@jumping
async def test_extensions_of_the_option_and_of_the_token() -> None:
    """The broker wants both."""
    async with secured(
        extensions={"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
    ) as cluster:

        def source() -> Any:
            return (Tokens().good(), None, None, {"identityPoolId": "pool-1"})

        options = login(
            source,
            sasl_oauthbearer_extensions={"logicalCluster": "lkc-1", "identityPoolId": "another"},
        )
        async with running(cluster, **options) as (_, producer):
            await producer.send_and_wait("orders", b"x")
            assert {done.principal for done in cluster.security.authentications} == {"alice"}


@jumping
async def test_a_coroutine_function_and_an_opaque_token() -> None:
    async def source() -> str:
        await asyncio.sleep(0.5)
        return "canary-opaque"

    async with (
        secured(unsecured=False, opaque={"canary-opaque": "alice"}) as cluster,
        running(cluster, **login(source)) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"x")
        assert {done.principal for done in cluster.security.authentications} == {"alice"}


@jumping
async def test_fault_105_another_principal_in_the_new_token() -> None:
    """A broker refuses it in a renewal; one new connection at once has it, and no record fails."""
    async with secured() as cluster:
        tokens = Tokens(20.0)
        async with running(cluster, **login(tokens)) as (_, producer):
            await stream(producer, 10)
            tokens.user = "alice-2"
            await stream(producer, 40)
            assert [done.error for done in cluster.security.authentications if done.is_renewal][
                :1
            ] == [58]
            assert cluster.security.authentications[-1].principal == "alice-2"


@jumping
async def test_fault_103_a_token_that_is_withdrawn_in_mid_life() -> None:
    """The broker refuses it at the next connection: a new one is fetched at once, long before the old one would end."""
    async with secured(unsecured=False, opaque={"canary-first": "alice"}) as cluster:
        tokens = Tokens()
        tokens.good = lambda: "canary-first" if len(tokens.calls) == 1 else "canary-second"  # type: ignore[method-assign]
        async with running(cluster, **login(tokens)) as (_, producer):
            await producer.send_and_wait("orders", b"x")
            cluster.security.change(
                tokens=ListenerTokens(unsecured=False, opaque={"canary-second": "alice"})
            )
            cluster.disconnect_all()
            await producer.send_and_wait("orders", b"y")
            assert len(tokens.calls) == 2
            assert cluster.values("orders") == [b"x", b"y"]


@jumping
async def test_idle_producers_refresh_their_token() -> None:
    """Without a send, a poll or a connection; the first record after an hour is sent at once."""
    async with secured() as cluster:
        tokens = Tokens(600.0)
        async with running(cluster, connections_max_idle_ms=60_000, **login(tokens)) as (
            _,
            producer,
        ):
            await producer.send_and_wait("orders", b"x")
            await asyncio.sleep(3600)
            assert len(tokens.calls) >= 8
            began = wall()
            await producer.send_and_wait("orders", b"y")
            assert wall() - began < 0.1


@pytest.mark.parametrize("hours", [2, -2], ids=["suspended", "set back"])
@jumping
async def test_the_wall_clock_jumps_while_the_loops_clock_does_not(
    monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """A machine that was suspended: brokers refuse its token, which expired meanwhile, and have ended its connections. The next token is taken."""
    async with (
        secured(session_ms=50_000) as cluster,
        running(cluster, **login(Tokens())) as (_, producer),
    ):
        await producer.send_and_wait("orders", b"1")
        jumped = EPOCH + hours * 3600
        monkeypatch.setattr(sys.modules[__name__], "EPOCH", jumped)
        cluster.disconnect_all()
        before, began = len(cluster.security.authentications), wall()
        await producer.send_and_wait("orders", b"2")
        assert wall() - began < 3
        assert len(cluster.security.authentications) - before <= 4
        await stream(producer, 30)


@jumping
async def test_events_of_tokens_are_few(caplog: pytest.LogCaptureFixture) -> None:
    """The first of several failures in a row is told, then each tenth."""
    caplog.set_level("WARNING", "aioproducer.events")
    async with secured() as cluster:
        tokens = Tokens()
        tokens.results = [RuntimeError("canary-text")] * 15
        producer: Producer[Any, Any] = Producer(**cluster.client_options, **login(tokens))
        await producer.start(wait=False)
        await asyncio.sleep(200)
        await producer.stop()
    told = [record.getMessage() for record in caplog.records if record.name == "aioproducer.events"]
    assert [text.partition(": ")[2] for text in told] == [
        "no token, at attempt 1 in a row: the token function raised RuntimeError",
        "broker bootstrap at broker-1.memory:9092 cannot be reached: broker-1.memory:9092: the token function raised RuntimeError",
        "no token, at attempt 11 in a row: the token function raised RuntimeError",
    ]


@jumping
async def test_stop_ends_a_fetch() -> None:
    """A start that waits for a token, and a producer with a refresh that hangs, stop at once."""
    hang = asyncio.Event()

    async def source() -> str:
        if calls:
            await hang.wait()
        calls.append(1)
        return unsecured_token("alice", 20, now=wall())

    calls: list[int] = []
    async with secured() as cluster:
        async with running(cluster, **login(source)) as (_, producer):
            await stream(producer, 17)
            began = wall()
        assert wall() == began
        producer = Producer(**cluster.client_options, **login(source))
        starting = asyncio.ensure_future(producer.start())
        await asyncio.sleep(1)
        await producer.stop()
        with pytest.raises(ProducerClosed):
            await starting


@pytest.mark.parametrize("is_swapped", [False, True], ids=["written", "symlink swapped"])
@jumping
async def test_a_token_file_that_changes_is_read_at_the_next_authentication(
    tmp_path: pathlib.Path, is_swapped: bool
) -> None:
    """Long before the old token would end; a file that is gone leaves the old token."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("canary-first")
    second.write_text("canary-second")
    file = tmp_path / "token"
    file.symlink_to(first) if is_swapped else file.write_text("canary-first")
    both = {"canary-first": "alice", "canary-second": "alice"}
    async with (
        secured(session_ms=10_000, unsecured=False, opaque=both) as cluster,
        running(cluster, **login(f"${{file:{file}}}")) as (_, producer),
    ):
        await stream(producer, 12)
        if is_swapped:
            (tmp_path / "new").symlink_to(second)
            (tmp_path / "new").rename(file)
        else:
            file.write_text("canary-second")
        await stream(producer, 10)
        cluster.security.change(
            tokens=ListenerTokens(unsecured=False, opaque={"canary-second": "alice"})
        )
        file.unlink()
        await stream(producer, 20)
        assert renewals(cluster) >= 4
        assert [done.error for done in cluster.security.authentications if done.error] == []


def test_a_function_that_blocks_holds_up_neither_the_loop_nor_the_end() -> None:
    """In real time: its second call hangs. Records go on, `stop` does not wait for it, and nor does the end of the loop."""
    release = threading.Event()
    calls: list[threading.Thread] = []

    def source() -> str:
        calls.append(threading.current_thread())
        if len(calls) > 1:
            release.wait(60)
        return unsecured_token("alice", 3.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        security = ListenerSecurity("SASL_PLAINTEXT", tokens=ListenerTokens())
        async with FakeCluster(memory=True, security=security) as cluster:
            cluster.create_topic("orders")
            options: dict[str, Any] = {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token": source,
            }
            options |= {
                "sasl_login_refresh_window_factor": 0.5,
                "sasl_login_refresh_window_jitter": 0,
            }
            async with Producer(**cluster.client_options, **options) as producer:
                while len(calls) < 2:
                    await producer.send_and_wait("orders", b"x")
                    await asyncio.sleep(0.01)
                for _ in range(10):
                    await producer.send_and_wait("orders", b"x")
                began = loop.time()
            assert loop.time() - began < 1

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 20
    assert calls[1].is_alive()
    assert calls[1].is_alive()
    release.set()
    calls[1].join(10)


@jumping
async def test_fault_103_records_without_a_token_fail_by_their_deadline() -> None:
    """The error names the source, and that the record is certainly not written. When tokens come again, records go on by themselves."""
    async with secured() as cluster:
        tokens = Tokens(10.0)
        async with running(
            cluster, delivery_timeout_ms=6000, request_timeout_ms=2000, **login(tokens)
        ) as (_, producer):
            await producer.send_and_wait("orders", b"x")
            tokens.results = [RuntimeError("canary-text")] * 1000
            await asyncio.sleep(12)
            cluster.disconnect_all()
            await asyncio.sleep(20)
            dials = len(cluster.security.dials)
            with pytest.raises(
                DeliveryError, match="the token function raised RuntimeError"
            ) as caught:
                await producer.send_and_wait("orders", b"lost")
            assert caught.value.persisted is Persisted.NO
            assert "canary" not in shown_by(caught.value)
            assert len(cluster.security.dials) == dials
            tokens.results.clear()
            await asyncio.sleep(15)
            await producer.send_and_wait("orders", b"y")
            assert cluster.values("orders") == [b"x", b"y"]
