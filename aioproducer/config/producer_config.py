"""Holds the producer's options, in one frozen value that checks itself.

Names are Java's with underscores. Times end in `_ms`, sizes are bytes. If a default differs from Java's, the field's text says so.
The fields below, and those of `SecurityOptions`, are the only table of all options: `docs/reference/config.md` is generated from it.
"""

from __future__ import annotations

import copy
import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_type_hints,
)

from aioproducer.config.option_kinds import (
    ACKS,
    ADDRESSES,
    CLIENT_ID,
    COMPRESSION,
    FLAG,
    INT_MAX,
    MAPPING,
    bounded_text,
    breaker,
    function,
    ms,
    number,
    option,
    or_none,
    or_word,
    plugins,
    read_addresses,
    size,
    words,
)
from aioproducer.config.option_names import environment_options, options_of
from aioproducer.config.secret import has_private_key
from aioproducer.config.security_options import SECURITY_NAMES, SecurityOptions, settle_security
from aioproducer.errors import ConfigError, DeliveryError
from aioproducer.interfaces import METHODS, Dialer, Resolver, Serializer
from aioproducer.model import Acks, CircuitEvent, Compression, FailedRecord, Headers
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import is_two_phase, string_serializer

if TYPE_CHECKING:
    from aioproducer.config.option_kinds import Option


# The types of the options by name, for type checkers and settings classes: wider than the fields', as a config converts what is given.
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
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"]
        | None
    )
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


_log = logging.getLogger(__name__)

# What names of environment variables begin with.
DEFAULT_PREFIX: Final = "KAFKA_"
_RECORD_BATCH_OVERHEAD: Final = 61
_SERIALIZERS: Final = {
    "org.apache.kafka.common.serialization.StringSerializer": string_serializer,
    "org.apache.kafka.common.serialization.ByteArraySerializer": None,
    "org.apache.kafka.common.serialization.BytesSerializer": None,
    "org.apache.kafka.common.serialization.ByteBufferSerializer": None,
}
# The default partitioners of other clients hash keys as Kafka's own partitioner does, which is None here.
_PARTITIONERS: Final = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": RoundRobinPartitioner,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": None,
    "aiokafka.partitioner.DefaultPartitioner": None,
    "kafka.partitioner.default.DefaultPartitioner": None,
}
# Batches of one producer that a broker remembers for a partition.
_WINDOW: Final = 5
# The first record format that has sequence numbers.
_WITH_NUMBERS: Final = 2
# A first pause or time, and the longest that it grows to. If the user gives both, the first must not exceed the longest.
_PAIRS: Final = (
    ("retry_backoff_ms", "retry_backoff_max_ms"),
    ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
    ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    ("sasl_login_retry_backoff_ms", "sasl_login_retry_backoff_max_ms"),
    ("circuit_breaker_mute_retry_interval_ms", "circuit_breaker_mute_retry_max_interval_ms"),
)


def _serializes(value: object) -> bool:
    """Return whether a value is a serializer: a function, or a two-phase one."""
    return callable(value) or is_two_phase(value)


def _partitions(value: object) -> bool:
    return callable(value) or callable(getattr(value, "partition", None))


@dataclass(frozen=True, kw_only=True, init=False)
class ProducerConfig(SecurityOptions):
    """Holds the options of a producer, checked: a bad value raises a `ConfigError` with a remedy."""

    # The names of the options that the user gave. What gives way to them are defaults.
    _chosen: ClassVar[frozenset[str]]

    bootstrap_servers: str | tuple[str, ...] = option(
        ("localhost:9092",),
        ADDRESSES,
        "some brokers, from which all others are found",
        "metadata.broker.list",
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        words("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "whether every address of a name is dialled, or bootstrap addresses are first replaced by the host names behind them",
    )
    client_id: str = option(
        "",
        CLIENT_ID,
        "the name that brokers log, meter and set quotas for; empty: `aioproducer-1`, `aioproducer-2`, ... in each process, or "
        "`aioproducer-` and the transactional_id; Java: `producer-1`, ...",
    )
    acks: Acks | int | str = option(
        Acks.ALL,
        ACKS,
        "replicas that must have a record before its broker answers",
        "request.required.acks",
    )
    enable_idempotence: bool | None = option(
        None,
        or_none(FLAG),
        "whether records are in the log once and in order, also after retries; None: yes, unless acks or retries forbid it",
    )
    transactional_id: str | None = option(
        None,
        or_none(bounded_text(1)),
        "the name under which transactions are begun, and earlier producers of that name ended",
    )
    transaction_timeout_ms: float = option(
        60_000,
        ms(1, INT_MAX),
        "after which the coordinator aborts a transaction that is still open",
    )
    compression_type: Compression | str = option(
        Compression.NONE, COMPRESSION, "codec of record batches", "compression.codec"
    )
    compression_gzip_level: int = option(
        -1, number(1, 9, none=(-1,)), "1 is fast, 9 is small; -1: the library's own"
    )
    compression_lz4_level: int = option(
        9, number(1, 17), "9 stands for the fast compressor, as in Java; any other is a level"
    )
    compression_zstd_level: int = option(3, number(-131_072, 22), "low is fast, high is small")
    linger_ms: float | Literal["auto"] = option(
        0,
        or_word("auto", ms(0)),
        "how long a partial batch waits for more records; auto: while one of its partition is in flight; Java: 5",
        "queue.buffering.max.ms",
    )
    batch_size: int = option(
        16_384,
        size(1, none=(1, 0)),
        "bytes of a full batch of one partition; 0: each record its own batch",
    )
    batch_max_size: int = option(
        262_144,
        size(1),
        "bytes that a full batch may come to while it waits to be sent (KIP-782); batch_size or less: no more than that",
        "batch.max.size",
        java=None,
    )
    max_request_size: int = option(
        1_048_576,
        size(1),
        "bytes of one request, and of one record uncompressed",
        "message.max.bytes",
    )
    buffer_memory: int = option(
        33_554_432,
        number(1, unit="bytes"),
        "bytes of all records that are not acknowledged yet",
        "queue.buffering.max.kbytes",
    )
    max_in_flight_requests_per_connection: int = option(
        5, number(1, unit="requests"), "unanswered produce requests per broker", "max.in.flight"
    )
    max_block_ms: float = option(60_000, ms(0), "how long `send` itself and `start` may wait")
    delivery_timeout_ms: float = option(
        120_000,
        ms(0),
        "from a record's append to its end, acknowledged or failed",
        "message.timeout.ms",
    )
    request_timeout_ms: float = option(
        30_000, ms(1, INT_MAX), "how long a request may stay unanswered", "socket.timeout.ms"
    )
    retries: int = option(
        INT_MAX,
        number(0, INT_MAX, unit="times"),
        "how often a batch is sent again at most; delivery_timeout_ms ends it too",
        "message.send.max.retries",
    )
    retry_backoff_ms: float = option(100, ms(0), "first pause before a retry; doubles, with jitter")
    retry_backoff_max_ms: float = option(1_000, ms(0), "longest pause before a retry")
    reconnect_backoff_ms: float = option(
        50, ms(0), "first pause before dialling a broker again; doubles, with jitter"
    )
    reconnect_backoff_max_ms: float = option(
        1_000, ms(0), "longest pause before dialling again; as the first, where only that is given"
    )
    socket_connection_setup_timeout_ms: float = option(
        10_000,
        ms(1),
        "how long a connection may take to stand; doubles with each failure, with jitter",
    )
    socket_connection_setup_timeout_max_ms: float = option(
        30_000, ms(1), "longest that a connection may take to stand"
    )
    connections_max_idle_ms: float = option(
        540_000, ms(1, none=(-1, 0)), "idle time after which a connection is closed; -1: never"
    )
    send_buffer_bytes: int = option(
        -1,
        size(1, none=(-1, 0)),
        "the sockets' SO_SNDBUF; -1: the system tunes it; Java: 131072",
        "socket.send.buffer.bytes",
    )
    receive_buffer_bytes: int = option(
        -1,
        size(1, none=(-1, 0)),
        "the sockets' SO_RCVBUF; -1: the system tunes it; Java: 32768",
        "socket.receive.buffer.bytes",
    )
    metadata_max_age_ms: float = option(
        300_000,
        ms(1),
        "age at which metadata is fetched again",
        "topic.metadata.refresh.interval.ms",
    )
    metadata_max_idle_ms: float = option(
        300_000,
        ms(5000),
        "a topic that nothing was sent to for so long is forgotten, with all that is kept of it",
        "metadata.evict.ms",
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        words("rebootstrap", "none"),
        "when no known broker answers: start over at bootstrap_servers, or keep trying",
    )
    metadata_recovery_rebootstrap_trigger_ms: float = option(
        300_000, ms(0), "time without metadata after which it starts over at bootstrap_servers"
    )
    allow_auto_create_topics: bool = option(
        True,
        FLAG,
        "whether brokers may create a topic that is asked for and not there; always so in Java",
        "allow.auto.create.topics",
        java=None,
    )
    message_format_max: int = option(
        2, number(0, 2), "newest record format to send: 2 (Kafka 0.11 and newer), 1 or 0", java=None
    )
    close_timeout_ms: float = option(
        20_000, ms(0), "how long `stop` may flush before what is left fails", java=None
    )
    key_serializer: Callable[..., bytes] | Serializer[Any] | None = option(
        None,
        function(_SERIALIZERS, _serializes),
        "(topic, headers, key) or (key) -> bytes, or a `Serializer`; None: keys are bytes",
    )
    value_serializer: Callable[..., bytes] | Serializer[Any] | None = option(
        None,
        function(_SERIALIZERS, _serializes),
        "(topic, headers, value) or (value) -> bytes, or a `Serializer`; None: values are bytes",
    )
    partitioner: Any = option(
        None,
        function(_PARTITIONERS, _partitions),
        "chooses the partition: a function, an object or its class; None: murmur2 of the key, or sticky",
        java="partitioner.class",
    )
    partitioner_ignore_keys: bool = option(
        False, FLAG, "whether records with a key go to the sticky partition too"
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True,
        FLAG,
        "whether records without a key go the less to a partition the longer its queue is",
    )
    partitioner_availability_timeout_ms: float = option(
        0,
        ms(0),
        "records without a key avoid a broker that could take nothing for so long, though something was ready for it; 0: never",
    )
    partitioner_rack_aware: bool = option(
        False,
        FLAG,
        "whether records without a key go to partitions whose leader is in client_rack, while there are any",
    )
    client_rack: str = option(
        "",
        bounded_text(),
        "the rack or zone that this producer is in, as brokers' broker.rack names it",
    )
    interceptors: Any = option(
        (),
        plugins(*METHODS),
        "see each record before it is queued, and how it ended; in this order; none: records take the fast path",
        java="interceptor.classes",
    )
    metrics_recording_level: str = option(
        "info",
        words("none", "info", "debug", "trace"),
        "what `metrics()` has: nothing that is counted; all but each partition's queue; all",
    )
    metrics_sample_window_ms: float = option(
        30_000, ms(1), "one sample of what rates, averages and maxima are taken of"
    )
    metrics_num_samples: int = option(
        2, number(1, 1_000, unit="samples"), "how many of them these look back"
    )
    circuit_breaker_class: Any = option(
        None,
        breaker("failure_rate", "FailureRateCircuitBreaker"),
        "mutes partitions that fail (KIP-693); None: none is muted",
        java=None,
    )
    circuit_breaker_trigger_message_count: int = option(
        20,
        number(1, INT_MAX, unit="records"),
        "records, of late, below which a failure rate says nothing",
        java=None,
    )
    circuit_breaker_trigger_failure_perc: int = option(
        50,
        number(1, 100, unit="%"),
        "of a partition's records, of late, that failed: with so many it is muted",
        java=None,
    )
    circuit_breaker_mute_retry_interval_ms: float = option(
        1_000,
        ms(1),
        "first pause before a muted partition is tried, doubles; also what late means: a batch that is on its way for longer counts as failed",
        java=None,
    )
    circuit_breaker_mute_retry_max_interval_ms: float = option(
        30_000, ms(1), "longest pause before a muted partition is tried again", java=None
    )
    circuit_breaker_enable_mute_inflight_full: bool = option(
        False,
        FLAG,
        "with one request in flight: whether a broker that does not answer it in the first pause is muted",
        java=None,
    )
    circuit_breaker_options: Mapping[str, Any] | None = option(
        None, MAPPING, "what `configure` of your own breaker is given", java=None
    )
    circuit_breaker_keyed_policy: str = option(
        "strict",
        words("strict", "available", "fail_fast"),
        "records for a muted partition, by their key or by name: they stay, go to another one, or are refused",
        java=None,
    )
    on_circuit_event: Callable[..., object] | None = option(
        None,
        function(),
        "(event): called with a CircuitEvent when a partition is muted, tried or restored",
        java=None,
    )
    on_delivery_error: Callable[..., object] | None = option(
        None,
        function(),
        "(error, records): called for failed records whose outcome the application did not read",
        java=None,
    )
    on_failed: Callable[..., object] | None = option(
        None,
        function(),
        "(error, records): called with the records of each failed batch, keys and values included",
        java=None,
    )

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        """Make a config of options, by their names here. An option that is not given has its default.

        Raises:
            ConfigError: an option is bad, or in conflict with another.
            TypeError: an option is unknown. `ProducerConfig.of` and `from_mapping` name the nearest.
        """
        unknown = next((name for name in options if name not in OPTIONS), None)
        if unknown is not None:
            raise TypeError(
                f"ProducerConfig.__init__() got an unexpected keyword argument {unknown!r}"
            )
        self.__dict__.update(_DEFAULTS, **options, _chosen=frozenset(options))
        self.__post_init__()

    def __post_init__(self) -> None:
        """Convert values as environment files and other clients write them; check every range and conflict."""
        for name in self._chosen:
            if has_private_key(getattr(self, name)) and not OPTIONS[name].kind.is_secret:
                raise ConfigError(
                    f"{name} has a private key, which is a secret: give it as ssl_keystore_key, or in a file"
                )
        addresses, scheme = read_addresses("bootstrap_servers", self.bootstrap_servers)
        for name in self._chosen:
            self._set(
                name,
                addresses
                if name == "bootstrap_servers"
                else OPTIONS[name].kind.read(name, getattr(self, name)),
            )
        if scheme is not None:
            self._take_scheme(scheme)
        if not self._chosen.isdisjoint(SECURITY_NAMES):
            settle_security(self, self._chosen)
        self._give_way()
        self._check_conflicts()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _take_scheme(self, scheme: str) -> None:
        if "security_protocol" in self._chosen and self.security_protocol != scheme:
            raise ConfigError(
                f"bootstrap_servers has the scheme {scheme}, and security_protocol={self.security_protocol}. Make them the same, or give one"
            )
        self._set("security_protocol", scheme)
        self._set("_chosen", self._chosen | {"security_protocol"})

    def _give_way(self) -> None:
        """Change defaults that conflict with values that the user gave."""
        if "reconnect_backoff_ms" in self._chosen:
            self._move(
                "reconnect_backoff_max_ms",
                self.reconnect_backoff_ms,
                "reconnect_backoff_ms alone was given: the pause does not grow",
            )
        for first, longest in _PAIRS:
            if getattr(self, first) > getattr(self, longest):
                moved, given = (first, longest) if longest in self._chosen else (longest, first)
                self._move(moved, getattr(self, given), f"{given} was given")
        least = self._least_delivery_ms
        if self.delivery_timeout_ms < least:
            self._move(
                "delivery_timeout_ms", least, "linger_ms + request_timeout_ms are above its default"
            )

    def _move(self, name: str, value: float, why: str) -> None:
        if name not in self._chosen and getattr(self, name) != value:
            self._set(name, value)
            _log.warning("%s is %.15g, as %s. Give %s, too, to choose it.", name, value, why, name)

    @property
    def fixed_linger_ms(self) -> float:
        """Return the time that a partial batch waits regardless of batches in flight; 0 with `linger_ms="auto"`, which has no time."""
        return 0 if isinstance(self.linger_ms, str) else self.linger_ms

    @property
    def _least_delivery_ms(self) -> float:
        return self.fixed_linger_ms + self.request_timeout_ms

    @property
    def is_idempotent(self) -> bool:
        """Return whether batches have sequence numbers: `enable_idempotence` if it is given, else whether other options allow it."""
        if self.enable_idempotence is not None:
            return self.enable_idempotence
        return not self._against_idempotence()

    def _against_idempotence(self) -> str:
        """Return the option that conflicts with idempotence; empty: none."""
        if self.acks is not Acks.ALL:
            return f"acks={self.acks}"
        if not self.retries:
            return "retries=0"
        return (
            f"message_format_max={self.message_format_max}"
            if self.message_format_max < _WITH_NUMBERS
            else ""
        )

    def _check_numbers(self) -> None:
        """Check the options that idempotence and transactions need (CFG-07, CFG-08)."""
        against = self._against_idempotence()
        if self.transactional_id is not None and not self.is_idempotent:
            conflict = against or "enable_idempotence=False"
            raise ConfigError(
                f"transactions need idempotence, and {conflict} forbids it. Leave {conflict.partition('=')[0]} out."
            )
        if self.enable_idempotence and against:
            raise ConfigError(
                f"enable_idempotence needs acks=all, retries and record format 2, and {against}. Leave that out, or turn it off."
            )
        most = self.max_in_flight_requests_per_connection
        if self.is_idempotent and most > _WINDOW:
            raise ConfigError(
                f"max_in_flight_requests_per_connection={most}: with idempotence it is at most {_WINDOW}, as brokers remember so many. "
                "Lower it, or give enable_idempotence=False."
            )

    def _check_times(self) -> None:
        if self.delivery_timeout_ms < self._least_delivery_ms:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms:.15g} is below linger_ms + request_timeout_ms = "
                f"{self._least_delivery_ms:.15g}: a record would fail before its first request may. Raise it, or lower the others."
            )
        for first, longest in _PAIRS:
            if getattr(self, first) > getattr(self, longest):
                raise ConfigError(
                    f"{first}={getattr(self, first):.15g} is above {longest}={getattr(self, longest):.15g}, to which it grows. "
                    "Raise the one, or lower the other."
                )

    def _check_conflicts(self) -> None:
        self._check_numbers()
        self._check_times()
        if self.buffer_memory < self.batch_size + _RECORD_BATCH_OVERHEAD:
            raise ConfigError(
                f"buffer_memory={self.buffer_memory} holds no batch of batch_size={self.batch_size} bytes. Raise it, or lower batch_size."
            )
        if self.compression_type is Compression.ZSTD and self.message_format_max < 2:
            raise ConfigError(
                f"compression_type=zstd needs record format 2, and message_format_max={self.message_format_max}. Raise it, or choose another codec."
            )
        if (
            self.circuit_breaker_enable_mute_inflight_full
            and self.max_in_flight_requests_per_connection != 1
        ):
            _log.warning(
                "circuit_breaker_enable_mute_inflight_full does nothing but with max_in_flight_requests_per_connection=1"
            )
        if self.partitioner is not None and self.partitioner_ignore_keys:
            raise ConfigError(
                "partitioner_ignore_keys is for Kafka's partitioner: leave it out, or `partitioner`, which sees the keys"
            )
        _check_hook("on_delivery_error", self.on_delivery_error, "the number of records")
        _check_hook("on_failed", self.on_failed, "the records")

    @classmethod
    def of(cls, config: ProducerConfig | None, options: dict[str, Any]) -> ProducerConfig:
        """Return the given config, with `options` in place of its own.

        Args:
            config: None: all other options have their defaults.
            options: keyword options.

        Raises:
            ConfigError: `config` is none, or an option is unknown (the nearest name is in the text) or bad.
        """
        if config is None:
            return cls(**options_of(options, OPTIONS, dotted=False))
        if not isinstance(config, ProducerConfig):
            advice = (
                "ProducerConfig.from_mapping makes one of it"
                if isinstance(config, dict)
                else "options are given by name"
            )
            raise ConfigError(
                f"config must be a ProducerConfig, not {type(config).__name__}; {advice}"
            )
        return config.replace(**options) if options else config

    def replace(self, **options: Unpack[ProducerOptions]) -> Self:
        """Return a config with these options in place of this one's. A default that gave way to another option is a default again.

        Args:
            options: fields, by name, or by the names of aiokafka's and kafka-python's arguments.

        Raises:
            ConfigError: an option is unknown, bad, or in conflict with another.
        """
        chosen = {name: getattr(self, name) for name in self._chosen}
        return type(self)(
            **chosen | options_of(cast("dict[str, Any]", options), OPTIONS, dotted=False)
        )

    @classmethod
    def from_env(
        cls, prefix: str = DEFAULT_PREFIX, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Return a config of environment variables: `KAFKA_BOOTSTRAP_SERVERS`, `KAFKA_LINGER_MS`, and so on for each option.

        A name is `prefix` and the option's name, or Java's or librdkafka's with underscores, in upper case. Empty variables are left out.
        Names of `prefix` that are no options belong to other programs: one line of the log names them. A secret may be a reference
        (`${file:/run/secrets/kafka:password}`), which stays one.

        Args:
            prefix: the beginning of the names.
            environ: the variables; None: those of the process.

        Raises:
            ConfigError: a value is bad, or two names mean the same option.
        """
        return cls(**environment_options(prefix, OPTIONS, environ))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return a config of Java's or librdkafka's dotted names, in their units. Values may be text, as in a properties file.

        Raises:
            ConfigError: a value is bad; a name is unknown (the text has the nearest); or two names mean the same option.
        """
        return cls(**options_of(mapping, OPTIONS))


_FIELDS: Final = {one.name: one for one in fields(ProducerConfig)}
# Options of security come last.
OPTIONS: Final[Mapping[str, Option]] = {
    name: _FIELDS[name].metadata["option"]
    for name in (*(name for name in _FIELDS if name not in SECURITY_NAMES), *SECURITY_NAMES)
}
_DEFAULTS: Final[Mapping[str, Any]] = {name: one.default for name, one in _FIELDS.items()}
ProducerConfig._chosen = frozenset(OPTIONS)
# `inspect.signature` and `help` show each option with its default, and with the type that may be given.
_TYPES: Final = get_type_hints(ProducerOptions)
ProducerConfig.__init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    + [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=_TYPES[name]
        )
        for name in OPTIONS
    ]
)


def _check_hook(name: str, hook: Callable[..., object] | None, second: str) -> None:
    if hook is None:
        return
    try:
        inspect.signature(hook).bind(None, 0)
    except TypeError as error:
        raise ConfigError(
            f"{name} is called with the error and {second}; {hook!r} does not take these"
        ) from error
    # A builtin without a signature.
    except ValueError:
        pass


# Assigns client ids to producers without a given one: `aioproducer-1`, `aioproducer-2`, ... in each process.
#
# A producer with a `transactional_id` is `aioproducer-<transactional_id>`, as in Java (`ProducerConfig`, KAFKA-1228). Any other producer has
# the lowest number that no producer of the process has. It holds the number from its construction until it has stopped or was
# garbage-collected. A forked child counts from 1, because the parent's producers do not run in it.


_PREFIX: Final = "aioproducer-"
# Bytes of a client id that a request's header can hold.
_MAX_BYTES: Final = 2**15 - 1
# setdefault and pop are atomic, so producers may be made in several threads without a lock. A lock could be held while the process forks.
_holders: Final[dict[int, object]] = {}


class ClientIdNumber:
    """Holds the number of one producer's client id, until `release`, or until this object is garbage-collected."""

    def __init__(self) -> None:
        # While the interpreter ends, the module's global may be gone before the last producer is.
        self._holders = _holders
        self._token = object()
        self.value: int = 1
        while _holders.setdefault(self.value, self._token) is not self._token:
            self.value += 1

    def release(self) -> None:
        """Free the number for another producer. May be called again."""
        if self._holders.get(self.value) is self._token:
            del self._holders[self.value]

    __del__ = release


def with_client_id(config: ProducerConfig) -> tuple[ProducerConfig, ClientIdNumber | None]:
    """Return a config with a client id, and the number in it, if any.

    The config is `config` itself if its user chose a client id, else a copy.
    """
    if config.client_id and "client_id" in config._chosen:
        return config, None
    number = None
    if config.transactional_id is not None:
        client_id = (
            (_PREFIX + config.transactional_id).encode()[:_MAX_BYTES].decode(errors="ignore")
        )
    else:
        number = ClientIdNumber()
        client_id = f"{_PREFIX}{number.value}"
    # No option is checked again, so no warning is logged a second time. The name is not the user's choice: another producer with the copy
    # chooses its own.
    made = copy.copy(config)
    object.__setattr__(made, "client_id", client_id)
    object.__setattr__(made, "_chosen", config._chosen - {"client_id"})
    return made, number


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_holders.clear)
