"""The answers of a fake broker, one module per request. Each lists its versions and its differences from Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioproducer.testing.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.testing.handlers.handler import Handler
    from aioproducer.wire.api import ApiKey

__all__ = ["HANDLERS"]

HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    module.HANDLER.key: module.HANDLER
    for module in (
        add_offsets_to_txn,
        add_partitions_to_txn,
        api_versions,
        create_partitions,
        create_topics,
        delete_topics,
        describe_configs,
        describe_transactions,
        end_txn,
        fetch,
        find_coordinator,
        heartbeat,
        init_producer_id,
        join_group,
        leave_group,
        list_offsets,
        list_transactions,
        metadata,
        offset_commit,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        sasl_authenticate,
        sasl_handshake,
        sync_group,
        txn_offset_commit,
    )
}
