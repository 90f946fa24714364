"""Faults at the named steps of a write, each once in the life of a query, also if its programs are started again.

A fault is noted in a file of the query's folder before it strikes. The file is created exclusively, so of two attempts of a task one is
struck.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["Fault", "Injected", "Struck", "strike", "struck"]

Deed: TypeAlias = Literal["raise", "kill", "driver", "sleep", "stop"]
_LOG: Final = "faults.log"
_UNTIL_KILLED: Final = 60.0  # seconds in which a process without its driver ends


class Injected(RuntimeError):
    """A fault that raises."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Holds one fault.

    Attributes:
        at: the name of the step.
        batch: the number of the micro-batch.
        do: raise an error, kill this process, kill the driver's JVM, sleep, or sleep so that all can be stopped.
        where: what else the step must be, such as {"partition": 1, "attempt": 0} or {"number": 2}.
        seconds: of the sleep.
    """

    at: str
    batch: int
    do: Deed
    where: Mapping[str, int] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        place = "".join(f"-{name}{value}" for name, value in sorted(self.where.items()))
        return f"{self.at}-{self.batch}{place}-{self.do}"

    def is_at(self, step: str, where: Mapping[str, Any]) -> bool:
        """Return whether this step, at this place, is the fault's."""
        return (
            self.at == step
            and where.get("batch") == self.batch
            and all(where.get(name) == value for name, value in self.where.items())
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Struck:
    """Holds one line of the log: a fault that struck."""

    fault: str
    do: str
    moment: float


def strike(
    faults: Iterable[Fault], folder: Path, driver: int, step: str, where: Mapping[str, Any]
) -> None:
    """Run those of the faults that are at this step and did not strike before.

    Args:
        faults: all faults of the query.
        folder: the query's folder.
        driver: the process id of the driver's JVM.
        step: the name of the step.
        where: the batch, partition, attempt and so on of the step.

    Raises:
        Injected: a fault says so.
    """
    for fault in faults:
        if fault.is_at(step, where) and note(str(fault), fault.do, folder):
            _do(fault, driver)


def note(name: str, do: str, folder: Path) -> bool:
    """Note in the folder that a fault strikes. Returns whether it is the first time."""
    try:
        os.close(os.open(folder / f"fault-{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    with (folder / _LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps(dataclasses.asdict(Struck(name, do, time.time()))) + "\n")
    return True


def struck(folder: Path) -> list[Struck]:
    """Return the faults that struck so far."""
    path = folder / _LOG
    return (
        [Struck(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )


def _do(fault: Fault, driver: int) -> None:
    match fault.do:
        case "raise":
            raise Injected(f"injected: {fault}")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "driver":
            os.kill(driver, signal.SIGKILL)
            # nothing more happens here: the runner of the query kills what the driver left
            time.sleep(_UNTIL_KILLED)
        # the runner of the query stops it meanwhile, in the second case
        case "sleep" | "stop":
            time.sleep(fault.seconds)
