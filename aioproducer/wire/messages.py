"""The messages, field by field, as text that `spec` reads. Knows nothing of how they become bytes.

Names, types, versions, tags and defaults are facts of Kafka's open protocol, as its message definitions state them
(`clients/src/main/resources/common/message/*.json`, Apache-2.0).

A line is `name type [versions] [tagN] [=default]`; the fields of a structure stand indented below it.

    i8 i16 i32 i64 bool uuid str bytes   as in Kafka; a uuid is 16 raw bytes, bytes stand for records too
    {}    [] [i32] [str]                 a structure; an array of structures, of numbers, of strings
    ?     ?12+                           may be null: always, or from version 12 on
    3+    0-12                           the versions that have the field; all, if it does not say
"""

from __future__ import annotations

from typing import Final

from aioproducer.wire.spec import parse

__all__ = ["SPECS"]

_PRODUCE: Final = """
Produce.request 3-13 flexible 9
  transactional_id str?
  acks i16
  timeout_ms i32
  topics []
    name str 0-12
    topic_id uuid 13+
    partitions []
      index i32
      records bytes?
Produce.response 3-13 flexible 9
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
"""

_CLUSTER: Final = """
ApiVersions.request 0-4 flexible 3
  client_software_name str 3+
  client_software_version str 3+
ApiVersions.response 0-4 flexible 3
  error_code i16
  api_keys []
    api_key i16
    min_version i16
    max_version i16
  throttle_time_ms i32 1+
  supported_features [] 3+ tag0
    name str
    min_version i16
    max_version i16
  finalized_features_epoch i64 3+ tag1 =-1
  finalized_features [] 3+ tag2
    name str
    max_version_level i16
    min_version_level i16
  zk_migration_ready bool 3+ tag3
Metadata.request 0-13 flexible 9
  topics []?1+
    topic_id uuid 10+
    name str?10+
  allow_auto_topic_creation bool 4+ =true
  include_cluster_authorized_operations bool 8-10
  include_topic_authorized_operations bool 8+
Metadata.response 0-13 flexible 9
  throttle_time_ms i32 3+
  brokers []
    node_id i32
    host str
    port i32
    rack str? 1+
  cluster_id str? 2+
  controller_id i32 1+ =-1
  topics []
    error_code i16
    name str?12+
    topic_id uuid 10+
    is_internal bool 1+
    partitions []
      error_code i16
      partition_index i32
      leader_id i32
      leader_epoch i32 7+ =-1
      replica_nodes [i32]
      isr_nodes [i32]
      offline_replicas [i32] 5+
    topic_authorized_operations i32 8+ =-2147483648
  cluster_authorized_operations i32 8-10 =-2147483648
  error_code i16 13+
FindCoordinator.request 0-6 flexible 3
  key str 0-3
  key_type i8 1+
  coordinator_keys [str] 4+
FindCoordinator.response 0-6 flexible 3
  throttle_time_ms i32 1+
  error_code i16 0-3
  error_message str? 1-3
  node_id i32 0-3
  host str 0-3
  port i32 0-3
  coordinators [] 4+
    key str
    node_id i32
    host str
    port i32
    error_code i16
    error_message str?
CreateTopics.request 2-7 flexible 5
  topics []
    name str
    num_partitions i32
    replication_factor i16
    assignments []
      partition_index i32
      broker_ids [i32]
    configs []
      name str
      value str?
  timeout_ms i32 =60000
  validate_only bool
CreateTopics.response 2-7 flexible 5
  throttle_time_ms i32
  topics []
    name str
    topic_id uuid 7+
    error_code i16
    error_message str?
    topic_config_error_code i16 5+ tag0
    num_partitions i32 5+ =-1
    replication_factor i16 5+ =-1
    configs []? 5+
      name str
      value str?
      read_only bool
      config_source i8 =-1
      is_sensitive bool
"""

_READING: Final = """
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
"""

SPECS: Final = parse(_PRODUCE + _CLUSTER + _READING)
