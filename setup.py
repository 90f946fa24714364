"""Build the compiled modules: one of each `.pyx`, and one of each module whose attributes a `.pxd` alone types.

Make README.md the long description, with absolute links, and the project's addresses, all from `home` in pyproject.toml. The rest stands there.

Without a compiler the package installs and works, in plain Python; `AIOPRODUCER_REQUIRE_EXT=1` makes that an error instead.
`AIOPRODUCER_PURE=1` builds none, which gives a wheel for any Python and machine; so does a Python on which the compiled build was not tested.
"""

from __future__ import annotations

import os
import pathlib
import re
import runpy
import sys
import tomllib

from setuptools import Extension, setup


def is_set(name: str) -> bool:
    """Whether this variable says yes."""
    return os.environ.get(name, "") not in {"", "0"}


PACKAGE = pathlib.Path("aioproducer")
build = runpy.run_path(str(PACKAGE / "build.py"))

is_required = is_set("AIOPRODUCER_REQUIRE_EXT")
# Why no extension is built; empty: each is.
reason = "AIOPRODUCER_PURE is set" if is_set("AIOPRODUCER_PURE") else build["why_plain"]()
if reason and is_required:
    raise SystemExit(f"AIOPRODUCER_REQUIRE_EXT is set, and no extension is built: {reason}")


# The CRC-32 of all their sources, which each is told: by it a stale one is known (`aioproducer.build`).
macros = [("SOURCE_CRC", f"{build['crc_of_sources'](PACKAGE)}U")]


# Python's own flags ask for debug symbols, which are five sixths of a compiled module. A build with CFLAGS takes those alone. Other
# systems' linkers keep the symbols elsewhere, or have other words for it.
is_stripped = sys.platform == "linux" and "CFLAGS" not in os.environ


def extension(source: pathlib.Path) -> Extension:
    """Describe the compiled module of a source: `_x` of `_x.pyx`, and of `x.py`."""
    name = ".".join((*source.parent.parts, f"_{source.stem.removeprefix('_')}"))
    return Extension(
        name,
        [source.as_posix()],
        define_macros=macros,
        extra_compile_args=["-g0"] if is_stripped else [],
        extra_link_args=["-Wl,-s"] if is_stripped else [],
        optional=not is_required,
    )


# The tag that release.yml is started by: a link of a release leads to the pages of that release.
home = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "aioproducer"
]["home"]
files = f"{home}/blob/v{build['VERSION']}"


def with_absolute_links(page: str) -> str:
    """Return a page of the project's root, written in Markdown, with links that lead somewhere wherever it is shown."""
    return re.sub(r"(?<=\]\()(?![a-z]+:|#)", f"{files}/", page)


setup(
    long_description=with_absolute_links(pathlib.Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    project_urls={
        "Source": home,
        "Documentation": f"{files}/README.md#read-on",
        "Changelog": f"{files}/docs/changelog.md",
        "Issues": f"{home}/issues",
    },
    ext_modules=[] if reason else [extension(source) for source in build["compiled_from"](PACKAGE)],
    # Forced: times of files do not tell what they hold. The first option is Cython's, which a build without extensions does not need.
    options={} if reason else {"build_ext": {"cython_c_in_temp": True, "force": True}},
)
