"""Tests of the modules that an import of `Producer` loads, and of the parts of an installation. `python -m tests.tools.weight` measures both."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from aioproducer import compiled_modules

PACKAGE = pathlib.Path(__file__).parents[1] / "aioproducer"
# What only some producers need is imported for them: each of these takes milliseconds.
FOR_SOME = (
    "anyio",
    "cramjam",
    "crc32c",
    "difflib",
    "email",
    "hashlib",
    "importlib.metadata",
    "json",
    "lz4",
    "numbers",
    "pyarrow",
    "random",
    "typing_extensions",
    "zstandard",
    "aioproducer.core.transactions",
    "aioproducer.engine.circuit_breaker",
    "aioproducer.engine.delivery.produce_request_result",
    "aioproducer.environment_options",
    "aioproducer.jaas",
    "aioproducer.net.security",
    "aioproducer.option_names",
    "aioproducer.records.message_set",
    "aioproducer.records.plain_columns",
    "aioproducer.records.varint_tables",
    "aioproducer.sasl",
    "aioproducer.secure_conflicts",
    "aioproducer.secure_names",
    "aioproducer.testing",
    "aioproducer.token_conflicts",
)
CODE = """
import asyncio, sys
before = set(sys.modules)
from aioproducer import Producer
print(*sorted(set(sys.modules) - before))
"""


def test_a_producer_imports_what_each_producer_needs() -> None:
    """In a process of its own, without site-packages' own imports at the start."""
    path = ":".join(name for name in sys.path if name)
    environment = {"PYTHONPATH": path, "AIOPRODUCER_PURE": ""}
    done = subprocess.run([sys.executable, "-S", "-c", CODE], env=environment, capture_output=True, text=True, check=True, timeout=60)
    imported = set(done.stdout.split())
    assert "aioproducer.producer" in imported
    if not compiled_modules.extension(compiled_modules.ENGINE).reason:
        assert sorted(name for name in FOR_SOME if name in imported) == []


def test_an_installation_is_small() -> None:
    """The sources and the compiled modules; a wheel has nothing else. On Linux setup.py leaves out their debug symbols, which are 4 MB."""
    sources = sum(path.stat().st_size for path in PACKAGE.rglob("*.py"))
    compiled = sum(path.stat().st_size for path in PACKAGE.rglob("*.so"))
    assert sources + compiled < 5_000_000
