"""Fixtures for tests of real nodes: folders of their own, and a small script as `java` that can fail."""

from __future__ import annotations

import sys
import textwrap
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from loops import KIND
from without_java import skipped_without_java

from aioproducer.testing import jars, kafka_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nodes of this test put their folders."""
    folder = tmp_path / "nodes"
    folder.mkdir()
    monkeypatch.setattr(kafka_server.tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def needs_java() -> None:
    with skipped_without_java():
        jars.java()


@pytest.fixture
def fake_java(
    tmp_path: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Install a `java` that runs a Python program. The program sees `main`, the Java class to run; the jars exist and are empty."""
    (tmp_path / "cache" / "jars" / "kafka-4.3.1").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("AIOPRODUCER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    def install(program: str) -> None:
        script = tmp_path / "bin" / "java"
        head = """\
            import os, signal, sys
            if sys.argv[1:] == ["-version"]: sys.exit('openjdk version "17.0.1"')
            main = sys.argv[sys.argv.index("-cp") + 2]
            """
        script.write_text(
            f"#!{sys.executable} -IS\n{textwrap.dedent(head)}{textwrap.dedent(program)}"
        )
        script.chmod(0o755)

    return install


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def nodes_of(folder: Path) -> list[psutil.Process]:
    """Processes that run in a folder below."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd().startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def left_alive(folder: Path) -> list[psutil.Process]:
    """Processes that run in a folder below. uvloop kills those of a start that is cancelled, and does not wait for them: they may end yet."""
    last = time.monotonic() + (10 if KIND == "uvloop" else 0)
    while (
        left := nodes_of(folder)
    ) and time.monotonic() < last:  # no wait for a child: its end is the loop's to be told
        pass
    return left
