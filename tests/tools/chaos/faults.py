"""Holds the table of faults of the cluster and of its connections. `settle` repairs each of them.

Numbers are those of the project's list of faults: 26 a leader killed, cleanly restarted, bounced; 29 a rolling restart; 30 a leader
that sleeps 20 s; 37 a topic deleted and made again. Fault 37 has a judge of its own, as its acknowledged records may be lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .history import read_sent
from .judge import judge_sent, since_rebirth
from .logs import read_topic
from .program import ProgramFailed
from .stage import COPIED, COPIES, SENT, TRANSACTION_VERSION, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .program import Program
    from .stage import Stage

__all__ = ["COPIERS", "FAULTS"]

_DOOMED: Final = "doomed"
_LARGEST: Final = 12  # partitions that the topics may grow to


async def _some_leader(stage: Stage) -> int:
    """Return the leader of a random partition."""
    partitions = await stage.admin.partitions(SENT)
    return await stage.cluster.leader(SENT, stage.random.choice(partitions).number)


async def _leader_killed(stage: Stage) -> None:
    node = await _some_leader(stage)
    await stage.cluster.kill(node)
    await asyncio.sleep(stage.random.uniform(0.0, 8.0))
    await stage.cluster.start(node)


async def _leader_restarted(stage: Stage) -> None:
    node = await _some_leader(stage)
    await stage.cluster.stop(node)
    await stage.cluster.start(node)


async def _leader_bounced(stage: Stage) -> None:
    for _ in range(5):
        await _leader_killed(stage)
        await stage.admin.until_whole(stage.topics, COPIES)


async def _coordinator_killed(stage: Stage) -> None:
    count = len(await stage.admin.partitions("__transaction_state"))
    node = await stage.cluster.leader(
        "__transaction_state", abs(_java_hash(TRANSACTIONAL_ID)) % count
    )
    await stage.cluster.kill(node)
    await asyncio.sleep(stage.random.uniform(0.0, 8.0))
    await stage.cluster.start(node)


async def _all_killed(stage: Stage) -> None:
    nodes = stage.cluster.answering
    await asyncio.gather(*map(stage.cluster.kill, nodes))
    await asyncio.gather(*map(stage.cluster.start, nodes))


async def _rolling_restart(stage: Stage) -> None:
    for node in stage.cluster.answering:
        await stage.cluster.stop(node)
        await stage.cluster.start(node)
        await stage.admin.until_whole(
            stage.topics, COPIES
        )  # as an operator waits; without it two of three nodes would lag


async def _leader_paused(stage: Stage) -> None:
    node = await _some_leader(stage)
    stage.cluster.pause(node)
    await asyncio.sleep(20.0)
    stage.cluster.resume(node)


async def _connections_cut(stage: Stage) -> None:
    """Cut connections several times, some at a low bandwidth: in the middle of a request and in the middle of an answer."""
    for _ in range(12):
        proxy = stage.random.choice(list(stage.cluster.proxies.values()))
        proxy.slow(stage.random.choice((2_000, 50_000, 1e9)))
        await asyncio.sleep(stage.random.uniform(0.05, 0.8))
        proxy.reset()
        proxy.heal()


async def _answers_lost(stage: Stage) -> None:
    """Drop the answers of requests that the broker has written. The producer sends records again that are in the log already."""
    proxy = stage.cluster.proxies[await _some_leader(stage)]
    proxy.black_hole("answers")
    await asyncio.sleep(stage.random.uniform(1.0, 8.0))
    proxy.reset()


async def _broker_unreachable(stage: Stage) -> None:
    """Make a broker unreachable for clients. The other nodes reach it, so it stays the leader."""
    proxy = stage.cluster.proxies[await _some_leader(stage)]
    proxy.cut()
    await asyncio.sleep(stage.random.uniform(2.0, 10.0))


async def _leaders_elected(stage: Stage) -> None:
    """Give each partition another first replica, and elect that replica as the leader."""
    for topic in (SENT, COPIED):
        turned = {
            one.number: (*one.replicas[1:], one.replicas[0])
            for one in await stage.admin.partitions(topic)
        }
        await stage.admin.reassign(topic, turned)
        await stage.admin.elect_preferred(topic)


async def _partitions_reassigned(stage: Stage) -> None:
    """Remove the leader's replica of each partition, and add it again as a new one."""
    for topic in (SENT, COPIED):
        partitions = await stage.admin.partitions(topic)
        kept = {
            one.number: [node for node in one.replicas if node != one.leader] for one in partitions
        }
        await stage.admin.reassign(topic, kept)
        await stage.admin.reassign(
            topic, {one.number: [*kept[one.number], one.leader] for one in partitions}
        )


async def _topic_grown(stage: Stage) -> None:
    count = len(await stage.admin.partitions(SENT)) + 1
    if count <= _LARGEST:
        await stage.admin.grow(
            COPIED, count
        )  # first, as the copied records need the new partitions
        await stage.admin.grow(SENT, count)


async def _copier_killed(stage: Stage) -> None:
    """Kill the copier in the middle of a transaction. The next copier, with the same name, must end that transaction."""
    assert stage.copier is not None
    await stage.copier.kill()
    await stage.copier.start()


async def _copier_replaced(stage: Stage) -> None:
    """Pause the copier in the middle of a transaction while another copier takes its name. After the pause it must be fenced, and end."""
    copier = stage.copier
    assert copier is not None
    copier.pause()
    await copier.start()
    await copier.until_flowing(one.number for one in await stage.admin.partitions(SENT))
    await copier.wake()
    if "producer_fenced" not in copier.files[-2].read_text(encoding="utf-8"):
        stage.complaints.append("zombie: not fenced, it ended for another reason")


async def _in_trouble(stage: Stage) -> None:
    """Kill a leader while a second broker's answers are late or lost, and the connections of the third are cut."""
    killed, late, cut = stage.random.sample(stage.cluster.answering, 3)
    stage.cluster.proxies[late].black_hole("answers")
    stage.cluster.proxies[cut].delay(0.2)
    await stage.cluster.kill(killed)
    for _ in range(6):
        await asyncio.sleep(stage.random.uniform(0.2, 1.5))
        stage.cluster.proxies[cut].reset()
    stage.cluster.proxies[late].heal()  # the held answers arrive late
    await asyncio.sleep(stage.random.uniform(0.0, 2.0))
    stage.cluster.proxies[late].reset()
    await stage.cluster.start(killed)


async def _transactions_switched(stage: Stage) -> None:
    """Switch to the first protocol of transactions and back (2 is KIP-890's), while clients run. They learn of it on new connections."""
    assert stage.copier is not None
    numbers = [one.number for one in await stage.admin.partitions(SENT)]
    for level in (1, 2):
        await stage.admin.set_feature(TRANSACTION_VERSION, level)
        await stage.copier.until_flowing(numbers)
        for proxy in stage.cluster.proxies.values():
            proxy.reset()
        for _ in range(3):
            await stage.copier.until_flowing(numbers)


async def _topic_recreated(stage: Stage) -> None:
    """Delete and create a topic that has a sender of its own, as the topic's acknowledged records are lost with it."""
    name = f"{_DOOMED}-{stage.struck}"
    await stage.cluster.create_topic(name, 3)
    sender = stage.program("verifiable", "--topic", name, "--throughput", "300", name=name)
    await sender.start()
    try:
        await sender.until_flowing(range(3))
        await stage.admin.delete(name)
        await asyncio.sleep(stage.random.uniform(0.0, 3.0))
        await stage.cluster.create_topic(name, 3)
        stage.complaints += await _found_in_the_new(stage, sender, name)
    finally:
        await sender.kill()


async def _found_in_the_new(stage: Stage, sender: Program, name: str) -> list[str]:
    try:
        await sender.until_flowing(range(3))
        await sender.until_flowing(range(3))
        await sender.stop()
    except ProgramFailed as error:
        return [f"never ended: {error}"]
    told = await asyncio.to_thread(read_sent, sender.files, name)
    since_rebirth(told.history)
    reads = await asyncio.to_thread(read_topic, stage.cluster.bootstrap_servers, name, 3)
    return judge_sent(told, name, reads)


def _java_hash(text: str) -> int:
    """Return Java's `String.hashCode`, by which Kafka chooses coordinators."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


FAULTS: Final[Mapping[str, Callable[[Stage], Awaitable[None]]]] = {
    "leader-killed": _leader_killed,  # kill -9 of a partition's leader, which is started again some seconds later
    "leader-restarted": _leader_restarted,  # a partition's leader is stopped in good order and started again
    "leader-bounced": _leader_bounced,  # kill -9 of a partition's leader, five times in a row
    "rolling-restart": _rolling_restart,  # all three nodes, one after the other, in good order
    "leader-paused": _leader_paused,  # SIGSTOP of a partition's leader for 20 s, then SIGCONT
    "all-killed": _all_killed,  # kill -9 of all three nodes at once
    "connections-cut": _connections_cut,  # connections are reset, twelve times, at any byte
    "answers-lost": _answers_lost,  # a leader's answers do not arrive for some seconds, then its connections are reset
    "broker-unreachable": _broker_unreachable,  # a leader refuses all connections of clients for some seconds
    "all-sorts": _in_trouble,  # kill -9 of one node, answers of another held back, connections of the third cut
    "leaders-elected": _leaders_elected,  # every partition gets another preferred leader, and it is elected
    "partitions-reassigned": _partitions_reassigned,  # every partition's leader loses its copy, and gets it back
    "topic-grown": _topic_grown,  # one partition more
    "topic-recreated": _topic_recreated,  # a topic is deleted under its sender, and made again
    "coordinator-killed": _coordinator_killed,  # kill -9 of the transaction coordinator
    "transactions-switched": _transactions_switched,  # transaction.version from 2 to 1 and back, or from 1 to 2
    "copier-killed": _copier_killed,  # kill -9 of the program that copies, and a new one with its transactional id
    "copier-replaced": _copier_replaced,  # SIGSTOP of the program that copies; when another has its name, SIGCONT
}
COPIERS: Final = frozenset(
    {"coordinator-killed", "transactions-switched", "copier-killed", "copier-replaced"}
)
"""Those about the program that copies."""
