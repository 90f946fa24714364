"""Says how a test ends without Java: it is skipped, and in CI, where Java has to be, it fails."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from aioproducer.testing.jars import JavaMissing

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["skipped_without_java"]


@contextmanager
def skipped_without_java() -> Iterator[None]:
    """Skip the test if the block finds no Java; in CI, fail it."""
    try:
        yield
    except JavaMissing as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
