"""Tests of the import contracts of pyproject.toml: they hold, and each fails when a file breaks it."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import grimp
import pytest

ROOT = pathlib.Path(__file__).parents[1]
CONTRACTS = {one["id"]: one for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]}

# contract, the file that breaks it, the statement that does
BREACHES = (
    ("floors", "net/transport.py", "from aioproducer.engine.tasks import guarded_loop"),
    ("floors", "core/backoff.py", "from aioproducer.net import transport"),
    ("floors", "sasl/gate.py", "from aioproducer.core import backoff"),
    ("floors", "wire/frame.py", "from aioproducer.config import ProducerConfig"),
    ("floors", "errors.py", "from aioproducer.model import Acks"),
    ("floors", "producer.py", "from aioproducer import jars"),
    ("floors", "spark/spark_session.py", "from aioproducer.testing import FakeCluster"),
    ("floors", "a_new_module.py", "import enum"),
    ("rules", "core/partition_queues.py", "from time import monotonic"),
    ("rules", "sasl/session.py", "import random"),
    ("quiet", "records/reader.py", "import threading"),
    ("quiet", "sasl/scram.py", "import ssl"),
    ("quiet", "secret.py", "import asyncio"),
    ("bytes", "records/reader.py", "from aioproducer.wire import api"),
    ("bytes", "wire/api.py", "from aioproducer.records import compression"),
    ("fake", "testing/log.py", "from aioproducer.core.partitioner import murmur2"),
    ("fake", "testing/broker.py", "from aioproducer import sasl"),
    ("fake", "testing/handlers/produce.py", "from aioproducer.producer import Producer"),
    ("spark", "spark/spark_session.py", "from aioproducer.wire import api"),
    ("telemetry", "telemetry/naming.py", "from aioproducer.producer import Producer"),
    ("rooms", "engine/memory/buffer_pool.py", "from aioproducer.engine.append import appender"),
    ("telemetry", "telemetry/tracing.py", "from aioproducer.engine.delivery import chosen_build"),
    ("root", "engine/tasks/guarded_loop.py", "from aioproducer import Producer"),
    ("root", "testing/client.py", "import aioproducer"),
    ("cycles", "core/partitioner.py", "from aioproducer.core import partition_queues"),
)

IMPORT_ALONE = """
import importlib, sys
from types import ModuleType

for name in sys.argv[2:]:
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "aioproducer"]:
        del sys.modules[loaded]
    if name != "aioproducer":
        sys.modules["aioproducer"] = ModuleType("aioproducer")  # the front door would import everything
        sys.modules["aioproducer"].__path__ = [sys.argv[1]]
    try:
        importlib.import_module(name)
    except Exception as error:
        print(f"{name}: {error!r}")
"""


def lint(root: pathlib.Path, *contracts: str) -> str:
    """Return import-linter's output for the package below `root`. Its exit status must agree with it."""
    only = [word for contract in contracts for word in ("--contract", contract)]
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache", *only],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert (done.returncode == 0) == (" 0 broken." in done.stdout), done.stdout + done.stderr
    return re.sub(r"\s+", " ", done.stdout)


@pytest.fixture
def copied(tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(ROOT / "aioproducer", tmp_path / "aioproducer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def add(root: pathlib.Path, module: str, *lines: str) -> None:
    with (root / "aioproducer" / module).open("a") as file:
        file.write("\n" + "\n".join(lines) + "\n")


def test_every_import_goes_the_right_way() -> None:
    """The tree as it is keeps every contract."""
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in lint(ROOT)


@pytest.mark.parametrize(("contract", "module", "line"), BREACHES)
def test_a_breach_is_seen(copied: pathlib.Path, contract: str, module: str, line: str) -> None:
    """A statement that breaks a contract is reported by that very contract."""
    add(copied, module, line)
    told = lint(copied, contract)
    assert f"{CONTRACTS[contract]['name']} BROKEN" in told
    assert pathlib.PurePath(module).stem in told.partition("Broken contracts")[2]


@pytest.mark.parametrize(("contract", "module"), [("rules", "core/produce_errors.py"), ("quiet", "wire/frame.py")])
def test_every_forbidden_name_is_seen(copied: pathlib.Path, contract: str, module: str) -> None:
    """Each module that a floor may not know is reported, not only the likeliest one."""
    forbidden = CONTRACTS[contract]["forbidden_modules"]
    add(copied, module, *(f"import {name}" for name in forbidden))
    told = lint(copied, contract)
    assert [name for name in forbidden if f"not allowed to import {name}" not in told] == []


def show(package: pathlib.Path) -> None:
    """import-linter reads Python only: what each `.pyx` imports is put where it looks."""
    for types in package.rglob("_*.pxd"):
        types.with_suffix(".py").write_text("")  # one that is compiled of its twin's source has no .pyx
    for source in package.rglob("_*.pyx"):
        lines = source.read_text().splitlines()
        imports = [line for line in lines if re.match(r"(from|import)\s+(?!.*\bcimport\b)", line)]
        source.with_suffix(".py").write_text("\n".join(imports))


def test_the_compiled_source_keeps_every_contract(copied: pathlib.Path) -> None:
    """Each `.pyx` imports as its twin may."""
    show(copied / "aioproducer")
    assert "from aioproducer.engine.delivery.outcome import" in (copied / "aioproducer/engine/delivery/_delivery.py").read_text()
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in lint(copied)


@pytest.mark.parametrize(
    ("contract", "line"), [("floors", "from aioproducer.producer import Producer"), ("root", "from aioproducer import Record")]
)
def test_a_breach_of_the_compiled_source_is_seen(copied: pathlib.Path, contract: str, line: str) -> None:
    add(copied, "engine/append/_fast_path.pyx", line)
    show(copied / "aioproducer")
    told = lint(copied, contract)
    assert f"{CONTRACTS[contract]['name']} BROKEN" in told
    assert "engine.append._fast_path" in told.partition("Broken contracts")[2]


def test_every_contract_is_broken_once() -> None:
    """A contract that nothing was seen to break may hold nothing."""
    assert {contract for contract, _, _ in BREACHES} == set(CONTRACTS)


def test_the_client_has_no_cycle() -> None:
    """No two modules of the client import each other, on whatever way, imports for type checkers included.

    The fake cluster's cycles are for type checkers alone; the contract `cycles` names each of them.
    """
    graph = grimp.build_graph("aioproducer", cache_dir=None)
    for module in [module for module in graph.modules if module.startswith("aioproducer.testing")]:
        graph.remove_module(module)
    imports = {module: graph.find_upstream_modules(module) for module in graph.modules}
    assert len(imports) > 100
    assert {
        module: sorted(cycle) for module in imports if (cycle := {other for other in imports[module] if module in imports[other]})
    } == {}
    assert [one for one in CONTRACTS["cycles"]["ignore_imports"] if not one.startswith("aioproducer.testing.")] == []


def test_every_module_imports_alone() -> None:
    """No module needs another to have been imported first, and none warns."""
    package = ROOT / "aioproducer"
    paths = sorted(path for path in package.rglob("*.py") if "-" not in path.name and (find_spec("pyspark") or path.parent.name != "spark"))
    names = [".".join(("aioproducer", *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__") for path in paths]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALONE, str(package), *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert len(names) > 50
