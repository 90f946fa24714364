"""The producer's options: one frozen value that checks itself. Knows nothing of loops or sockets.

Names are Java's with underscores; times end in `_ms`, sizes are bytes. Where a default differs from Java's, the field says so.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError
from aioproducer.model import Acks, Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ProducerConfig"]

_ACKS: Final = {"all": Acks.ALL, "-1": Acks.ALL, "0": Acks.NONE, "1": Acks.LEADER}
_RECORD_BATCH_OVERHEAD: Final = 61
_MAX_INT: Final = 2**31 - 1
_MAX_SHORT: Final = 2**15 - 1


def _option(default: Any, doc: str, *, low: float | None = None, high: float | None = None) -> Any:
    return field(default=default, metadata={"doc": doc, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerConfig:
    """What a producer is told, checked: a bad value raises `ConfigError` that says what to do."""

    bootstrap_servers: str | tuple[str, ...] = _option("localhost:9092", "host:port of some brokers, comma-separated or a sequence")
    client_id: str = _option("aioproducer", "the name that brokers log and meter")
    acks: Acks | int | str = _option("all", "replicas that must have a record before its broker answers: all, 1 or 0")
    compression_type: Compression | str = _option("none", "none, gzip, snappy, lz4 or zstd")
    linger_ms: float = _option(0, "how long a partial batch waits for more records; Java: 5", low=0)
    batch_size: int = _option(16_384, "bytes of a full batch of one partition", low=1, high=_MAX_INT)
    max_request_size: int = _option(1_048_576, "bytes of one request, and of one record uncompressed", low=1, high=_MAX_INT)
    buffer_memory: int = _option(33_554_432, "bytes of all records that are not acknowledged yet", low=1)
    max_in_flight_requests_per_connection: int = _option(5, "unanswered produce requests per broker", low=1)
    max_block_ms: float = _option(60_000, "how long `send` itself and `start` may wait", low=0)
    delivery_timeout_ms: float = _option(120_000, "from a record's append to its end, acknowledged or failed", low=0)
    request_timeout_ms: float = _option(30_000, "how long a request may stay unanswered", low=1, high=_MAX_INT)
    retry_backoff_ms: float = _option(100, "first pause before a retry; doubles, with jitter", low=0)
    retry_backoff_max_ms: float = _option(1_000, "longest pause before a retry", low=0)
    reconnect_backoff_ms: float = _option(50, "first pause before dialling a broker again; doubles, with jitter", low=0)
    reconnect_backoff_max_ms: float = _option(1_000, "longest pause before dialling again", low=0)
    socket_connection_setup_timeout_ms: float = _option(10_000, "how long a connection may take to stand", low=1)
    metadata_max_age_ms: float = _option(300_000, "age at which metadata is fetched anew", low=1)
    close_timeout_ms: float = _option(30_000, "how long `stop` may flush before what is left fails", low=0)
    key_serializer: Callable[..., bytes] | None = _option(None, "(topic, headers, key) or (key) -> bytes; None: keys are bytes")
    value_serializer: Callable[..., bytes] | None = _option(None, "(topic, headers, value) or (value) -> bytes; None: values are bytes")
    partitioner: Callable[[bytes | None, int], int] | None = _option(None, "(key, partitions) -> partition; None: murmur2 or sticky")

    def __post_init__(self) -> None:
        """Coerce what environment files and other clients write, then check every range and conflict."""
        put = object.__setattr__
        put(self, "bootstrap_servers", _addresses(self.bootstrap_servers))
        put(self, "acks", _acks(self.acks))
        put(self, "compression_type", _compression(self.compression_type))
        for option in dataclasses.fields(self):
            if option.metadata["low"] is not None:
                put(self, option.name, _number(option, getattr(self, option.name)))
        for name in ("key_serializer", "value_serializer", "partitioner"):
            if (value := getattr(self, name)) is not None and not callable(value):
                raise ConfigError(f"{name} must be callable, not {type(value).__name__}")
        _check_client_id(self.client_id)
        self._check_conflicts()

    def _check_conflicts(self) -> None:
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms:g} is below linger_ms + request_timeout_ms = "
                f"{self.linger_ms + self.request_timeout_ms:g}: a record would fail before its first request may. Raise it, or lower the others."
            )
        if self.buffer_memory < self.batch_size + _RECORD_BATCH_OVERHEAD:
            raise ConfigError(
                f"buffer_memory={self.buffer_memory} holds no batch of batch_size={self.batch_size} bytes. Raise it, or lower batch_size."
            )

    @classmethod
    def of(cls, config: ProducerConfig | None, options: Mapping[str, Any]) -> ProducerConfig:
        """A config as it is, or one made of keyword options.

        Raises:
            ConfigError: both were given, or an option is unknown (the nearest name is in the text) or bad.
        """
        if config is not None:
            if not isinstance(config, ProducerConfig):
                raise ConfigError(f"config must be a ProducerConfig, not {type(config).__name__}; options are given by name")
            if options:
                raise ConfigError(f"give either a ProducerConfig or options, not both (got also {', '.join(sorted(options))})")
            return config
        known = [option.name for option in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name.replace(".", "_"), known, 1, 0.5)
                raise ConfigError(f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return cls(**options)


def _addresses(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ConfigError("bootstrap_servers must be 'host:port,...' or a sequence of 'host:port'")
    addresses = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigError(f"bootstrap_servers: {address!r} is not host:port")
    if not addresses:
        raise ConfigError("bootstrap_servers is empty: name at least one broker as host:port")
    return addresses


def _check_client_id(value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"client_id must be a string, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigError("client_id has characters that UTF-8 does not") from None
    if size > _MAX_SHORT:
        raise ConfigError(f"client_id takes {size} bytes: it is at most {_MAX_SHORT}")


def _acks(value: object) -> Acks:
    acks = _ACKS.get(str(int(value) if isinstance(value, int) else value).strip().lower())
    if acks is None or isinstance(value, bool):
        raise ConfigError(f"acks={value!r}: it is 'all', 1 or 0")
    return acks


def _compression(value: object) -> Compression:
    if isinstance(value, Compression):
        return value
    try:
        return Compression[str(value).upper()] if value is not None else Compression.NONE
    except KeyError:
        raise ConfigError(f"compression_type={value!r}: it is one of {', '.join(codec.name.lower() for codec in Compression)}") from None


def _number(option: dataclasses.Field[Any], value: object) -> float:
    low, high = option.metadata["low"], option.metadata["high"]
    kind: type[int | float] = int if option.type == "int" else float
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise TypeError
        number = kind(value)
        if number != number or number == float("inf") or (kind is int and number != float(value)):  # noqa: PLR0124  (NaN)
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{option.name}={value!r}: it is {'a whole number' if kind is int else 'a number'}") from None
    if number < low or (high is not None and number > high):
        raise ConfigError(f"{option.name}={value!r}: it is at least {low}" + (f" and at most {high}" if high is not None else ""))
    return number
