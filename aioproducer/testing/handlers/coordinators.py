"""Which broker coordinates a group or a transactional id, and whether a request asks the right one. Knows no particular request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call, FakeBroker
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.groups import Group
    from aioproducer.testing.transactions import Holder, Touched

__all__ = ["WHOLE", "check_coordinates", "coordinated", "coordinator", "told_fenced", "verified"]

WHOLE: Final = Target()  # what a request about a group or a transaction is about, for the scope of faults
_FENCED: Final = broker_error("PRODUCER_FENCED").code
_INVALID_EPOCH: Final = broker_error("INVALID_PRODUCER_EPOCH").code


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
    check_coordinates(call, group_id)
    return call.cluster.groups[group_id]


def check_coordinates(call: Call, key: str) -> None:
    """BrokerError: NOT_COORDINATOR, if the broker that is asked does not coordinate a group or a transactional id."""
    if call.broker is not coordinator(call.cluster, key):
        raise broker_error("NOT_COORDINATOR", f"broker {call.broker.node_id} does not coordinate this")


def told_fenced(code: int, *, since: int, version: int) -> int:
    """An error as a version tells it: requests older than PRODUCER_FENCED have INVALID_PRODUCER_EPOCH in its place."""
    return _INVALID_EPOCH if code == _FENCED and version < since else code


def verified(cluster: FakeCluster, transactional_id: str, holder: Holder, touched: Touched, *, adds: bool, knows_abortable: bool) -> None:
    """Ask a transaction's coordinator whether something is in the transaction, or have it put there, as brokers do (KIP-890).

    Raises:
        BrokerError: what Kafka's AddPartitionsToTxnManager makes of the coordinator's answer.
    """
    asked = coordinator(cluster, transactional_id)
    if asked is None or not asked.is_running:
        raise broker_error("COORDINATOR_NOT_AVAILABLE")
    try:
        if adds:
            cluster.transactions.add(transactional_id, holder, [touched], raises_epoch=True)
        else:
            cluster.transactions.verify(transactional_id, holder, touched)
    except BrokerError as error:
        if error.name == "PRODUCER_FENCED":
            raise broker_error(_INVALID_EPOCH, error.message) from error
        if error.name == "TRANSACTION_ABORTABLE" and not knows_abortable:
            raise broker_error("INVALID_TXN_STATE", "Partition was not added to the transaction") from error
        raise
