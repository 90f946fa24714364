"""kafka-python, an oracle here, calls a deprecated function while it is imported: imported once, before warnings are errors."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import pytest
from hidden import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record.default_records
    import kafka.record.memory_records  # noqa: F401


@pytest.fixture
def hide_libraries() -> Iterator[Callable[..., None]]:
    """Make packages look as if they were not installed, for the codecs."""
    with contextlib.ExitStack() as stack:
        yield lambda *names: stack.enter_context(hidden(*names))
