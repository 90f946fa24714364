"""Holds the producer's options, in one frozen value that checks itself.

Names are Java's with underscores. Times end in `_ms`, sizes are bytes. If a default differs from Java's, the field's text says so.
The fields below are the only table of all options: `docs/reference/config.md` is generated from it.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack, cast

from aioproducer.config.option_kinds import (
    ACKS,
    ADDRESSES,
    COMPRESSION,
    DEFAULT_PREFIX,
    FLAG,
    MAYBE_FLAG,
    AssignedClientId,
    Yielding,
    breaker,
    client_id,
    function,
    is_secret,
    mapping,
    number,
    option,
    option_class,
    or_word,
    plugins,
    read_addresses,
    text,
    words,
)
from aioproducer.config.producer_options import ProducerOptions
from aioproducer.config.secret import NotText, Secret, hide  # noqa: F401  (for those who read the types of fields at run time, as pydantic does)
from aioproducer.config.security_options import SECURE_NAMES, Assumed, SecureOptions, hides_secrets
from aioproducer.errors import ConfigError
from aioproducer.interceptors import METHODS
from aioproducer.interfaces import Serializer
from aioproducer.model import Acks, Compression
from aioproducer.partitioners import RoundRobinPartitioner
from aioproducer.serializers import is_two_phase, string_serializer

if TYPE_CHECKING:
    from aioproducer.config.option_kinds import Option

__all__ = ["ClientIdNumber", "OPTIONS", "ProducerConfig", "check_hooks", "with_client_id"]

_log = logging.getLogger(__name__)
_RECORD_BATCH_OVERHEAD: Final = 61
_INT: Final = 2**31 - 1
_SHORT: Final = 2**15 - 1
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
_BY_DEFAULT: Final = True
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


def _ms(low: int, high: int | None = None, none: tuple[int, ...] = ()) -> Any:
    return number(low, high, unit="ms", none=none)


def _size(low: int, none: tuple[int, ...] = ()) -> Any:
    return number(low, _INT, unit="bytes", none=none)


def _serializes(value: object) -> bool:
    """Return whether a value is a serializer: a function, or a two-phase one."""
    return callable(value) or is_two_phase(value)


def _partitions(value: object) -> bool:
    return callable(value) or callable(getattr(value, "partition", None))


@hides_secrets
@option_class(frozen=True, kw_only=True, slots=True, init=False, repr=False, eq=False)
class ProducerConfig(SecureOptions):
    """Holds the options of a producer, checked: a bad value raises a `ConfigError` with a remedy."""

    bootstrap_servers: str | tuple[str, ...] = option(
        "localhost:9092", ADDRESSES, "some brokers, from which all others are found", librdkafka=("metadata.broker.list",)
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        words("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "whether every address of a name is dialled, or bootstrap addresses are first replaced by the host names behind them",
    )
    client_id: str = option(
        "",
        client_id(_SHORT),
        "the name that brokers log, meter and set quotas for; empty: `aioproducer-1`, `aioproducer-2`, ... in each process, or "
        "`aioproducer-` and the transactional_id; Java: `producer-1`, ...",
    )
    acks: Acks | int | str = option(
        "all", ACKS, "replicas that must have a record before its broker answers", librdkafka=("request.required.acks",)
    )
    enable_idempotence: bool | None = option(
        None,
        MAYBE_FLAG,
        "whether records are in the log once and in order, also after retries; None: yes, unless acks or retries forbid it",
    )
    transactional_id: str | None = option(
        None, text(_SHORT, shortest=1, none=True), "the name under which transactions are begun, and earlier producers of that name ended"
    )
    transaction_timeout_ms: float = option(60_000, _ms(1, _INT), "after which the coordinator aborts a transaction that is still open")
    compression_type: Compression | str = option("none", COMPRESSION, "codec of record batches", librdkafka=("compression.codec",))
    compression_gzip_level: int = option(-1, number(1, 9, none=(-1,)), "1 is fast, 9 is small; -1: the library's own")
    compression_lz4_level: int = option(9, number(1, 17), "9 stands for the fast compressor, as in Java; any other is a level")
    compression_zstd_level: int = option(3, number(-131_072, 22), "low is fast, high is small")
    linger_ms: float | Literal["auto"] = option(
        0,
        or_word("auto", _ms(0)),
        "how long a partial batch waits for more records; auto: while one of its partition is in flight; Java: 5",
        librdkafka=("queue.buffering.max.ms",),
    )
    batch_size: int = option(16_384, _size(1, none=(1, 0)), "bytes of a full batch of one partition; 0: each record its own batch")
    batch_max_size: int = option(
        262_144,
        _size(1),
        "bytes that a full batch may come to while it waits to be sent (KIP-782); batch_size or less: no more than that",
        java=None,
        kips=("batch.max.size",),
    )
    max_request_size: int = option(
        1_048_576, _size(1), "bytes of one request, and of one record uncompressed", librdkafka=("message.max.bytes",)
    )
    buffer_memory: int = option(
        33_554_432,
        number(1, unit="bytes"),
        "bytes of all records that are not acknowledged yet",
        librdkafka={"queue.buffering.max.kbytes": 1024},
    )
    max_in_flight_requests_per_connection: int = option(
        5, number(1, unit="requests"), "unanswered produce requests per broker", librdkafka=("max.in.flight",)
    )
    max_block_ms: float = option(60_000, _ms(0), "how long `send` itself and `start` may wait")
    delivery_timeout_ms: float = option(
        Yielding(120_000), _ms(0), "from a record's append to its end, acknowledged or failed", librdkafka=("message.timeout.ms",)
    )
    request_timeout_ms: float = option(30_000, _ms(1, _INT), "how long a request may stay unanswered", librdkafka=("socket.timeout.ms",))
    retries: int = option(
        _INT,
        number(0, _INT, unit="times"),
        "how often a batch is sent again at most; delivery_timeout_ms ends it too",
        librdkafka=("message.send.max.retries",),
    )
    retry_backoff_ms: float = option(Yielding(100), _ms(0), "first pause before a retry; doubles, with jitter")
    retry_backoff_max_ms: float = option(Yielding(1_000), _ms(0), "longest pause before a retry")
    reconnect_backoff_ms: float = option(Yielding(50), _ms(0), "first pause before dialling a broker again; doubles, with jitter")
    reconnect_backoff_max_ms: float = option(
        Yielding(1_000), _ms(0), "longest pause before dialling again; as the first, where only that is given"
    )
    socket_connection_setup_timeout_ms: float = option(
        Yielding(10_000), _ms(1), "how long a connection may take to stand; doubles with each failure, with jitter"
    )
    socket_connection_setup_timeout_max_ms: float = option(Yielding(30_000), _ms(1), "longest that a connection may take to stand")
    connections_max_idle_ms: float = option(540_000, _ms(1, none=(-1, 0)), "idle time after which a connection is closed; -1: never")
    send_buffer_bytes: int = option(
        -1,
        _size(1, none=(-1, 0)),
        "the sockets' SO_SNDBUF; -1: the system tunes it; Java: 131072",
        librdkafka=("socket.send.buffer.bytes",),
    )
    receive_buffer_bytes: int = option(
        -1,
        _size(1, none=(-1, 0)),
        "the sockets' SO_RCVBUF; -1: the system tunes it; Java: 32768",
        librdkafka=("socket.receive.buffer.bytes",),
    )
    metadata_max_age_ms: float = option(
        300_000, _ms(1), "age at which metadata is fetched again", librdkafka=("topic.metadata.refresh.interval.ms",)
    )
    metadata_max_idle_ms: float = option(
        300_000,
        _ms(5000),
        "a topic that nothing was sent to for so long is forgotten, with all that is kept of it",
        kips=("metadata.evict.ms",),
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap", words("rebootstrap", "none"), "when no known broker answers: start over at bootstrap_servers, or keep trying"
    )
    metadata_recovery_rebootstrap_trigger_ms: float = option(
        300_000, _ms(0), "time without metadata after which it starts over at bootstrap_servers"
    )
    allow_auto_create_topics: bool = option(
        True,
        FLAG,
        "whether brokers may create a topic that is asked for and not there; always so in Java",
        java=None,
        librdkafka=("allow.auto.create.topics",),
    )
    message_format_max: int = option(2, number(0, 2), "newest record format to send: 2 (Kafka 0.11 and newer), 1 or 0", java=None)
    close_timeout_ms: float = option(20_000, _ms(0), "how long `stop` may flush before what is left fails", java=None)
    key_serializer: Callable[..., bytes] | Serializer[Any] | None = option(
        None, function(_SERIALIZERS, _serializes), "(topic, headers, key) or (key) -> bytes, or a `Serializer`; None: keys are bytes"
    )
    value_serializer: Callable[..., bytes] | Serializer[Any] | None = option(
        None, function(_SERIALIZERS, _serializes), "(topic, headers, value) or (value) -> bytes, or a `Serializer`; None: values are bytes"
    )
    partitioner: Any = option(
        None,
        function(_PARTITIONERS, _partitions),
        "chooses the partition: a function, an object or its class; None: murmur2 of the key, or sticky",
        java="partitioner.class",
    )
    partitioner_ignore_keys: bool = option(False, FLAG, "whether records with a key go to the sticky partition too")
    partitioner_adaptive_partitioning_enable: bool = option(
        True, FLAG, "whether records without a key go the less to a partition the longer its queue is"
    )
    partitioner_availability_timeout_ms: float = option(
        0, _ms(0), "records without a key avoid a broker that could take nothing for so long, though something was ready for it; 0: never"
    )
    partitioner_rack_aware: bool = option(
        False, FLAG, "whether records without a key go to partitions whose leader is in client_rack, while there are any"
    )
    client_rack: str = option("", text(_SHORT), "the rack or zone that this producer is in, as brokers' broker.rack names it")
    interceptors: Any = option(
        (),
        plugins(*METHODS),
        "see each record before it is queued, and how it ended; in this order; none: records take the fast path",
        java="interceptor.classes",
        librdkafka=("interceptors",),
    )
    metrics_recording_level: str = option(
        "info",
        words("none", "info", "debug", "trace"),
        "what `metrics()` has: nothing that is counted; all but each partition's queue; all",
    )
    metrics_sample_window_ms: float = option(30_000, _ms(1), "one sample of what rates, averages and maxima are taken of")
    metrics_num_samples: int = option(2, number(1, 1_000, unit="samples"), "how many of them these look back")
    circuit_breaker_class: Any = option(
        None, breaker("failure_rate", "FailureRateCircuitBreaker"), "mutes partitions that fail (KIP-693); None: none is muted", java=None
    )
    circuit_breaker_trigger_message_count: int = option(
        20, number(1, _INT, unit="records"), "records, of late, below which a failure rate says nothing", java=None
    )
    circuit_breaker_trigger_failure_perc: int = option(
        50, number(1, 100, unit="%"), "of a partition's records, of late, that failed: with so many it is muted", java=None
    )
    circuit_breaker_mute_retry_interval_ms: float = option(
        Yielding(1_000),
        _ms(1),
        "first pause before a muted partition is tried, doubles; also what late means: a batch that is on its way for longer counts as failed",
        java=None,
    )
    circuit_breaker_mute_retry_max_interval_ms: float = option(
        Yielding(30_000), _ms(1), "longest pause before a muted partition is tried again", java=None
    )
    circuit_breaker_enable_mute_inflight_full: bool = option(
        False, FLAG, "with one request in flight: whether a broker that does not answer it in the first pause is muted", java=None
    )
    circuit_breaker_options: Mapping[str, Any] | None = option(None, mapping(), "what `configure` of your own breaker is given", java=None)
    circuit_breaker_keyed_policy: str = option(
        "strict",
        words("strict", "available", "fail_fast"),
        "records for a muted partition, by their key or by name: they stay, go to another one, or are refused",
        java=None,
    )
    on_circuit_event: Callable[..., object] | None = option(
        None, function(), "(event): called with a CircuitEvent when a partition is muted, tried or restored", java=None
    )
    on_delivery_error: Callable[..., object] | None = option(
        None, function(), "(error, records): called for failed records whose outcome the application did not read", java=None
    )
    on_failed: Callable[..., object] | None = option(
        None, function(), "(error, records): called with the records of each failed batch, keys and values included", java=None
    )

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        """Make a config of options, by their names here. An option that is not given has its default.

        Raises:
            ConfigError: an option is bad, or in conflict with another.
            TypeError: an option is unknown. `ProducerConfig.of` and `from_mapping` name the nearest.
        """
        given = {**_DEFAULTS, **options}
        # Before anything can raise: an error may show the locals of its frames, this object among them.
        for name in _DEFAULTS:
            object.__setattr__(self, name, given[name])
        if len(given) > len(_DEFAULTS):
            unknown = next(name for name in options if name not in _DEFAULTS)
            raise TypeError(f"ProducerConfig.__init__() got an unexpected keyword argument {unknown!r}")
        self.__post_init__()

    def __post_init__(self) -> None:
        """Convert values as environment files and other clients write them; check every range and conflict."""
        is_secured = any(getattr(self, name) is not _DEFAULTS[name] for name in SECURE_NAMES)
        scheme = read_addresses("bootstrap_servers", self.bootstrap_servers).protocol
        for name, one in OPTIONS.items():
            object.__setattr__(self, name, one.kind.read(name, getattr(self, name)))
        if scheme is not None or is_secured:
            from aioproducer.config.security_options import settle_security

            settle_security(self, scheme)
        self._give_way()
        self._check_conflicts()

    def _give_way(self) -> None:
        """Change defaults that conflict with values that the user gave."""
        if not isinstance(self.reconnect_backoff_ms, Yielding):
            self._move(
                "reconnect_backoff_max_ms", self.reconnect_backoff_ms, "reconnect_backoff_ms alone was given: the pause does not grow"
            )
        for first, longest in _PAIRS:
            if getattr(self, first) > getattr(self, longest):
                moved, given = (longest, first) if isinstance(getattr(self, longest), Yielding) else (first, longest)
                self._move(moved, getattr(self, given), f"{given} was given")
        least = self._least_delivery_ms
        if self.delivery_timeout_ms < least:
            self._move("delivery_timeout_ms", least, "linger_ms + request_timeout_ms are above its default")

    def _move(self, name: str, value: float, why: str) -> None:
        if isinstance(getattr(self, name), Yielding) and getattr(self, name) != value:
            object.__setattr__(self, name, Yielding(value))
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
        return (_BY_DEFAULT or self.transactional_id is not None) and not self._against_idempotence()

    def _against_idempotence(self) -> str:
        """Return the option that conflicts with idempotence; empty: none."""
        if self.acks is not Acks.ALL:
            return f"acks={self.acks}"
        if not self.retries:
            return "retries=0"
        return f"message_format_max={self.message_format_max}" if self.message_format_max < _WITH_NUMBERS else ""

    def _check_numbers(self) -> None:
        """Check the options that idempotence and transactions need (CFG-07, CFG-08)."""
        against = self._against_idempotence()
        if self.transactional_id is not None and not self.is_idempotent:
            conflict = against or "enable_idempotence=False"
            raise ConfigError(f"transactions need idempotence, and {conflict} forbids it. Leave {conflict.partition('=')[0]} out.")
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
        if self.circuit_breaker_enable_mute_inflight_full and self.max_in_flight_requests_per_connection != 1:
            _log.warning("circuit_breaker_enable_mute_inflight_full does nothing but with max_in_flight_requests_per_connection=1")
        if self.partitioner is not None and self.partitioner_ignore_keys:
            raise ConfigError("partitioner_ignore_keys is for Kafka's partitioner: leave it out, or `partitioner`, which sees the keys")

    def with_client_id(self, client_id: str) -> Self:
        """Return a copy with another client id. No option is checked again, so no warning is logged a second time."""
        made = copy.copy(self)
        object.__setattr__(made, "client_id", client_id)
        return made

    @classmethod
    def of(cls, config: ProducerConfig | None, options: dict[str, Any]) -> ProducerConfig:
        """Return the given config, with `options` in place of its own. Secrets are replaced in `options`, which the caller's frame holds.

        Args:
            config: as `without_content` returns it; None: all other options have their defaults.
            options: keyword options.

        Raises:
            ConfigError: `config` is none, or an option is unknown (the nearest name is in the text) or bad.
        """
        _hide_secrets(options)
        if config is not None:
            if isinstance(config, type):
                advice = "ProducerConfig.from_mapping makes one of it" if issubclass(config, dict) else "options are given by name"
                raise ConfigError(f"config must be a ProducerConfig, not {config.__name__}; {advice}")
            return config.replace(**options) if options else config
        return cls(**_by_field(options))

    def replace(self, **options: Unpack[ProducerOptions]) -> ProducerConfig:
        """Return a config with these options in place of this one's. A default that gave way to another option is a default again.

        Args:
            options: fields, by name, or by the names of aiokafka's and kafka-python's arguments.

        Raises:
            ConfigError: an option is unknown, bad, or in conflict with another.
        """
        changed = cast("dict[str, Any]", options)
        _hide_secrets(changed)
        given = {name: value for name in OPTIONS if not isinstance(value := getattr(self, name), (Assumed, Yielding))}
        return type(self)(**given | _by_field(changed))

    @classmethod
    def from_env(cls, prefix: str = DEFAULT_PREFIX, environ: Mapping[str, str] | None = None) -> ProducerConfig:
        """Return a config of environment variables: `KAFKA_BOOTSTRAP_SERVERS`, `KAFKA_LINGER_MS`, and so on for each option.

        A name is `prefix` and the option's name, or Java's or librdkafka's with underscores, in upper case. Empty variables are left out.
        Names of `prefix` that are no options belong to other programs: one line of the log names them. Variables of `AIOPRODUCER_` are
        read too, and take precedence. A secret may be a reference (`${file:/run/secrets/kafka:password}`), which stays one.

        Args:
            prefix: the beginning of the names.
            environ: the variables; None: those of the process.

        Raises:
            ConfigError: a value is bad, an `AIOPRODUCER_` name is unknown (the text has the nearest), or two names mean the same option.
        """
        from aioproducer.config.option_names import environment_options, options_of

        options = environment_options(prefix, OPTIONS, environ)
        # No frame of this package holds the secrets of the environment.
        del environ
        return cls(**options_of(options, OPTIONS))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ProducerConfig:
        """Return a config of Java's or librdkafka's dotted names, in their units. Values may be text, as in a properties file.

        Raises:
            ConfigError: a value is bad; a name is unknown (the text has the nearest) or not supported (the text has the reason); or two
                names mean the same option.
        """
        from aioproducer.config.option_names import options_of

        # No frame of this package holds the secrets of the user's mapping.
        mapping = dict(mapping)
        _hide_secrets(mapping)
        return cls(**options_of(mapping, OPTIONS))


_FIELDS: Final = dataclasses.fields(ProducerConfig)
_DEFAULTS: Final[Mapping[str, Any]] = {field.name: field.default for field in _FIELDS}
_OPTIONS: Final = {field.name: field.metadata["option"] for field in _FIELDS}
# Options of security come last: those of TLS and SASL, of tokens, of Kerberos.
OPTIONS: Final[Mapping[str, Option]] = {
    name: _OPTIONS[name] for name in (*(name for name in _OPTIONS if name not in SECURE_NAMES), *SECURE_NAMES)
}
# Fields without secrets.
_SHOWN: Final = frozenset(name for name, one in OPTIONS.items() if not is_secret(one.kind))

# What few configs need is imported for those that need it: other names of options, the environment, checks of TLS and SASL.


def _hide_secrets(options: dict[str, Any]) -> None:
    """Hide, in place, each value unless its name is that of an option without secrets."""
    if options.keys() <= OPTIONS.keys():
        hide(options, _SHOWN.__contains__)
        return
    from aioproducer.config.option_names import hide_secrets

    hide_secrets(options, OPTIONS)


def _by_field(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that keyword arguments set, by any of their names."""
    if options.keys() <= OPTIONS.keys():
        return options
    from aioproducer.config.option_names import keyword_options

    return keyword_options(options, OPTIONS)


def without_content(config: Any) -> Any:
    """Return a given config; in place of anything but a `ProducerConfig` or None, its type.

    A constructor keeps only what this returns: other clients' dicts of options have secrets, and an error shows the locals of its frames.
    """
    return config if config is None or isinstance(config, ProducerConfig) else type(config)


def check_hooks(config: ProducerConfig) -> None:
    """Raise ConfigError if a function cannot be `on_delivery_error` or `on_failed`."""
    _check_hook("on_delivery_error", config.on_delivery_error, "the number of records")
    _check_hook("on_failed", config.on_failed, "the records")


def _check_hook(name: str, hook: Callable[..., object] | None, second: str) -> None:
    if hook is None:
        return
    if inspect.iscoroutinefunction(hook):
        raise ConfigError(f"{name} is a plain function; {hook!r} is a coroutine function")
    try:
        inspect.signature(hook).bind(None, 0)
    except TypeError as error:
        raise ConfigError(f"{name} is called with the error and {second}; {hook!r} does not take these") from error
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
    if config.client_id and not isinstance(config.client_id, AssignedClientId):
        return config, None
    if config.transactional_id is not None:
        cut = (_PREFIX + config.transactional_id).encode()[:_MAX_BYTES].decode(errors="ignore")
        return config.with_client_id(AssignedClientId(cut)), None
    number = ClientIdNumber()
    return config.with_client_id(AssignedClientId(f"{_PREFIX}{number.value}")), number


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_holders.clear)
