"""Holds three nodes, a program that sends, one that copies the records, and the methods that run faults.

The topic SENT has the sent records, the topic COPIED the records that transactions copy from it. After each fault the stage restores the
cluster. Every partition must have acknowledgements again before the next fault.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tests.support.kafka_cluster import KafkaCluster

from .admin import Admin
from .program import Program, ProgramFailed

if TYPE_CHECKING:
    import pathlib
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable


__all__ = ["COPIED", "COPIES", "SENT", "TRANSACTIONAL_ID", "TRANSACTION_VERSION", "Stage", "staged"]

SENT: Final = "sent"
COPIED: Final = "copied"
GROUP: Final = "copiers"
TRANSACTIONAL_ID: Final = "copier"
COPIES: Final = 3
TRANSACTION_VERSION: Final = "transaction.version"
_PARTITIONS: Final = 6
_START_SECONDS: Final = 240.0  # of a node, on a busy machine
_INTERNAL: Final = ("__transaction_state", "__consumer_offsets")
_PROPERTIES: Final = {
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
}


class Stage:
    """Holds everything that a fault may change.

    Args:
        cluster: three nodes behind proxies, with the topics SENT and COPIED.
        folder: has the files of the programs' lines.
        chance: the source of the faults' random places and times.
        throughput: records a second.
        is_copying: whether a program copies the records.
        options: of the producers, as JSON.

    Attributes:
        struck: the number of faults so far.
        complaints: what was found before the judgement.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        folder: pathlib.Path,
        chance: random.Random,
        *,
        throughput: int,
        is_copying: bool,
        options: str,
    ) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster.bootstrap_servers)
        self.random = chance
        self.struck = 0
        self.complaints: list[str] = []
        self._folder = folder
        self._options = options
        self.sender = self.program("verifiable", "--topic", SENT, "--throughput", str(throughput))
        words = (
            "--source",
            SENT,
            "--topic",
            COPIED,
            "--group",
            GROUP,
            "--transactional-id",
            TRANSACTIONAL_ID,
        )
        self.copier = self.program("copier", *words) if is_copying else None

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
        return Program(
            module,
            (
                "--bootstrap-server",
                self.cluster.bootstrap_servers,
                "--options",
                self._options,
                *words,
            ),
            self._folder,
            name or module,
        )

    async def strike(self, fault: Callable[[Stage], Awaitable[None]]) -> None:
        """Run a fault, and restore the cluster.

        Raises:
            ProgramFailed: a program ended, or had no acknowledgements any more.
            TimeoutError: the replicas did not get in sync.
        """
        self.struck += 1
        try:
            await fault(self)
            await self.settle()
        finally:
            for program in self.programs:
                program.look()

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
                self.complaints.append(f"never ended: {error}")


@contextlib.asynccontextmanager
async def staged(
    folder: pathlib.Path, chance: random.Random, *, throughput: int, is_copying: bool, options: str
) -> AsyncIterator[Stage]:
    """Start cluster, topics and programs, with lines in `folder`. The end of the block always ends all of them."""
    async with KafkaCluster(
        proxied=True, properties=_PROPERTIES, start_timeout=_START_SECONDS
    ) as cluster:
        for topic in (SENT, COPIED):
            await cluster.create_topic(topic, _PARTITIONS)
        stage = Stage(
            cluster, folder, chance, throughput=throughput, is_copying=is_copying, options=options
        )
        try:
            for program in stage.programs:
                await program.start()
            await stage.settle()
            yield stage
        finally:
            for program in stage.programs:
                await program.kill()
