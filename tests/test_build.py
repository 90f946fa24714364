"""Tests of `build.extension`: a compiled module, or the reason why it is not used. A Python module replaces it here."""

from __future__ import annotations

import compileall
import os
import pathlib
import shutil
import subprocess
import sys
import zlib

import pytest

import aioproducer
from aioproducer import build
from aioproducer.build import Extension, extension

NAME = "of_a_test._unit"
SOURCE = b"# the newest"
NEWEST, OLDER = zlib.crc32(SOURCE), zlib.crc32(b"# an older one")
STALE = "of_a_test._unit is not made of the _unit.pyx beside it"


@pytest.fixture
def package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """One with a source and nothing that was made of it, where nothing is chosen."""
    folder = tmp_path / "of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "_unit.pyx").write_bytes(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("of_a_test", NAME):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("AIOPRODUCER_PURE", "AIOPRODUCER_REQUIRE_EXT"):
        monkeypatch.delenv(name, raising=False)
    return folder


def found() -> Extension:
    """Return what the first one in a process who asks is told."""
    return extension.__wrapped__(NAME)


@pytest.mark.parametrize("nothing", [None, "", "0"])
def test_what_is_there_is_used(
    package: pathlib.Path, monkeypatch: pytest.MonkeyPatch, nothing: str | None
) -> None:
    """A variable that is empty or 0 is as if it were not set."""
    (package / "_unit.py").write_text(f"SOURCE = {NEWEST}; here = 1")
    for name in ("AIOPRODUCER_PURE", "AIOPRODUCER_REQUIRE_EXT") if nothing is not None else ():
        monkeypatch.setenv(name, nothing or "")
    module, reason = found()
    assert (module.here, reason) == (1, "")


def test_whoever_wants_plain_python_lacks_nothing(
    package: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AIOPRODUCER_PURE decides, even if the compiled module is stale, broken or required as well."""
    (package / "_unit.py").write_text("raise SystemError")
    monkeypatch.setenv("AIOPRODUCER_PURE", "1")
    monkeypatch.setenv("AIOPRODUCER_REQUIRE_EXT", "1")
    assert found() == (None, "AIOPRODUCER_PURE is set")


@pytest.mark.parametrize(
    ("unit", "is_locked", "reason"),
    [
        (None, True, "the compiled build is not installed"),
        ("import nowhere", True, "the compiled build cannot be loaded (No module named 'nowhere')"),
        (
            "raise ImportError('not this machine')",
            True,
            "the compiled build cannot be loaded (not this machine)",
        ),
        ("raise SystemError('no slot')", True, "the compiled build cannot be loaded (no slot)"),
        (
            "import os; os.nothing_of_that_name",
            True,
            "the compiled build cannot be loaded (module 'os' has no attribute 'nothing_of_that_name')",
        ),
        (
            f"SOURCE = {NEWEST}",
            False,
            "this Python has no global interpreter lock, which the compiled build needs",
        ),
    ],
)
def test_what_cannot_be_used_is_passed_over_unless_it_is_required(
    package: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    unit: str | None,
    *,
    is_locked: bool,
    reason: str,
) -> None:
    """`extension` says why a module is not used, and raises it where the module is required."""
    if unit is not None:
        (package / "_unit.py").write_text(unit)
    monkeypatch.setattr(build, "_is_free_threaded", lambda: not is_locked)
    assert found() == (None, reason)
    monkeypatch.setenv("AIOPRODUCER_REQUIRE_EXT", "1")
    with pytest.raises(ImportError) as raised:
        found()
    assert (
        str(raised.value) == f"AIOPRODUCER_REQUIRE_EXT is set, and {NAME} cannot be used: {reason}"
    )


def test_a_python_that_was_not_tested_runs_plain_python(
    package: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled module of a Python that is not in the list is passed over, even one that could be loaded."""
    (package / "_unit.py").write_text(f"SOURCE = {NEWEST}")
    monkeypatch.setattr(build, "PYTHONS", ((3, 9), (3, 10)))
    this = "{}.{}".format(*sys.version_info)
    reason = f"the compiled build is for the Pythons that it was tested on (3.9, 3.10), and this is {this}"
    assert found() == (None, reason)
    monkeypatch.setattr(build, "PYTHONS", (sys.version_info[:2],))
    assert not found().reason


def test_the_compiled_build_is_for_cpython(
    package: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another implementation may load modules of C, but their objects are CPython's."""
    (package / "_unit.py").write_text(f"SOURCE = {NEWEST}")
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    assert found() == (None, "the compiled build is for CPython")


@pytest.mark.parametrize("made_of", [f"SOURCE = {OLDER}", "SOURCE = None", ""])
@pytest.mark.parametrize("is_required", ["", "1"])
def test_what_is_stale_is_an_error(
    package: pathlib.Path, monkeypatch: pytest.MonkeyPatch, made_of: str, is_required: str
) -> None:
    """A compiled module that is older than its source is an error, as a test would run the old code. A second import fails too."""
    (package / "_unit.py").write_text(made_of)
    monkeypatch.setenv("AIOPRODUCER_REQUIRE_EXT", is_required)
    for _ in range(2):
        with pytest.raises(ImportError, match=STALE):
            found()
    (package / "_unit.pyx").unlink()  # as in a wheel
    assert not found().reason


def test_what_setup_py_did_not_make_knows_no_source(package: pathlib.Path) -> None:
    """A module that setup.py did not compile, as by a user's own build, is loaded without a check of its source."""
    (package / "_unit.py").write_text("SOURCE = 0")
    assert not found().reason


ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = pathlib.Path(aioproducer.__file__).parent  # installed, it is not in the tree
SENDS = """
import asyncio, sys
import aioproducer
from aioproducer.testing import FakeCluster
async def main():
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("t")
        async with aioproducer.Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("t", b"v")
    info = aioproducer.build_info()
    print(info.reason or info.build, flush=True)
asyncio.run(asyncio.wait_for(main(), 60))
"""


def said(source: str, folder: pathlib.Path, **environment: str) -> list[str]:
    """Return the output of a program that imports the package from `folder`."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("AIOPRODUCER_")
    }
    words = [sys.executable, "-c", source]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**clean, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_sources_are_not_needed(tmp_path: pathlib.Path) -> None:
    """Installed as .pyc files alone, the package is what it was, in the build that is asked for."""
    package = tmp_path / "aioproducer"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.pyx"))
    assert compileall.compile_dir(package, quiet=1, legacy=True)
    for source in package.rglob("*.py"):
        source.unlink()
    if not aioproducer.build_info().reason:
        assert said(SENDS, tmp_path) == ["compiled"]
    assert said(SENDS, tmp_path, AIOPRODUCER_PURE="1") == ["AIOPRODUCER_PURE is set"]


def test_subinterpreters_run_plain_python() -> None:
    """Say under mod_wsgi: what Cython makes is for one interpreter of a process, and says so. The first one is left as it was."""
    source = f"""
import sys
try:
    import _interpreters as interpreters
    how = {{"config": "legacy"}}
except ImportError:
    import _xxsubinterpreters as interpreters
    how = {{"isolated": False}}  # as mod_wsgi makes them: modules of C may be shared
SENDS = {SENDS!r}
exec(SENDS)
for _ in range(2):
    failed = interpreters.run_string(interpreters.create(**how), f"import sys; sys.path[:] = {{sys.path!r}}; " + SENDS.strip())
    assert failed is None, failed
exec(SENDS)
"""
    main, *others, again = said(source, ROOT)
    assert main == again
    reason = "the compiled build cannot be loaded (Interpreter change detected - this module can only be loaded into one interpreter per process.)"
    assert others == [reason if main == "compiled" else main] * 2
