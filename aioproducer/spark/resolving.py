"""Finds the transactions that queries of the sink left open, and ends them as their decision says.

A query that starts again from its checkpoint ends them itself, except those of tasks that have no rows in that run. `resolve` ends these, and
the transactions of queries that will not run again. Until then readers of committed records wait, at most for `transaction.timeout.ms`.

1. A transaction that the decision names is committed: the decision is the point of commit of its batch. All others are aborted.
2. `resolve` takes the lock of a query's driver before it ends a transaction of the query. So a driver that still runs decides nothing in between.
3. `resolve` leaves alone: transactions that began a short time ago, ids that no sink makes, and queries with a decision that it cannot read.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from aioproducer.errors import KafkaError
from aioproducer.model import PreparedTransaction
from aioproducer.offsets import POSITION_PARTITION
from aioproducer.transaction_resolver import TransactionResolver

from .ledger import QueryName
from .ledger_client import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioproducer.config import ProducerConfig
    from aioproducer.model import TransactionDescription

    from .ledger import Decision

__all__ = [
    "RETENTION_SECONDS",
    "Action",
    "Decided",
    "Finding",
    "Known",
    "Resolution",
    "judge",
    "resolve",
]

# The brokers' default of offsets.retention.minutes. No request of this client reads the setting.
RETENTION_SECONDS: Final = 7 * 86_400.0
# The part of the retention after which a query's marks are reported.
_NEAR: Final = 0.8
_ONGOING: Final = "Ongoing"
_COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})
_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
_DRIVER: Final = "driver"
# Every coordinator takes it, also for transactions that the second version of the protocol began.
_FIRST_VERSION: Final = 1


class Decided(enum.StrEnum):
    """Holds what the decision says about a transaction."""

    COMMIT = "commit"
    UNDECIDED = "undecided"
    DONE = "done"
    UNKNOWN = "unknown"


class Action(enum.StrEnum):
    """Holds what `resolve` does with a transaction if it is to end transactions."""

    COMMIT = "commit"
    ABORT = "abort"
    LEAVE = "leave"
    NOTHING = "nothing"


_ENDS: Final = {Action.COMMIT: "committed", Action.ABORT: "aborted"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Holds a transaction, and what `resolve` does with it.

    Attributes:
        state: of the transaction, by Kafka's name.
        started_at: when it began; None: its coordinator does not say.
        age_seconds: the time since then.
        topics: that the transaction writes to.
        reason: why it is left alone.
        prepared: what is ended.
        outcome: what was done: "committed", "aborted" or an error; "": nothing.
        is_open: whether readers may still wait for it.
    """

    transactional_id: str
    state: str
    started_at: datetime | None
    age_seconds: float | None
    topics: tuple[str, ...]
    decided: Decided
    action: Action
    reason: str = ""
    prepared: PreparedTransaction | None = None
    outcome: str = ""
    is_open: bool = True


class Resolution(NamedTuple):
    """Holds all transactions that were found, and warnings about what is not seen in them."""

    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]

    @property
    def open(self) -> int:
        """Return the number of transactions that are still open."""
        return sum(finding.is_open for finding in self.findings)


class Known(NamedTuple):
    """Holds a query's decision, or the problem that keeps it from being known; then no transaction of a task is ended."""

    decision: Decision | None = None
    problem: str = ""


def judge(
    found: TransactionDescription, known: Known, *, now: datetime, older_than: float
) -> Finding:
    """Return what is to be done with a transaction, by rules alone.

    Args:
        found: the transaction.
        known: the decision of its query.
        now: the present time.
        older_than: seconds; what began less than that ago is left alone.
    """
    age = None if found.started_at is None else max(0.0, (now - found.started_at).total_seconds())
    topics = tuple(sorted({partition.topic for partition in found.partitions}))
    decided, prepared = _decided(found, known)
    finding = Finding(
        found.transactional_id,
        found.state,
        found.started_at,
        age,
        topics,
        decided,
        Action.LEAVE,
        prepared=prepared,
    )
    if found.state in _ENDED:
        return dataclasses.replace(finding, action=Action.NOTHING, is_open=False)
    reasons = (
        (_place(found.transactional_id) is None, "no sink makes such an id"),
        (found.state != _ONGOING, "its coordinator is ending it"),
        (age is None, "its coordinator does not say when it began"),
        (age is not None and age < older_than, "it began a short time ago"),
        (decided is Decided.UNKNOWN, known.problem),
    )
    for applies, reason in reasons:
        if applies:
            return dataclasses.replace(finding, reason=reason)
    return dataclasses.replace(
        finding, action=Action.COMMIT if decided is Decided.COMMIT else Action.ABORT
    )


def _decided(found: TransactionDescription, known: Known) -> tuple[Decided, PreparedTransaction]:
    """Return what the decision says of a transaction, and how the transaction is ended."""
    found_as = PreparedTransaction(
        found.transactional_id, found.producer_id, found.epoch, _FIRST_VERSION
    )
    place = _place(found.transactional_id)
    if found.state in _ENDED or (place is not None and found.state != _ONGOING):
        return Decided.DONE, found_as
    if place is None:
        return Decided.UNKNOWN, found_as
    # A driver's own transaction writes a decision: while it is open, that is not decided.
    if place.task is None:
        return Decided.UNDECIDED, found_as
    entry = None if known.decision is None else known.decision.entry(place.task)
    if entry is not None and (entry.prepared.producer_id, entry.prepared.epoch) == (
        found.producer_id,
        found.epoch,
    ):
        return Decided.COMMIT, entry.prepared
    return Decided.UNKNOWN if known.problem else Decided.UNDECIDED, found_as


class _Place(NamedTuple):
    """Holds the parts of a transactional id of the sink; `task` is None for the driver."""

    name: QueryName
    task: int | None


def _place(transactional_id: str) -> _Place | None:
    """Return the parts of a transactional id; None: no sink makes it."""
    name, _, last = transactional_id.rpartition("-")
    if last == _DRIVER and name:
        return _Place(QueryName(name), None)
    # A number has one form only: no sink makes "01".
    if name and last.isdecimal() and str(int(last)) == last:
        return _Place(QueryName(name), int(last))
    return None


class _Asked(NamedTuple):
    """Holds what is asked of `resolve`, and its connections."""

    config: ProducerConfig
    resolver: TransactionResolver
    ledger_topic: str | None
    now: datetime
    older_than: float

    def ledger(self, name: QueryName, topic: str) -> Ledger:
        """Return the ledger of a query."""
        return Ledger(name, topic, self.config, self.resolver)

    def judge(self, found: Iterable[TransactionDescription], known: Known) -> list[Finding]:
        """Return what is to be done with each transaction of a query."""
        return [judge(one, known, now=self.now, older_than=self.older_than) for one in found]


class _Query:
    """Finds and ends the transactions of one query.

    Args:
        name: of the query.
        found: its transactions.
        asked: what is asked, and the connections.
    """

    def __init__(
        self, name: QueryName, found: Sequence[TransactionDescription], asked: _Asked
    ) -> None:
        self._name = name
        self._found = found
        self._asked = asked

    async def find(self, *, stable: bool = False) -> tuple[Ledger | None, Known]:
        """Return the ledger of the query, and what its decision says. Nothing is asked if no transaction is open.

        Args:
            stable: wait for a driver that is writing a decision. Without it, the decision may be the one before.
        """
        if all(found.state in _ENDED for found in self._found):
            return None, Known()
        try:
            decisions = await self._decisions(stable=stable)
        except KafkaError as error:
            return None, Known(problem=f"its decision cannot be read: {error}")
        if decisions:
            return self._latest(decisions)
        asked = self._asked.ledger_topic
        # A transaction is committed only after a decision, so one that was says that the named topic is not the ledger's.
        if asked is None or any(found.state in _COMMITTED for found in self._found):
            return None, Known(problem=self._not_found())
        return self._asked.ledger(self._name, asked), Known()

    def _latest(self, decisions: Mapping[str, Decision]) -> tuple[Ledger | None, Known]:
        """Return the ledger of the latest decision, if that is in the named topic; or, without a named topic, in one topic alone."""
        asked = self._asked.ledger_topic
        batch = max(decision.batch for decision in decisions.values())
        latest = [topic for topic, decision in decisions.items() if decision.batch == batch]
        topic = latest[0] if asked is None and len(latest) == 1 else asked
        if topic not in latest:
            return None, Known(problem=_elsewhere(latest, asked))
        return self._asked.ledger(self._name, topic), Known(decisions[topic])

    async def _decisions(self, *, stable: bool) -> dict[str, Decision]:
        """Return the decision in each topic that has one: the offsets of the driver's group name the topics.

        The named topic is asked for by its name, too: a refusal to describe it is an error then.
        """
        offsets = await self._asked.resolver.committed_offsets(
            self._name.decision_group(), stable=stable
        )
        topics = {at.topic for at in offsets if at.partition == POSITION_PARTITION}
        topics |= set() if self._asked.ledger_topic is None else {self._asked.ledger_topic}
        decisions = {
            topic: await self._asked.ledger(self._name, topic).decision(stable=stable)
            for topic in sorted(topics)
        }
        return {topic: decision for topic, decision in decisions.items() if decision is not None}

    def _not_found(self) -> str:
        where = (
            f"the ledger of {self._asked.ledger_topic}"
            if self._asked.ledger_topic is not None
            else "its driver's group"
        )
        return f"no decision is in {where}: name the ledger's topic (--ledger-topic)"

    async def end(self, ledger: Ledger | None, known: Known) -> list[Finding]:
        """End the transactions, with the driver's lock. Returns what was done. Errors are outcomes."""
        findings = self._asked.judge(self._found, known)
        if not any(finding.action in _ENDS for finding in findings):
            return findings
        # The lock needs no topic: it aborts the driver's own transaction, also where the ledger is not known.
        locking = ledger or self._asked.ledger(self._name, self._asked.ledger_topic or "")
        try:
            async with locking.lock():
                if ledger is not None:
                    _, known = await self.find(stable=True)
                    findings = self._asked.judge(self._found, known)
                return await self._end_all(locking, findings)
        except KafkaError as error:
            return [_failed(finding, error) for finding in findings]

    async def _end_all(self, ledger: Ledger, findings: Sequence[Finding]) -> list[Finding]:
        ended: dict[str, Finding] = {}

        async def end(finding: Finding) -> None:
            ended[finding.transactional_id] = await self._end(finding)

        await ledger.each(end, findings)
        return [ended[finding.transactional_id] for finding in findings]

    async def _end(self, finding: Finding) -> Finding:
        if finding.prepared is None or finding.action not in _ENDS:
            return finding
        resolver = self._asked.resolver
        # The lock has aborted the driver's own transaction.
        if finding.transactional_id != self._name.driver_id():
            try:
                await (resolver.commit if finding.action is Action.COMMIT else resolver.abort)(
                    finding.prepared
                )
            except KafkaError as error:
                return _failed(finding, error)
        return dataclasses.replace(finding, outcome=_ENDS[finding.action], is_open=False)


def _elsewhere(latest: Sequence[str], asked: str | None) -> str:
    """Return why the decision of a query is not taken: its latest is in other topics than the one that was asked for, or in several."""
    if asked is None:
        return f"its latest decision is in the ledger of {' and in that of '.join(latest)}: name one of them (--ledger-topic)"
    return f"its latest decision is in the ledger of {' and in that of '.join(latest)}, not of {asked}: name that topic (--ledger-topic)"


def _failed(finding: Finding, error: KafkaError) -> Finding:
    return (
        dataclasses.replace(finding, outcome=f"failed: {error}")
        if finding.action in _ENDS
        else finding
    )


async def resolve(
    config: ProducerConfig,
    prefix: str,
    *,
    ledger_topic: str | None = None,
    older_than: float = 900.0,
    is_ending: bool = False,
    wall_clock: Callable[[], float] = time.time,
) -> Resolution:
    """Find the transactions of the sink whose ids begin with a prefix, and end them if asked to.

    Args:
        config: of the cluster, without a transactional id.
        prefix: the `transactionalIdPrefix` of the queries, or the beginning of one query's ids.
        ledger_topic: the option `ledgerTopic` of the queries; None: the topic in which their drivers' groups have a decision.
        older_than: seconds; what began less than that ago is left alone.
        is_ending: commit what the decisions name, and abort the rest.
        wall_clock: returns seconds since the epoch.

    Raises:
        KafkaError: no broker answers, or a coordinator refuses to list its transactions.
    Cancellation: some transactions may have been ended; a second call goes on.
    """
    async with TransactionResolver(config) as resolver:
        listed = await resolver.list_transactions(prefix)
        described = await resolver.describe_transactions(
            [listing.transactional_id for listing in listed]
        )
        now = datetime.fromtimestamp(wall_clock(), UTC)
        asked = _Asked(config, resolver, ledger_topic, now, older_than)
        findings: list[Finding] = []
        for name, found in _by_query(described).items():
            if name is None:
                findings += asked.judge(found, Known())
                continue
            query = _Query(name, found, asked)
            ledger, known = await query.find()
            findings += await query.end(ledger, known) if is_ending else asked.judge(found, known)
    return Resolution(
        tuple(sorted(findings, key=lambda finding: finding.transactional_id)),
        tuple(_forgotten(described, now)),
    )


def _by_query(
    described: Iterable[TransactionDescription],
) -> dict[QueryName | None, list[TransactionDescription]]:
    queries: dict[QueryName | None, list[TransactionDescription]] = {}
    for one in described:
        place = _place(one.transactional_id)
        queries.setdefault(None if place is None else place.name, []).append(one)
    return queries


def _forgotten(described: Iterable[TransactionDescription], now: datetime) -> Iterable[str]:
    """Return a warning for each query with a last transaction that began so long ago that brokers may forget its marks."""
    for name, found in _by_query(described).items():
        began = [one.started_at for one in found if one.started_at is not None]
        if name is None or not began:
            continue
        age = (now - max(began)).total_seconds()
        if age >= RETENTION_SECONDS * _NEAR:
            yield (
                f"{name.text}: its last transaction began {age / 86_400:.1f} days ago. Brokers forget the marks and the decision of a query "
                f"that stood still for offsets.retention.minutes (7 days unless the brokers have another setting). A batch that was half "
                "committed could then be written twice: start the query before that, or from a new checkpoint after it"
            )
