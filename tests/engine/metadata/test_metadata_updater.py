"""Tests of `aioproducer.engine.metadata.metadata_updater`: requests, choice of brokers, use of answers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest
from jumping import jumping, settle, until
from nodes import Tasks, now, refuse
from scripted import ScriptedDialer, ScriptedStream, api_versions, settings

from aioproducer.config import ProducerConfig
from aioproducer.core.metadata.cluster_metadata import ClusterMetadata
from aioproducer.core.metadata.metadata_schedule import MetadataSchedule
from aioproducer.core.retries import Backoff
from aioproducer.engine.context import EngineContext
from aioproducer.engine.metadata import metadata_updater as module
from aioproducer.engine.metadata.metadata_updater import MetadataUpdater
from aioproducer.errors import BootstrapFailed
from aioproducer.net.cluster import Cluster
from aioproducer.testing import FakeCluster
from aioproducer.wire.api import ApiKey
from aioproducer.wire.schema import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Sequence

    from scripted import Asked

    from aioproducer.core.metadata.cluster_metadata import TopicView


class Table:
    """A refresher, its cluster, and what it told."""

    def __init__(self, dialer: Any, *addresses: str, **changes: Any) -> None:
        self.tasks = Tasks()
        self.told: list[TopicView] = []
        self.steps = 0  # that telling takes yet
        self.needed: set[str] = set()
        names = (
            "request_timeout_ms",
            "metadata_recovery_rebootstrap_trigger_ms",
            "allow_auto_create_topics",
        )
        options = {name: changes.pop(name) for name in names if name in changes}
        self.is_needed = self.needed.__contains__
        wake = asyncio.Event()
        max_age = changes.pop("max_age", 300.0)
        self.cluster = Cluster(
            addresses, settings(dialer, **changes), self.tasks.spawn, lambda _: None
        )
        owner: Any = self.tasks
        nothing: Any = None
        context = EngineContext(
            ProducerConfig(**options), nothing, owner, Backoff(0.1, 1.0), lambda: 0.5, nothing
        )
        self.updater = MetadataUpdater(
            context, self.cluster, ClusterMetadata(), MetadataSchedule(max_age, wake.set), wake
        )
        topics: Any = self
        self.updater.topics = topics

    def topics(self) -> set[str]:
        return self.needed

    def leave_cluster(self) -> None:
        """Have no batches."""

    def on_leader(self, topic: TopicView, _: int) -> None:
        self.told.append(topic)

    def on_topic(self, topic: TopicView) -> Generator[None, None, None]:
        self.told.append(topic)
        while self.steps:
            yield
            self.steps -= 1

    def want(self, *topics: str) -> None:
        self.needed.update(topics)
        for topic in topics:
            self.updater.schedule.want(topic)

    def names(self) -> list[str]:
        return [topic.name for topic in self.told]


@contextlib.asynccontextmanager
async def refreshing(
    dialer: Any, *addresses: str, bootstraps: bool = True, **changes: Any
) -> AsyncIterator[Table]:
    """Its task runs; afterwards nothing is left."""
    table = Table(dialer, *addresses, **changes)
    if bootstraps:
        await table.updater.bootstrap(10)
    task = asyncio.ensure_future(table.updater.run())
    try:
        yield table
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        table.cluster.close(now=True)
        await table.tasks.end()


@contextlib.asynccontextmanager
async def with_fake(brokers: int = 1, **changes: Any) -> AsyncIterator[tuple[Table, FakeCluster]]:
    """With a fake cluster that has the topic t."""
    async with FakeCluster(brokers=brokers, memory=True) as fake:
        fake.create_topic("t", partitions=2)
        async with refreshing(fake.network, *fake.bootstrap_servers.split(","), **changes) as table:
            yield table, fake
        await settle()
        fake.assert_all_fired()


def asked(fake: FakeCluster) -> list[list[str]]:
    """The topics of each Metadata request."""
    return [
        [topic.name for topic in request.message.topics] for request in fake.requests("Metadata")
    ]


# Bootstrap


@jumping
async def test_an_address_that_hangs_holds_up_the_next_for_a_moment_only() -> None:
    """Row 4: a black hole, or a broker that stands still, takes ten seconds to be given up; others are asked after one."""
    async with FakeCluster(brokers=2, memory=True) as fake:
        fake.hang("ApiVersions", broker=1)
        began = now()
        async with refreshing(fake.network, *fake.bootstrap_servers.split(","), *["dead:1"] * 3):
            assert now() - began <= 1.01
        await settle()


@jumping
async def test_a_failed_bootstrap_names_every_address_and_its_reason() -> None:
    """Row 2; also those that only hang, with all addresses of a name; no task is left."""

    class Names:
        async def resolve(self, host: str) -> Sequence[str]:
            if host == "unknown":
                raise OSError("Name or service not known")
            return ["10.0.0.1", "10.0.0.2"] if host == "two" else [host]

        async def canonical_name(self, address: str) -> str:
            return address

    async def before(dial: int) -> None:
        match dialer.dials[dial - 1][1]:
            case "silent":
                await asyncio.Event().wait()
            case "mute":
                return
        raise ConnectionRefusedError(111, "nobody listens")

    dialer = ScriptedDialer(before)
    table = Table(dialer, "unknown:1", "two:2", "silent:3", "mute:4", resolver=Names())
    began = now()
    with pytest.raises(BootstrapFailed) as caught:
        await table.updater.bootstrap(5)
    assert now() - began == pytest.approx(5)
    text = str(caught.value)
    assert "unknown:1: Name or service not known;" in text
    assert (
        "two:2 (10.0.0.1): [Errno 111] nobody listens; two:2 (10.0.0.2): [Errno 111] nobody listens;"
        in text
    )
    assert "silent:3: no connection within 1 s yet;" in text
    assert "mute:4 did not answer Metadata within 1.25 s." in text
    table.cluster.close(now=True)
    await settle()
    assert table.tasks.alive == []


@jumping
async def test_nobody_up_is_no_busy_loop() -> None:
    """Also when all is old, and when new topics are wanted meanwhile."""
    dialer = ScriptedDialer(refuse)
    async with refreshing(dialer, "dead:1", bootstraps=False, max_age=1.0) as table:
        await asyncio.sleep(10)
        for number in range(100):
            table.want(f"t{number}")
            await settle()
        await asyncio.sleep(20)
        assert 20 < len(dialer.dials) < 60


# When


@jumping
async def test_a_wanted_topic_is_asked_for_at_once_with_those_of_its_turn() -> None:
    """MET-02; others are not asked for again."""
    async with with_fake() as (table, fake):
        fake.create_topic("u")
        began = now()
        table.want("t", "u")
        await until(lambda: len(table.told) == 2)
        assert asked(fake) == [[], ["t", "u"]]
        fake.create_topic("v")
        table.want("v")
        await until(lambda: len(table.told) == 3)
        assert asked(fake)[2:] == [["v"]]
        assert now() == began


@jumping
async def test_stale_topics_are_asked_for_a_pause_after_the_last_answer() -> None:
    """MET-06: at once if that was long ago. Answers without news make the pause grow, and news make it short again."""
    async with with_fake(brokers=2) as (table, fake):
        table.want("t")
        await asyncio.sleep(10)
        for _ in range(500):
            table.updater.schedule.request_update(["t"])
            await asyncio.sleep(0.01)
        moments = [request.at for request in fake.requests("Metadata")][2:]
        pauses = [round(later - earlier, 1) for earlier, later in itertools.pairwise(moments)]
        assert pauses[:6] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        fake.move_leader("t", 0, 2)
        table.updater.schedule.request_update(["t"])
        await asyncio.sleep(1.1)
        count = len(asked(fake))
        table.updater.schedule.request_update(["t"])
        await asyncio.sleep(0.01)
        assert len(asked(fake)) == count + 1, "the last answer had news, and is long enough ago"


@jumping
async def test_a_topic_that_nobody_needs_is_not_asked_for_again() -> None:
    """However stale it is."""
    async with with_fake() as (table, fake):
        table.updater.schedule.request_update(["t"])
        await asyncio.sleep(10)
        assert asked(fake) == [[]]


@jumping
async def test_what_is_old_is_asked_for() -> None:
    """`metadata_max_age_ms`; an answer about something else makes nothing younger, and what is half as old goes along."""
    async with with_fake(max_age=100.0) as (table, fake):
        table.want("t")
        await asyncio.sleep(40)
        fake.create_topic("u")
        table.want("u")
        await asyncio.sleep(61)
        assert asked(fake) == [[], ["t"], ["u"], ["t", "u"]]
        await asyncio.sleep(100)
        assert asked(fake)[4:] == [["t", "u"]]


@jumping
async def test_without_topics_the_brokers_are_asked_for() -> None:
    """So that one that moves is found (`metadata_max_age_ms`)."""
    async with with_fake(max_age=100.0) as (_, fake):
        await asyncio.sleep(250)
        assert asked(fake) == [[], [], []]


@jumping
async def test_many_topics_are_asked_for_in_portions() -> None:
    """A request's encoding holds the loop as well. They are refreshed in small ones, before they are old (KIP-526)."""
    async with FakeCluster(memory=True) as fake:
        names = [f"t{number}" for number in range(2500)]
        for name in names:
            fake.create_topic(name)
        async with refreshing(fake.network, fake.bootstrap_servers, max_age=100.0) as table:
            table.want(*names)
            await asyncio.sleep(1)
            assert sorted(table.names()) == sorted(names)
            assert [len(portion) for portion in asked(fake)] == [0, 1000, 1000, 500]
            await asyncio.sleep(60)
            assert [len(portion) for portion in asked(fake)][4:] == [250] * 10
        await settle()


@jumping
async def test_a_new_topic_does_not_wait_behind_a_refresh() -> None:
    """The updater asks for a new topic while the refresh is in flight. It asks a broker that has no other request to answer."""
    async with with_fake(brokers=2) as (table, fake):
        table.want("t")
        await settle()
        for number in (1, 2):
            await table.cluster.node(number).control.connected(1)  # type: ignore[union-attr]
        hang = fake.hang("Metadata", topic="t")
        table.updater.schedule.request_update(["t"])
        await hang.reached()
        fake.create_topic("u")
        began = now()
        table.want("u")
        await until(lambda: table.names()[-1] == "u")
        assert now() == began
        refresh, new = fake.requests("Metadata")[-2:]
        assert [[topic.name for topic in request.message.topics] for request in (refresh, new)] == [
            ["t"],
            ["u"],
        ]
        assert refresh.broker != new.broker
        hang.release()
        await settle()


@jumping
async def test_a_topic_is_in_one_question_at_a_time() -> None:
    """The updater sends no second request for a topic that is in flight, even if that is wanted or urged again.

    The pending answer serves all waiting sends.
    """
    async with with_fake() as (table, fake):
        hang = fake.hang("Metadata", topic="t")
        table.want("t")
        await hang.reached()
        table.want("t")
        table.updater.schedule.request_update(["t"])
        await settle()
        assert asked(fake) == [[], ["t"]]
        hang.release()
        await asyncio.sleep(5)
        assert asked(fake) == [[], ["t"], ["t"]], "what was urged came after the question"


@jumping
async def test_a_topic_that_an_answer_tells_unasked_is_not_taken() -> None:
    """Another answer may be telling of it at the same time."""
    async with with_fake() as (table, fake):
        fake.create_topic("u")
        fake.rewrite("Metadata", lambda answer: setattr(answer.topics[0], "name", "u"), times=1)
        table.want("t")
        await asyncio.sleep(1)
        assert table.names() == ["t"]
        assert list(table.updater.view.topics) == ["t"]


@jumping
async def test_what_nobody_needs_is_not_remembered() -> None:
    """The updater keeps nothing of a topic that was not found, or that was given up before its answer arrived."""
    async with with_fake() as (table, fake):
        table.want("nowhere", "bad topic!", "t")
        table.needed.clear()
        await asyncio.sleep(5)
        assert table.updater.view.topics == {}
        assert len(asked(fake)) == 2


# The choice of brokers


@jumping
async def test_a_broker_that_throttles_is_left_alone() -> None:
    """From Metadata v6 on (KIP-219); another one is asked."""
    async with with_fake(brokers=2) as (table, fake):
        table.want("t")
        await settle()
        fake.throttle("Metadata", 60)
        table.updater.schedule.request_update(["t"])
        await asyncio.sleep(1)
        (muted,) = (number for number in (1, 2) if table.cluster.node(number).is_muted)  # type: ignore[union-attr]
        count = len(asked(fake))
        for _ in range(10):
            table.updater.schedule.request_update(["t"])
            await asyncio.sleep(2)
        later = fake.requests("Metadata")[count:]
        assert {request.broker for request in later} == {3 - muted}


@jumping
async def test_an_answer_with_far_too_many_brokers_is_refused() -> None:
    """Each would get a node. The next broker is asked, and the known ones stay."""

    def spoil(answer: Any) -> None:
        stranger = answer.brokers[0]
        answer.brokers = [
            message("Metadata.response.brokers", node_id=at, host=stranger.host, port=stranger.port)
            for at in range(2049)
        ]

    async with with_fake(brokers=2) as (table, fake):
        fake.rewrite("Metadata", spoil)
        table.want("t")
        await settle()
        assert table.names() == ["t"]
        assert (
            sorted(table.updater.view.brokers)
            == [node.broker.node_id for node in table.cluster.nodes]
            == [1, 2]
        )


@jumping
async def test_an_old_broker_throttles_by_itself() -> None:
    """Before v6 it waited before it answered."""
    async with FakeCluster(memory=True, versions={"Metadata": (0, 5)}) as fake:
        fake.throttle("Metadata", 60)
        async with refreshing(fake.network, fake.bootstrap_servers) as table:
            assert not any(node.is_muted for node in table.cluster.bootstrap)
        await settle()


@pytest.mark.parametrize("rebootstraps", [True, False], ids=["rebootstrap", "none"])
@jumping
async def test_brokers_that_do_not_answer_for_long_are_forgotten(*, rebootstraps: bool) -> None:
    """KIP-1102: connections stand and nothing comes."""
    async with with_fake(
        metadata_recovery_rebootstrap_trigger_ms=100_000,
        request_timeout_ms=10_000,
        rebootstraps=rebootstraps,
    ) as (
        table,
        fake,
    ):
        table.want("t")
        await settle()
        first = table.cluster.bootstrap
        hang = fake.hang("Metadata")
        table.updater.schedule.request_update(["t"])
        await asyncio.sleep(80)
        assert table.cluster.bootstrap == first
        await asyncio.sleep(50)
        assert (table.cluster.bootstrap != first) is rebootstraps
        assert (table.cluster.node(1) is None) is rebootstraps
        hang.release()
        await asyncio.sleep(30)
        assert table.cluster.node(1) is not None
        assert table.updater.schedule.trouble is None


@jumping
async def test_a_broker_may_ask_for_a_new_bootstrap() -> None:
    """REBOOTSTRAP_REQUIRED: at once, and not for ever if they all say so."""
    async with with_fake() as (table, fake):
        table.want("t")
        await settle()
        first = table.cluster.bootstrap
        fake.rewrite("Metadata", lambda answer: setattr(answer, "error_code", 129), times=1)
        began = now()
        table.updater.schedule.request_update(["t"])
        await asyncio.sleep(0.2)
        assert table.cluster.bootstrap != first
        assert table.updater.schedule.trouble is None
        assert now() - began < 0.3
        fake.rewrite("Metadata", lambda answer: setattr(answer, "error_code", 129), times=None)
        count = len(asked(fake))
        table.updater.schedule.request_update(["t"])
        await asyncio.sleep(10)
        assert len(asked(fake)) - count < 60
        assert "REBOOTSTRAP_REQUIRED" in str(table.updater.schedule.trouble)


@pytest.mark.parametrize("size", [1, 3000], ids=["small", "decoded in steps"])
@jumping
async def test_an_answer_that_does_not_decode_ends_its_connection(size: int) -> None:
    """NET-17: the client cannot trust further answers of that connection. It asks again over another connection."""
    async with FakeCluster(memory=True) as fake:
        fake.create_topic("t", partitions=size)
        async with refreshing(fake.network, fake.bootstrap_servers) as table:
            await settle()
            fake.garbage("Metadata")
            table.want("t")
            await asyncio.sleep(1)
            assert table.names() == ["t"]
            before, after = (request.connection for request in fake.requests("Metadata")[-2:])
            assert before != after
        await settle()
        fake.assert_all_fired()


@jumping
async def test_an_answer_with_an_error_changes_nothing() -> None:
    """Metadata v13 has one for the whole."""
    async with with_fake() as (table, fake):
        fake.rewrite(
            "Metadata",
            lambda answer: (setattr(answer, "error_code", 31), answer.brokers.clear()),
            times=1,
        )
        table.want("t")
        await asyncio.sleep(1)
        assert table.names() == ["t"]
        assert len(asked(fake)) == 3


@jumping
async def test_the_brokers_are_asked_for_when_an_address_led_to_another_cluster() -> None:
    """Also without any topic, as in a resolver; the connection that found it is not used."""
    async with with_fake(brokers=2) as (table, fake):
        before = len(asked(fake))
        table.updater.schedule.request_brokers()
        await asyncio.sleep(1)
        assert len(asked(fake)) == before + 1


# The contents of requests and answers


@jumping
async def test_a_broker_that_cannot_be_forbidden_to_make_topics() -> None:
    """Before Metadata v4: it is not asked, and the error says what to do."""
    async with FakeCluster(memory=True, versions={"Metadata": (0, 3)}) as fake:
        table = Table(fake.network, fake.bootstrap_servers, allow_auto_create_topics=False)
        with pytest.raises(BootstrapFailed, match="allow_auto_create_topics must be true"):
            await table.updater.bootstrap(1)
        table.cluster.close(now=True)
        await table.tasks.end()
        await settle()
        assert fake.requests("Metadata") == []


@contextlib.asynccontextmanager
async def taking(monkeypatch: pytest.MonkeyPatch, *, is_told: bool = True) -> AsyncIterator[Table]:
    """Merge a topic of 1,000 partitions into the view, or install it next: each step in an event-loop iteration of its own."""
    monkeypatch.setattr(module, "_SLICE", -1.0)
    async with FakeCluster(memory=True) as fake:
        fake.create_topic("t", partitions=1000)
        async with refreshing(fake.network, fake.bootstrap_servers) as table:
            table.steps = 5
            table.want("t")
            while not table.told and (
                is_told or not table.updater._taking
            ):  # the updater decodes it for a thousand event-loop iterations
                await asyncio.sleep(0)
            yield table
        await settle()


@pytest.mark.parametrize("is_told", [True, False], ids=["installed", "merged"])
@jumping
async def test_a_hint_about_a_topic_that_is_being_taken_waits(
    monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """The hint is newer than the answer, and holds in the end. The updater applies it once, after the topic has been applied."""
    async with taking(monkeypatch, is_told=is_told) as table:
        assert len(table.told) == is_told
        assert table.updater.hint("t", 7, 1, 9)
        assert not table.updater.hint("other", 0, 1, 9)
        assert len(table.told) == is_told
        await until(lambda: not table.steps)
        assert [topic.partitions[7].epoch for topic in table.told] == [0, 9]
        assert table.updater.hint("t", 7, 1, 10)
        assert table.told[-1].partitions[7].epoch == 10


@jumping
async def test_a_hint_that_turns_out_to_be_no_news_makes_it_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller of `hint` got True and sends no request. So the updater must ask for the topic itself."""
    async with taking(monkeypatch) as table:
        assert table.updater.hint("t", 7, 77, 9)
        await until(lambda: not table.steps)
        assert len(table.told) == 1
        assert list(table.updater.schedule._changed) == ["t"]


def test_a_large_answer_never_holds_the_loop() -> None:
    """Row 50: an answer has 100,000 partitions.

    The test measures each event-loop iteration by this thread's CPU time, without the collector's pauses.
    """
    partition = message(
        "Metadata.response.topics.partitions",
        leader_id=1,
        leader_epoch=1,
        replica_nodes=[1, 2, 3],
        isr_nodes=[1, 2, 3],
    )
    topics = [
        message(
            "Metadata.response.topics",
            name=f"t{number}",
            topic_id=number.to_bytes(16, "big"),
            partitions=[_replaced(partition, index) for index in range(100)],
        )
        for number in range(1, 1001)
    ]
    brokers = [message("Metadata.response.brokers", node_id=1, host="one", port=1)]
    whole = message("Metadata.response", brokers=brokers, topics=topics, cluster_id="c")
    small = message("Metadata.response", brokers=brokers, cluster_id="c")

    async def main() -> float:
        frames: dict[int, bytes] = {}

        def answer(stream: ScriptedStream, question: Asked) -> None:
            if question.key is ApiKey.API_VERSIONS:
                api_versions(stream, question)
            elif not question.message.topics:
                stream.answer(question, small)
            else:
                frames[0] = stream.frame(question, whole)
                asyncio.get_running_loop().call_soon(stream.receive, frames[0])

        longest = 0.0

        async def heartbeat() -> None:
            nonlocal longest
            await asyncio.sleep(0)
            while len(table.told) < 1000:
                before = time.thread_time()
                await asyncio.sleep(0)
                if frames:
                    longest = max(longest, time.thread_time() - before)

        async with refreshing(ScriptedDialer(answers=answer), "boot:1") as table:
            gc.disable()
            try:
                table.want(*(topic.name for topic in topics))
                while not frames:
                    await asyncio.sleep(0)
                await heartbeat()
            finally:
                gc.enable()
            assert sum(len(topic.partitions) for topic in table.told) == 100_000
        return longest

    # slices are of real time; a busy machine may make one of them look slow
    assert any(asyncio.run(main()) < 0.005 for _ in range(3))


def _replaced(partition: Any, index: int) -> Any:
    return type(partition)(
        **{name: getattr(partition, name) for name in partition.__slots__}
        | {"partition_index": index}
    )
