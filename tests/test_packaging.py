"""Tests of setup.py and of the tables of pyproject.toml. `nox -s build installed` run them.

They check the parts that are built, the machines, and the result where nothing can be built.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tomllib

import pytest

from aioproducer import build

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOME = PROJECT["tool"]["aioproducer"]["home"]
NO_COMPILER = {"CC": shutil.which("false") or "/bin/false"}
PURE = {"AIOPRODUCER_PURE": "1"}
REQUIRED = {"AIOPRODUCER_REQUIRE_EXT": "1"}


def run(*words: str, cwd: pathlib.Path, **environment: str) -> tuple[bool, str]:
    """Run a Python program. Returns True if it succeeded, and its output."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("AIOPRODUCER_")
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode == 0, done.stdout


def test_the_pure_wheel_needs_no_cython(tmp_path: pathlib.Path) -> None:
    """As in an environment in which nothing but setuptools is: a module of that name that cannot be imported stands before it."""
    copy_setup(tmp_path)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/Cython.py").write_text("raise ImportError")
    code = "import setuptools.build_meta as b; print(b.build_wheel('.'))"
    has_worked, output = run("-c", code, cwd=tmp_path, **PURE, PYTHONPATH=str(tmp_path / "hidden"))
    assert has_worked, output
    assert output.splitlines()[-1].endswith("-py3-none-any.whl")


def copy_setup(folder: pathlib.Path) -> None:
    """setup.py, and what it reads: which modules are compiled, the version, the home; with an own README."""
    (folder / "aioproducer/engine").mkdir(parents=True)
    for name in ("setup.py", "aioproducer/build.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "pyproject.toml").write_text(f'[tool.aioproducer]\nhome = "{HOME}"\n')
    (folder / "README.md").write_text("# a test\n")


def test_who_asks_for_a_name_builds_nothing(tmp_path: pathlib.Path) -> None:
    """setup.py deletes nothing: pip asks it for names and versions of a tree in which a developer works."""
    copy_setup(tmp_path)
    (tmp_path / "aioproducer/engine/_one.pyx").write_text("one = 1")
    compiled = tmp_path / f"aioproducer/engine/_one{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiled.write_bytes(b"")
    assert run("setup.py", "--name", cwd=tmp_path)[0]
    assert run("setup.py", "egg_info", cwd=tmp_path)[0]
    assert compiled.exists()
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize("kind", ["editable", "wheel"])
def test_what_is_generated_stands_aside(tmp_path: pathlib.Path, kind: str) -> None:
    """An editable install prepares the command anew: even so the C files are in `build` or gone, not among the sources."""
    copy_setup(tmp_path)
    (tmp_path / "aioproducer/engine/_one.pyx").write_text("one = 1")
    has_worked, output = run(
        "-c",
        f"import setuptools.build_meta as b; b.build_{kind}('out')",
        cwd=tmp_path,
        **NO_COMPILER,
    )
    assert has_worked, output
    assert "Cythonizing aioproducer/engine/_one.pyx" in output
    there = {path.name for path in (tmp_path / "aioproducer").rglob("*") if path.is_file()}
    assert there == {"_one.pyx", "build.py"}


@pytest.mark.parametrize("is_required", [False, True])
def test_no_extension_is_built_for_a_python_that_was_not_tested(
    tmp_path: pathlib.Path, *, is_required: bool
) -> None:
    """Such a Python gets the wheel for any Python. A developer who tries the compiled build there adds it to the list."""
    copy_setup(tmp_path)
    listed = tmp_path / "aioproducer/build.py"
    text = listed.read_text()
    listed.write_text(
        text.replace(f"PYTHONS: Final = {build.PYTHONS}", "PYTHONS: Final = ((3, 9), (3, 10))")
    )
    assert listed.read_text() != text
    (tmp_path / "aioproducer/engine/_one.pyx").write_text("one = (")
    has_worked, output = run(
        "setup.py", "build_ext", "--inplace", cwd=tmp_path, **(REQUIRED if is_required else {})
    )
    assert has_worked != is_required, output
    reason = "the compiled build is for the Pythons that it was tested on (3.9, 3.10), and this is"
    assert (
        f"AIOPRODUCER_REQUIRE_EXT is set, and no extension is built: {reason}" in output
    ) == is_required


@pytest.mark.parametrize(
    ("environment", "source", "works", "says"),
    [
        (NO_COMPILER, "one = 1", True, NO_COMPILER["CC"]),
        (NO_COMPILER | REQUIRED, "one = 1", False, NO_COMPILER["CC"]),
        (PURE, "one = 1", True, ""),
        (
            PURE | REQUIRED,
            "one = 1",
            False,
            "AIOPRODUCER_REQUIRE_EXT is set, and no extension is built: AIOPRODUCER_PURE is set",
        ),
        (NO_COMPILER, "one = (", False, "Error compiling Cython file"),
    ],
    ids=["no-compiler", "no-compiler-required", "pure", "pure-required", "our-mistake"],
)
def test_where_nothing_can_be_compiled(
    tmp_path: pathlib.Path, environment: dict[str, str], source: str, *, works: bool, says: str
) -> None:
    """The lack of a compiler is no obstacle, unless it is one; a mistake in the source always is."""
    copy_setup(tmp_path)
    (tmp_path / "aioproducer/engine/_one.pyx").write_text(source)
    has_worked, output = run("setup.py", "build_ext", "--inplace", cwd=tmp_path, **environment)
    assert has_worked == works, output
    assert says in output
    there = {path.name for path in (tmp_path / "aioproducer").rglob("*") if path.is_file()}
    assert there == {"_one.pyx", "build.py"}
