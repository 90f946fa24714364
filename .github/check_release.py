"""Checks that this tree may be published under a tag: `python .github/check_release.py v1.2.3`. release.yml runs it with nothing installed."""

from __future__ import annotations

import pathlib
import runpy
import sys
import tomllib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = pathlib.Path(__file__).parents[1]


def obstacles(tag: str, root: pathlib.Path = ROOT) -> Iterator[str]:
    """Yield what stands against a release of `root` under `tag`, in words."""
    version = runpy.run_path(str(root / "aioproducer/build.py"))["VERSION"]
    home = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "aioproducer"
    ]["home"]
    if tag != f"v{version}":
        yield f"the tag {tag} is not v{version}, the version in aioproducer/build.py"
    if "://example.org/" in home:
        yield f"{home} is a placeholder: give the project's home in pyproject.toml"
    if f"\n## [{version}]" not in (root / "docs/changelog.md").read_text(encoding="utf-8"):
        yield f"docs/changelog.md has no section [{version}]"
    if f"\nversion: {version}\n" not in (root / "CITATION.cff").read_text(encoding="utf-8"):
        yield f"CITATION.cff has another version than {version}"


if __name__ == "__main__":
    found = list(obstacles(sys.argv[1]))
    sys.exit("\n".join(found))
