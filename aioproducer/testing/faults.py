"""Scripted trouble: which request meets which fault.

1. Rules are scoped (api, broker, topic, partition), counted in requests, and used in the order in which they were made.
2. A request meets at most one disconnect or spoilt answer, one delay, one hang, one throttling, one handler, and every rewriting that
   fits it.
3. An error falls on the partitions in its scope; several rules may answer for different partitions of one request. A request
   without anything in their scope is left alone.
4. A disconnect does not overtake an error rule that was made before it, nor the other way round.

Knows no broker, connection or clock: `Verdict` says what to do, `broker` does it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from aioproducer.errors import broker_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aioproducer.testing.corrupt_responses import Spoil

__all__ = ["Faults", "Hang", "Kind", "Rule", "Target", "Verdict", "When"]

When: TypeAlias = Literal["before", "after"]
Kind: TypeAlias = Literal["error", "disconnect", "spoil", "delay", "hang", "throttle", "rewrite", "handler"]

# Kafka answers these after it has appended
_AFTER_APPEND: Final = frozenset({"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT"})
_ONE_OF: Final = frozenset({"error", "disconnect", "spoil"})


class Target(NamedTuple):
    """What one part of a request is about; a request that is about no topic has the one target (None, None)."""

    topic: str | None = None
    partition: int | None = None


class Hang:
    """Requests that are held until `release`. Made by `FakeCluster.hang`."""

    def __init__(self) -> None:
        self.is_released = False
        self._held: deque[Callable[[], None]] = deque()
        self._reached = asyncio.Event()

    async def reached(self) -> None:
        """Wait until a request hangs. Cancellation leaves nothing behind."""
        await self._reached.wait()

    def release(self) -> None:
        """Let go what hangs, in its order, and hold no more."""
        self.is_released = True
        while self._held:
            self._held.popleft()()

    def hold(self, go_on: Callable[[], None]) -> None:
        """Keep a request until the release."""
        self._held.append(go_on)
        self._reached.set()


@dataclass(slots=True, eq=False)
class Rule:
    """One scripted fault. `times` is how many more requests it falls on; None: on all.

    Of an error: `appends` where Kafka answers it after it has appended; `message` its text; `leader` whom it names (KIP-951);
    `record_errors` the records that were wrong, by their number in the batch (KIP-467).
    """

    api: str
    kind: Kind
    times: int | None = 1
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    code: int = 0
    appends: bool = False
    message: str | None = None
    leader: int | None = None
    record_errors: Mapping[int, str | None] = field(default_factory=dict)
    when: When = "before"
    spoil: Spoil | None = None
    seconds: float = 0.0
    hang: Hang | None = None
    rewrite: Callable[[Any], object] | None = None
    handler: Callable[[Any, Any], Any] | None = None
    fired: int = 0

    def covers(self, target: Target) -> bool:
        """Whether a part of a request is in scope."""
        return (self.topic is None or self.topic == target.topic) and (self.partition is None or self.partition == target.partition)

    def use(self) -> None:
        """It fell on one request."""
        self.fired += 1
        if self.times is not None:
            self.times -= 1

    @property
    def is_spent(self) -> bool:
        """Whether it will fall on no other request."""
        return self.times == 0 or (self.hang is not None and self.hang.is_released)

    def __str__(self) -> str:
        scope = {"broker": self.broker, "topic": self.topic, "partition": self.partition, "times left": self.times}
        return f"{self.kind} on {self.api} ({', '.join(f'{name} {value}' for name, value in scope.items() if value is not None)})"


@dataclass(slots=True)
class Verdict:
    """What one request meets."""

    errors: dict[Target, Rule] = field(default_factory=dict)
    disconnect: When | None = None
    spoil: Spoil | None = None
    delay: Rule | None = None
    hang: Rule | None = None
    throttle_ms: int = 0
    handler: Callable[[Any, Any], Any] | None = None
    rewrites: list[Callable[[Any], object]] = field(default_factory=list)

    def code(self, target: Target) -> int:
        """The error that a target answers with; 0: none."""
        rule = self.errors.get(target)
        return rule.code if rule else 0


class Faults:
    """The rules of one cluster, each in the place in which it was made."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        """What a test's own handlers raised."""
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> Rule:
        """Script one fault, behind those of before."""
        if rule.times is not None and rule.times < 1:
            raise ValueError(f"times is how many requests a fault falls on, at least 1, not {rule.times}")
        self._rules.append(rule)
        return rule

    def add_error(self, rule: Rule, error: str | int) -> Rule:
        """Script an error by its name in Kafka, or its number; a number that Kafka does not know is answered as it is."""
        try:
            known = broker_error(error)
        except KeyError as unknown:
            raise ValueError(f"{error!r} is none of Kafka's error names") from unknown
        rule.code = known.code
        rule.appends = known.name in _AFTER_APPEND
        return self.add(rule)

    @property
    def newest(self) -> Rule:
        """The rule that was made last."""
        return self._rules[-1]

    def unfired(self) -> list[Rule]:
        """Rules that wait for requests; of those without a count, the ones that fell on none."""
        return [rule for rule in self._rules if (rule.times or 0) > 0 or rule.fired == 0]

    def clear(self) -> None:
        """Forget every rule, so that all goes well from now on; what hangs is let go."""
        rules, self._rules = self._rules, []
        for rule in rules:
            if rule.hang is not None:
                rule.hang.release()

    def judge(self, api: str, broker: int, targets: Iterable[Target]) -> Verdict:
        """What a request meets; the rules that it meets are counted."""
        verdict = Verdict()
        rules = [rule for rule in self._rules if rule.api == api and rule.broker in {None, broker} and not rule.is_spent]
        if not rules:
            return verdict
        parts = list(targets)
        is_spoilt = False
        for rule in rules:
            is_scoped = rule.topic is not None or rule.partition is not None
            covered = [target for target in parts if rule.covers(target)]
            if is_scoped and not covered:
                continue
            if rule.kind in _ONE_OF:
                if is_spoilt or (rule.kind != "error" and verdict.errors):
                    continue
                is_spoilt = rule.kind != "error"
            _apply(rule, covered, verdict)
        return verdict


def _apply(rule: Rule, covered: list[Target], verdict: Verdict) -> None:
    """Let a rule fall on a request, if nothing of its kind did before."""
    match rule.kind:
        case "error":
            fresh = [target for target in covered if target not in verdict.errors]
            if not fresh:
                return
            verdict.errors.update(dict.fromkeys(fresh, rule))
        case "disconnect":
            verdict.disconnect = rule.when
        case "spoil":
            verdict.spoil = rule.spoil
        case "delay" if verdict.delay is None:
            verdict.delay = rule
        case "hang" if verdict.hang is None:
            verdict.hang = rule
        case "throttle" if not verdict.throttle_ms:
            verdict.throttle_ms = int(rule.seconds * 1000)
        case "rewrite" if rule.rewrite is not None:
            verdict.rewrites.append(rule.rewrite)
        case "handler" if verdict.handler is None:
            verdict.handler = rule.handler
        case _:
            return
    rule.use()
