"""The messages that create, delete and describe topics, and add partitions to them."""

from __future__ import annotations

from typing import Final

TEXT: Final = """
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
DeleteTopics.request 1-6 flexible 4
  topics [] 6+
    name str?
    topic_id uuid
  topic_names [str] 0-5
  timeout_ms i32
DeleteTopics.response 1-6 flexible 4
  throttle_time_ms i32
  responses []
    name str?6+
    topic_id uuid 6+
    error_code i16
    error_message str? 5+
CreatePartitions.request 0-3 flexible 2
  topics []
    name str
    count i32
    assignments []?
      broker_ids [i32]
  timeout_ms i32
  validate_only bool
CreatePartitions.response 0-3 flexible 2
  throttle_time_ms i32
  results []
    name str
    error_code i16
    error_message str?
DescribeConfigs.request 1-4 flexible 4
  resources []
    resource_type i8
    resource_name str
    configuration_keys [str]?
  include_synonyms bool
  include_documentation bool 3+
DescribeConfigs.response 1-4 flexible 4
  throttle_time_ms i32
  results []
    error_code i16
    error_message str?
    resource_type i8
    resource_name str
    configs []
      name str
      value str?
      read_only bool
      config_source i8 =-1
      is_sensitive bool
      synonyms []
        name str
        value str?
        source i8
      config_type i8 3+
      documentation str? 3+
"""
