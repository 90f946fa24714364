"""What a fake broker answers, one module per request. Each says which versions it answers and where it differs from Kafka."""

from __future__ import annotations

from typing import Final

from aioproducer.testing.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

__all__ = ["HANDLERS"]

HANDLERS: Final = {
    module.HANDLER.key: module.HANDLER
    for module in (
        api_versions,
        create_partitions,
        create_topics,
        delete_topics,
        describe_configs,
        fetch,
        find_coordinator,
        heartbeat,
        join_group,
        leave_group,
        list_offsets,
        metadata,
        offset_commit,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        sync_group,
    )
}
