"""Environments with the package, as users make them: wheels of this tree, and virtual environments that have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEPENDENCIES", "ROOT", "environment", "packed", "wheel"]

ROOT: Final = Path(__file__).parents[3]
DEPENDENCIES: Final = ("anyio", "crc32c", "lz4", "zstandard", "pyarrow")
"""What the package imports on an executor that has the package from somewhere else."""
_SECONDS: Final = 900.0
_PLAIN: Final = {"AIOPRODUCER_PURE": "1", "AIOPRODUCER_REQUIRE_EXT": "0"}
_COMPILED: Final = {"AIOPRODUCER_PURE": "0", "AIOPRODUCER_REQUIRE_EXT": "1"}


def wheel(folder: Path, *, is_plain: bool = False) -> Path:
    """Build a wheel of this tree: compiled, or of plain Python."""
    env = _PLAIN if is_plain else _COMPILED
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT), env=env)
    [made] = folder.glob("*.whl")
    return made


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """Make a virtual environment with these packages. Returns its Python."""
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    python = folder / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    install = (
        (str(uv), "pip", "install", "--quiet", "--python", str(python)) if uv.exists() else (str(python), "-m", "pip", "install", "--quiet")
    )
    _run(*install, *packages)
    return python


def packed(python: Path, archive: Path) -> None:
    """Pack an environment that has venv-pack, for `--archives`."""
    _run(str(python), "-m", "venv_pack", "--force", "--output", str(archive), "--prefix", str(python.parents[1]))


def _run(*words: str, env: dict[str, str] | None = None) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, env=inherited | (env or {}), capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words[:6])} ...: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
