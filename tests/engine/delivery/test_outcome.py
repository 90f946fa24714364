"""Both builds of results and deliveries have the same outcomes, so that a delivery of one compares with those of the other."""

from __future__ import annotations

from aioproducer.engine.delivery import delivery, outcome, produce_request_result


def test_each_build_has_the_same_outcomes() -> None:
    taken = (module.Outcome for module in (delivery, produce_request_result))
    assert all(one is outcome.Outcome for one in taken)
    assert [one.value for one in outcome.Outcome] == ["pending", "acknowledged", "done", "failed", "cancelled", "split"]
