"""Keeps imported modules out of the garbage collections that Spark runs after each task.

Spark's daemon calls `gc.collect` in a Python worker after each task, before the worker takes the next one. A collection looks at each object
of each module that is imported: some 45 ms a task with this package, pyspark and pyarrow, as much as a small task itself.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["spare_modules"]

_DAEMON: Final = "pyspark.daemon"
_modules = 0


def spare_modules() -> None:
    """Keep what is imported by now out of later collections, in a process that Spark's daemon has forked. Elsewhere it does nothing.

    Objects that exist now are then freed by their reference counts alone. What is garbage now is collected before. Does nothing unless modules
    were imported since the last call, so that the objects of tasks do not gather.
    """
    global _modules
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", None) == _DAEMON and len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
