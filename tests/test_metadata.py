"""Tests of the metadata that setup.py and pyproject.toml make: what an index shows of the package, and what pip installs with it."""

from __future__ import annotations

import email
import email.message
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import tomllib

import pytest
from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).parents[1]
HOME = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["aioproducer"]["home"]
VERSION = runpy.run_path(str(ROOT / "aioproducer/build.py"))["VERSION"]
MADE_OF = (
    "LICENSE",
    "NOTICE",
    "README.md",
    "aioproducer/__init__.py",
    "aioproducer/build.py",
    "pyproject.toml",
    "setup.py",
)


def made(folder: pathlib.Path, **environment: str) -> email.message.Message:
    """Return the METADATA that setuptools makes of these files alone."""
    (folder / "aioproducer").mkdir(parents=True)
    for name in MADE_OF:
        shutil.copy(ROOT / name, folder / name)
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("AIOPRODUCER_")
    }
    code = "import setuptools.build_meta as b; b.prepare_metadata_for_build_wheel('.')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("*.dist-info/METADATA")
    return email.message_from_string(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> email.message.Message:
    """The metadata of the wheel that is compiled."""
    return made(tmp_path_factory.mktemp("metadata") / "tree")


def targets(page: str) -> list[str]:
    """Return what the links and pictures of a page in Markdown lead to, as it is rendered."""
    inline = (
        child
        for token in MarkdownIt("commonmark").enable("table").parse(page)
        for child in token.children or ()
    )
    return [
        str(child.attrs.get("href") or child.attrs["src"])
        for child in inline
        if {"href", "src"} & child.attrs.keys()
    ]


def test_no_link_of_the_long_description_is_relative(metadata: email.message.Message) -> None:
    """An index shows it beside none of the project's files. All links of the README are there, at the release's tag."""
    shown = targets(str(metadata.get_payload()))
    readme = targets((ROOT / "README.md").read_text())
    assert len(readme) > 20
    assert shown == [
        target if "://" in target else f"{HOME}/blob/v{VERSION}/{target}" for target in readme
    ]
    assert [target for target in shown if not target.startswith("https://")] == []
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_each_link_of_the_package_is_made_of_the_one_home(metadata: email.message.Message) -> None:
    """A move of the project changes one line of pyproject.toml."""
    urls = dict(value.split(", ") for value in metadata.get_all("Project-URL"))
    assert list(urls) == ["Source", "Documentation", "Changelog", "Issues"]
    assert urls["Source"] == HOME
    assert all(url.startswith(HOME) for url in urls.values())
    assert [
        path for path in MADE_OF if path != "pyproject.toml" and HOME in (ROOT / path).read_text()
    ] == []
    for kind in ("Documentation", "Changelog"):
        path, _, anchor = urls[kind].removeprefix(f"{HOME}/blob/v{VERSION}/").partition("#")
        assert (ROOT / path).exists()
        assert not anchor or f"## {anchor.replace('-', ' ')}\n" in (ROOT / path).read_text().lower()


def test_each_wheel_has_the_same_metadata(
    metadata: email.message.Message, tmp_path: pathlib.Path
) -> None:
    """The wheel for any Python has the compiled ones' dependencies, so a lock file has one list for all of them."""
    assert made(tmp_path / "tree", AIOPRODUCER_PURE="1").as_string() == metadata.as_string()
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert [line for line in required if ";" in line] == []
    assert {line.partition(">")[0] for line in required} == {"anyio", "crc32c", "lz4", "zstandard"}
