"""Tests of `build`, and of the choice that `hot` makes when it is imported: each in a process of its own."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zlib

import pytest

import aioproducer
from aioproducer import BuildInfo, Producer, build_info
from aioproducer.engine import hot

PACKAGE = pathlib.Path(aioproducer.__file__).parent
TELL = "import aioproducer; print(aioproducer.build_info().build, aioproducer.build_info().reason, sep='; ')"
UNLOCKED = "import sysconfig; sysconfig.get_config_var = lambda name: name == 'Py_GIL_DISABLED'; "
LOCKLESS = "this Python has no global interpreter lock, which the compiled build needs"
NAMES = ("FULL", "RECORD_OVERHEAD", "TURN", "Delivery", "OpenBatch", "SendPath", "Way", "make_delivery", "wake")
STAND_IN = f"from aioproducer.engine.plain import {', '.join(NAMES)}; SOURCE = "


def told(code: str, **environment: str) -> str:
    """What a new process says, or the error that it ends with."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AIOPRODUCER_")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env={**clean, **environment}, capture_output=True, text=True, check=False, timeout=60
    )
    return (done.stdout or done.stderr).strip().splitlines()[-1]


@pytest.fixture
def copied(tmp_path: pathlib.Path) -> pathlib.Path:
    """The package without what was compiled, and with a source of it."""
    shutil.copytree(PACKAGE, tmp_path / "aioproducer", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "spark", "testing"))
    (tmp_path / "aioproducer/engine/_hot.pyx").write_text("# the newest")
    return tmp_path


def test_it_says_what_runs() -> None:
    """One build or the other, in the same words everywhere."""
    info = build_info()
    assert (info.version, info.build, info.reason) == (aioproducer.__version__, hot.BUILD, hot.REASON)
    assert bool(info.extension) == (info.build == "compiled") == (not info.reason)
    assert hot.Way.__module__ == ("aioproducer.engine._hot" if info.extension else "aioproducer.engine.plain")
    assert info.python in str(info)
    assert f"({info.build})" in repr(Producer(bootstrap_servers="localhost:9092"))


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (
            BuildInfo("1.2.3", "compiled", "", "_hot.cp.so", "CPython 3.12.1"),
            "aioproducer 1.2.3 on CPython 3.12.1: compiled (_hot.cp.so)",
        ),
        (BuildInfo("1.2.3", "plain Python", "why not", "", "PyPy 3.11.0"), "aioproducer 1.2.3 on PyPy 3.11.0: plain Python (why not)"),
    ],
)
def test_its_text_is_one_line_for_people(info: BuildInfo, text: str) -> None:
    assert str(info) == text


@pytest.mark.parametrize(
    ("environment", "before", "says"),
    [
        ({"AIOPRODUCER_PURE": "1"}, "", "plain Python; AIOPRODUCER_PURE is set"),
        ({}, UNLOCKED, f"plain Python; {LOCKLESS}"),
        ({"AIOPRODUCER_PURE": "1", "AIOPRODUCER_REQUIRE_EXT": "1"}, "", "plain Python; AIOPRODUCER_PURE is set"),
        (
            {"AIOPRODUCER_REQUIRE_EXT": "1"},
            UNLOCKED,
            f"ImportError: AIOPRODUCER_REQUIRE_EXT is set, and the way of a record is plain Python: {LOCKLESS}",
        ),
    ],
)
def test_what_chooses_plain_python(environment: dict[str, str], before: str, says: str) -> None:
    """It says why. Where the compiled build is required its lack is an error; but whoever asks for plain Python lacks nothing."""
    assert told(before + TELL, **environment) == says


@pytest.mark.parametrize("nothing", ["", "0"])
def test_a_variable_that_says_no(copied: pathlib.Path, nothing: str) -> None:
    """Empty and 0 are as if it were not set."""
    (copied / "aioproducer/engine/_hot.py").write_text(f"{STAND_IN}{zlib.crc32(b'# the newest')}")
    assert told(TELL, PYTHONPATH=str(copied), AIOPRODUCER_PURE=nothing, AIOPRODUCER_REQUIRE_EXT=nothing) == "compiled;"


def test_without_the_extension_it_is_plain(copied: pathlib.Path) -> None:
    """As after an installation without a compiler."""
    assert told(TELL, PYTHONPATH=str(copied)) == "plain Python; the compiled build is not installed"
    assert told(TELL, PYTHONPATH=str(copied), AIOPRODUCER_REQUIRE_EXT="1").startswith("ImportError: AIOPRODUCER_REQUIRE_EXT is set")


def test_an_extension_that_cannot_be_loaded_is_passed_over(copied: pathlib.Path) -> None:
    """As one for another platform; and it is said."""
    (copied / "aioproducer/engine/_hot.py").write_text("import nowhere")
    assert told(TELL, PYTHONPATH=str(copied)) == "plain Python; the compiled build cannot be loaded (No module named 'nowhere')"


def test_a_stale_extension_is_an_error(copied: pathlib.Path) -> None:
    """Whoever edits the source and does not compile it would test yesterday's; plain Python is still to be had."""
    (copied / "aioproducer/engine/_hot.py").write_text(f"{STAND_IN}{zlib.crc32(b'# an older one')}")
    assert told(TELL, PYTHONPATH=str(copied)).startswith("ImportError: the compiled build is not of the _hot.pyx beside it")
    assert told(TELL, PYTHONPATH=str(copied), AIOPRODUCER_PURE="1").startswith("plain Python;")
    (copied / "aioproducer/engine/_hot.pyx").unlink()  # as in a wheel
    assert told(TELL, PYTHONPATH=str(copied)) == "compiled;"
