"""Runs one seed: the unmodified producer and a fake cluster in one virtual-time loop, then checks the result."""

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
from tests.simulation.breaker import FICKLE, Fickle
from tests.simulation.checker import Logged, Promise, check, read_log
from tests.simulation.client import Client
from tests.simulation.history import Fate, History
from tests.simulation.plan import draw
from tests.simulation.security import EPOCH, token_function
from tests.simulation.systems import POLICIES, Systems
from tests.simulation.transactions import run_transactions, transact
from tests.simulation.workload import send_some
from tests.simulation.world import GROUP, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from tests.simulation.plan import Plan

__all__ = ["Report", "simulate"]

_SLACK: Final = 1.0  # seconds that a call or a delivery may take beyond its limit
# event-loop iterations of one run; a run that takes more counts as a livelock
_TURNS: Final = 300_000
_AT_MOST: Final = 1_200.0  # seconds of a run's virtual time
_FRAMES: Final = 4
_SHORT_MEMORY: Final = 10_000  # bytes
# beginnings of the lines of `explain` that are there while no record waits
_AT_REST: Final = (
    "<Producer",
    "buffer_memory",
    "metadata",
    "producer id",
    "transactional_id",
    "failed",
)
_PROBES: Final = (
    60.0  # seconds within which every partition must accept a record after the faults have ended
)


@dataclass(slots=True)
class Report:
    """Holds the result of one seed.

    Attributes:
        violations: the broken promises, one sentence each; empty: none.
        fired: how often each class of fault happened.
        worked: how often each of the producer's own systems acted (`SYSTEMS`).
        records: number of records that the client tried to send; `acknowledged` and `failed` count those with that outcome.
        fates: numbers of transactions that were committed, aborted, or ended with an unknown outcome.
        seconds: duration in virtual time.
        trace: the history, one line per event.
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
        """Return a hash of the trace: equal for two runs with equal histories."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    @property
    def command(self) -> str:
        """Return the command that replays the run."""
        return f"python -m tests.simulation --seed {self.seed} --profile {self.profile}"


class _Circles(RuntimeError):
    """The loop ran too many iterations: a livelock."""


class _Loop(JumpingLoop):
    """Counts the iterations of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = 0

    def _run_once(self) -> None:
        self._turns += 1
        if self._turns > _TURNS:
            # allow as many again for the shutdown
            self._turns = 0
            raise _Circles(f"the loop turned {_TURNS} times")
        super()._run_once()  # type: ignore[misc]


def simulate(
    seed: int,
    *,
    profile: str | None = None,
    faults: Collection[str] | None = None,
    workload: Callable[[Client], Awaitable[None]] | None = None,
) -> Report:
    """Run one seed and check it. Returns the report.

    Args:
        seed: any number; equal seeds and other arguments give equal runs.
        profile: "plain", "idempotent" or "transactional"; None: drawn.
        faults: only these of `ALL_FAULTS`; None: all.
        workload: the client's work, a coroutine function of a `Client`; None: drawn.

    Raises:
        ValueError: no such profile or fault.
    """
    plan = draw(seed, profile, faults)
    report = Report(seed, plan.profile, plan.lines())
    run = _Run(plan, report, workload)
    with _errors_logged(report.violations):
        _play(run, report.violations)
    run.close()
    return report


def _play(run: _Run, violations: list[str]) -> None:
    """Play a run in a loop of its own; an error that it raises becomes a violation."""
    try:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.get_loop().set_exception_handler(
                lambda _loop, context: violations.append(f"unhandled: {_context(context)}")
            )
            runner.run(run.play())
    except _Circles as error:
        violations.append(f"livelock: {error}")
    except TimeoutError as error:
        violations.append(f"never ended: {_last_frames(error)}")
    except RuntimeError as error:
        violations.append(
            f"deadlock: {error}" if "deadlock" in str(error) else f"raised: {_last_frames(error)}"
        )
    except (Exception, asyncio.CancelledError) as error:
        violations.append(f"raised: {_last_frames(error)}")


def _context(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {_last_frames(error) if (error := context.get('exception')) else None}"


def _last_frames(error: BaseException) -> str:
    frames = [
        f"{pathlib.PurePath(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    ]
    return f"{error!r} at {' < '.join(reversed(frames))}"


@contextmanager
def _errors_logged(violations: list[str]) -> Iterator[None]:
    """Collect each error that the producer logs as a violation."""
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
    """Holds the state of one run."""

    def __init__(
        self, plan: Plan, report: Report, scenario: Callable[[Client], Awaitable[None]] | None
    ) -> None:
        self._plan = plan
        self._report = report
        self._scenario = scenario or self._drawn
        self._history = History(lambda: 0.0)
        self._world: World | None = None
        self._systems: Systems | None = None

    async def play(self) -> None:
        """Run cluster, faults and client, then check the result."""
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
                security=self._plan.security.listener(),
            ) as cluster:
                self._world = world = World(self._plan, cluster, self._history, loop)
                self._systems = self._watched(world)
                with self._systems.watching():
                    await self._produce(world, cluster)
                if (
                    self._plan.profile == "transactional"
                ):  # until the coordinator has aborted transactions left open
                    await asyncio.sleep(
                        self._plan.workload.options["transaction_timeout_ms"] / 1000 + _SLACK
                    )
                self._judge(world, cluster)
        self._report.seconds = loop.time() - before

    def _watched(self, world: World) -> Systems:
        policy = self._plan.workload.options.get("circuit_breaker_keyed_policy", POLICIES[0])
        return Systems(
            policy,
            self._history.now,
            world.has_others,
            lambda what: self._history.tell("producer", what),
        )

    def close(self) -> None:
        """Fill in the report."""
        history, report = self._history, self._report
        report.records = len(history.sent)
        report.acknowledged = sum(sent.is_acknowledged for sent in history.sent)
        report.failed = sum(bool(sent.ends) and not sent.is_acknowledged for sent in history.sent)
        report.fates = Counter(transaction.fate for transaction in history.transactions)
        report.trace = history.lines()
        if self._world is not None:
            self._world.settle()
            self._world.fired.update(self._shortages())
            self._world.fired.update(self._world.logins())
            report.fired = {
                kind: times for kind, times in sorted(self._world.fired.items()) if times
            }
        if self._systems is not None:
            self._systems.settle(history.sent)
            report.worked = {
                system: times for system, times in sorted(self._systems.seen.items()) if times
            }

    def _shortages(self) -> Counter[str]:
        """Count the records that waited or failed because of the client's own options."""
        shortages: Counter[str] = Counter()
        is_short = self._plan.workload.options["buffer_memory"] < _SHORT_MEMORY
        for sent in self._history.sent:
            waited = sent.queued_at is not None and sent.queued_at > sent.called_at
            shortages["short_memory"] += is_short and (waited or sent.refused == "BufferExhausted")
            shortages["short_timeout"] += (
                bool(sent.ends) and "delivery_timeout_ms" in sent.ends[0].error
            )
        return shortages

    async def _produce(self, world: World, cluster: FakeCluster) -> None:
        options = self._plan.workload.options
        raging = asyncio.ensure_future(world.rage())
        chance = random.Random(f"producer {self._plan.seed}").random
        # A default client id has a process-wide number of varying length. Cuts happen at byte counts,
        # so with it a run would not depend on its seed alone.

        fixed = {
            "client_id": "aioproducer",
            "dialer": world.network,
            "chance": chance,
            "wall_clock": world.wall_clock,
            "on_failed": self._history.hand_out,
        }
        tokens = token_function(
            self._plan.security.token_seconds,
            asyncio.get_running_loop().time,
            world.wall_clock,
            lambda: world.token_trouble,
        )
        everything = {
            **cluster.client_options,
            **self._plan.security.options(tokens),
            **options,
            **fixed,
        }
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
        # the error is the result; only clean up
        except BaseException:
            await client.producer.stop()
            raise
        await raging
        world.fired.update(client.cancelled)
        await self._rest(client)

    def _breaker(self) -> dict[str, Any]:
        """Return the option for a circuit breaker of the simulation's own class, if the plan has one."""
        assert self._systems is not None
        self._systems.begin()
        if self._plan.workload.options.get("circuit_breaker_class") != FICKLE:
            return {}
        rng = random.Random(f"breaker {self._plan.seed}")
        return {
            "circuit_breaker_class": Fickle(
                rng, self._systems.is_open, self._report.violations.append
            )
        }

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
        """Check after the faults that every partition accepts a record, and that no record remains in memory."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PROBES
        if self._plan.profile == "transactional":
            await self._probe_transaction(client, until)
            return
        partitions = [
            (topic, index)
            for topic, count in self._plan.workload.topics.items()
            for index in range(count)
        ]
        await asyncio.gather(
            *[self._probe_one(client, topic, index, until) for topic, index in partitions]
        )
        await client.flush()
        await self._check_rest(client)

    async def _check_rest(self, client: Client) -> None:
        # until connections have released the bytes they hold
        await asyncio.sleep(self._plan.workload.options["request_timeout_ms"] / 1000 + _SLACK)
        self._check_memory(client.producer, "before stop")

    async def _probe_transaction(self, client: Client, until: float) -> None:
        """Check after the faults that a transaction can be committed."""
        loop = asyncio.get_running_loop()
        calm = dataclasses.replace(self._plan.workload, cancelled=0.0, pause=0.0)
        while (
            not client.history.transactions
            or client.history.transactions[-1].fate is not Fate.COMMITTED
        ):
            await transact(client, calm, [3])
            if loop.time() > until:
                self._report.violations.append(
                    "stuck: no transaction can be committed although all goes well"
                )
                return
            await asyncio.sleep(0.1)
        await self._check_rest(client)

    async def _probe_one(self, client: Client, topic: str, partition: int, until: float) -> None:
        while True:
            try:
                await client.send_and_wait(topic, partition=partition)
            except KafkaError as error:
                if asyncio.get_running_loop().time() > until:
                    self._report.violations.append(
                        f"stuck: {topic}-{partition} takes no record although all goes well: {error}"
                    )
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
        """Check that a stopped producer leaves no task, memory or waiting record."""
        report = self._report
        # for callbacks of deliveries, and of tasks that ended
        for _ in range(3):
            await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if "aioproducer" in task.get_name()]
        if left:
            report.violations.append(f"left after stop: {sorted(task.get_name() for task in left)}")
        self._check_memory(client.producer, "after stop")
        waiting = [
            line for line in client.producer.explain().splitlines() if not line.startswith(_AT_REST)
        ]
        if waiting:
            report.violations.append(f"left after stop: {waiting}")

    def _check_memory(self, producer: Producer, when: str) -> None:
        if producer.buffer_available != producer.config.buffer_memory:
            self._report.violations.append(
                f"memory: {producer.buffer_available} of {producer.config.buffer_memory} bytes are free {when}, and nothing is on its way"
            )

    # --- checks of the result

    def _judge(self, world: World, cluster: FakeCluster) -> None:
        violations = self._report.violations
        violations += [
            f"violation: broker {seen.broker}: {seen.what}" for seen in cluster.violations
        ]
        logs: dict[tuple[str, int], list[Logged]] = {}
        for topic in cluster.topics:
            for partition in topic.partitions:
                try:
                    logs[topic.name, partition.index] = read_log(partition.log.batches())
                except ProtocolError as error:
                    violations.append(
                        f"violation: a batch of {topic.name}-{partition.index} does not decode: {error}"
                    )
        for (name, index), log in logs.items():
            self._history.tell(
                "log",
                f"{name}-{index}: {' '.join(str(logged.number) + '?' * (not logged.is_visible) for logged in log)}",
            )
        committed = cluster.committed(GROUP)
        violations += check(
            self._history, logs, self._promise(world), next(iter(committed.values()), None)
        )

    def _promise(self, world: World) -> Promise:
        options = self._plan.workload.options
        is_once = bool(options["enable_idempotence"])
        keeps = options.get("acks", "all") == "all"
        alone = options["max_in_flight_requests_per_connection"] == 1
        # "available" sends records to another partition
        stays = options.get("circuit_breaker_keyed_policy") != "available"
        return Promise(
            keeps=keeps or (options.get("acks") == 1 and not world.has_lost),
            is_once=is_once,
            is_ordered=is_once and stays,
            is_ordered_when_acknowledged=keeps and alone and not world.has_lost and stays,
            lifetime=options["delivery_timeout_ms"] / 1000 + _SLACK + world.jumped,
            is_placed=stays,
        )
