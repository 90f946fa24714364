"""Writes the table of wheels in `docs/topics/platforms.md` from what cibuildwheel says of pyproject.toml.

python docs/topics/make_platforms.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path(__file__).with_name("platforms.md")
BEGIN, END = (
    "<!-- written by: python docs/topics/make_platforms.py -->",
    "<!-- end of the wheels -->",
)


class Platform(NamedTuple):
    """Holds a system and a machine for which release.yml makes wheels.

    Attributes:
        system: as cibuildwheel's `--platform`.
        machine: as cibuildwheel's `--archs`.
        runner: the machine of GitHub Actions on which release.yml makes and tests the wheels.
    """

    system: str
    machine: str
    runner: str


PLATFORMS: Final = (
    Platform("linux", "x86_64", "ubuntu-24.04"),
    Platform("linux", "aarch64", "ubuntu-24.04-arm"),
    Platform("macos", "x86_64", "macos-15-intel"),
    Platform("macos", "arm64", "macos-15"),
    Platform("windows", "AMD64", "windows-2025"),
)


def identifiers(platform: Platform) -> list[str]:
    """Return the wheels that cibuildwheel makes on a platform, in its own order and words."""
    words = (
        "--print-build-identifiers",
        "--platform",
        platform.system,
        "--archs",
        platform.machine,
        str(ROOT),
    )
    done = subprocess.run(
        [sys.executable, "-m", "cibuildwheel", *words], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def row(platform: Platform) -> str:
    """Return the line of a platform in the table."""
    wheels = ", ".join(f"`{name}`" for name in identifiers(platform))
    return f"| {platform.system} | {platform.machine} | {platform.runner} | {wheels} |"


def table() -> str:
    """Return the table of wheels as Markdown."""
    return "\n".join(
        [
            "| system | machine | made and tested on | wheels |",
            "|---|---|---|---|",
            *map(row, PLATFORMS),
        ]
    )


def page() -> str:
    """Return the page with the table as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
