"""Tests of `aioproducer.core.producer_batch`: where its states do not lead, and which of them are ends."""

from __future__ import annotations

import itertools

import pytest
from batches import partition_queues, put

from aioproducer.core.producer_batch import NEXT, Event, InvalidTransition, State

ENDS = (State.DONE, State.FAILED, State.SPLIT)


def _named(value: object) -> str:
    return str(value).replace(" ", "_")


@pytest.mark.parametrize(("state", "event"), [*itertools.product(ENDS, Event)], ids=_named)
def test_a_batch_ends_once(state: State, event: Event) -> None:
    """Nothing leads out of done, failed and split."""
    with pytest.raises(InvalidTransition, match=f"a batch that is {state} cannot {event}"):
        NEXT[state, event]


SENT = (Event.CLOSE, Event.DRAIN, Event.SEND)
WAYS = {
    State.OPEN: (),
    State.READY: SENT[:1],
    State.ENCODING: SENT[:2],
    State.IN_FLIGHT: SENT,
    State.DONE: (*SENT, Event.ACKNOWLEDGE),
    State.FAILED: (*SENT, Event.FAIL),
    State.SPLIT: (*SENT, Event.SPLIT),
}


@pytest.mark.parametrize("state", State, ids=_named)
def test_which_states_are_ends(state: State) -> None:
    """Acknowledged, failed, and split into others."""
    rules, (queue,) = partition_queues(1)
    batch = put(rules, queue)
    for event in WAYS[state]:
        batch.state = NEXT[batch.state, event]
    assert batch.state is state
    assert batch.ended is (state in ENDS)


def test_a_new_batch_is_open_and_was_nowhere() -> None:
    """So that a failure of it says that it was certainly not written."""
    rules, (queue,) = partition_queues(1, lifetime=30)
    batch = put(rules, queue, now=100)
    assert (batch.state, batch.attempts, batch.expires_at) == (State.OPEN, 0, 130)
    assert not any((batch.may_be_written, batch.on_wire, batch.held, batch.is_encoded, batch.ended))
    assert repr(batch) == "<ProducerBatch 1 of t-0: 0 records, open, sent 0 times>"
