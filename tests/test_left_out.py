"""Tests of the lists of what is left out: on a loop (`loops`), and where a package is missing (conftest.py)."""

from __future__ import annotations

import ast
import pathlib

import conftest
import pytest
from imported import Imports
from loops import LEFT_OUT

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def imports() -> Imports:
    return Imports(ROOT)


@pytest.mark.parametrize("loop", LEFT_OUT)
def test_what_is_left_out_is_there(loop: str) -> None:
    """A test that was renamed, or is no more, leaves the list; and each has its reason."""
    for node, reason in LEFT_OUT[loop].items():
        file, _, name = node.partition("[")[0].partition("::")
        functions = [each.name for each in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(each, "name")]
        assert name in functions, node
        assert reason


def test_what_needs_confluent_kafka_is_named(imports: Imports) -> None:
    """Where it has no wheel, these are not collected: one that the list lacks would end the run of all tests."""
    needing = {path for path in imports.files_that_need("confluent_kafka") if not path.startswith("spark/")}
    assert set(conftest.NEED_CONFLUENT) == needing


def test_only_sparks_tests_need_pyspark(imports: Imports) -> None:
    """`[unit]` does not have it, nor py4j, which comes with it."""
    assert all(path.startswith("spark/") for path in imports.files_that_need("pyspark", "py4j"))


def test_an_import_is_seen_through_others(tmp_path: pathlib.Path) -> None:
    """By a name of its own or a relative one, in several lines, and from a package; not within a function."""
    (tmp_path / "tests" / "tools").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = [".", "tests"]\n')
    files = {
        "shared.py": "import rare.part as part\n",
        "late.py": "def late():\n    import rare\n",
        "test_direct.py": "import os, shared\n",
        "test_late.py": "import late\nfrom tests import late as again\n",
        "tools/__init__.py": "",
        "tools/near.py": "from shared import (\n    part,  # of it\n)\n",
        "tools/test_relative.py": "from . import near\n",
        "test_far.py": "from tests.tools import (\n    near,\n)\n",
    }
    for name, text in files.items():
        (tmp_path / "tests" / name).write_text(text)
    assert Imports(tmp_path).files_that_need("rare") == {"test_direct.py", "test_far.py", "tools/test_relative.py"}
