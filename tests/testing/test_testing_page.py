"""Tests that each snippet of docs/topics/testing.md runs unchanged, its assertions included."""

from __future__ import annotations

import asyncio
import pathlib
import re
import textwrap
from typing import Any

import pytest
from without_java import skipped_without_java

from aioproducer import jars

pytest_plugins = ["pytester"]

PAGE = (pathlib.Path(__file__).parents[2] / "docs/topics/testing.md").read_text()
SNIPPETS = re.findall(r"^## ([^\n]+)\n|^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def snippets() -> list[Any]:
    """Each with the heading above it; those with a real Kafka are integration tests."""
    found, heading = [], ""
    for title, code in SNIPPETS:
        heading = title or heading
        if code and "def test_" not in code:
            marks = [pytest.mark.integration] if re.search(r"Kafka(Server|Cluster)\(", code) else []
            found.append(pytest.param(code, id=f"{heading}-{len(found)}", marks=marks))
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("code", snippets())
async def test_a_snippet_runs(code: str) -> None:
    if re.search(r"Kafka(Server|Cluster)\(", code):
        with skipped_without_java():
            jars.java()
    names: dict[str, Any] = {}
    exec(f"async def shown():\n{textwrap.indent(code, '    ')}", names)  # our own page
    async with asyncio.timeout(120):
        assert await names["shown"]() is None


def test_the_fixtures_are_used_as_shown(pytester: pytest.Pytester) -> None:
    """A project with these tests passes them."""
    [code] = [code for _, code in SNIPPETS if "def test_" in code]
    pytester.makepyfile(f"import pytest\nfrom aioproducer import Producer\n\n{code}")
    result = pytester.runpytest_subprocess(
        "-p", "no:randomly", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"
    )
    result.assert_outcomes(passed=2)


def test_every_kind_is_there() -> None:
    """None of them is left out by a page that was rewritten."""
    shown = "".join(code for _, code in SNIPPETS)
    names = ("FakeCluster(", "RecordingProducer(", "KafkaServer(", "KafkaCluster(", "FaultProxy(", "fake_cluster", "recording_producer")
    assert [name for name in names if name not in shown] == []
