"""Finds the broker that coordinates a group or a transactional id, and checks that a request was sent to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.errors import BrokerError, broker_error
from aioproducer.testing.faults import Target

if TYPE_CHECKING:
    from aioproducer.testing.broker import Call, FakeBroker
    from aioproducer.testing.cluster import FakeCluster
    from aioproducer.testing.groups import Group
    from aioproducer.testing.transactions import Holder, Touched

__all__ = ["WHOLE", "check_coordinates", "check_may_read", "check_may_write", "coordinated", "coordinator", "told_fenced", "verified"]

WHOLE: Final = Target()  # the target of a request about a group or a transaction, for the scope of faults
_FENCED: Final = broker_error("PRODUCER_FENCED").code
_INVALID_EPOCH: Final = broker_error("INVALID_PRODUCER_EPOCH").code


def coordinator(cluster: FakeCluster, key: str) -> FakeBroker | None:
    """Return the broker that `move_coordinator` set, if it is known; else the first known broker."""
    moved = cluster.brokers.get(cluster.coordinators.get(key, -1))
    if moved is not None and moved.is_known:
        return moved
    return next((broker for broker in cluster.brokers.values() if broker.is_known), None)


def coordinated(call: Call, group_id: str, *, may_be_nameless: bool = False) -> Group:
    """Return a group, at its coordinator.

    Raises:
        BrokerError: a scripted error; NOT_COORDINATOR; INVALID_GROUP_ID for the empty id, unless `may_be_nameless`.
    """
    code = call.code(WHOLE)
    if code:
        raise broker_error(code)
    if not group_id and not may_be_nameless:
        raise broker_error("INVALID_GROUP_ID", "the group's id is empty")
    check_coordinates(call, group_id)
    return call.cluster.groups[group_id]


def check_coordinates(call: Call, key: str) -> None:
    """Check that the broker coordinates a group or a transactional id.

    Raises:
        BrokerError: NOT_COORDINATOR.
    """
    if call.broker is not coordinator(call.cluster, key):
        raise broker_error("NOT_COORDINATOR", f"broker {call.broker.node_id} does not coordinate this")


def check_may_write(call: Call) -> None:
    """Check that the principal may write to the request's transactional id.

    Raises:
        BrokerError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if not call.may("Write", "transactional_id", call.request.transactional_id):
        raise broker_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")


def check_may_read(call: Call) -> None:
    """Check that the principal may read in the request's group.

    Raises:
        BrokerError: GROUP_AUTHORIZATION_FAILED.
    """
    if not call.may("Read", "group", call.request.group_id):
        raise broker_error("GROUP_AUTHORIZATION_FAILED")


def told_fenced(code: int, *, since: int, version: int) -> int:
    """Return an error code for a request's version: versions before `since` get INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    return _INVALID_EPOCH if code == _FENCED and version < since else code


def verified(cluster: FakeCluster, transactional_id: str, holder: Holder, touched: Touched, *, adds: bool, knows_abortable: bool) -> None:
    """Check with the coordinator that a transaction contains something, or add it, as brokers do (KIP-890).

    Raises:
        BrokerError: the coordinator's answer, as Kafka's AddPartitionsToTxnManager converts it.
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
