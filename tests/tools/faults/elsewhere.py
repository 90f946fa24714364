"""Lists the rows that other tests show: real Kafka nodes that die, and whole suites. The page says where."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ELSEWHERE", "Elsewhere"]


class Elsewhere(NamedTuple):
    """Names one such row, of ours alone.

    Attributes:
        faults: by their names in `tests/tools/chaos/faults.py`.
        sessions: of nox.
    """

    number: int
    name: str
    expected: str
    sessions: tuple[str, ...]
    faults: tuple[str, ...] = ()
    case: str = ""

    @property
    def where(self) -> str:
        """Return the words for the page."""
        sessions = ", ".join(f"`nox -s {session}`" for session in self.sessions)
        return f"{'real: ' if self.faults else 'suites: '}{sessions}{': ' if self.faults else ''}{', '.join(self.faults)}"


_CHAOS: Final = ("chaos",)
ELSEWHERE: Final = (
    Elsewhere(
        26,
        "the leader is killed with -9, restarted in good order, killed five times in a row",
        "nothing acknowledged is lost, twice or out of order",
        _CHAOS,
        ("leader-killed", "leader-restarted", "leader-bounced"),
    ),
    Elsewhere(29, "three nodes are restarted one after the other, with traffic", "no failure", _CHAOS, ("rolling-restart",)),
    Elsewhere(
        30,
        "the leader is stopped for 20 s, then goes on (SIGSTOP, SIGCONT)",
        "records move to the new leader, none twice",
        _CHAOS,
        ("leader-paused",),
    ),
    Elsewhere(
        91,
        "Python 3.11 to 3.15; asyncio's debug mode, eager tasks, uvloop",
        "the same suite is green",
        ("unit", "pythons", "loops"),
    ),
)
