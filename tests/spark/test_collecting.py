"""Tests of the collections after each task, in processes that Spark's daemon or another program began."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_PROGRAM = """
import gc, json, sys
from importlib.machinery import ModuleSpec
from aioproducer.spark.collecting import spare_modules

gc.disable()
__spec__ = ModuleSpec(sys.argv[1], None)
found = []
spare_modules()
found.append(gc.get_freeze_count())
kept = [[] for _ in range(1000)]
spare_modules()
found.append(gc.get_freeze_count())
import wave
spare_modules()
found.append(gc.get_freeze_count())
print(json.dumps(found))
"""


@pytest.mark.parametrize(("main", "is_spared"), [("pyspark.daemon", True), ("pytest", False)])
def test_modules_are_kept_out_of_collections(main: str, is_spared: bool) -> None:
    """In Spark's daemon alone; and again once more modules are imported, so that the objects of tasks do not gather."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, main], check=True, capture_output=True, text=True
    )
    first, second, third = json.loads(done.stdout)
    if is_spared:
        assert first > 1000
        assert first == second
        assert third > first + 1000
    else:
        assert first == second == third == 0
