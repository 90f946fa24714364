"""What can go wrong, as one tree.

    KafkaError
    ├── UsageError            the caller's mistake, said before anything is queued
    │   ├── ConfigError
    │   ├── SerializationError
    │   ├── RecordTooLarge
    │   ├── ProducerClosed
    │   └── TransactionMisuse a call that the transaction's state does not allow
    ├── WouldBlock            `send_nowait` would have to wait; the record was not queued
    ├── SendTimeout           `send` waited `max_block_ms`; the record was not queued
    │   ├── BufferExhausted
    │   └── MetadataTimeout
    ├── PartitionUnavailable  the circuit breaker has muted the record's partition; the record was not queued
    ├── BrokerError           a broker's answer: `code`, `retriable`, `refresh`
    ├── TransportError        no answer
    │   ├── ConnectionLost
    │   ├── RequestTimedOut
    │   └── ProtocolError     bytes that are not Kafka's
    ├── BootstrapFailed       `start` reached no broker
    ├── TransactionError      `hint` says what to do (KIP-1050's classes, below)
    │   ├── TransactionTimeout    the call took longer than `max_block_ms` and goes on: call it again
    │   ├── TransactionAbortable  abort, then begin anew
    │   │   └── CommitFailed      the consumer group went on without this member
    │   ├── TransactionAborted    why the records of an aborted transaction fail
    │   └── TransactionFatal      only a new producer helps
    │       ├── ProducerFenced    another one has its transactional_id
    │       └── TransactionExpired  the coordinator ended a transaction that took too long
    └── DeliveryError         a queued record that was not acknowledged: `persisted`, `attempts`

Facts are attributes, text is built from them; keys and values never appear in it.
Error codes: Kafka's `Errors` enum; which are retried and which refresh metadata follows `Sender` and `InvalidMetadataException`.
"""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple, cast

__all__ = [
    "BootstrapFailed",
    "BrokerError",
    "BufferExhausted",
    "CommitFailed",
    "ConfigError",
    "ConnectionLost",
    "DeliveryError",
    "ErrorCode",
    "KafkaError",
    "MetadataTimeout",
    "PartitionUnavailable",
    "Persisted",
    "ProducerClosed",
    "ProducerFenced",
    "ProtocolError",
    "RecordTooLarge",
    "RequestTimedOut",
    "SendTimeout",
    "SerializationError",
    "TransactionAbortable",
    "TransactionAborted",
    "TransactionError",
    "TransactionExpired",
    "TransactionFatal",
    "TransactionMisuse",
    "TransactionTimeout",
    "TransportError",
    "UsageError",
    "WouldBlock",
    "broker_error",
]


class KafkaError(Exception):
    """The root of every error that this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """As of any exception, and with its cause where that is one of ours: `DeliveryError` says by it what happened last."""
        made, given, *state = cast("tuple[Any, ...]", super().__reduce__())
        if isinstance(self.__cause__, KafkaError):
            state = [{**(state[0] if state else {}), "__cause__": self.__cause__}]
        return (made, given, *state)


class UsageError(KafkaError):
    """The caller's mistake; nothing was queued or sent."""


class ConfigError(UsageError, ValueError):
    """An option that cannot be, alone or beside another."""


class SerializationError(UsageError, TypeError):
    """A key, value or header that did not become bytes."""


class RecordTooLarge(UsageError):
    """Key, value and headers exceed `max_request_size` or `buffer_memory`, in bytes."""


class ProducerClosed(UsageError):
    """The producer was not started, is stopping, has stopped, or belongs to another loop or process."""


class TransactionMisuse(UsageError):
    """A call, or a send, that the state of the transaction does not allow; the state is as it was."""


class WouldBlock(KafkaError, BlockingIOError):
    """`send_nowait` would have to wait: for metadata, for memory, or for the next turn of the loop. The record is not queued."""


class SendTimeout(KafkaError, TimeoutError):
    """`send` could not queue the record within `max_block_ms`; it is not queued."""


class BufferExhausted(SendTimeout):
    """No memory was free within `max_block_ms` (Java's `BufferExhaustedException`)."""


class MetadataTimeout(SendTimeout):
    """The topic, or the partition of it, was not known within `max_block_ms`."""


class BootstrapFailed(KafkaError):
    """`start` reached no broker; each address and its reason is in the text."""


class Persisted(enum.StrEnum):
    """Whether a failed record may be in the log (librdkafka's message persistence status)."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


class PartitionUnavailable(KafkaError):
    """The partition that a record belongs to is muted by the circuit breaker (KIP-693), and the record was not queued.

    Attributes:
        topic, partition: which one.
        persisted: always `no`.
    """

    persisted = Persisted.NO

    def __init__(self, reason: str, topic: str, partition: int) -> None:
        super().__init__(reason, topic, partition)
        self.reason = reason
        self.topic = topic
        self.partition = partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.reason}"


class TransactionError(KafkaError):
    """Something went wrong with a transaction; the kind says how badly, `hint` what to do.

    Attributes:
        reason: what happened.
        hint: what helps.
        persisted: of a commit: `no` = it was not carried out, and will not be; `maybe` = it was sent, and its answer was lost.
    """

    hint = "Abort the transaction."
    persisted = Persisted.NO

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = type(self).hint if hint is None else hint

    def __str__(self) -> str:
        return f"{self.reason}. {self.hint}"

    def again(self) -> TransactionError:
        """An equal error: each call that fails by it raises its own, or one instance would collect every traceback."""
        twin = type(self)(self.reason, self.hint)
        twin.__cause__ = self.__cause__
        twin.persisted = self.persisted
        return twin


class TransactionTimeout(TransactionError, TimeoutError):
    """A call waited for `max_block_ms`. What it does goes on."""

    hint = "It goes on: call it again to wait for its end, or stop the producer."
    persisted = Persisted.MAYBE


class TransactionAbortable(TransactionError):
    """This transaction cannot be committed any more; the producer is well (Kafka's TransactionAbortableException)."""

    hint = "Call abort_transaction(), unless `transaction()` has done so; then begin anew and send its records again."


class CommitFailed(TransactionAbortable):
    """The consumer group does not take these offsets: it went on without this member (Kafka's CommitFailedException)."""

    hint = (
        "Call abort_transaction(), unless `transaction()` has done so, and let the consumer join its group again: others may have its "
        "partitions by now. "
        "Give send_offsets_to_transaction the group metadata of the same moment as the offsets."
    )


class TransactionAborted(TransactionError):
    """The transaction of a record was aborted before the record was sent."""

    hint = "Send it again in the next transaction."


class TransactionFatal(TransactionError):
    """This producer can do no more (Kafka's ApplicationRecoverableException): it raises this until it is stopped."""

    hint = "Stop this producer and start a new one; what was open is aborted by that."


class ProducerFenced(TransactionFatal):
    """A newer producer has this one's transactional_id; what this one had open is aborted."""

    hint = "Stop this producer. If it was to be the only one, find out who else uses its transactional_id."


class TransactionExpired(TransactionFatal):
    """The coordinator aborted a transaction that took longer than `transaction_timeout_ms`, and fenced this producer."""

    hint = "Stop this producer and start a new one; make transactions shorter, or raise transaction_timeout_ms."


class TransportError(KafkaError):
    """A request without an answer."""


class ConnectionLost(TransportError):
    """The connection ended, or could not be made, before the answer came."""


class RequestTimedOut(TransportError, TimeoutError):
    """No answer within `request_timeout_ms`; its connection was closed."""


class ProtocolError(TransportError):
    """Bytes that Kafka's protocol does not allow there."""


class DeliveryError(KafkaError):
    """A queued record that was not acknowledged.

    Attributes:
        topic, partition: where it was to go.
        persisted: `no` = certainly not in the log; `maybe` = it was on the wire and may be there; `yes` = it is, but its place is unknown.
        attempts: how often its batch was sent.
        history: what happened to its batch, a line each; see `explain`.
    """

    def __init__(self, reason: str, topic: str, partition: int, persisted: Persisted, attempts: int) -> None:
        super().__init__(reason, topic, partition, persisted, attempts)  # in this order, so that it can be pickled
        self.reason = reason
        self.topic = topic
        self.partition = partition
        self.persisted = persisted
        self.attempts = attempts
        self.history: tuple[str, ...] = ()

    def __str__(self) -> str:
        fate = {
            Persisted.NO: "was not written",
            Persisted.MAYBE: "may have been written",
            Persisted.YES: "was written",
        }[self.persisted]
        times = "never sent" if not self.attempts else "sent once" if self.attempts == 1 else f"sent {self.attempts} times"
        return f"{self.topic}-{self.partition}: {self.reason} (the record {fate}; {times})"

    def again(self) -> DeliveryError:
        """An equal error: each look at a failure raises its own, or one instance would collect every traceback."""
        twin = DeliveryError(self.reason, topic=self.topic, partition=self.partition, persisted=self.persisted, attempts=self.attempts)
        twin.__cause__ = self.__cause__
        twin.history = self.history
        return twin

    def explain(self) -> str:
        """The few things that happened to its batch, a line each: queued, each attempt with its broker and error, what it waited for."""
        return "\n".join(self.history or (str(self),))


class ErrorCode(NamedTuple):
    """One of Kafka's error codes. `refresh`: the answer shows that metadata is stale."""

    code: int
    name: str
    retriable: bool = False
    refresh: bool = False


class BrokerError(KafkaError):
    """A broker's answer that is an error. An unknown code is kept as its number."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message

    @property
    def code(self) -> int:
        """Kafka's number of the error."""
        return self.error.code

    @property
    def name(self) -> str:
        """Kafka's name of the error."""
        return self.error.name

    @property
    def retriable(self) -> bool:
        """Whether sending the same again may succeed."""
        return self.error.retriable

    @property
    def refresh(self) -> bool:
        """Whether metadata must be fetched anew first."""
        return self.error.refresh

    def __str__(self) -> str:
        return f"{self.name} ({self.code})" + (f": {self.message}" if self.message else "")


_RETRY: Final = (True, False)
_REFRESH: Final = (True, True)
_NO: Final = (False, False)

# Kafka's Errors.java, with what the Java producer does on it (reference: Sender.completeBatch, InvalidMetadataException)
_TABLE: Final = (
    (-1, "UNKNOWN_SERVER_ERROR", _NO),
    (1, "OFFSET_OUT_OF_RANGE", _NO),
    (2, "CORRUPT_MESSAGE", _RETRY),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", _REFRESH),
    (4, "INVALID_FETCH_SIZE", _NO),
    (5, "LEADER_NOT_AVAILABLE", _REFRESH),
    (6, "NOT_LEADER_OR_FOLLOWER", _REFRESH),
    (7, "REQUEST_TIMED_OUT", _RETRY),
    (8, "BROKER_NOT_AVAILABLE", _NO),
    (9, "REPLICA_NOT_AVAILABLE", _REFRESH),
    (10, "MESSAGE_TOO_LARGE", _NO),
    (12, "OFFSET_METADATA_TOO_LARGE", _NO),
    (13, "NETWORK_EXCEPTION", _REFRESH),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", _RETRY),
    (15, "COORDINATOR_NOT_AVAILABLE", _RETRY),
    (16, "NOT_COORDINATOR", _RETRY),
    (17, "INVALID_TOPIC_EXCEPTION", _NO),
    (18, "RECORD_LIST_TOO_LARGE", _NO),
    (19, "NOT_ENOUGH_REPLICAS", _RETRY),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", _RETRY),
    (21, "INVALID_REQUIRED_ACKS", _NO),
    (22, "ILLEGAL_GENERATION", _NO),
    (23, "INCONSISTENT_GROUP_PROTOCOL", _NO),
    (24, "INVALID_GROUP_ID", _NO),
    (25, "UNKNOWN_MEMBER_ID", _NO),
    (26, "INVALID_SESSION_TIMEOUT", _NO),
    (27, "REBALANCE_IN_PROGRESS", _NO),
    (29, "TOPIC_AUTHORIZATION_FAILED", _NO),
    (30, "GROUP_AUTHORIZATION_FAILED", _NO),
    (31, "CLUSTER_AUTHORIZATION_FAILED", _NO),
    (32, "INVALID_TIMESTAMP", _NO),
    (35, "UNSUPPORTED_VERSION", _NO),
    (36, "TOPIC_ALREADY_EXISTS", _NO),
    (37, "INVALID_PARTITIONS", _NO),
    (38, "INVALID_REPLICATION_FACTOR", _NO),
    (39, "INVALID_REPLICA_ASSIGNMENT", _NO),
    (40, "INVALID_CONFIG", _NO),
    (41, "NOT_CONTROLLER", _RETRY),
    (42, "INVALID_REQUEST", _NO),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", _NO),
    (44, "POLICY_VIOLATION", _NO),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", _NO),
    (46, "DUPLICATE_SEQUENCE_NUMBER", _NO),
    (47, "INVALID_PRODUCER_EPOCH", _NO),
    (48, "INVALID_TXN_STATE", _NO),
    (49, "INVALID_PRODUCER_ID_MAPPING", _NO),
    (50, "INVALID_TRANSACTION_TIMEOUT", _NO),
    (51, "CONCURRENT_TRANSACTIONS", _RETRY),
    (52, "TRANSACTION_COORDINATOR_FENCED", _NO),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _NO),
    (55, "OPERATION_NOT_ATTEMPTED", _NO),
    (56, "KAFKA_STORAGE_ERROR", _REFRESH),
    (59, "UNKNOWN_PRODUCER_ID", _NO),
    (69, "GROUP_ID_NOT_FOUND", _NO),
    (72, "LISTENER_NOT_FOUND", _REFRESH),
    (74, "FENCED_LEADER_EPOCH", _REFRESH),
    (75, "UNKNOWN_LEADER_EPOCH", _RETRY),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", _NO),
    (79, "MEMBER_ID_REQUIRED", _NO),
    (82, "FENCED_INSTANCE_ID", _NO),
    (87, "INVALID_RECORD", _NO),
    (89, "THROTTLING_QUOTA_EXCEEDED", _RETRY),
    (90, "PRODUCER_FENCED", _NO),
    (100, "UNKNOWN_TOPIC_ID", _REFRESH),
    (103, "INCONSISTENT_TOPIC_ID", _REFRESH),
    (113, "STALE_MEMBER_EPOCH", _NO),
    (120, "TRANSACTION_ABORTABLE", _NO),
    (129, "REBOOTSTRAP_REQUIRED", _NO),
)
_BY_CODE: Final = {code: ErrorCode(code, name, *flags) for code, name, flags in _TABLE}
_BY_NAME: Final = {error.name: error for error in _BY_CODE.values()}


def broker_error(code: int | str, message: str | None = None) -> BrokerError:
    """The error of a broker's code, or of its name; an unknown number is kept and not retried."""
    if isinstance(code, str):
        return BrokerError(_BY_NAME[code], message)
    return BrokerError(_BY_CODE.get(code) or ErrorCode(code, "UNKNOWN_ERROR_CODE"), message)
