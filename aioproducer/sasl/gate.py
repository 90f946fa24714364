"""Decides when a broker may be dialled after credentials were refused: one rule for all connections of a producer.

1. The gate shuts when a broker refuses the credentials and no other one has let this client in since. Then one connection at a time is
   made in the whole cluster, as a probe. The pause between probes grows to 30 s. It is shorter before a broker that has not refused yet.
2. A broker that lets this client in opens the gate, for all brokers at once.
3. While the gate is open, a broker that refuses, or that this client does not trust, has pauses of its own.
4. A broker that let this client in and refuses a renewal puts the credentials in doubt: the gate shuts, with a first probe at once. The
   principal of the credentials may have changed, which only a renewal refuses.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Gate"]

# Seconds.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_JITTER: Final = 0.2
# 2 to this power exceeds the longest pause.
_MAX_DOUBLINGS: Final = 16
# The part of a pause, and the longest pause, before a broker that has not refused yet.
_UNTRIED_SHARE: Final = 0.2
_LONGEST_UNTRIED: Final = 0.8
# A probe without a verdict holds up the others for no longer.
_PROBE_LIMIT: Final = 5.0


def _pause(refusals: int, chance: float) -> float:
    """Return the seconds after `refusals` consecutive ones. `chance`: a random number in [0, 1)."""
    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(max(refusals - 1, 0), _MAX_DOUBLINGS))
    return min(_LONGEST_PAUSE, pause * (1 - _JITTER + 2 * _JITTER * chance))


class Gate:
    """Holds what the brokers said to this client's credentials. A broker is named by its host:port; times are seconds of one clock.

    Attributes:
        is_shut: True while no broker lets this client in.
    """

    def __init__(self) -> None:
        self.is_shut: bool = False
        # Brokers that let this client in since the credentials were last in doubt.
        self._let_in: set[str] = set()
        # Consecutive refusals of a broker, and the end of its own pause.
        self._refusals: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        # Refused probes since the gate shut, the latest refusal, and the ends of the pauses that it began.
        self._probes_refused = 0
        self._refused_at = 0.0
        self._any_not_before = 0.0
        self._untried_not_before = 0.0
        # The time until which a connection that is being made holds up others, by its broker.
        self._probes: dict[str, float] = {}

    def delay(self, where: str, now: float) -> float:
        """Return the seconds until a broker may be dialled; 0: now. Any call of another method may change it."""
        until = [now, self._not_before.get(where, now)]
        if self.is_shut:
            until += (self._any_not_before if where in self._refusals else self._untried_not_before, *self._probes.values())
        elif where in self._refusals and where in self._probes:
            until.append(self._probes[where])
        return max(until) - now

    def begin(self, where: str, now: float) -> None:
        """Note that a connection to a broker is being made."""
        if self.is_shut or where in self._refusals:
            self._probes[where] = now + _PROBE_LIMIT

    def end(self, where: str) -> None:
        """Note that the attempt ended without a verdict."""
        self._probes.pop(where, None)

    def let_in(self, where: str) -> None:
        """Note that a broker let this client in, by a new connection or a renewal."""
        self._probes.pop(where, None)
        self._let_in.add(where)
        self._refusals.pop(where, None)
        self._not_before.pop(where, None)
        if self.is_shut:
            self.is_shut = False
            self._probes_refused = 0
            self._refusals.clear()
            self._not_before.clear()
            self._probes.clear()

    def refused(self, where: str, began_at: float, now: float, chance: float) -> None:
        """Note that a broker refused the credentials of a new connection.

        Args:
            where: the broker.
            began_at: start of the attempt. Of attempts that were under way together, one counts.
            now: the time.
            chance: a random number in [0, 1).
        """
        self._begin_pause(where, now, chance)
        if where in self._let_in:
            self._let_in.clear()
        if self._let_in:
            return
        if not self.is_shut:
            self.is_shut = True
        elif began_at < self._refused_at:
            return
        self._probes_refused += 1
        self._refused_at = now
        pause = _pause(self._probes_refused, chance)
        self._any_not_before = now + pause
        self._untried_not_before = now + min(pause * _UNTRIED_SHARE, _LONGEST_UNTRIED)

    def renewal_refused(self, now: float) -> None:
        """Note that a broker, which had let this client in, refused to renew a session."""
        self._let_in.clear()
        if not self.is_shut:
            self.is_shut = True
            self._probes_refused = 0
            self._refused_at = self._any_not_before = self._untried_not_before = now

    def not_trusted(self, where: str, now: float, chance: float) -> None:
        """Note that this client does not trust a broker, which says nothing about the credentials."""
        self._begin_pause(where, now, chance)

    def _begin_pause(self, where: str, now: float, chance: float) -> None:
        self._probes.pop(where, None)
        self._refusals[where] = self._refusals.get(where, 0) + 1
        self._not_before[where] = now + _pause(self._refusals[where], chance)
