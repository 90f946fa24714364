"""Tests that each snippet of docs/topics/testing.md runs unchanged, its assertions included."""

from __future__ import annotations

import asyncio
import pathlib
import re
import textwrap
import warnings
from typing import Any

import pytest
from without_java import skipped_without_java

from aioproducer.testing import FakeCluster, jars

with warnings.catch_warnings():
    # of its own import
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

pytest_plugins = ["pytester"]

PAGE = (pathlib.Path(__file__).parents[2] / "docs/topics/testing.md").read_text()
SNIPPETS = re.findall(r"^## ([^\n]+)\n|^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def snippets() -> list[Any]:
    """Each with the heading above it; those with a real Kafka are integration tests."""
    found, heading = [], ""
    for title, code in SNIPPETS:
        heading = title or heading
        if code and "def test_" not in code:
            marks = [pytest.mark.integration] if "KafkaServer(" in code else []
            found.append(pytest.param(code, id=f"{heading}-{len(found)}", marks=marks))
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("code", snippets())
async def test_a_snippet_runs(code: str) -> None:
    if "KafkaServer(" in code:
        with skipped_without_java():
            jars.java()
    names: dict[str, Any] = {}
    exec(f"async def shown():\n{textwrap.indent(code, '    ')}", names)  # our own page
    async with asyncio.timeout(120):
        assert await names["shown"]() is None


@pytest.mark.asyncio
async def test_a_client_that_blocks_is_called_in_a_thread() -> None:
    """The lines about kafka-python's admin client run unchanged. They are indented there, as type checkers know nothing of that client."""
    code = re.search(r"### Clients that block\n.*?\n\n((?:    [^\n]+\n)+)", PAGE, re.DOTALL)
    assert code is not None
    async with FakeCluster() as cluster:
        names: dict[str, Any] = {
            "asyncio": asyncio,
            "cluster": cluster,
            "KafkaAdminClient": KafkaAdminClient,
            "NewTopic": NewTopic,
        }
        exec(f"async def shown():\n{code[1]}    return admin", names)  # our own page
        async with asyncio.timeout(60):
            admin = await names["shown"]()
        assert cluster.end_offsets("orders") == {0: 0, 1: 0, 2: 0}
        await asyncio.to_thread(admin.close)


def test_the_fixtures_are_used_as_shown(pytester: pytest.Pytester) -> None:
    """A project with these tests passes them."""
    [code] = [code for _, code in SNIPPETS if "def test_" in code]
    pytester.makepyfile(f"import pytest\nfrom aioproducer import Producer\n\n{code}")
    result = pytester.runpytest_subprocess(
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    )
    result.assert_outcomes(passed=2)


def test_the_fixture_of_another_process_is_used_as_shown(pytester: pytest.Pytester) -> None:
    """A test that blocks its loop writes to that cluster, and the process ends in order."""
    [code] = [code for _, code in SNIPPETS if "subprocess.Popen(" in code]
    test = """
import asyncio

from aioproducer import Producer


def test_a_record_is_sent(bootstrap_servers: str) -> None:
    async def send() -> int:
        async with Producer(bootstrap_servers=bootstrap_servers) as producer:
            return (await producer.send_and_wait("orders", b"1")).offset

    assert asyncio.run(send()) == 0
"""
    pytester.makepyfile(code + test)
    options = (
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    )
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)
