"""Copies the two trees that the gate compares, this tree and its base, into folders and builds them there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

__all__ = ["BuildFailed", "NoBase", "NoBuild", "base_of", "build", "copy", "extract"]

MAINS: Final = ("origin/main", "main")
BASE: Final = "tests/tools/gate/base"
"""Names the commit that main itself is compared with. It is updated by hand, as 3 % more at each merge would add up."""
_UNSHALLOW: Final = "in a shallow clone: git fetch --unshallow origin main"
_SAID: Final = 3000  # characters of a compiler's last words


class NoBase(Exception):
    """No base tree was found; the text holds the reason, and the remedy."""


class NoBuild(Exception):
    """This tree has no compiled build here; the text holds the reason."""


class BuildFailed(Exception):
    """The compiled build fails; the text holds the end of the compiler's output."""


def base_of(root: pathlib.Path, named: str | None = None) -> str:
    """Return the commit of the base tree: the merge base with main, or on main itself the commit that the file `BASE` names.

    Uncommitted changes belong to this tree: with them, main is compared with its last commit.

    Raises:
        NoBase: no git, no repository, a clone that is too shallow, or main itself where `BASE` names no commit.
    """
    if named is not None:
        return _commit(root, named)
    head = _git(root, "rev-parse", "HEAD")
    for main in MAINS:
        try:
            base = _git(root, "merge-base", "HEAD", main)
        except NoBase:  # no such branch here
            continue
        break
    else:
        main, base = "", head
    if base == head and not _git(
        root, "status", "--porcelain", "--", "aioproducer", "setup.py", "pyproject.toml"
    ):
        recorded = root / BASE
        if recorded.exists():
            return _commit(root, recorded.read_text(encoding="ascii").strip())
        reason = f"all of it is in {main}" if main else f"there is no main; {_UNSHALLOW}"
        raise NoBase(f"{reason}; --base COMMIT compares with that one")
    return base


def _commit(root: pathlib.Path, name: str) -> str:
    return _git(root, "rev-parse", "--verify", f"{name}^{{commit}}")


def _git(root: pathlib.Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise NoBase("there is no git: apt-get install git") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it failed"]
        raise NoBase(f"git {' '.join(words)}: {said[0]}; {_UNSHALLOW}")
    return done.stdout.strip()


def extract(root: pathlib.Path, commit: str, folder: pathlib.Path) -> None:
    """Write a commit's files into a folder."""
    with tempfile.TemporaryFile() as archive:
        subprocess.run(
            ["git", "archive", "--format=tar", commit], cwd=root, stdout=archive, check=True
        )
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            tar.extractall(folder, filter="data")


def copy(root: pathlib.Path, folder: pathlib.Path) -> None:
    """Copy this tree's files, also changed and new ones. Files that git ignores are left out, and so are built extensions."""
    names = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        if (root / name).is_file():  # git lists deleted files too
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def build(folder: pathlib.Path, flags: str = "") -> list[pathlib.Path]:
    """Build the extensions of a tree beside their sources, as `pip install -e .` does.

    Args:
        folder: the tree.
        flags: for compiler and linker, beside Python's own.

    Raises:
        NoBuild: the tree has no extensions, or there is no compiler.
        BuildFailed: the build fails.
    """
    if not (folder / "setup.py").exists():
        raise NoBuild("no setup.py, so no compiled build")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise NoBuild(f"no C compiler ({compiler}): apt-get install gcc")
    added = (
        {name: f"{os.environ.get(name, '')} {flags}".strip() for name in ("CFLAGS", "LDFLAGS")}
        if flags
        else {}
    )
    command = (sys.executable, "setup.py", "build_ext", "--inplace")
    _run(command, folder, {"AIOPRODUCER_PURE": "", "AIOPRODUCER_REQUIRE_EXT": "1", **added})
    built = [
        path
        for suffix in (".so", ".pyd")
        for path in folder.rglob(f"*{suffix}")
        if "build" not in path.relative_to(folder).parts
    ]
    if not built:
        raise BuildFailed("setup.py built nothing")
    return built


def _run(command: Sequence[str], folder: pathlib.Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise BuildFailed(done.stdout[-_SAID:])
