"""One run: the unmodified producer and a fake cluster in one loop whose time jumps, faults and workload of one seed, and the verdict."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import math
import pathlib
import random
import traceback
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import KafkaError, ProtocolError
from aioproducer.producer import Producer
from aioproducer.testing.cluster import FakeCluster
from aioproducer.testing.jumping import JumpingLoop
from aioproducer.testing.simulation.breaker import FICKLE, Fickle
from aioproducer.testing.simulation.checker import Logged, Promise, check, read_log
from aioproducer.testing.simulation.client import Client
from aioproducer.testing.simulation.history import Fate, History
from aioproducer.testing.simulation.plan import draw
from aioproducer.testing.simulation.systems import POLICIES, Systems
from aioproducer.testing.simulation.transactions import run_transactions, transact
from aioproducer.testing.simulation.workload import send_some
from aioproducer.testing.simulation.world import EPOCH, GROUP, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from aioproducer.testing.simulation.plan import Plan, Workload

__all__ = ["Report", "simulate"]

_SLACK: Final = 1.0  # seconds by which a call or a delivery may be late
_TURNS: Final = 300_000  # of the loop in one run; what takes more is going round in circles
_AT_MOST: Final = 1_200.0  # seconds of a run's own time
_FRAMES: Final = 4
_SHORT_MEMORY: Final = 10_000  # bytes
# what `explain` begins its lines with when nothing waits
_AT_REST: Final = ("<Producer", "buffer_memory", "metadata", "producer id", "transactional_id", "failed")
_PROBES: Final = 60.0  # seconds within which every partition must take a record again once all goes well


@dataclass(slots=True)
class Report:
    """What one seed came to.

    Attributes:
        violations: what is wrong, a sentence each; empty: nothing.
        fired: how often each class of fault happened.
        worked: how often each of the producer's own systems did something (`SYSTEMS`).
        records: that were called for; `acknowledged` and `failed` of those.
        fates: how many transactions were committed, aborted, or ended nobody knows how.
        seconds: of the run's own time.
        trace: what happened, line by line.
    """

    seed: int
    profile: str
    plan: list[str]
    violations: list[str] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    worked: dict[str, int] = field(default_factory=dict)
    records: int = 0
    acknowledged: int = 0
    failed: int = 0
    fates: Counter[Fate] = field(default_factory=Counter)
    seconds: float = 0.0
    trace: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Equal for two runs in which the same happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    @property
    def command(self) -> str:
        """What replays it."""
        return f"python -m aioproducer.testing.simulation --seed {self.seed} --profile {self.profile}"


class _Circles(RuntimeError):
    """The loop turns, and nothing comes of it."""


class _Loop(JumpingLoop):
    """Counts its turns."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = 0

    def _run_once(self) -> None:
        self._turns += 1
        if self._turns > _TURNS:
            self._turns = 0  # as many again, for the end
            raise _Circles(f"the loop turned {_TURNS} times")
        super()._run_once()  # type: ignore[misc]


def simulate(
    seed: int,
    *,
    profile: str | None = None,
    faults: Collection[str] | None = None,
    workload: Workload | Callable[[Client], Awaitable[None]] | None = None,
) -> Report:
    """Run one seed, and judge it.

    Args:
        seed: any number: equal seeds, and other arguments, give equal runs.
        profile: "plain", "idempotent" or "transactional"; None: drawn.
        faults: only these of `ALL_FAULTS`; None: all.
        workload: what the client does, a `Workload` or a coroutine function of a `Client`; None: drawn.

    Raises:
        ValueError: no such profile or fault.
    """
    plan = draw(seed, profile, faults, workload if workload is not None and not callable(workload) else None)
    report = Report(seed, plan.profile, plan.lines())
    run = _Run(plan, report, workload if callable(workload) else None)
    with _errors_logged(report.violations):
        _play(run, report.violations)
    run.close()
    return report


def _play(run: _Run, violations: list[str]) -> None:
    """In a loop of its own; what a run raises is its verdict."""
    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.get_loop().set_exception_handler(lambda _loop, context: violations.append(f"unhandled: {_context(context)}"))
            runner.run(run.play())
    except _Circles as error:
        violations.append(f"livelock: {error}")
    except TimeoutError as error:
        violations.append(f"never ended: {_last_frames(error)}")
    except RuntimeError as error:
        violations.append(f"deadlock: {error}" if "deadlock" in str(error) else f"raised: {_last_frames(error)}")
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  whatever it is
        violations.append(f"raised: {_last_frames(error)}")


def _context(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {_last_frames(error) if (error := context.get('exception')) else None}"


def _last_frames(error: BaseException) -> str:
    frames = [f"{pathlib.PurePath(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-_FRAMES:]]
    return f"{error!r} at {' < '.join(reversed(frames))}"


@contextmanager
def _errors_logged(violations: list[str]) -> Iterator[None]:
    """What the producer logs as an error is a bug of its own."""
    logger = logging.getLogger("aioproducer")
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: violations.append(f"logged: {record.getMessage()}")  # type: ignore[method-assign]
    level, propagates = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


class _Run:
    """One run as it goes."""

    def __init__(self, plan: Plan, report: Report, scenario: Callable[[Client], Awaitable[None]] | None) -> None:
        self._plan = plan
        self._report = report
        self._scenario = scenario or self._drawn
        self._history = History(lambda: 0.0)
        self._world: World | None = None
        self._systems: Systems | None = None

    async def play(self) -> None:
        """All of it."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        self._history = History(loop.time)
        before = loop.time()
        async with asyncio.timeout(_AT_MOST):
            async with FakeCluster(
                self._plan.brokers,
                memory=True,
                transaction_version=self._plan.transaction_version,
                wall_clock=lambda: loop.time() + EPOCH,
            ) as cluster:
                self._world = world = World(self._plan, cluster, self._history, loop)
                self._systems = self._watched(world)
                with self._systems.watching():
                    await self._produce(world, cluster)
                if self._plan.profile == "transactional":  # until the coordinator has ended what nobody ended
                    await asyncio.sleep(self._plan.workload.options["transaction_timeout_ms"] / 1000 + _SLACK)
                self._judge(world, cluster)
        self._report.seconds = loop.time() - before

    def _watched(self, world: World) -> Systems:
        policy = self._plan.workload.options.get("circuit_breaker_keyed_policy", POLICIES[0])
        return Systems(policy, self._history.now, world.has_others, lambda what: self._history.tell("producer", what))

    def close(self) -> None:
        """Fill the report."""
        history, report = self._history, self._report
        report.records = len(history.sent)
        report.acknowledged = sum(sent.is_acknowledged for sent in history.sent)
        report.failed = sum(bool(sent.ends) and not sent.is_acknowledged for sent in history.sent)
        report.fates = Counter(transaction.fate for transaction in history.transactions)
        report.trace = history.lines()
        if self._world is not None:
            self._world.settle()
            self._world.fired.update(self._shortages())
            report.fired = {kind: times for kind, times in sorted(self._world.fired.items()) if times}
        if self._systems is not None:
            self._systems.settle(history.sent)
            report.worked = {system: times for system, times in sorted(self._systems.seen.items()) if times}

    def _shortages(self) -> Counter[str]:
        """What the client's own options brought about."""
        shortages: Counter[str] = Counter()
        is_short = self._plan.workload.options["buffer_memory"] < _SHORT_MEMORY
        for sent in self._history.sent:
            waited = sent.queued_at is not None and sent.queued_at > sent.called_at
            shortages["short_memory"] += is_short and (waited or sent.refused == "BufferExhausted")
            shortages["short_timeout"] += bool(sent.ends) and "delivery_timeout_ms" in sent.ends[0].error
        return shortages

    async def _produce(self, world: World, cluster: FakeCluster) -> None:
        options = self._plan.workload.options
        raging = asyncio.ensure_future(world.rage())
        chance = random.Random(f"producer {self._plan.seed}").random
        # a chosen client id is a number of this process, and a connection may be cut at any byte: the run would not be the seed's alone
        fixed = {"client_id": "aioproducer", "dialer": world.network, "chance": chance, "wall_clock": world.wall_clock}
        everything = {**cluster.client_options, **options, **fixed}
        block = options["max_block_ms"] / 1000
        limits = {
            "send": block + _SLACK,
            "end": block + _SLACK,
            "flush": math.inf,
            "stop": options["close_timeout_ms"] / 1000 + _SLACK,
        }
        client = Client(
            lambda: Producer(**(everything | self._breaker())),
            self._history,
            random.Random(f"client {self._plan.seed}"),
            limits,
            lambda: world.jumped,
        )
        try:
            await self._start_and_work(client, raging)
        except BaseException:  # the verdict is clear; nothing is to be left of it
            await client.producer.stop()
            raise
        await raging
        world.fired.update(client.cancelled)
        await self._rest(client)

    def _breaker(self) -> dict[str, Any]:
        """The option, if a breaker of our own is to be made for another producer."""
        assert self._systems is not None
        self._systems.begin()
        if self._plan.workload.options.get("circuit_breaker_class") != FICKLE:
            return {}
        rng = random.Random(f"breaker {self._plan.seed}")
        return {"circuit_breaker_class": Fickle(rng, self._systems.is_open, self._report.violations.append)}

    async def _start_and_work(self, client: Client, raging: asyncio.Task[None]) -> None:
        try:
            await client.producer.start(wait=client.rng.random() < 0.8)
        except KafkaError as error:
            self._history.tell("start", f"{error}")
        else:
            await self._work(client, raging)

    async def _work(self, client: Client, raging: asyncio.Task[None]) -> None:
        workload = self._plan.workload
        working = asyncio.ensure_future(self._scenario(client))
        if workload.stop_at is None:
            await working
            await raging
            await self._probe(client)
        else:
            await asyncio.sleep(workload.stop_at)
        client.is_stopping = True
        await self._stop(client)
        if not working.done():
            await asyncio.wait([working])
        if (error := working.exception()) is not None:
            raise error

    async def _drawn(self, client: Client) -> None:
        client.on_end = lambda producer: self._check_memory(producer, "after its stop")
        if self._plan.profile == "transactional":
            await run_transactions(client, self._plan.workload)
        else:
            await send_some(client, self._plan.workload)

    async def _probe(self, client: Client) -> None:
        """All goes well by now: every partition takes a record, and nothing is left in memory."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PROBES
        if self._plan.profile == "transactional":
            await self._probe_transaction(client, until)
            return
        partitions = [(topic, index) for topic, count in self._plan.workload.topics.items() for index in range(count)]
        await asyncio.gather(*[self._probe_one(client, topic, index, until) for topic, index in partitions])
        await client.flush()
        await self._check_rest(client)

    async def _check_rest(self, client: Client) -> None:
        await asyncio.sleep(self._plan.workload.options["request_timeout_ms"] / 1000 + _SLACK)  # until connections are done with bytes
        self._check_memory(client.producer, "before stop")

    async def _probe_transaction(self, client: Client, until: float) -> None:
        """All goes well by now: a transaction can be committed."""
        loop = asyncio.get_running_loop()
        calm = dataclasses.replace(self._plan.workload, cancelled=0.0, pause=0.0)
        while not client.history.transactions or client.history.transactions[-1].fate is not Fate.COMMITTED:
            await transact(client, calm, [3])
            if loop.time() > until:
                self._report.violations.append("stuck: no transaction can be committed although all goes well")
                return
            await asyncio.sleep(0.1)
        await self._check_rest(client)

    async def _probe_one(self, client: Client, topic: str, partition: int, until: float) -> None:
        while True:
            try:
                await client.send_and_wait(topic, partition=partition)
            except KafkaError as error:
                if asyncio.get_running_loop().time() > until:
                    self._report.violations.append(f"stuck: {topic}-{partition} takes no record although all goes well: {error}")
                    return
            else:
                return
            await asyncio.sleep(0.1)

    async def _stop(self, client: Client) -> None:
        cancel_after = self._plan.workload.stop_cancelled
        if cancel_after is not None:
            stopping = asyncio.ensure_future(client.stop())
            await asyncio.sleep(cancel_after)
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            self._history.tell("stop", "cancelled")
        await client.stop()

    async def _rest(self, client: Client) -> None:
        """What must not be left."""
        report = self._report
        for _ in range(3):  # callbacks of deliveries, and of tasks that ended
            await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if "aioproducer" in task.get_name()]
        if left:
            report.violations.append(f"left after stop: {sorted(task.get_name() for task in left)}")
        self._check_memory(client.producer, "after stop")
        waiting = [line for line in client.producer.explain().splitlines() if not line.startswith(_AT_REST)]
        if waiting:
            report.violations.append(f"left after stop: {waiting}")

    def _check_memory(self, producer: Producer, when: str) -> None:
        if producer.buffer_available != producer.config.buffer_memory:
            self._report.violations.append(
                f"memory: {producer.buffer_available} of {producer.config.buffer_memory} bytes are free {when}, and nothing is on its way"
            )

    # --- the verdict

    def _judge(self, world: World, cluster: FakeCluster) -> None:
        violations = self._report.violations
        violations += [f"violation: broker {seen.broker}: {seen.what}" for seen in cluster.violations]
        logs: dict[tuple[str, int], list[Logged]] = {}
        for topic in cluster.topics:
            for partition in topic.partitions:
                try:
                    logs[topic.name, partition.index] = read_log(partition.log.batches())
                except ProtocolError as error:
                    violations.append(f"violation: a batch of {topic.name}-{partition.index} does not decode: {error}")
        for (name, index), log in logs.items():
            self._history.tell("log", f"{name}-{index}: {' '.join(str(logged.number) + '?' * (not logged.is_visible) for logged in log)}")
        committed = cluster.committed(GROUP)
        violations += check(self._history, logs, self._promise(world), next(iter(committed.values()), None))

    def _promise(self, world: World) -> Promise:
        options = self._plan.workload.options
        is_once = bool(options["enable_idempotence"])
        keeps = options.get("acks", "all") == "all"
        alone = options["max_in_flight_requests_per_connection"] == 1
        stays = options.get("circuit_breaker_keyed_policy") != "available"  # who is sent elsewhere comes there when it can
        return Promise(
            keeps=keeps or (options.get("acks") == 1 and not world.has_lost),
            is_once=is_once,
            is_ordered=is_once and stays,
            is_ordered_when_acknowledged=keeps and alone and not world.has_lost and stays,
            lifetime=options["delivery_timeout_ms"] / 1000 + _SLACK + world.jumped,
            is_placed=stays,
        )
