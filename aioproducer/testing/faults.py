"""Scripted faults and their rules: which fault applies to which request.

1. Rules have a scope (api, broker, topic, partition) and a count of requests. They apply in the order in which they were made.
2. At most one disconnect or corrupt answer, one delay, one hang, one throttling and one handler apply to a request.
   Every matching rewrite applies.
3. An error applies to the partitions in its scope. Several rules may answer for different partitions of one request. A request
   with no partition in their scope is not affected.
4. A disconnect does not overtake an error rule that was made before it, nor the reverse.

A `Verdict` describes the faults of one request; `call` carries them out.
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
    from aioproducer.testing.security.tls_stream import TlsSpoil

__all__ = ["Faults", "Hang", "Kind", "Rule", "Target", "WHOLE", "Verdict", "When"]

When: TypeAlias = Literal["before", "after"]
Kind: TypeAlias = Literal["error", "disconnect", "spoil", "delay", "hang", "throttle", "rewrite", "handler", "tls"]

# Kafka answers these errors after it has appended
_AFTER_APPEND: Final = frozenset({"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT"})
# Faults instead of an answer: an error rule that was made before prevents them, and they prevent all later error rules.
_INSTEAD: Final = frozenset({"disconnect", "spoil"})


class Target(NamedTuple):
    """Names the topic and partition of one part of a request. A request without topics has the one target (None, None)."""

    topic: str | None = None
    partition: int | None = None


WHOLE: Final = Target()


class Hang:
    """Holds requests until `release`. Made by `FakeCluster.hang`."""

    def __init__(self) -> None:
        self.is_released: bool = False
        self._held: deque[Callable[[], None]] = deque()
        self._reached = asyncio.Event()

    async def reached(self) -> None:
        """Wait until a request hangs. Cancellation changes no state."""
        await self._reached.wait()

    def release(self) -> None:
        """Continue the held requests in order, and hold no more."""
        self.is_released = True
        while self._held:
            self._held.popleft()()

    def hold(self, go_on: Callable[[], None]) -> None:
        """Hold a request until the release."""
        self._held.append(go_on)
        self._reached.set()


@dataclass(slots=True, eq=False)
class Rule:
    """One scripted fault. `times` is the number of requests that it still applies to; None: all.

    Fields of an error: `appends` if Kafka answers it after it has appended; `message`, its text; `leader`, the leader that it names
    (KIP-951); `record_errors`, the wrong records by their number in the batch (KIP-467).
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
    tls: TlsSpoil | None = None
    fired: int = 0

    def covers(self, target: Target) -> bool:
        """Return whether a part of a request is in scope."""
        return (self.topic is None or self.topic == target.topic) and (self.partition is None or self.partition == target.partition)

    def use(self) -> None:
        """Count one request."""
        self.fired += 1
        if self.times is not None:
            self.times -= 1

    @property
    def is_scoped(self) -> bool:
        """Return whether the rule applies only to requests with a part in its scope."""
        return self.topic is not None or self.partition is not None

    @property
    def is_spent(self) -> bool:
        """Return whether the rule applies to no further request."""
        return self.times == 0 or (self.hang is not None and self.hang.is_released)

    def __str__(self) -> str:
        scope = {"broker": self.broker, "topic": self.topic, "partition": self.partition, "times left": self.times}
        return f"{self.kind} on {self.api} ({', '.join(f'{name} {value}' for name, value in scope.items() if value is not None)})"


@dataclass(slots=True)
class Verdict:
    """Holds the faults that apply to one request.

    Attributes:
        errors: the rule that gives the error of a target.
        rewrites: change the answer.
        others: the rule of each other kind.
    """

    errors: dict[Target, Rule] = field(default_factory=dict)
    rewrites: list[Callable[[Any], object]] = field(default_factory=list)
    others: dict[Kind, Rule] = field(default_factory=dict)

    def apply(self, rule: Rule, covered: Iterable[Target]) -> bool:
        """Apply a rule to the request, unless an earlier rule prevents it. Returns whether it applies."""
        is_instead = not _INSTEAD.isdisjoint(self.others)
        if rule.kind == "error":
            fresh = [] if is_instead else [target for target in covered if target not in self.errors]
            self.errors.update(dict.fromkeys(fresh, rule))
            return bool(fresh)
        if rule.rewrite is not None:
            self.rewrites.append(rule.rewrite)
            return True
        if rule.kind in self.others or (rule.kind in _INSTEAD and (is_instead or self.errors)):
            return False
        self.others[rule.kind] = rule
        return True

    @property
    def disconnect(self) -> When | None:
        """Return when the connection is reset; None: it is not."""
        rule = self.others.get("disconnect")
        return None if rule is None else rule.when

    def code(self, target: Target) -> int:
        """Return the scripted error code of a target; 0: none."""
        rule = self.errors.get(target)
        return rule.code if rule else 0


class Faults:
    """Holds the rules of one cluster, in the order in which they were made."""

    def __init__(self) -> None:
        self.broken: list[Exception] = []
        """Errors that a test's own handlers raised."""
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> Rule:
        """Add one rule after the existing ones."""
        if rule.times is not None and rule.times < 1:
            raise ValueError(f"times is how many requests a fault falls on, at least 1, not {rule.times}")
        self._rules.append(rule)
        return rule

    def add_error(self, rule: Rule, error: str | int) -> Rule:
        """Add an error rule by Kafka's name or number of the error; an unknown number is answered unchanged."""
        try:
            known = broker_error(error)
        except KeyError as unknown:
            raise ValueError(f"{error!r} is none of Kafka's error names") from unknown
        rule.code = known.code
        rule.appends = known.name in _AFTER_APPEND
        return self.add(rule)

    @property
    def newest(self) -> Rule:
        """Return the rule that was made last."""
        return self._rules[-1]

    def unfired(self) -> list[Rule]:
        """Return the counted rules that have requests left, and the uncounted rules that applied to no request."""
        return [rule for rule in self._rules if (rule.times or 0) > 0 or rule.fired == 0]

    def clear(self) -> None:
        """Remove every rule and release every hang."""
        rules, self._rules = self._rules, []
        for rule in rules:
            if rule.hang is not None:
                rule.hang.release()

    def judge(self, api: str, broker: int, targets: Iterable[Target]) -> Verdict:
        """Return the faults of a request, and count the rules that apply."""
        verdict = Verdict()
        rules = [rule for rule in self._rules if rule.api == api and rule.broker in {None, broker} and not rule.is_spent]
        parts = list(targets) if rules else []
        for rule in rules:
            covered = [target for target in parts if rule.covers(target)]
            if (covered or not rule.is_scoped) and verdict.apply(rule, covered):
                rule.use()
        return verdict
