"""The gate: what it makes of callgrind's counts, which trees it compares, and that it sees a record that costs more. `nox -s gate`."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.tools.gate import __main__ as gate
from tests.tools.gate import callgrind, trees, verdict

ROOT = pathlib.Path(__file__).parents[1]
HERE = ROOT / "tests/tools/gate"
TOY = """
import json, os, pathlib, sys
import aioproducer
from marks import calibrate, counted, uncounted

def record():
    first = os.environ["GATE_LAYOUT"] == "0"
    for _ in range(aioproducer.STEPS + first * getattr(aioproducer, "COLLISIONS", 0)):
        pass
    uncounted(lambda: [None for _ in range(20_000)])

calibrate()
for name in "one", "other":
    counted(name, int(sys.argv[1]), lambda: [record() for _ in range(int(sys.argv[1]))])
print(json.dumps({"tree": str(pathlib.Path(aioproducer.__file__).parents[1]), "is_compiled": False}))
"""


def part(number: int, totals: int) -> str:
    """Return a part as callgrind writes it."""
    return f"# callgrind format\nversion: 1\npid: 7\npart: {number}\n\nfn=(1) work\n1 {totals}\n\ntotals: {totals}\n"


# Results that are computed from counts


def test_parts_come_in_any_order() -> None:
    """The first is what came before all marks, the next two calibrate."""
    counts = [0, 5000, 7, 41, 42]
    assert callgrind.parts_of(part(number, counts[number - 1]) for number in (5, 3, 1, 2, 4)) == [41, 42]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([], r"parts are \[\]"),
        ([(1, 0), (3, 9)], r"parts are \[1, 3\]"),
        ([(1, 0), (2, 0), (3, 0)], "do not work"),
        ([(1, 9), (2, 5000), (3, 7)], "9 before the first"),
        ([(1, 0), (2, 5000), (3, 5000)], "do not work"),
        ([(1, 0), (2, 7), (3, 5000)], "do not work"),
    ],
)
def test_counts_that_prove_nothing_are_refused(parts: list[tuple[int, int]], says: str) -> None:
    """A callgrind that took the marks otherwise would count the cluster instead of the client."""
    with pytest.raises(callgrind.Crashed, match=says):
        callgrind.parts_of(part(*one) for one in parts)
    with pytest.raises(callgrind.Crashed, match="no part"):
        callgrind.parts_of(["events: Ir\n"])


@pytest.mark.parametrize(
    ("before", "after", "ratio", "is_beyond"),
    [(1000, 1000, 1.0, False), (1000, 1030, 1.03, False), (1000, 1031, 1.031, True), (1000, 500, 0.5, False), (None, 1000, None, False)],
)
def test_a_ratio_and_its_verdict(before: float | None, after: float, ratio: float | None, *, is_beyond: bool) -> None:
    """Up to 3 % more is within the limit; a workload that the base cannot run has no ratio."""
    row = verdict.Row("keyed", "pure", before, after)
    assert row.ratio == (None if ratio is None else pytest.approx(ratio))
    assert row.is_beyond is is_beyond
    assert any("BEYOND" in line for line in verdict.table([row])) is is_beyond


def test_the_smaller_counts_hold() -> None:
    """Of each workload; there are none yet before the first layout."""
    assert verdict.smaller({"one": 3.0, "other": 2.0}, {}) == {"one": 3.0, "other": 2.0}
    assert verdict.smaller({"one": 3.0, "other": 2.0}, {"one": 1.0, "other": 4.0}) == {"one": 1.0, "other": 2.0}


def test_rows_are_those_of_this_tree() -> None:
    """A workload that is new is shown, one that is gone is not."""
    rows = verdict.rows("pure", {"gone": 1.0, "kept": 2.0}, {"kept": 3.0, "new": 4.0})
    assert [(row.workload, row.before, row.after) for row in rows] == [("kept", 2.0, 3.0), ("new", None, 4.0)]


# Which trees


@pytest.fixture
def repository(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """One with two commits on main, and a toy package."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("GIT_DIR", raising=False)
    root = tmp_path / "repository"
    (root / "aioproducer").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch", "main")
    (root / ".gitignore").write_text("*.so\n")
    for steps in (900, 1000):
        commit(root, steps)
    return root


def git(root: pathlib.Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: pathlib.Path, steps: int) -> str:
    """Commit a tree in which a record costs `steps` steps. Returns the commit's hash."""
    (root / "aioproducer/__init__.py").write_text(f"STEPS = {steps}\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", f"{steps} steps")
    return git(root, "rev-parse", "HEAD")


def test_main_is_compared_with_its_last_commit(repository: pathlib.Path) -> None:
    """While something is changed that is not committed; else with nothing, unless a commit is named."""
    with pytest.raises(trees.NoBase, match="all of it is in main; --base COMMIT"):
        trees.base_of(repository)
    assert trees.base_of(repository, "HEAD^") == git(repository, "rev-parse", "HEAD^")
    (repository / "aioproducer/__init__.py").write_text("STEPS = 7\n")
    assert trees.base_of(repository) == git(repository, "rev-parse", "HEAD")


def test_main_itself_is_compared_with_the_commit_that_it_names(repository: pathlib.Path) -> None:
    """In CI there is nothing else to compare a landing with. An unknown commit is named in the error, and passes nothing."""
    first = git(repository, "rev-parse", "HEAD^")
    named = repository / trees.BASE
    named.parent.mkdir(parents=True)
    for name in (first, first[:8]):
        named.write_text(f"{name}\n")
        assert trees.base_of(repository) == first
    named.write_text(f"{'0' * 40}\n")
    with pytest.raises(trees.NoBase, match=r"git fetch --unshallow"):
        trees.base_of(repository)


def test_this_tree_names_one() -> None:
    """The base is named, so that `.ci/run` on main compares something."""
    assert re.fullmatch(r"[0-9a-f]{8,40}\n", (ROOT / trees.BASE).read_text())


def test_a_branch_is_compared_with_where_it_left_main(repository: pathlib.Path) -> None:
    """However far main went since; origin's main comes before one's own, which may be old."""
    left = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "branch")
    first = commit(repository, 1100)
    commit(repository, 1200)
    git(repository, "checkout", "--quiet", "main")
    commit(repository, 1300)
    git(repository, "checkout", "--quiet", "branch")
    assert trees.base_of(repository) == left
    assert trees.base_of(repository, "HEAD^") == first
    git(repository, "update-ref", "refs/remotes/origin/main", first)
    assert trees.base_of(repository) == first


def test_without_a_commit_to_compare_with(repository: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shallow clone, an unpacked sdist or a name that is none: it says what to do, and passes nothing."""
    shallow = tmp_path / "shallow"
    git(repository, "checkout", "--quiet", "-b", "branch")
    commit(repository, 1100)
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", str(shallow))
    with pytest.raises(trees.NoBase, match=r"git fetch --unshallow"):
        trees.base_of(shallow)
    with pytest.raises(trees.NoBase, match="git rev-parse HEAD"):
        trees.base_of(tmp_path)
    with pytest.raises(trees.NoBase, match="nothing-of-that-name"):
        trees.base_of(repository, "nothing-of-that-name")
    if callgrind.found():
        assert gate.gate(shallow, None, HERE / "workloads.py", (1, 1)) == gate.NOT_CHECKED
        assert "NOT CHECKED: nothing to compare with" in capsys.readouterr().out


def test_copies_are_of_the_commit_and_of_the_files_as_they_are(repository: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Changed and new files come along, deleted ones and what git ignores do not: nothing that was built before."""
    (repository / "aioproducer/__init__.py").write_text("STEPS = 7\n")
    (repository / "aioproducer/new.py").write_text("")
    (repository / "aioproducer/_fast_path.so").write_text("")
    trees.copy(repository, tmp_path / "after")
    trees.extract(repository, trees.base_of(repository), tmp_path / "before")
    after, before = ({path.name: path.read_text() for path in (tmp_path / tree / "aioproducer").iterdir()} for tree in ("after", "before"))
    assert after == {"__init__.py": "STEPS = 7\n", "new.py": ""}
    assert before == {"__init__.py": "STEPS = 1000\n"}


def test_what_cannot_be_built(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No extensions and no compiler are said; a build that breaks is an error with its last words."""
    with pytest.raises(trees.NoBuild, match=r"no setup\.py"):
        trees.build(tmp_path)
    (tmp_path / "setup.py").write_text("raise SystemExit('this does not build')\n")
    with pytest.raises(trees.BuildFailed, match="this does not build"):
        trees.build(tmp_path)
    (tmp_path / "setup.py").write_text("")
    with pytest.raises(trees.BuildFailed, match="built nothing"):
        trees.build(tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(trees.NoBuild, match=r"no C compiler \(no-such-compiler\): apt-get install gcc"):
        trees.build(tmp_path)


# All of it


@pytest.mark.parametrize(("steps", "status", "says"), [(1100, gate.BEYOND, "BEYOND 1.03"), (1010, gate.PASSED, "2 of 2 within 1.03")])
def test_a_record_that_costs_more_is_seen(
    repository: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], *, steps: int, status: int, says: str
) -> None:
    """10 % more is beyond, 1 % is not; what is done by the cluster, here most of all, does not count. Without valgrind it says so."""
    program = tmp_path / "toy.py"
    program.write_text(TOY)
    (repository / "aioproducer/__init__.py").write_text(f"STEPS = {steps}\n")
    if callgrind.found() is None:
        status, says = gate.NOT_CHECKED, "NOT CHECKED: valgrind is missing"
    assert gate.gate(repository, None, program, [10]) == status
    assert says in capsys.readouterr().out


def test_what_another_layout_does_not_show_is_no_cost(
    repository: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build beyond the limit is counted in other layouts of memory, and the smallest counts hold: of the base, too."""
    program = tmp_path / "toy.py"
    program.write_text(TOY)
    (repository / "aioproducer/__init__.py").write_text("STEPS = 1000\nCOLLISIONS = 100\n")
    wanted = gate.PASSED if callgrind.found() else gate.NOT_CHECKED
    assert gate.gate(repository, None, program, [10]) == wanted
    (repository / "aioproducer/__init__.py").write_text("STEPS = 1100\nCOLLISIONS = 100\n")
    assert gate.gate(repository, None, program, [10]) == (gate.BEYOND if callgrind.found() else gate.NOT_CHECKED)
    assert ("BEYOND 1.03" in capsys.readouterr().out) is bool(callgrind.found())


def test_without_valgrind(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate says how to install valgrind, and has a status of its own for that."""
    monkeypatch.setenv("PATH", "")
    assert gate.main([]) == gate.NOT_CHECKED
    assert capsys.readouterr().out == "NOT CHECKED: valgrind is missing: apt-get install valgrind\n"


def test_the_workloads_run_and_tell_what_they_ran() -> None:
    """Without valgrind they are an ordinary program; that all records are in the log it asserts itself."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]), **gate.BUILDS["pure"]}
    command = [sys.executable, "-P", str(HERE / "workloads.py"), "1000", "4"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    *marks, ran = map(json.loads, done.stdout.splitlines())
    names = [
        "keyed",
        "keyless",
        "serializer",
        "headers",
        "single",
        "tick",
        "gather",
        "stream",
        "herd",
        "many",
        "many, keyed",
        "columns",
        "columns, keyed",
    ]
    assert marks[callgrind.CALIBRATING :] == [[name, 4 if name in {"single", "tick"} else 1000] for name in names]
    assert ran == {"tree": str(ROOT), "is_compiled": False}
