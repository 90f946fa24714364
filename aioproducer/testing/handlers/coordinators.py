"""Which broker coordinates a group, and the group for a request that asks the right one. Knows no particular request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.errors import broker_error
from aioproducer.testing.faults import Target

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call, FakeBroker
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.groups import Group

__all__ = ["WHOLE", "coordinated", "coordinator"]

WHOLE = Target()  # what a request about a group is about, for the scope of faults


def coordinator(cluster: FakeCluster, key: str) -> FakeBroker | None:
    """Where it was moved to, while that broker is known; else the first broker that is."""
    moved = cluster.brokers.get(cluster.coordinators.get(key, -1))
    if moved is not None and moved.is_known:
        return moved
    return next((broker for broker in cluster.brokers.values() if broker.is_known), None)


def coordinated(call: Call, group_id: str, *, may_be_nameless: bool = False) -> Group:
    """A group, at its coordinator.

    Raises:
        BrokerError: what is scripted; NOT_COORDINATOR; INVALID_GROUP_ID for the empty id, unless its offsets alone are asked for.
    """
    code = call.code(WHOLE)
    if code:
        raise broker_error(code)
    if not group_id and not may_be_nameless:
        raise broker_error("INVALID_GROUP_ID", "the group's id is empty")
    if call.broker is not coordinator(call.cluster, group_id):
        raise broker_error("NOT_COORDINATOR", f"broker {call.broker.node_id} does not coordinate this group")
    return call.cluster.groups[group_id]
