"""Tests of `build`, and of the choice that is made when the engine is imported: each in a process of its own."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest
from builds import compiled, compiled_columns, needs_compiled, needs_compiled_columns

import aioproducer
from aioproducer import BuildInfo, Producer, build_info
from aioproducer.build import crc_of_sources
from aioproducer.engine import chosen_build
from aioproducer.records import arrow

PACKAGE = pathlib.Path(aioproducer.__file__).parent
TELL = "import aioproducer; info = aioproducer.build_info(); print(info.build, info.reason, info.columns_reason, sep='; ')"
PURE = "AIOPRODUCER_PURE is set"
NONE = "the compiled build is not installed"
UNLOCKED = "from aioproducer import build; build._is_free_threaded = lambda: True; "
LOCKLESS = "this Python has no global interpreter lock, which the compiled build needs"
REQUIRED = {"AIOPRODUCER_REQUIRE_EXT": "1"}
STAND_INS = {
    "engine/append/_fast_path": "from aioproducer.engine.append.fast_path import *",
    "engine/delivery/_records_builder": "from aioproducer.engine.delivery.records_builder import *",
    "engine/delivery/_delivery": "from aioproducer.engine.delivery.delivery import *; uncollected = None",
    "engine/delivery/_produce_request_result": "from aioproducer.engine.delivery.produce_request_result import *",
    "records/_columns": "Headers = Moments = Partitions = Strings = assign = encode = hash_rows = known = measure = None; from crc32c import crc32c",
}
"""Plain Python in the place of the compiled modules."""
CHOSEN = ("engine/append/_fast_path", "records/_columns")
"""Those that are asked for; the others come with them."""
CANNOT = "ImportError: AIOPRODUCER_REQUIRE_EXT is set, and aioproducer.{} cannot be used: "


def told(code: str, **environment: str) -> str:
    """Return the output of a new process, or the error that it ends with."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("AIOPRODUCER_")
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return (done.stdout or done.stderr).strip().splitlines()[-1]


@pytest.fixture
def copied(tmp_path: pathlib.Path) -> pathlib.Path:
    """The package with stand-ins for what is compiled, which are not stale."""
    shutil.copytree(
        PACKAGE,
        tmp_path / "aioproducer",
        ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "spark", "testing"),
    )
    for name, text in STAND_INS.items():
        (tmp_path / f"aioproducer/{name}.py").write_text(
            f"{text}; SOURCE = {crc_of_sources(tmp_path / 'aioproducer')}"
        )
    return tmp_path


def test_it_says_what_runs() -> None:
    """One build or the other, in the same words everywhere."""
    info = build_info()
    assert (info.version, info.build, info.reason) == (
        aioproducer.__version__,
        "plain Python" if chosen_build.REASON else "compiled",
        chosen_build.REASON,
    )
    assert bool(info.extension) == (info.build == "compiled") == (not info.reason)
    assert (
        chosen_build.FastPath.__module__
        == f"aioproducer.engine.append.{'_' if info.extension else ''}fast_path"
    )
    assert (arrow._compiled is None) == bool(info.columns_reason)
    assert info.python in str(info)
    assert f"({info.build})" in repr(Producer(bootstrap_servers="localhost:9092"))


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (
            BuildInfo("1.2.3", "compiled", "", "_fast_path.cp.so", "CPython 3.12.1"),
            "aioproducer 1.2.3 on CPython 3.12.1: compiled (_fast_path.cp.so)",
        ),
        (
            BuildInfo("1.2.3", "plain Python", "why not", "", "PyPy 3.11.0", "why not"),
            "aioproducer 1.2.3 on PyPy 3.11.0: plain Python (why not)",
        ),
        (
            BuildInfo("1.2.3", "compiled", "", "_fast_path.so", "CPython 3.12.1", "it is lost"),
            "aioproducer 1.2.3 on CPython 3.12.1: compiled (_fast_path.so); send_columns: plain Python (it is lost)",
        ),
        (
            BuildInfo("1.2.3", "plain Python", "it is lost", "", "CPython 3.12.1"),
            "aioproducer 1.2.3 on CPython 3.12.1: plain Python (it is lost); send_columns: compiled",
        ),
    ],
)
def test_its_text_is_one_line_for_people(info: BuildInfo, text: str) -> None:
    assert str(info) == text


@pytest.mark.parametrize(
    ("environment", "before", "says"),
    [
        ({"AIOPRODUCER_PURE": "1"}, "", f"plain Python; {PURE}; {PURE}"),
        ({}, UNLOCKED, f"plain Python; {LOCKLESS}; {LOCKLESS}"),
        ({"AIOPRODUCER_PURE": "1", **REQUIRED}, "", f"plain Python; {PURE}; {PURE}"),
        (REQUIRED, UNLOCKED, CANNOT.format("engine.append._fast_path") + LOCKLESS),
    ],
)
def test_what_chooses_plain_python(environment: dict[str, str], before: str, says: str) -> None:
    """The build names the reason for plain Python.

    A required compiled build that is missing is an error, but a process that asks for plain Python needs none.
    """
    assert told(before + TELL, **environment) == says


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ("engine/append/_fast_path", f"plain Python; {NONE};"),
        ("records/_columns", f"compiled; ; {NONE}"),
    ],
    ids=CHOSEN,
)
def test_without_an_extension_its_part_is_plain(copied: pathlib.Path, lost: str, says: str) -> None:
    """As after an installation without a compiler; each is told of alone, and each can be required."""
    (copied / f"aioproducer/{lost}.py").unlink()
    assert told(TELL, PYTHONPATH=str(copied)) == says
    assert (
        told(TELL, PYTHONPATH=str(copied), **REQUIRED)
        == CANNOT.format(lost.replace("/", ".")) + NONE
    )


@pytest.mark.parametrize(
    ("wheel", "folder", "says"),
    [
        (
            "Tag: py3-none-any",
            "",
            f"{NONE}: the wheel py3-none-any is installed, which is for any Python and machine",
        ),
        (
            "Tag: cp311-cp311-linux_x86_64",
            "",
            f"{NONE}: it was not compiled when it was installed from source, which needs a C compiler",
        ),
        ("Tag: py3-none-any", "elsewhere", NONE),
    ],
    ids=["any", "source", "another"],
)
def test_it_says_what_was_installed_instead(
    copied: pathlib.Path, wheel: str, folder: str, says: str
) -> None:
    """The wheel's own tags say it. The wheel of another folder, as of a vendored copy's neighbour, says nothing of this one."""
    for name in CHOSEN:
        (copied / f"aioproducer/{name}.py").unlink()
    info = copied / folder / "aioproducer-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: aioproducer\nVersion: 1.2\n")
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\n{wheel}\n")
    path = os.pathsep.join([str(info.parent), str(copied)])
    assert told(TELL, PYTHONPATH=path) == f"plain Python; {says}; {says}"


@pytest.mark.parametrize(
    "changed", ["_produce_request_result.pxd", "produce_request_result.py", "_delivery.pyx"]
)
def test_what_the_others_are_made_of_counts_too(copied: pathlib.Path, changed: str) -> None:
    """They know each other's insides."""
    with (copied / "aioproducer/engine/delivery" / changed).open("a") as source:
        source.write("# newer")
    assert told(TELL, PYTHONPATH=str(copied)).startswith(
        "ImportError: aioproducer.engine.append._fast_path is not made of"
    )


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        pytest.param("engine/append/_fast_path", compiled, marks=needs_compiled, id="fast path"),
        pytest.param(
            "records/_columns", compiled_columns, marks=needs_compiled_columns, id="columns"
        ),
    ],
)
def test_each_extension_knows_its_source(name: str, unit: Any) -> None:
    """The extension has the checksum that setup.py made of its source. Without it a stale extension would stay undetected."""
    source = (PACKAGE / name).with_suffix(".pyx")
    made_of = crc_of_sources(PACKAGE) if source.exists() else unit.SOURCE  # a wheel has none
    assert made_of == unit.SOURCE != 0
