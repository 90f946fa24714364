"""The messages that read records and look up offsets."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
Fetch.request 4-17 flexible 12
  cluster_id str? 12+ tag0
  replica_id i32 0-14 =-1
  replica_state {} 15+ tag1
    replica_id i32 =-1
    replica_epoch i64 =-1
  max_wait_ms i32
  min_bytes i32
  max_bytes i32 =2147483647
  isolation_level i8
  session_id i32 7+
  session_epoch i32 7+ =-1
  topics []
    topic str 0-12
    topic_id uuid 13+
    partitions []
      partition i32
      current_leader_epoch i32 9+ =-1
      fetch_offset i64
      last_fetched_epoch i32 12+ =-1
      log_start_offset i64 5+ =-1
      partition_max_bytes i32
      replica_directory_id uuid 17+ tag0
  forgotten_topics_data [] 7+
    topic str 7-12
    topic_id uuid 13+
    partitions [i32]
  rack_id str 11+
Fetch.response 4-17 flexible 12
  throttle_time_ms i32
  error_code i16 7+
  session_id i32 7+
  responses []
    topic str 0-12
    topic_id uuid 13+
    partitions []
      partition_index i32
      error_code i16
      high_watermark i64
      last_stable_offset i64 =-1
      log_start_offset i64 5+ =-1
      diverging_epoch {} 12+ tag0
        epoch i32 =-1
        end_offset i64 =-1
      current_leader {} 12+ tag1
        leader_id i32 =-1
        leader_epoch i32 =-1
      snapshot_id {} 12+ tag2
        end_offset i64 =-1
        epoch i32 =-1
      aborted_transactions []?
        producer_id i64
        first_offset i64
      preferred_read_replica i32 11+ =-1
      records bytes?
  node_endpoints [] 16+ tag0
    node_id i32
    host str
    port i32
    rack str?
ListOffsets.request 1-9 flexible 6
  replica_id i32
  isolation_level i8 2+
  topics []
    name str
    partitions []
      partition_index i32
      current_leader_epoch i32 4+ =-1
      timestamp i64
ListOffsets.response 1-9 flexible 6
  throttle_time_ms i32 2+
  topics []
    name str
    partitions []
      partition_index i32
      error_code i16
      timestamp i64 =-1
      offset i64 =-1
      leader_epoch i32 4+ =-1
OffsetForLeaderEpoch.request 2-4 flexible 4
  replica_id i32 3+ =-2
  topics []
    topic str
    partitions []
      partition i32
      current_leader_epoch i32 =-1
      leader_epoch i32
OffsetForLeaderEpoch.response 2-4 flexible 4
  throttle_time_ms i32
  topics []
    topic str
    partitions []
      error_code i16
      partition i32
      leader_epoch i32 =-1
      end_offset i64 =-1
"""
