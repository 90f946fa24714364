"""The compiled build of the way of a record. What else there is to say stands in pyproject.toml.

Without a compiler the package installs and works, in plain Python; `AIOPRODUCER_REQUIRE_EXT=1` makes that an error instead.
"""

from __future__ import annotations

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

IS_REQUIRED = os.environ.get("AIOPRODUCER_REQUIRE_EXT", "") not in {"", "0"}

setup(
    ext_modules=cythonize(
        [Extension("aioproducer.engine._hot", ["aioproducer/engine/_hot.pyx"], optional=not IS_REQUIRED)],
        build_dir="build/cython",
    )
)
