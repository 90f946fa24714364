"""Holds three nodes, a program that sends, one that copies the records, and the methods that run faults.

The topic SENT has the sent records, the topic COPIED the records that transactions copy from it. After each fault the stage restores the
cluster. Every partition must have acknowledgements again before the next fault.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioproducer.testing.jars import KAFKA_VERSION
from tests.support.kafka_cluster import KafkaCluster

from .admin import Admin
from .gaps import Mark
from .judge import PROMISE
from .program import Program, ProgramFailed

if TYPE_CHECKING:
    import pathlib
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.simulation.checker import Promise


__all__ = ["COPIED", "COPIES", "GROUP", "SENT", "TRANSACTIONAL_ID", "TRANSACTION_VERSION", "Settings", "Stage", "now", "staged"]

SENT: Final = "sent"
COPIED: Final = "copied"
GROUP: Final = "copiers"
TRANSACTIONAL_ID: Final = "copier"
COPIES: Final = 3
TRANSACTION_VERSION: Final = "transaction.version"
_NEWEST: Final = 2
_PARTITIONS: Final = 6
_BUSY: Final = 5.0  # seconds by which a busy machine is late
_START_SECONDS: Final = 240.0  # of a node, on a busy machine
_INTERNAL: Final = ("__transaction_state", "__consumer_offsets")
_PROPERTIES: Final = {"unclean.leader.election.enable": "false", "auto.create.topics.enable": "false"}


@dataclass(frozen=True)
class Settings:
    """Holds the Kafka version and the programs' settings.

    `transactions` is the level of `transaction.version`; `options` are the producers' options, as JSON.
    """

    version: str = KAFKA_VERSION
    transactions: int = _NEWEST
    throughput: int = 2_000
    options: str = "{}"
    is_copying: bool = True

    @property
    def promise(self) -> Promise:
        """Return the producers' promise with these options."""
        lifetime_ms = json.loads(self.options).get("delivery_timeout_ms")
        return PROMISE if lifetime_ms is None else dataclasses.replace(PROMISE, lifetime=lifetime_ms / 1000 + _BUSY)


class Stage:
    """Holds everything that a fault may change.

    Args:
        cluster: three nodes behind proxies, with the topics SENT and COPIED.
        settings: of Kafka and of the programs.
        folder: has the files of the programs' lines.
        chance: the source of the faults' random places and times.

    Attributes:
        marks: the faults so far.
        complaints: what was found before the judgement, by the name of the part that found it.
    """

    def __init__(self, cluster: KafkaCluster, settings: Settings, folder: pathlib.Path, chance: random.Random) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster.bootstrap_servers)
        self.random = chance
        self.marks: list[Mark] = []
        self.complaints: dict[str, list[str]] = {}
        self._folder = folder
        self.settings = settings
        self.sender = self.program("verifiable", "--topic", SENT, "--throughput", str(settings.throughput))
        words = ("--source", SENT, "--topic", COPIED, "--group", GROUP, "--transactional-id", TRANSACTIONAL_ID)
        self.copier = self.program("copier", *words) if settings.is_copying else None

    @property
    def topics(self) -> tuple[str, ...]:
        """Return all topics that must have all replicas in sync before the next fault."""
        return (SENT, COPIED, *_INTERNAL) if self.copier is not None else (SENT,)

    @property
    def programs(self) -> list[Program]:
        """Return the programs that send and must not stop, in the order in which they can be ended."""
        return [self.sender, *([self.copier] if self.copier is not None else [])]

    def program(self, module: str, *words: str, name: str = "") -> Program:
        """Return a program that talks to this cluster; `name` is that of its files of lines."""
        options = ("--bootstrap-server", self.cluster.bootstrap_servers, "--options", self.settings.options)
        return Program(module, (*options, *words), self._folder, name or module)

    def complain(self, who: str, *complaints: str) -> None:
        """Note a complaint."""
        self.complaints.setdefault(who, []).extend(complaints)

    async def strike(self, name: str, fault: Callable[[Stage], Awaitable[None]]) -> Mark:
        """Run a fault, restore the cluster, and note the fault's time.

        Raises:
            ProgramFailed: a program ended, or had no acknowledgements any more.
            TimeoutError: the replicas did not get in sync.
        """
        mark = Mark(name, now(), now())
        self.marks.append(mark)
        failed = self.sender.failed
        try:
            await fault(self)
            await self.settle()
        finally:
            for program in self.programs:
                program.look()
            mark.end, mark.failed = now(), self.sender.failed - failed
        return mark

    async def settle(self) -> None:
        """Wait until nodes are up, replicas are in sync, and each partition of each program has acknowledgements. Raises as `strike`."""
        await self.cluster.restore()
        await self.admin.until_whole(self.topics, COPIES)
        numbers = [one.number for one in await self.admin.partitions(SENT)]
        for program in self.programs:
            await program.until_flowing(numbers)

    async def end(self) -> None:
        """Let every program finish its work. A program that cannot is killed, and the stage notes a complaint."""
        for program in self.programs:
            try:
                await program.stop()
            except ProgramFailed as error:
                self.complain("programs", f"never ended: {error}")


def now() -> int:
    """Return milliseconds of the wall clock."""
    return int(time.time() * 1000)


@contextlib.asynccontextmanager
async def staged(settings: Settings, folder: pathlib.Path, chance: random.Random) -> AsyncIterator[Stage]:
    """Start cluster, topics and programs, with lines in `folder`. The end of the block always ends all of them."""
    async with KafkaCluster(version=settings.version, proxied=True, properties=_PROPERTIES, start_timeout=_START_SECONDS) as cluster:
        for topic in (SENT, COPIED):
            await cluster.create_topic(topic, _PARTITIONS)
        stage = Stage(cluster, settings, folder, chance)
        if settings.transactions != _NEWEST:
            await stage.admin.set_feature(TRANSACTION_VERSION, settings.transactions)
        try:
            for program in stage.programs:
                await program.start()
            await stage.settle()
            yield stage
        finally:
            for program in stage.programs:
                await program.kill()
