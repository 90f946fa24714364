"""Holds the types of the options that `Producer` and `ProducerConfig` take by name, for type checkers and for settings classes.

A config converts what is given, so a type here is wider than that of its field. A test compares the names with the fields of `ProducerConfig`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from aioproducer.errors import DeliveryError
from aioproducer.interfaces import Dialer, Resolver, Serializer
from aioproducer.model import Acks, CircuitEvent, Compression, FailedRecord, Headers

__all__ = [
    "AllProducerArguments",
    "OptionsWithoutSerializers",
    "ProducerArguments",
    "ProducerOptions",
    "SerializerOf",
]


# Annotations are evaluated here: `typing` compiles each one that is a string, which takes longer than the rest of the module.


T = TypeVar("T")

SerializerOf: TypeAlias = Callable[[T], bytes] | Callable[[str, Headers, T], bytes] | Serializer[T]


class OptionsWithoutSerializers(TypedDict, total=False):
    """Holds the options that do not decide which types of keys and values a producer takes."""

    bootstrap_servers: str | Sequence[str]
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    client_id: str | None
    acks: Acks | Literal["all", "-1", "0", "1", -1, 0, 1]
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: float | timedelta
    compression_type: Compression | Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    linger_ms: float | timedelta | Literal["auto"]
    batch_size: int
    batch_max_size: int
    max_request_size: int
    buffer_memory: int
    max_in_flight_requests_per_connection: int
    max_block_ms: float | timedelta
    delivery_timeout_ms: float | timedelta
    request_timeout_ms: float | timedelta
    retries: int
    retry_backoff_ms: float | timedelta
    retry_backoff_max_ms: float | timedelta
    reconnect_backoff_ms: float | timedelta
    reconnect_backoff_max_ms: float | timedelta
    socket_connection_setup_timeout_ms: float | timedelta
    socket_connection_setup_timeout_max_ms: float | timedelta
    connections_max_idle_ms: float | timedelta
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metadata_max_age_ms: float | timedelta
    metadata_max_idle_ms: float | timedelta
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: float | timedelta
    allow_auto_create_topics: bool
    message_format_max: int
    close_timeout_ms: float | timedelta
    partitioner: Any
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: float | timedelta
    partitioner_rack_aware: bool
    client_rack: str
    interceptors: Any
    metrics_recording_level: Literal["none", "info", "debug", "trace"]
    metrics_sample_window_ms: float | timedelta
    metrics_num_samples: int
    circuit_breaker_class: Any
    circuit_breaker_trigger_message_count: int
    circuit_breaker_trigger_failure_perc: int
    circuit_breaker_mute_retry_interval_ms: float | timedelta
    circuit_breaker_mute_retry_max_interval_ms: float | timedelta
    circuit_breaker_enable_mute_inflight_full: bool
    circuit_breaker_options: Mapping[str, Any] | None
    circuit_breaker_keyed_policy: Literal["strict", "available", "fail_fast"]
    on_circuit_event: Callable[[CircuitEvent], object] | None
    on_delivery_error: Callable[[DeliveryError, int], object] | None
    on_failed: Callable[[DeliveryError, Sequence[FailedRecord]], object] | None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    ssl_context: Any
    ssl_truststore_location: str | None
    ssl_truststore_certificates: str | None
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS"] | None
    ssl_truststore_password: str | None
    ssl_keystore_location: str | None
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS"] | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_key_location: str | None
    ssl_certificate_location: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: Literal["https", "none", ""]
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str] | None
    ssl_crl_location: str | None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"] | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_token_auth: bool
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    https_ca_location: str | None
    https_ca_pem: str | None
    sasl_aws_region: str | None
    sasl_aws_profile_name: str | None
    sasl_aws_role_arn: str | None
    sasl_aws_role_session_name: str | None
    sasl_oauthbearer_token: Any
    sasl_oauthbearer_extensions: Mapping[str, str] | Sequence[tuple[str, str]] | str
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_login_connect_timeout_ms: float | timedelta | None
    sasl_login_read_timeout_ms: float | timedelta | None
    sasl_login_retry_backoff_ms: float | timedelta
    sasl_login_retry_backoff_max_ms: float | timedelta
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_keytab: str | None


class ProducerOptions(OptionsWithoutSerializers, total=False):
    """Holds all options: the fields of `ProducerConfig`."""

    key_serializer: Callable[..., bytes] | Serializer[Any] | None
    value_serializer: Callable[..., bytes] | Serializer[Any] | None


class ProducerArguments(OptionsWithoutSerializers, total=False):
    """Holds what `Producer` takes by name, beside serializers."""

    dialer: Dialer | None
    resolver: Resolver | None
    chance: Callable[[], float] | None
    wall_clock: Callable[[], float]


class AllProducerArguments(ProducerArguments, ProducerOptions, total=False):
    """Holds what `Producer` takes by name. The types of keys and values cannot be inferred from these serializers."""
