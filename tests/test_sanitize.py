"""Tests of the helpers of `nox -s sanitize`, which itself begins with mistakes that must be caught."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from tests.tools import sanitize

if TYPE_CHECKING:
    import pathlib


def program(path: pathlib.Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("gcc", "says"),
    [(None, "there is no gcc: apt-get install gcc"), ('echo "${1#-print-file-name=}"', r"there is no libasan\.so: apt-get install gcc")],
)
def test_without_sanitizers(
    gcc: str | None, says: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session names the missing tool, and has not passed. gcc returns unknown names unchanged."""
    if gcc is not None:
        program(tmp_path / "gcc", gcc)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sanitize.Missing, match=says):
        sanitize.libraries()
    assert sanitize.main([]) == sanitize.NOT_CHECKED
    assert "NOT CHECKED: there is no" in capsys.readouterr().out


def test_reports_of_all_processes_count(tmp_path: pathlib.Path) -> None:
    """A report counts beside pytest's status: here pytest passes, and a report exists."""
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib\n"
        "def test_it():\n"
        "    options = dict(one.split('=', 1) for one in os.environ['ASAN_OPTIONS'].split(':'))\n"
        "    pathlib.Path(options['log_path'] + '.7').write_text('a mistake')\n"
    )
    alone = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-o", "asyncio_default_fixture_loop_scope=function")
    assert sanitize.suite(tmp_path, [], alone) == (0, ["a mistake"])


def test_its_own_environment_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Only the tests are run with what is preloaded."""
    before = dict(os.environ)
    made = sanitize.environment(tmp_path, tmp_path, ["/lib/libasan.so", "/lib/libubsan.so"])
    assert made["LD_PRELOAD"] == "/lib/libasan.so /lib/libubsan.so"
    assert dict(os.environ) == before
