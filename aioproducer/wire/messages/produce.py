"""The Produce message."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
Produce.request 0-13 flexible 9
  transactional_id str? 3+
  acks i16
  timeout_ms i32
  topics []
    name str 0-12
    topic_id uuid 13+
    partitions []
      index i32
      records bytes?
Produce.response 0-13 flexible 9
  topics []
    name str 0-12
    topic_id uuid 13+
    partitions []
      index i32
      error_code i16
      base_offset i64
      log_append_time_ms i64 2+ =-1
      log_start_offset i64 5+ =-1
      record_errors [] 8+
        batch_index i32
        batch_index_error_message str?
      error_message str? 8+
      current_leader {} 10+ tag0
        leader_id i32 =-1
        leader_epoch i32 =-1
  throttle_time_ms i32 1+
  node_endpoints [] 10+ tag0
    node_id i32
    host str
    port i32
    rack str?
"""
