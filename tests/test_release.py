"""Tests of what a release needs beside the code: its workflow, the issue forms, CITATION.cff. `nox -s workflows` asks zizmor and actionlint."""

from __future__ import annotations

import pathlib
import re
import runpy
import shutil
from typing import Any

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[1]
WORKFLOW = ROOT / ".github/workflows/release.yml"
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
VERSION = runpy.run_path(str(ROOT / "aioproducer/version.py"))["VERSION"]
CHECK = runpy.run_path(str(ROOT / ".github/check_release.py"))


@pytest.fixture(scope="module")
def release() -> dict[Any, Any]:
    """The workflow. YAML's `on` is a boolean."""
    return yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))


def uses(job: dict[str, Any]) -> list[str]:
    """Return the actions of a job, without their versions."""
    return [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]


def test_wheels_are_made_on_the_machines_of_the_page(release: dict[Any, Any]) -> None:
    """docs/topics/platforms.md says which machine makes which wheel."""
    platforms = runpy.run_path(str(ROOT / "docs/topics/make_platforms.py"))["PLATFORMS"]
    assert release["jobs"]["wheels"]["strategy"]["matrix"]["runner"] == [platform.runner for platform in platforms]


def test_only_the_job_that_publishes_may_do_so(release: dict[Any, Any]) -> None:
    """It runs for a tag, after all others, in PyPI's environment, without a token; the others may only read the tree."""
    jobs = dict(release["jobs"])
    publish = jobs.pop("publish")
    assert release["permissions"] == {}
    assert [job["permissions"] for job in jobs.values()] == [{"contents": "read"}] * len(jobs)
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}
    assert publish["environment"]["name"] == "pypi"
    assert set(publish["needs"]) == set(jobs)
    assert publish["if"] == "github.event_name == 'push' && github.ref_type == 'tag'"
    assert "secrets." not in WORKFLOW.read_text(encoding="utf-8")


def test_what_is_published_is_attested_with_its_parts(release: dict[Any, Any]) -> None:
    """Origin and bill of materials of each file, before it is published; the checkout leaves no credentials for later steps."""
    publish = release["jobs"]["publish"]
    assert uses(publish)[-3:] == ["actions/attest", "actions/attest", "pypa/gh-action-pypi-publish"]
    origin, parts, published = [step["with"] for step in publish["steps"]][-3:]
    assert origin == {"subject-path": "dist/*"}
    assert parts == {"subject-path": "dist/*", "sbom-path": "aioproducer.cdx.json"}
    assert published == {"attestations": True}
    checkouts = [step for job in release["jobs"].values() for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_actions_and_tools_are_pinned() -> None:
    """An action by its commit, with the tag beside it, and one commit for all its uses; what pip installs by its version."""
    text = WORKFLOW.read_text(encoding="utf-8")
    named = re.findall(r"uses: (.+)", text)
    pinned = re.findall(r"uses: ([\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)", text)
    assert named == pinned
    assert len({name.partition("@")[0] for name in pinned}) == len(set(pinned))
    packages = [word for line in re.findall(r"pip install (.+)", text) for word in line.split() if "dist/" not in word]
    assert [word for word in packages if not re.fullmatch(r"[\w-]+==[\d.]+", word)] == []


def released(folder: pathlib.Path, home: str, section: str) -> pathlib.Path:
    """Make a tree of what is checked before a release."""
    for name in ("aioproducer/version.py", "CITATION.cff"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "docs").mkdir()
    (folder / "docs/changelog.md").write_text(f"# Changelog\n\n## {section}\n")
    (folder / "pyproject.toml").write_text(f'[tool.aioproducer]\nhome = "{home}"\n')
    return folder


@pytest.mark.parametrize(
    ("tag", "home", "section", "says"),
    [
        (f"v{VERSION}", "https://code.test/us/aioproducer", f"[{VERSION}] - 2027-01-01", ""),
        ("v9.9.9", "https://code.test/us/aioproducer", f"[{VERSION}]", f"the tag v9.9.9 is not v{VERSION}"),
        (f"v{VERSION}", "https://example.org/aioproducer", f"[{VERSION}]", "is a placeholder"),
        (f"v{VERSION}", "https://code.test/us/aioproducer", "[Unreleased]", f"has no section [{VERSION}]"),
    ],
    ids=["ready", "tag", "home", "changelog"],
)
def test_what_stands_against_a_release(tmp_path: pathlib.Path, tag: str, home: str, section: str, says: str) -> None:
    """Nothing is published from a tree without a home, a section of the changelog, or the tag of its version."""
    found = list(CHECK["obstacles"](tag, released(tmp_path, home, section)))
    assert len(found) == bool(says)
    assert says in "".join(found)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_the_issue_forms_are_whole(path: pathlib.Path) -> None:
    """Each has what GitHub asks of a form, and asks for `build_info()`; a bug report cannot do without."""
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form.keys() == {"name", "description", "labels", "body"}
    asked = [element for element in form["body"] if element["type"] != "markdown"]
    assert {element["type"] for element in asked} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert len({element["id"] for element in asked}) == len(asked)
    assert all(element["attributes"]["label"] for element in asked)
    [build] = [element for element in asked if "aioproducer.build_info()" in element["attributes"]["description"]]
    assert build.get("validations", {}).get("required", False) == (path.stem == "bug")
    assert any(element.get("validations", {}).get("required") for element in asked)


def test_the_citation_is_of_this_version() -> None:
    """With the keys that CFF 1.2 requires, and the package's version and licence."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited.keys() >= {"authors", "cff-version", "message", "title"}
    assert (cited["version"], cited["license"], cited["title"]) == (VERSION, "Apache-2.0", "aioproducer")


def test_the_policy_of_security_says_what_is_not_there_yet() -> None:
    """While the home is a placeholder, SECURITY.md says that there is none."""
    is_placeholder = "example.org" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert ("no public home yet" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")) == is_placeholder
