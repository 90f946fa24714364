"""The messages by which a cluster describes itself: ApiVersions, Metadata, FindCoordinator."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
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
"""
