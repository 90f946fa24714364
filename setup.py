"""The compiled build of the way of a record (`engine/_hot.pyx`). What else there is to say stands in pyproject.toml.

Without a compiler the package installs and works, in plain Python; `AIOPRODUCER_REQUIRE_EXT=1` makes that an error instead.
`AIOPRODUCER_PURE=1` builds none, which gives a wheel for any Python and machine.
"""

from __future__ import annotations

import os
import pathlib
import sys
import sysconfig
import zlib

from setuptools import Extension, setup

SOURCE = "aioproducer/engine/_hot.pyx"


def is_set(name: str) -> bool:
    """Whether this variable says yes."""
    return os.environ.get(name, "") not in {"", "0"}


def why_none() -> str:
    """Why no extension is built; empty: one is."""
    if is_set("AIOPRODUCER_PURE"):
        return "AIOPRODUCER_PURE is set"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no global interpreter lock, which the compiled build needs"
    if sys.implementation.name != "cpython":
        return "the compiled build is for CPython"
    return ""


is_required = is_set("AIOPRODUCER_REQUIRE_EXT")
reason = why_none()
if reason and is_required:
    raise SystemExit(f"AIOPRODUCER_REQUIRE_EXT is set, and no extension is built: {reason}")

extension = Extension(
    "aioproducer.engine._hot",
    [SOURCE],
    define_macros=[("HOT_SOURCE", f"{zlib.crc32(pathlib.Path(SOURCE).read_bytes())}U")],  # `engine.hot` knows by it what is stale
    optional=not is_required,
)
setup(
    ext_modules=[] if reason else [extension],
    options={"build_ext": {"cython_c_in_temp": True, "force": True}},  # forced: times of files do not tell what they hold
)
