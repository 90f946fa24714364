"""Tests of tests/debug_mode.py: which lines of a program's log are the machine's, and which the program's."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from debug_mode import environment_without_debug_mode, without_slow_steps

if TYPE_CHECKING:
    import pytest

SLOW = "import asyncio, sys\nasync def main():\n    asyncio.get_running_loop().slow_callback_duration = 0\n    await asyncio.sleep(0)\n"
FAULTS = "    asyncio.sleep(1)\n    print('Executing it took 1 second', file=sys.stderr)\n"


def ended(program: str, **options: dict[str, str]) -> str:
    """Run a program. Returns what it wrote to standard error."""
    command = [sys.executable, "-c", f"{program}asyncio.run(main())"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, **options).stderr  # type: ignore[call-overload,no-any-return]


def test_a_slow_step_is_taken_out_and_a_fault_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are asyncio's own."""
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    slow = ended(SLOW)
    assert slow.startswith("Executing <Task")
    assert without_slow_steps(slow) == ""
    told = without_slow_steps(ended(SLOW + FAULTS))
    assert "coroutine 'sleep' was never awaited" in told
    assert "Coroutine created at" in told
    assert "Executing it took 1 second" in told
    assert "Executing <" not in told


def test_a_program_without_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other variables are there."""
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    monkeypatch.setenv("ANOTHER", "value")
    environment = environment_without_debug_mode()
    assert environment["ANOTHER"] == "value"
    assert ended(SLOW, env=environment) == ""
