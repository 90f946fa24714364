"""Decides when the session of an authenticated connection is renewed (KIP-368)."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Session"]

# Kafka's share of a session, drawn for each renewal so that connections do not renew together (SaslClientAuthenticator).
_EARLIEST: Final = 0.85
_SPREAD: Final = 0.10
# Seconds. A broker refuses a renewal within a second after it began the last authentication.
_MIN_INTERVAL: Final = 1.05
# A shorter session would end before it may be renewed: its connection is made anew when the broker ends it.
_SHORTEST: Final = 1.2


class Session(NamedTuple):
    """Holds the session that an authentication began; times are seconds of one clock.

    Attributes:
        began_at: start of the authentication.
        authenticated_at: its end.
        seconds: lifetime of the session, which the broker counts from somewhere in between; 0: it does not end.
    """

    began_at: float
    authenticated_at: float
    seconds: float

    @property
    def ends_at(self) -> float | None:
        """Return the time at which the broker may end the session, not later than it does; None: never."""
        return self.began_at + self.seconds if self.seconds else None

    def renew_at(self, chance: float) -> float | None:
        """Return the time at which the renewal is due; None: the session is not renewed. `chance`: a random number in [0, 1)."""
        if self.seconds < _SHORTEST:
            return None
        due = self.began_at + self.seconds * (_EARLIEST + _SPREAD * chance)
        return max(due, self.authenticated_at + _MIN_INTERVAL)
