"""Fixtures for tests with a real Kafka, or with its classes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aioproducer.testing import jars


@pytest.fixture(scope="session")
def compiler() -> None:
    """A JDK, not only a Java runtime; in CI its want is a failure."""
    java = jars.java()  # in JAVA_HOME, or a link in PATH
    if not (Path(os.path.realpath(java)).with_name("javac").exists() or shutil.which("javac")):
        pytest.skip(f"{java} has no compiler beside it: a JDK is needed, not only a runtime")
