"""The messages of producer ids and transactions (KIP-98, KIP-360, KIP-890), and of those that list them (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
InitProducerId.request 0-5 flexible 2
  transactional_id str?
  transaction_timeout_ms i32
  producer_id i64 3+ =-1
  producer_epoch i16 3+ =-1
InitProducerId.response 0-5 flexible 2
  throttle_time_ms i32
  error_code i16
  producer_id i64 =-1
  producer_epoch i16
AddPartitionsToTxn.request 0-5 flexible 3
  transactions [] 4+
    transactional_id str
    producer_id i64
    producer_epoch i16
    verify_only bool
    topics []
      name str
      partitions [i32]
  transactional_id str 0-3
  producer_id i64 0-3
  producer_epoch i16 0-3
  topics [] 0-3
    name str
    partitions [i32]
AddPartitionsToTxn.response 0-5 flexible 3
  throttle_time_ms i32
  error_code i16 4+
  transactions [] 4+
    transactional_id str
    topics []
      name str
      partitions []
        partition_index i32
        error_code i16
  topics [] 0-3
    name str
    partitions []
      partition_index i32
      error_code i16
AddOffsetsToTxn.request 0-4 flexible 3
  transactional_id str
  producer_id i64
  producer_epoch i16
  group_id str
AddOffsetsToTxn.response 0-4 flexible 3
  throttle_time_ms i32
  error_code i16
EndTxn.request 0-5 flexible 3
  transactional_id str
  producer_id i64
  producer_epoch i16
  committed bool
EndTxn.response 0-5 flexible 3
  throttle_time_ms i32
  error_code i16
  producer_id i64 5+ =-1
  producer_epoch i16 5+ =-1
TxnOffsetCommit.request 0-5 flexible 3
  transactional_id str
  group_id str
  producer_id i64
  producer_epoch i16
  generation_id i32 3+ =-1
  member_id str 3+
  group_instance_id str? 3+
  topics []
    name str
    partitions []
      partition_index i32
      committed_offset i64
      committed_leader_epoch i32 2+ =-1
      committed_metadata str?
TxnOffsetCommit.response 0-5 flexible 3
  throttle_time_ms i32
  topics []
    name str
    partitions []
      partition_index i32
      error_code i16
DescribeTransactions.request 0-0 flexible 0
  transactional_ids [str]
DescribeTransactions.response 0-0 flexible 0
  throttle_time_ms i32
  transaction_states []
    error_code i16
    transactional_id str
    transaction_state str
    transaction_timeout_ms i32
    transaction_start_time_ms i64
    producer_id i64
    producer_epoch i16
    topics []
      topic str
      partitions [i32]
ListTransactions.request 0-2 flexible 0
  state_filters [str]
  producer_id_filters [i64]
  duration_filter i64 1+ =-1
  transactional_id_pattern str? 2+
ListTransactions.response 0-2 flexible 0
  throttle_time_ms i32
  error_code i16
  unknown_state_filters [str]
  transaction_states []
    transactional_id str
    producer_id i64
    transaction_state str
"""
