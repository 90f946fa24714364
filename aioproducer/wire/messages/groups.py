"""The messages of consumer groups (the classic protocol) and of their offsets."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
JoinGroup.request 0-9 flexible 6
  group_id str
  session_timeout_ms i32
  rebalance_timeout_ms i32 1+ =-1
  member_id str
  group_instance_id str? 5+
  protocol_type str
  protocols []
    name str
    metadata bytes
  reason str? 8+
JoinGroup.response 0-9 flexible 6
  throttle_time_ms i32 2+
  error_code i16
  generation_id i32 =-1
  protocol_type str? 7+
  protocol_name str?7+
  leader str
  skip_assignment bool 9+
  member_id str
  members []
    member_id str
    group_instance_id str? 5+
    metadata bytes
SyncGroup.request 0-5 flexible 4
  group_id str
  generation_id i32
  member_id str
  group_instance_id str? 3+
  protocol_type str? 5+
  protocol_name str? 5+
  assignments []
    member_id str
    assignment bytes
SyncGroup.response 0-5 flexible 4
  throttle_time_ms i32 1+
  error_code i16
  protocol_type str? 5+
  protocol_name str? 5+
  assignment bytes
Heartbeat.request 0-4 flexible 4
  group_id str
  generation_id i32
  member_id str
  group_instance_id str? 3+
Heartbeat.response 0-4 flexible 4
  throttle_time_ms i32 1+
  error_code i16
LeaveGroup.request 0-5 flexible 4
  group_id str
  member_id str 0-2
  members [] 3+
    member_id str
    group_instance_id str?
    reason str? 5+
LeaveGroup.response 0-5 flexible 4
  throttle_time_ms i32 1+
  error_code i16
  members [] 3+
    member_id str
    group_instance_id str?
    error_code i16
OffsetCommit.request 2-10 flexible 8
  group_id str
  generation_id_or_member_epoch i32 =-1
  member_id str
  group_instance_id str? 7+
  retention_time_ms i64 2-4 =-1
  topics []
    name str 0-9
    topic_id uuid 10+
    partitions []
      partition_index i32
      committed_offset i64
      committed_leader_epoch i32 6+ =-1
      committed_metadata str?
OffsetCommit.response 2-10 flexible 8
  throttle_time_ms i32 3+
  topics []
    name str 0-9
    topic_id uuid 10+
    partitions []
      partition_index i32
      error_code i16
OffsetFetch.request 1-10 flexible 6
  group_id str 0-7
  topics []?2+ 0-7
    name str
    partition_indexes [i32]
  groups [] 8+
    group_id str
    member_id str? 9+
    member_epoch i32 9+ =-1
    topics []?
      name str 8-9
      topic_id uuid 10+
      partition_indexes [i32]
  require_stable bool 7+
OffsetFetch.response 1-10 flexible 6
  throttle_time_ms i32 3+
  topics [] 0-7
    name str
    partitions []
      partition_index i32
      committed_offset i64
      committed_leader_epoch i32 5-7 =-1
      metadata str?
      error_code i16
  error_code i16 2-7
  groups [] 8+
    group_id str
    topics []
      name str 8-9
      topic_id uuid 10+
      partitions []
        partition_index i32
        committed_offset i64
        committed_leader_epoch i32 =-1
        metadata str?
        error_code i16
    error_code i16
"""
