"""Tests of `aioproducer.spark.resolving`: what is said of every kind of transaction, and what is ended."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

from aioproducer import (
    PreparedTransaction,
    Producer,
    ProducerConfig,
    TopicPartition,
    TransactionDescription,
    TransactionResolver,
)
from aioproducer.spark.exactly_once import TaskTransaction, commit_batch
from aioproducer.spark.ledger import Decision, Entry, QueryName
from aioproducer.spark.ledger_client import Ledger
from aioproducer.spark.resolving import Action, Decided, Known, Resolution, judge, resolve
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioproducer.testing.kafka_server import ServerThread

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
DECISION = Known(Decision(7, (Entry(PreparedTransaction("q-0", 100, 3, 2), 1, 2, 3), None)))
NONE = Known()
UNREADABLE = Known(problem="it cannot be read")


def described(
    transactional_id: str = "q-0",
    state: str = "Ongoing",
    age: float | None = 3_600.0,
    **changes: Any,
) -> TransactionDescription:
    """A transaction that began some seconds ago, of the decision's producer."""
    fields: dict[str, Any] = {
        "transactional_id": transactional_id,
        "producer_id": 100,
        "epoch": 3,
        "state": state,
        "started_at": None if age is None else NOW - timedelta(seconds=age),
        "timeout_ms": 60_000,
        "partitions": (
            TopicPartition("orders", 1),
            TopicPartition("orders", 0),
            TopicPartition("__consumer_offsets", 7),
        ),
    }
    return TransactionDescription(**fields | changes)


SAID = {
    "decided": (described(), DECISION, "commit", "commit", ""),
    "another epoch": (described(epoch=4), DECISION, "undecided", "abort", ""),
    "another producer": (described(producer_id=101), DECISION, "undecided", "abort", ""),
    "a task that had no rows": (described("q-1"), DECISION, "undecided", "abort", ""),
    "a task that the decision lacks": (described("q-2"), DECISION, "undecided", "abort", ""),
    "no decision": (described(), NONE, "undecided", "abort", ""),
    "a driver": (described("q-driver"), DECISION, "undecided", "abort", ""),
    "a driver, unreadable": (described("q-driver"), UNREADABLE, "undecided", "abort", ""),
    "unreadable": (described(), UNREADABLE, "unknown", "leave", "it cannot be read"),
    "young": (described(age=899), DECISION, "commit", "leave", "it began a short time ago"),
    "young, not decided": (
        described(age=899),
        NONE,
        "undecided",
        "leave",
        "it began a short time ago",
    ),
    "of a clock that is ahead": (
        described(age=-5),
        NONE,
        "undecided",
        "leave",
        "it began a short time ago",
    ),
    "ageless": (
        described(age=None),
        DECISION,
        "commit",
        "leave",
        "its coordinator does not say when it began",
    ),
    "ending": (
        described(state="PrepareCommit"),
        DECISION,
        "done",
        "leave",
        "its coordinator is ending it",
    ),
    "ending otherwise": (
        described(state="PrepareAbort"),
        NONE,
        "done",
        "leave",
        "its coordinator is ending it",
    ),
    "empty": (described(state="Empty"), DECISION, "done", "nothing", ""),
    "committed": (described(state="CompleteCommit"), DECISION, "done", "nothing", ""),
    "aborted": (described(state="CompleteAbort"), UNREADABLE, "done", "nothing", ""),
    "no number": (described("q"), DECISION, "unknown", "leave", "no sink makes such an id"),
    "no number behind the dash": (
        described("q-x"),
        DECISION,
        "unknown",
        "leave",
        "no sink makes such an id",
    ),
    "no number of a task": (
        described("q-00"),
        DECISION,
        "unknown",
        "leave",
        "no sink makes such an id",
    ),
    "no name": (described("-0"), DECISION, "unknown", "leave", "no sink makes such an id"),
}


@pytest.mark.parametrize(("found", "known", "decided", "action", "reason"), SAID.values(), ids=SAID)
def test_what_is_said(
    found: TransactionDescription, known: Known, decided: str, action: str, reason: str
) -> None:
    """Only what is old, open and the sink's is ended, and committed only if a decision names this very transaction."""
    finding = judge(found, known, now=NOW, older_than=900)
    assert (finding.decided, finding.action, finding.reason) == (
        Decided(decided),
        Action(action),
        reason,
    )
    assert finding.is_open is (action != "nothing")
    if action == "commit":
        assert finding.prepared == PreparedTransaction("q-0", 100, 3, 2)
    if action == "abort":
        assert finding.prepared == PreparedTransaction(
            found.transactional_id, found.producer_id, found.epoch, 1
        )


class Place:
    """A fake cluster with a topic, and what queries do there."""

    def __init__(
        self, cluster: FakeCluster, resolver: TransactionResolver, topic: str = "orders"
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers)
        self._resolver = resolver

    def ledger(self, name: str, topic: str = "orders") -> Ledger:
        return Ledger(QueryName(name), topic, self.config, self._resolver)

    async def prepare(
        self, name: str, tasks: int, topic: str = "orders", batch: int = 5
    ) -> list[PreparedTransaction]:
        """Write a record in each of some tasks, and leave their transactions open."""
        reports = []
        for task in range(tasks):
            transaction = TaskTransaction(self.ledger(name, topic), batch, task)
            producer = await transaction.begin()
            assert producer is not None
            await producer.send(self.topic, f"{name}-{task}".encode())
            await transaction.mark(1, 1, 1)
            reports.append(await transaction.prepare())
        return [report.prepared for report in reports if report.prepared is not None]

    async def decide(
        self,
        name: str,
        prepared: Sequence[PreparedTransaction],
        topic: str = "orders",
        batch: int = 5,
    ) -> None:
        """Write the decision of a batch, and die."""
        ledger = self.ledger(name, topic)
        async with ledger.lock() as driver:
            await ledger.decide(
                driver, Decision(batch, tuple(Entry(one, 1, 1, 1) for one in prepared))
            )

    async def resolve(
        self, prefix: str = "spark-", *, hours: float = 1.0, **options: Any
    ) -> Resolution:
        """Resolve some hours later."""
        return await resolve(
            self.config,
            prefix,
            wall_clock=lambda: self.cluster.now_ms() / 1_000 + hours * 3_600,
            **options,
        )

    def committed(self) -> list[bytes | None]:
        return sorted(
            value or b"" for value in self.cluster.values("orders", isolation="read_committed")
        )


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    async with FakeCluster(brokers=2) as cluster:
        for topic in ("orders", "ledger"):
            cluster.create_topic(topic)
        async with TransactionResolver(bootstrap_servers=cluster.bootstrap_servers) as resolver:
            yield Place(cluster, resolver)
        assert cluster.violations == []


def told(found: Resolution) -> dict[str, tuple[str, str, str, bool]]:
    return {
        one.transactional_id: (one.decided.value, one.action.value, one.outcome, one.is_open)
        for one in found.findings
    }


@pytest.mark.asyncio
async def test_a_query_that_was_decided_and_one_that_was_not() -> None:
    """A list changes nothing. `is_ending` commits the one, aborts the other, and leaves other prefixes alone; a second call finds nothing."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 3))
        done = await here.prepare("spark-b", 1)
        await here.decide("spark-b", done)
        await here.ledger("spark-b").resolver.commit(done[0])
        await here.prepare("spark-b", 2, batch=6)
        await here.prepare("other-c", 1)
        before = {
            "spark-a-0": ("commit", "commit", "", True),
            "spark-a-1": ("commit", "commit", "", True),
            "spark-a-2": ("commit", "commit", "", True),
            "spark-a-driver": ("done", "nothing", "", False),
            "spark-b-0": ("undecided", "abort", "", True),
            "spark-b-1": ("undecided", "abort", "", True),
            "spark-b-driver": ("done", "nothing", "", False),
        }
        for _ in range(2):
            found = await here.resolve()
            assert (told(found), found.open, found.warnings) == (before, 5, ())
        # The open transactions of the first query hold up readers.
        assert here.committed() == []
        found = await here.resolve(is_ending=True)
        assert told(found) == {
            "spark-a-0": ("commit", "commit", "committed", False),
            "spark-a-1": ("commit", "commit", "committed", False),
            "spark-a-2": ("commit", "commit", "committed", False),
            "spark-a-driver": ("done", "nothing", "", False),
            "spark-b-0": ("undecided", "abort", "aborted", False),
            "spark-b-1": ("undecided", "abort", "aborted", False),
            "spark-b-driver": ("done", "nothing", "", False),
        }
        assert found.open == 0
        assert here.committed() == [b"spark-a-0", b"spark-a-1", b"spark-a-2", b"spark-b-0"]
        assert {one.decided for one in (await here.resolve(is_ending=True)).findings} == {
            Decided.DONE
        }
        assert [
            (one.transactional_id, one.is_open) for one in (await here.resolve("other-")).findings
        ] == [("other-c-0", True)]


@pytest.mark.asyncio
async def test_young_transactions_are_left() -> None:
    """Their query may run. Nothing is asked of its driver's coordinator, which would fence the driver."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 1))
        before = len(here.cluster.requests("InitProducerId"))
        found = await here.resolve(hours=0.2, is_ending=True)
        assert told(found)["spark-a-0"] == ("commit", "leave", "", True)
        assert len(here.cluster.requests("InitProducerId")) == before
        assert told(await here.resolve(hours=0.2, is_ending=True, older_than=600))["spark-a-0"][
            2:
        ] == ("committed", False)


@pytest.mark.asyncio
async def test_a_ledger_that_is_not_known() -> None:
    """The driver's group names the topic. A first batch has no decision, or this user may not see it: nothing is aborted without a name."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 1, "ledger"), "ledger")
        await here.prepare("spark-b", 1)
        found = told(await here.resolve(is_ending=True))
        assert found["spark-a-0"][2:] == ("committed", False)
        assert found["spark-b-0"] == ("unknown", "leave", "", True)
        (left,) = (one for one in (await here.resolve()).findings if one.is_open)
        assert (
            left.reason
            == "no decision is in its driver's group: name the ledger's topic (--ledger-topic)"
        )
        found = told(await here.resolve(is_ending=True, ledger_topic="ledger"))
        assert found["spark-b-0"][2:] == ("aborted", False)
        assert here.committed() == [b"spark-a-0"]


@pytest.mark.asyncio
async def test_a_topic_that_is_not_the_ledgers() -> None:
    """This user may not describe the ledger's topic. A committed transaction, here the driver's, shows that there is a decision elsewhere."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 2, "ledger"), "ledger")
        here.cluster.security.deny("*", "Describe", topic="ledger")
        for topic, reason in (
            (
                "elsewhere",
                "no decision is in the ledger of elsewhere: name the ledger's topic (--ledger-topic)",
            ),
            (
                None,
                "no decision is in its driver's group: name the ledger's topic (--ledger-topic)",
            ),
            (
                "ledger",
                "its decision cannot be read: TOPIC_AUTHORIZATION_FAILED (29): OffsetFetch for group 'spark-a-driver' "
                "was refused: ledger-0. Grant Write on the topic; for offsets and positions, Read.",
            ),
        ):
            found = await here.resolve(is_ending=True, ledger_topic=topic)
            assert [
                (one.decided, one.action, one.outcome, one.reason)
                for one in found.findings
                if one.is_open
            ] == [(Decided.UNKNOWN, Action.LEAVE, "", reason)] * 2
        assert here.committed() == []


@pytest.mark.asyncio
async def test_a_topic_that_is_not_the_ledgers_and_a_lock_that_ended() -> None:
    """No transaction is in a committed state: the next driver died right after it had taken the lock. The group tells the topic."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 2))
        with pytest.raises(ZeroDivisionError):
            async with here.ledger("spark-a").lock():
                raise ZeroDivisionError
        found = await here.resolve(is_ending=True, ledger_topic="ledger")
        assert {one.state for one in found.findings} == {"Ongoing", "Empty"}
        assert [
            (one.decided, one.action, one.outcome) for one in found.findings if one.is_open
        ] == [(Decided.UNKNOWN, Action.LEAVE, "")] * 2
        assert {one.reason for one in found.findings if one.is_open} == {
            "its latest decision is in the ledger of orders, not of ledger: name that topic (--ledger-topic)"
        }
        assert {one.outcome for one in (await here.resolve(is_ending=True)).findings} == {
            "committed",
            "",
        }
        assert here.committed() == [b"spark-a-0", b"spark-a-1"]


async def decided_meanwhile(
    here: Place, prepared: Sequence[PreparedTransaction], ledger_topic: str
) -> Resolution:
    """Decide the transactions of a query between the tool's first look and its lock. Return what the tool found."""
    before = len(here.cluster.requests("OffsetFetch"))
    hang = here.cluster.hang("OffsetFetch", when="after", times=1)
    resolving = asyncio.create_task(here.resolve(is_ending=True, ledger_topic=ledger_topic))
    await here.cluster.seen("OffsetFetch", before + 1)
    await here.decide("spark-a", prepared)
    hang.release()
    return await resolving


@pytest.mark.asyncio
async def test_a_decision_that_is_made_elsewhere_while_the_tool_runs() -> None:
    """The driver decides between the tool's first look and its lock, in a topic that is not the named one. Nothing is ended."""
    async with place() as here:
        prepared = await here.prepare("spark-a", 2)
        found = await decided_meanwhile(here, prepared, ledger_topic="ledger")
        assert [
            (one.action, one.outcome)
            for one in found.findings
            if one.transactional_id != "spark-a-driver"
        ] == [(Action.LEAVE, "")] * 2
        assert found.open == 2


@pytest.mark.asyncio
async def test_decisions_in_two_topics() -> None:
    """The option `ledgerTopic` was changed between two runs: the later decision counts. If none is later, the topic must be named."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 1), batch=4)
        await here.decide("spark-a", await here.prepare("spark-a", 1, "ledger"), "ledger")
        (old,) = (
            one for one in (await here.resolve(ledger_topic="orders")).findings if one.is_open
        )
        assert (
            old.reason
            == "its latest decision is in the ledger of ledger, not of orders: name that topic (--ledger-topic)"
        )
        assert told(await here.resolve())["spark-a-0"][:2] == ("commit", "commit")
        await here.decide("spark-a", [], "orders")
        (both,) = (one for one in (await here.resolve()).findings if one.is_open)
        assert (
            both.reason
            == "its latest decision is in the ledger of ledger and in that of orders: name one of them (--ledger-topic)"
        )
        assert told(await here.resolve(ledger_topic="orders"))["spark-a-0"][:2] == (
            "undecided",
            "abort",
        )
        assert told(await here.resolve(ledger_topic="ledger", is_ending=True))["spark-a-0"][2:] == (
            "committed",
            False,
        )


@pytest.mark.asyncio
async def test_a_decision_that_cannot_be_read() -> None:
    """Another program wrote to the group: its words are shown, and nothing is ended."""
    async with place() as here:
        await here.prepare("spark-a", 1)
        async with (
            Producer(
                bootstrap_servers=here.cluster.bootstrap_servers, transactional_id="x"
            ) as producer,
            producer.transaction(),
        ):
            await producer.send_position_to_transaction("spark-a-driver", 6, "junk", topic="orders")
        found = await here.resolve(is_ending=True)
        (one,) = found.findings
        assert (one.decided, one.action, one.is_open) == (Decided.UNKNOWN, Action.LEAVE, True)
        assert "'junk'" in one.reason
        assert here.committed() == []


@pytest.mark.asyncio
async def test_a_task_without_rows_leaves_the_transaction_of_an_earlier_run_open() -> None:
    """The driver died before its decision, and the batch that is run again has no rows. `resolve` ends the transaction."""
    async with place() as here:
        await here.prepare("spark-a", 1)
        ledger = here.ledger("spark-a")
        again = TaskTransaction(ledger, 5, 0)
        assert not await again.settled()
        await commit_batch(ledger, 5, [again.empty()])
        assert told(await here.resolve(ledger_topic="orders")) == {
            "spark-a-0": ("undecided", "abort", "", True)
        }
        assert told(await here.resolve(is_ending=True, ledger_topic="orders"))["spark-a-0"] == (
            "undecided",
            "abort",
            "aborted",
            False,
        )


@pytest.mark.asyncio
async def test_a_driver_that_died_while_it_decided() -> None:
    """The lock aborts its transaction. What it had not decided is aborted."""
    async with place() as here:
        prepared = await here.prepare("spark-a", 1)
        driver = Producer(
            bootstrap_servers=here.cluster.bootstrap_servers, transactional_id="spark-a-driver"
        )
        await driver.start()
        await driver.begin_transaction()
        await driver.send_position_to_transaction("spark-a-driver", 6, "d1 ", topic="orders")
        assert told(await here.resolve())["spark-a-driver"] == ("undecided", "abort", "", True)
        found = await here.resolve(is_ending=True, ledger_topic="orders")
        assert told(found) == {
            "spark-a-0": ("undecided", "abort", "aborted", False),
            "spark-a-driver": ("undecided", "abort", "aborted", False),
        }
        assert prepared[0].transactional_id == "spark-a-0"
        await driver.stop()
        assert here.committed() == []


@pytest.mark.asyncio
async def test_a_decision_that_is_made_while_the_tool_runs() -> None:
    """The driver decides between the tool's first look and its lock. The tool commits what is decided then."""
    async with place() as here:
        prepared = await here.prepare("spark-a", 2)
        found = await decided_meanwhile(here, prepared, ledger_topic="orders")
        assert {one[2] for name, one in told(found).items() if name != "spark-a-driver"} == {
            "committed"
        }
        assert here.committed() == [b"spark-a-0", b"spark-a-1"]


@pytest.mark.asyncio
async def test_a_refused_end_is_an_outcome() -> None:
    """The other transactions are ended all the same."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 2))
        here.cluster.fail("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        found = await here.resolve(is_ending=True)
        outcomes = sorted(one.outcome for one in found.findings if one.action is Action.COMMIT)
        assert outcomes[0] == "committed"
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in outcomes[1]
        assert found.open == 1


@pytest.mark.asyncio
async def test_a_lock_that_is_refused_is_an_outcome_of_the_query() -> None:
    """Without the lock, nothing of the query is ended. Other queries are."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 1))
        await here.decide("spark-b", await here.prepare("spark-b", 1))
        here.cluster.fail("InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        found = told(await here.resolve(is_ending=True))
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in found["spark-a-0"][2]
        assert found["spark-a-0"][3]
        assert found["spark-b-0"][2:] == ("committed", False)


@pytest.mark.asyncio
async def test_a_query_that_stood_still_for_days() -> None:
    """Brokers may forget its marks."""
    async with place() as here:
        await here.decide("spark-a", await here.prepare("spark-a", 1))
        assert (await here.resolve(hours=5 * 24)).warnings == ()
        (warning,) = (await here.resolve(hours=6 * 24)).warnings
        assert warning.startswith("spark-a: its last transaction began 6.0 days ago")
        assert "offsets.retention.minutes (7 days" in warning


@pytest.mark.integration
@pytest.mark.asyncio
async def test_a_real_broker(kafka_server: ServerThread) -> None:
    """It commits what was decided, and aborts the rest. A second call finds nothing open."""
    prefix = f"spark-{uuid.uuid4().hex[:8]}-"
    # The server is shared with other tests.
    topic = f"{prefix}orders"
    await asyncio.to_thread(kafka_server.create_topic, topic)
    config = ProducerConfig(bootstrap_servers=kafka_server.bootstrap_servers)
    async with TransactionResolver(config) as resolver:
        here = Place(cast("FakeCluster", kafka_server), resolver, topic)
        await here.decide(f"{prefix}a", await here.prepare(f"{prefix}a", 2, topic), topic)
        await here.prepare(f"{prefix}b", 1, topic)
        later = time.time() + 3_600
        listed = await resolve(config, prefix, wall_clock=lambda: later, ledger_topic=topic)
        found_by_group = await resolve(config, prefix, wall_clock=lambda: later)
        wrong = await resolve(
            config, f"{prefix}a", wall_clock=lambda: later, ledger_topic="nowhere", is_ending=True
        )
        found = await resolve(
            config, prefix, wall_clock=lambda: later, ledger_topic=topic, is_ending=True
        )
        again = await resolve(
            config, prefix, wall_clock=lambda: later, ledger_topic=topic, is_ending=True
        )
        marks = [
            await here.ledger(f"{prefix}{query}", topic).mark(task, stable=True)
            for query, task in (("a", 0), ("a", 1), ("b", 0))
        ]
    assert [
        one.age_seconds // 600 if one.age_seconds is not None else None
        for one in listed.findings
        if one.is_open
    ] == [6, 6, 6]
    assert [one.action.value for one in found_by_group.findings if one.is_open] == [
        "commit",
        "commit",
        "leave",
    ]
    reason = f"its latest decision is in the ledger of {topic}, not of nowhere: name that topic (--ledger-topic)"
    assert [one.reason for one in wrong.findings if one.is_open] == [reason] * 2
    outcomes = {
        one.transactional_id.removeprefix(prefix): (one.outcome, one.topics)
        for one in found.findings
        if one.outcome
    }
    assert outcomes == {
        "a-0": ("committed", ("__consumer_offsets", topic)),
        "a-1": ("committed", ("__consumer_offsets", topic)),
        "b-0": ("aborted", ("__consumer_offsets", topic)),
    }
    assert (listed.open, found.open, again.open) == (3, 0, 0)
    assert [mark and mark.batch for mark in marks] == [5, 5, None]
