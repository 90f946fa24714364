"""The plugin that finds shown secrets, on a small suite that shows some on purpose."""

from __future__ import annotations

import base64
import logging
import os
import pathlib
import textwrap
from typing import TYPE_CHECKING

import pytest
from canary_plugin import WORD, is_shown

if TYPE_CHECKING:
    from _pytest.pytester import Pytester

pytest_plugins = ("pytester",)

TESTS = pathlib.Path(__file__).parent
CONFTEST = """
    import canary_plugin

    def pytest_configure(config):
        canary_plugin.use(config)
"""
HEAD = """
import asyncio, base64, logging, subprocess, sys, warnings
from aioproducer.config.secret import Secret

SECRET = "can" + "ary-alice"
log = logging.getLogger("aioproducer.net")

async def slow():
    asyncio.get_running_loop().slow_callback_duration = 0
    asyncio.get_running_loop().call_soon(str, SECRET)
    await asyncio.sleep(0)
"""
LEAKS = {
    "output": ("print(SECRET)", "captured stdout call"),
    "a_program": (
        "subprocess.run([sys.executable, '-c', f'print({SECRET!r})'], check=True)",
        "captured stdout call",
    ),
    "errors": ("print(SECRET, file=sys.stderr)", "captured stderr call"),
    "output_that_is_read": ("print(SECRET); assert capsys.readouterr().out", "standard output"),
    "log": ("log.warning('for %s', SECRET)", "the log, at WARNING, of aioproducer.net"),
    "debug": ("log.debug('for %s', SECRET)", "the log, at DEBUG, of aioproducer.net"),
    "traceback": (
        "try: raise ValueError(SECRET)\n    except ValueError: log.exception('no')",
        "the log, at ERROR, of aioproducer.net",
    ),
    "fact": (
        "log.info('no', extra={'facts': {'user': SECRET}})",
        "the log, at INFO, of aioproducer.net",
    ),
    "asyncio": ("asyncio.run(slow(), debug=True)", "the log, at WARNING, of asyncio"),
    "warning": ("warnings.warn(SECRET)", "a warning"),
    "base64": (
        "print(base64.b64encode(f'\\0alice\\0{SECRET}'.encode()).decode())",
        "captured stdout call",
    ),
    "percent": ("print(SECRET.replace('-', '%2D'))", "captured stdout call"),
    "hexadecimal": ("print(SECRET.encode().hex())", "captured stdout call"),
}


def run(
    pytester: Pytester, monkeypatch: pytest.MonkeyPatch, lines: dict[str, str]
) -> pytest.RunResult:
    """Run a suite with a test for each line. Its report shows neither output nor warnings, as the watch of this run would find those."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS / "support")]))
    pytester.makeconftest(CONFTEST)
    tests = [f"def test_{name}(capsys):\n    {line}\n" for name, line in lines.items()]
    pytester.makepyfile(textwrap.dedent(HEAD) + "\n".join(tests))
    return pytester.runpytest_subprocess(
        "-p", "no:randomly", "--show-capture=no", "--disable-warnings"
    )


def test_a_leak_fails_the_run(pytester: Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves pass; the run does not, and names each with the place."""
    result = run(pytester, monkeypatch, {name: line for name, (line, _) in LEAKS.items()})
    result.assert_outcomes(passed=len(LEAKS), warnings=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = result.stdout.str().partition("secrets that were shown")[2]
    shown = {line.partition("::test_")[2] for line in said.splitlines() if "::test_" in line}
    assert shown == {f"{name}: {place}" for name, (_, place) in LEAKS.items()}


def test_levels_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    """What is searched and was not enabled reaches no handler."""
    logging.getLogger("aioproducer.net").debug("searched")
    assert caplog.records == []


@pytest.mark.parametrize("before", ["", "a", "ab", "\0alice\0", "n,a=alice,"])
def test_base64_at_every_place(before: str) -> None:
    """Three bytes are four digits, so the word has three forms."""
    assert is_shown(base64.b64encode(f"{before}{WORD}alice".encode()).decode())
    assert not is_shown(base64.b64encode(f"{before}{WORD[1:]}alice".encode()).decode())
