"""Holds the frozen values that pass between the package's layers and to the user."""

from __future__ import annotations

import enum
import typing
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from numbers import Number
from operator import index
from typing import Any, Final, Generic, NamedTuple, SupportsIndex, TypeAlias, TypeVar

from aioproducer.errors import Persisted, UsageError

__all__ = [
    "Acks",
    "BrokerSecurity",
    "CircuitEvent",
    "CircuitState",
    "Compression",
    "ConsumerGroupMetadata",
    "FailedRecord",
    "FlushSummary",
    "Header",
    "Headers",
    "HeadersLike",
    "Health",
    "OffsetAndMetadata",
    "PartitionNumber",
    "Position",
    "PreparedTransaction",
    "ProducerRecord",
    "Record",
    "RecordMetadata",
    "TimestampMs",
    "TimestampType",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
    "counted",
    "exact_int",
    "is_number",
    "is_numpy_bool",
    "seconds_of",
    "shown",
    "timestamp_of",
]

# Integers of any type, including numpy's. A datetime needs a time zone.
PartitionNumber: TypeAlias = SupportsIndex
TimestampMs: TypeAlias = SupportsIndex | datetime
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = Sequence[Header]
# Headers as `send` takes them; a string is UTF-8, None is no headers. Interceptors and serializers get them as `Headers`.
HeadersLike: TypeAlias = (
    Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] | None
)
# A record may be sent wherever one of a more general type may. Without a key it fits any type of keys, and an annotation `Record` alone is one of
# any record (PEP 696).
if typing.TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar

    K_co = DefaultingTypeVar("K_co", covariant=True, default=Any)
    V_co = DefaultingTypeVar("V_co", covariant=True, default=Any)
else:
    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)


class TimestampType(enum.IntEnum):
    """Identifies the source of a record's timestamp: its producer or, on append, its broker."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Acks(enum.IntEnum):
    """Holds the number of replicas that must have a record before its broker answers."""

    ALL = -1
    NONE = 0
    LEADER = 1


class Compression(enum.IntEnum):
    """Identifies the codec of a record batch; the number is part of the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TopicPartition(NamedTuple):
    """Identifies one partition."""

    topic: str
    partition: int


class CircuitState(enum.StrEnum):
    """Holds the states of a partition's circuit (KIP-693)."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class CircuitEvent(NamedTuple):
    """Holds a change of state of a partition's circuit, the argument of `on_circuit_event`.

    Attributes:
        interval_ms: open: the time for which the partition is muted now; probing: the time for which it was muted; closed: 0.
        cause: why the circuit is open; None: the user's code muted the partition.
    """

    partition: TopicPartition
    state: CircuitState
    interval_ms: float
    cause: Exception | None = None


class OffsetAndMetadata(NamedTuple):
    """Holds an offset to commit: that of the next record to read, with a note.

    `leader_epoch` is the epoch of the leader from which the last record was read.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class Position(NamedTuple):
    """Holds how far a job has read its source, as `send_position_to_transaction` sent it.

    Attributes:
        number: from 0 on.
        cursor: the text beside it.
    """

    number: int
    cursor: str = ""


class PreparedTransaction(NamedTuple):
    """Identifies a transaction that `prepare_transaction` left open, so that a `TransactionResolver` can end it, also in another process.

    Attributes:
        transactional_id: of the producer that wrote it.
        producer_id, epoch: the transaction's own: a newer producer with the transactional id has another epoch.
        version: of the transaction protocol, 1 or 2.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: int


class TransactionListing(NamedTuple):
    """Holds what a coordinator lists of a transactional id. `state` is Kafka's word for it: "Ongoing", "CompleteCommit", "Empty" ..."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """Holds what a coordinator knows of the latest transaction of a transactional id.

    Attributes:
        transactional_id: of its producer.
        producer_id, epoch: those of the next transaction, if the latest one has ended.
        state: Kafka's word for it: "Ongoing" is open; "PrepareCommit" and "PrepareAbort" are decided.
        started_at: when its first partition was added; None: no transaction has begun since its producer's start.
        timeout_ms: how long its producer lets it last.
        partitions: those that it has written to, while it is open; offsets are partitions of `__consumer_offsets`.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    started_at: datetime | None
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


class ConsumerGroupMetadata(NamedTuple):
    """Identifies the consumer group, and its member, that commits offsets in a transaction (Java's `ConsumerGroupMetadata`).

    With the generation and member id of a consumer, the group refuses the offsets of a member that is no longer part of it (KIP-447).
    With the group id alone, the group refuses no member.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Record(typing.NamedTuple, Generic[K_co, V_co]):
    """Holds a record for `send_many` that is more than a value (Java's `ProducerRecord`). The fields are arguments of `send`."""

    value: V_co | None = None
    key: K_co | None = None
    partition: PartitionNumber | None = None
    timestamp_ms: TimestampMs | None = None
    headers: HeadersLike = ()

    def __repr__(self) -> str:
        """Return a text without the key, the value and the header values."""
        where = "" if self.partition is None else f" for partition {self.partition}"
        when = "" if self.timestamp_ms is None else f" of {self.timestamp_ms}"
        return f"<Record{where}{when}: {counted(len(self.headers or ()), 'header')}>"


class ProducerRecord(NamedTuple):
    """Holds a record before it is queued, as an interceptor gets it (Java's `ProducerRecord`). The fields are arguments of `send`."""

    topic: str
    value: Any = None
    key: Any = None
    partition: PartitionNumber | None = None
    timestamp_ms: TimestampMs | None = None
    headers: Headers = ()

    def __repr__(self) -> str:
        """Return a text without the key, the value and the header values."""
        where = "" if self.partition is None else f", partition {self.partition}"
        return f"<ProducerRecord for {self.topic}{where}: {counted(len(self.headers or ()), 'header')}>"


class RecordMetadata(NamedTuple):
    """Holds the position of a record in the log, and the broker's facts about it (Java's `RecordMetadata`).

    `offset` is -1 with acks=0. `timestamp_ms` is the broker's on topics with LogAppendTime. Sizes are in bytes, -1 for null.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    serialized_key_size: int
    serialized_value_size: int


class BrokerSecurity(NamedTuple):
    """Holds how the connections to one broker are encrypted and authenticated.

    Attributes:
        node_id: the broker.
        address: its host:port.
        protocol: the `security_protocol`.
        tls_version: "TLSv1.2" or "TLSv1.3"; None: no connection is encrypted now.
        cipher: OpenSSL's name of the cipher suite; None as above.
        certificate_ends_at: the end of the broker's certificate, in seconds since 1970; None: it is not known.
        mechanism: the SASL mechanism; None: there is none.
        principal: the user's name, or the reference to it, or the subject of the bearer token; None: there is none, or it is not known.
        session_seconds_left: until the broker ends the session, which is renewed before; None: it does not end.
        last_refusal: why the latest attempt was refused, by the broker or by this client, or why there is no new token; None: it was not.
    """

    node_id: int
    address: str
    protocol: str
    tls_version: str | None = None
    cipher: str | None = None
    certificate_ends_at: float | None = None
    mechanism: str | None = None
    principal: str | None = None
    session_seconds_left: float | None = None
    last_refusal: str | None = None


class Health(NamedTuple):
    """Holds the health of a producer, for readiness probes: true if the producer is ready.

    Attributes:
        is_ready: the producer runs, reaches its cluster, and no record is overdue.
        reasons: why it is not ready.
        brokers_known: the number of brokers of the cluster.
        brokers_up: the number of them with an established connection: one is made when there is something to send.
        brokers_down: the number of them to which the latest connection attempt failed.
        oldest_unacknowledged_seconds: the age of the oldest record that has not ended, 0 if there is none.
        open_breakers: brokers and partitions that a circuit breaker mutes; records for all others are sent.
        buffer_available: the free bytes of `buffer_memory`.
        waiting: the number of sends that wait.
        security: how the connections to each broker are encrypted and authenticated; empty with PLAINTEXT.
    """

    is_ready: bool
    reasons: tuple[str, ...] = ()
    brokers_known: int = 0
    brokers_up: int = 0
    brokers_down: int = 0
    oldest_unacknowledged_seconds: float = 0.0
    open_breakers: tuple[str, ...] = ()
    buffer_available: int = 0
    waiting: int = 0
    security: tuple[BrokerSecurity, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the producer is ready."""
        return self.is_ready


class FlushSummary(NamedTuple):
    """Holds the numbers of records that a flush covered, by their state at its end."""

    acknowledged: int
    failed: int
    pending: int


# Exceptions that are a failure of the user's function. A plain function is never cancelled: its CancelledError is that of a cancelled future.
USER_FAILURES: Final = (Exception, CancelledError)

# Converts values that callers may give for a number into the number itself.
#
# Data frames hold numbers of their own types: numpy's integers have `__index__` and are no `int`. They are accepted wherever an `int` is. A
# bool is no number here, nor is numpy's bool: `True` as a number is a mistake. No function here imports numpy.


def exact_int(value: Any) -> int | None:
    """Return the `int` of an integer of any type that has `__index__`; None if `value` is no integer, or a bool."""
    if type(value) is int:
        return value
    # A subclass may compute differently, or have an __index__ of its own.
    if isinstance(value, int):
        return None if isinstance(value, bool) else int.__int__(value)
    if is_numpy_bool(value):
        return None
    try:
        return int.__int__(index(value))
    # TypeError, or what the __index__ of the caller's class raises.
    except USER_FAILURES:
        return None


def is_number(value: Any) -> bool:
    """Return whether `value` is accepted as a float: int, float, Decimal, Fraction, and numpy's integers and floats; no bool."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    return isinstance(value, Number) and not isinstance(value, complex)


def is_numpy_bool(value: Any) -> bool:
    """Return whether `value` is numpy's True or False: `numpy.bool`, which has the name `bool_` before numpy 2."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in {"bool", "bool_"}


def shown(value: Any) -> object:
    """Return the part of a value that an error's text may show: a number, else the type, as the value may be a misplaced key."""
    number = exact_int(value)
    if number is not None:
        return number
    if not isinstance(value, bool) and not is_number(value):
        return type(value).__name__
    # The text of a Decimal or a Fraction may be that of an integer, which would be right.
    return repr(value) if str(value).removeprefix("-").isdecimal() else value


# Converts values that callers may give for a record's time into milliseconds since 1970, and for a duration into seconds.
#
# An integer of any type is accepted, and a `datetime` with a time zone. A `pandas.Timestamp` is such a `datetime`. No function here imports
# pandas.


_MAX_TIMESTAMP_MS: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def timestamp_of(name: str, value: Any, where: str = "") -> int:
    """Return the milliseconds since 1970 of an integer, or of a datetime with a time zone. Parts of a millisecond are cut off.

    Args:
        name: the name of the argument, for the error.
        value: the given value; the error shows it if it is a number or a time, else its type.
        where: the text after the value in the error.

    Raises:
        UsageError: the value is neither, or not between 0 and 2**63 - 1. The text names the accepted values.
    """
    reason = "it is whole milliseconds since 1970, or a datetime with a time zone"
    moment = None
    if not isinstance(value, datetime):
        moment = exact_int(value)
    # pandas.NaT is a datetime, and not equal to itself.
    elif value != value:
        reason = "a missing time is none. Leave the record out, or give a time"
    else:
        try:
            if value.utcoffset() is None:
                reason = "it has no time zone. Give a datetime with one, as datetime.now(UTC) is, whole milliseconds since 1970"
            else:
                moment = int((value - _EPOCH) // _MILLISECOND)
        # A tzinfo of the caller may raise any error, also when the text shows the datetime.
        except USER_FAILURES as error:
            why = f"its time zone raised {type(error).__name__}. Give whole milliseconds since 1970"
            raise UsageError(f"{name}={shown(value)}{where}: {why}, or None") from error
    if moment is None or not 0 <= moment <= _MAX_TIMESTAMP_MS:
        raise UsageError(
            f"{name}={value if isinstance(value, datetime) else shown(value)}{where}: {reason}, or None"
        )
    return moment


def seconds_of(name: str, value: Any) -> float | None:
    """Return the seconds of a number of seconds, or of a timedelta; None for None.

    Raises:
        UsageError: the value is neither, or negative.
    """
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not (is_number(seconds) and seconds >= 0):
        raise UsageError(f"{name}={value!r}: it is seconds, from 0 on, or a timedelta, or None")
    return float(seconds)


# Writes counts with the noun that fits, for errors, logs and reprs.


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 record`, `2 records`, `2 batches`."""
    plural = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{plural}"


# Holds the record that `on_failed` gets.


class FailedRecord(NamedTuple):
    """Holds a record that was not acknowledged, as `on_failed` gets it: decoded from the bytes of its batch.

    The fields before `persisted` are the arguments of `send`, in their order. Key and value are serialized.

    Attributes:
        topic, partition: where it was to be written.
        timestamp_ms: its time, or that of its batch if the broker takes no timestamps (Kafka 0.9, `message_format_max=0`).
        persisted: `no` = it is certainly not in the log; `maybe` = an attempt may have written it.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp_ms: int
    headers: tuple[Header, ...]
    persisted: Persisted

    def __repr__(self) -> str:
        """Return a text without the key, the value and the header values."""
        return f"<FailedRecord for {self.topic}-{self.partition} of {self.timestamp_ms}, persisted={self.persisted}: {counted(len(self.headers), 'header')}>"
