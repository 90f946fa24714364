"""The compiled build: an extension of each `.pyx`. What else there is to say stands in pyproject.toml.

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


def extension(source: pathlib.Path) -> Extension:
    """It is told its source's CRC-32, so that what is stale is known by it (`aioproducer.extensions`)."""
    macros = [("SOURCE_CRC", f"{zlib.crc32(source.read_bytes())}U")]
    return Extension(".".join(source.with_suffix("").parts), [source.as_posix()], define_macros=macros, optional=not is_required)


setup(
    ext_modules=[] if reason else [extension(source) for source in sorted(pathlib.Path("aioproducer").rglob("*.pyx"))],
    options={"build_ext": {"cython_c_in_temp": True, "force": True}},  # forced: times of files do not tell what they hold
)
