"""Tests of `aioproducer.core.incremental`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproducer.core.incremental import whole

if TYPE_CHECKING:
    from aioproducer.core.incremental import Steps


def test_all_of_it_at_once() -> None:
    """Every step is done; what it returns comes out, and what it raises."""
    done: list[int] = []

    def work() -> Steps[str]:
        for number in range(3):
            done.append(number)
            yield
        if len(done) > 3:
            raise LookupError("a bug")
        return "over"

    assert (whole(work()), done) == ("over", [0, 1, 2])
    with pytest.raises(LookupError):
        whole(work())
