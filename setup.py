"""The compiled build: an extension of each `.pyx`, and a batch's way by mypyc. What else there is to say stands in pyproject.toml.

Without a compiler the package installs and works, in plain Python; `AIOPRODUCER_REQUIRE_EXT=1` makes that an error instead.
`AIOPRODUCER_PURE=1` builds none, which gives a wheel for any Python and machine.
"""

from __future__ import annotations

import os
import pathlib
import runpy
import sys
import sysconfig
import zlib
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


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


PACKAGE = pathlib.Path("aioproducer")
LENIENT = (  # mypy's errors are for `nox -s types`, where all that is imported is installed
    "--config-file=",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--cache-dir=build/mypy",
)


def batches() -> list[Extension]:
    """The modules of a batch's way, and the library that has them all; none where mypyc cannot translate them."""
    try:
        from mypyc.build import mypycify  # noqa: PLC0415  (takes a second)
    except ImportError:
        if is_required:
            raise
        return []
    names: dict[str, Any] = runpy.run_path(str(PACKAGE / "extensions.py"))
    library = names["library"](PACKAGE)
    sources = [name.replace(".", "/") + ".py" for name in names["BATCHES"]]
    try:
        made: list[Extension] = mypycify([*LENIENT, *sources], opt_level="2", debug_level="0", group_name=library.removesuffix("__mypyc"))
    except SystemExit:
        if is_required:
            raise
        return []
    for one in made:
        one.optional = not is_required
    return made


def forget_older() -> None:
    """Delete what mypyc made in place of other sources for this Python: the library, and what stands for each module of it."""
    for compiled in PACKAGE.rglob("*" + sysconfig.get_config_var("EXT_SUFFIX")):
        name = compiled.name.partition(".")[0]
        if name.startswith("_batches_") or compiled.with_name(f"{name}.py").exists():
            compiled.unlink()


class BuildExt(build_ext):
    """Translates a batch's way when extensions are really built: it takes mypyc a minute, and most commands only ask for names."""

    command_name = "build_ext"  # whose options it gets when an editable install prepares it anew, which looks for the class's name else

    def run(self) -> None:
        """Build them."""
        if self.extensions:
            made = batches()
            if made and self.inplace:
                forget_older()
            self.extensions.extend(made)
            self.swig_opts = None  # as it was the first time
            self.finalize_options()  # looks each of them over
        super().run()


setup(
    ext_modules=[] if reason else [extension(source) for source in sorted(PACKAGE.rglob("*.pyx"))],
    cmdclass={"build_ext": BuildExt},
    options={"build_ext": {"cython_c_in_temp": True, "force": True}},  # forced: times of files do not tell what they hold
)
