"""Holds all errors that the package raises, as one tree.

    KafkaError
    ├── UsageError            the caller's mistake, raised before a record is queued
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
    │   ├── ProtocolError     bytes that are not Kafka's
    │   └── AuthenticationFailed  `stage`, `mechanism`, `code`
    │       ├── CertificateNotTrusted  this client does not trust the broker's certificate
    │       ├── CredentialsRefused     the broker refuses this client's password, token or certificate
    │       ├── BrokerNotTrusted       the broker did not prove that it knows the password, or broke the rules of the mechanism
    │       └── TokenUnavailable       no valid token could be had
    ├── BootstrapFailed       `start` reached no broker
    ├── TransactionError      `hint` says what to do (KIP-1050's classes, below)
    │   ├── TransactionTimeout    the call took longer than `max_block_ms` and goes on: call it again
    │   ├── TransactionAbortable  abort, then begin a new one
    │   │   └── CommitFailed      this member is no longer part of the consumer group
    │   ├── TransactionAborted    the error of the records of an aborted transaction
    │   └── TransactionFatal      only a new producer helps
    │       ├── ProducerFenced    another producer has its transactional_id
    │       └── TransactionExpired  the coordinator ended a transaction that took too long
    └── DeliveryError         a queued record that was not acknowledged: `code`, `persisted`, `retriable`, `attempts`
        └── DeliveryTimeout       it was not acknowledged within `delivery_timeout_ms`

Facts are attributes, and the text is built from them. Keys and values never appear in the text.
Error codes are those of Kafka's `Errors` enum. Kafka's `Sender` and `InvalidMetadataException` define the codes that are retried, and the
codes that refresh metadata.
"""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple, cast

__all__ = [
    "AuthenticationFailed",
    "BootstrapFailed",
    "BrokerError",
    "BrokerNotTrusted",
    "BufferExhausted",
    "CertificateNotTrusted",
    "CommitFailed",
    "ConfigError",
    "ConnectionLost",
    "CredentialsRefused",
    "DeliveryError",
    "DeliveryTimeout",
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
    "TokenUnavailable",
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
        """Return the state of any exception, with its cause if that is a `KafkaError`: the last error of a `DeliveryError`."""
        made, given, *state = cast("tuple[Any, ...]", super().__reduce__())
        if isinstance(self.__cause__, KafkaError):
            state = [{**(state[0] if state else {}), "__cause__": self.__cause__}]
        return (made, given, *state)


class UsageError(KafkaError):
    """Reports a mistake of the caller; no record was queued or sent."""


class ConfigError(UsageError, ValueError):
    """Reports an option that is invalid, or in conflict with another option."""


class SerializationError(UsageError, TypeError):
    """Reports a key, value or header that could not be serialized to bytes."""


class RecordTooLarge(UsageError):
    """Reports that key, value and headers exceed `max_request_size` or `buffer_memory`, in bytes."""


class ProducerClosed(UsageError):
    """Reports that the producer was not started, is stopping, has stopped, or belongs to another loop or process."""


class TransactionMisuse(UsageError):
    """Reports a call, or a send, that the state of the transaction does not allow. The state is unchanged."""


class WouldBlock(KafkaError, BlockingIOError):
    """Reports that `send_nowait` would wait for metadata, for memory, or for an event-loop iteration. The record is not queued."""


class SendTimeout(KafkaError, TimeoutError):
    """Reports that `send` could not queue the record within `max_block_ms`. The record is not queued."""


class BufferExhausted(SendTimeout):
    """Reports that no memory was free within `max_block_ms` (Java's `BufferExhaustedException`)."""


class MetadataTimeout(SendTimeout):
    """Reports that the topic, or its partition, was not known within `max_block_ms`."""


class BootstrapFailed(KafkaError):
    """Reports that `start` reached no broker; each address and its reason is in the text."""


class Persisted(enum.StrEnum):
    """States whether a failed record may be in the log (librdkafka's message persistence status)."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


class PartitionUnavailable(KafkaError):
    """Reports that the circuit breaker muted the record's partition (KIP-693). The record was not queued.

    Attributes:
        topic, partition: the muted partition.
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
    """Reports an error of a transaction. The class gives its severity, `hint` the remedy.

    Attributes:
        reason: the event that caused the error.
        hint: the remedy.
        persisted: of a commit: `no` = it was not carried out, and will not be; `maybe` = it was sent, and its answer was lost.
    """

    hint: str = "Abort the transaction."
    persisted: Persisted = Persisted.NO

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = type(self).hint if hint is None else hint

    def __str__(self) -> str:
        # The reason may be another error's text, which ends with its own remedy.
        return f"{self.reason.removesuffix('.')}. {self.hint}"

    def again(self) -> TransactionError:
        """Return an equal error. Each failing call raises its own, because one instance would collect every traceback."""
        twin = type(self)(self.reason, self.hint)
        twin.__cause__ = self.__cause__
        twin.persisted = self.persisted
        return twin


class TransactionTimeout(TransactionError, TimeoutError):
    """Reports that a call waited for `max_block_ms`. Its operation goes on."""

    hint = "It goes on: call it again to wait for its end, or stop the producer."
    persisted = Persisted.MAYBE


class TransactionAbortable(TransactionError):
    """Reports a transaction that can no longer be committed. The producer still works (Kafka's TransactionAbortableException)."""

    hint = "Call abort_transaction(), unless `transaction()` has done so; then begin anew and send its records again."


class CommitFailed(TransactionAbortable):
    """Reports offsets that the group refuses: this member is no longer part of it (Kafka's CommitFailedException)."""

    hint = (
        "Call abort_transaction(), unless `transaction()` has done so, and let the consumer join its group again: others may have its "
        "partitions by now. "
        "Give send_offsets_to_transaction the group metadata of the same moment as the offsets."
    )


class TransactionAborted(TransactionError):
    """Reports that the transaction of a record was aborted before the record was sent."""

    hint = "Send it again in the next transaction."


class TransactionFatal(TransactionError):
    """Reports that this producer no longer works (Kafka's ApplicationRecoverableException). It raises this until it is stopped."""

    hint = "Stop this producer and start a new one; what was open is aborted by that."


class ProducerFenced(TransactionFatal):
    """Reports that a newer producer has this one's transactional_id. The open transaction of this one is aborted."""

    hint = "Stop this producer. If it was to be the only one, find out who else uses its transactional_id."


class TransactionExpired(TransactionFatal):
    """Reports that the coordinator aborted a transaction longer than `transaction_timeout_ms`, and fenced this producer."""

    hint = "Stop this producer and start a new one; make transactions shorter, or raise transaction_timeout_ms."


class TransportError(KafkaError):
    """Reports a request without an answer."""


class ConnectionLost(TransportError):
    """Reports that the connection ended, or could not be made, before the answer came."""


class RequestTimedOut(TransportError, TimeoutError):
    """Reports that no answer came within `request_timeout_ms`. The connection was closed."""


class ProtocolError(TransportError):
    """Reports received bytes that Kafka's protocol does not allow."""


class AuthenticationFailed(TransportError):
    """Reports that a connection could not be authenticated. The text never has a password, token or key.

    Attributes:
        stage: "tls", "sasl" or "token".
        mechanism: the SASL mechanism; None in the stage "tls".
        code: Kafka's error code, such as 58 (SASL_AUTHENTICATION_FAILED); None if no answer gave one.
    """

    def __init__(
        self, reason: str, stage: str, mechanism: str | None = None, code: int | None = None
    ) -> None:
        # The arguments are in this order, so that the error can be pickled.
        super().__init__(reason, stage, mechanism, code)
        self.reason = reason
        self.stage = stage
        self.mechanism = mechanism
        self.code = code

    def __str__(self) -> str:
        return self.reason


class CertificateNotTrusted(AuthenticationFailed):
    """Reports that this client refuses the broker's certificate: its authority, its dates or its name."""


class CredentialsRefused(AuthenticationFailed):
    """Reports that the broker refuses this client: its password, token, mechanism or certificate."""


class BrokerNotTrusted(AuthenticationFailed):
    """Reports that the broker did not prove that it knows the password, or broke the rules of the SASL mechanism (RFC 5802)."""


class TokenUnavailable(AuthenticationFailed):
    """Reports that no valid token could be had. It is tried again, as after a fault of the network: no broker refused this client."""


class DeliveryError(KafkaError):
    """Reports a queued record that was not acknowledged.

    Attributes:
        topic, partition: the partition of the record.
        code: what ended it, as a word for metrics and tables.
        retriable: whether the caller may send it again.
        persisted: `no` = certainly not in the log; `maybe` = it was sent and may be in the log; `yes` = it is in the log, at an unknown
            offset.
        attempts: how often its batch was sent.
        history: the events of its batch, a text line each; see `explain`.
    """

    def __init__(
        self, reason: str, topic: str, partition: int, persisted: Persisted, attempts: int
    ) -> None:
        super().__init__()
        # The arguments are in this order, so that the error can be pickled. An OSError, as TimeoutError is, would take them for its own.
        self.args: tuple[Any, ...] = (reason, topic, partition, persisted, attempts)
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
        times = (
            "never sent"
            if not self.attempts
            else "sent once"
            if self.attempts == 1
            else f"sent {self.attempts} times"
        )
        return f"{self.topic}-{self.partition}: {self.reason} (the record {fate}; {times})"

    def again(self) -> DeliveryError:
        """Return an equal error. Each await of a failed delivery raises its own: one instance would collect every traceback."""
        twin = type(self)(
            self.reason,
            topic=self.topic,
            partition=self.partition,
            persisted=self.persisted,
            attempts=self.attempts,
        )
        twin.__cause__ = self.__cause__
        twin.history = self.history
        return twin

    @property
    def code(self) -> str:
        """Return what ended the record: Kafka's name of a broker's error, else TIMED_OUT, CONNECTION_LOST or ABORTED.

        ABORTED: its transaction was aborted, or its producer ended.
        """
        cause: BaseException | None = self
        while cause is not None:
            if isinstance(cause, BrokerError):
                return cause.name
            for kind, code in _CODES:
                if isinstance(cause, kind):
                    return code
            cause = cause.__cause__
        return "ABORTED"

    @property
    def retriable(self) -> bool:
        """Return whether the caller may send the record again: it is certainly not in the log, and another try may succeed."""
        return self.persisted is Persisted.NO and may_succeed(self)

    def explain(self) -> str:
        """Return the events of its batch, a text line each: queued, each attempt with its broker and error, and each cause of a wait."""
        return "\n".join(self.history or (str(self),))


class DeliveryTimeout(DeliveryError, TimeoutError):
    """Reports a queued record that was not acknowledged within `delivery_timeout_ms`. The last failure is its `__cause__`."""


class ErrorCode(NamedTuple):
    """Holds one of Kafka's error codes. `refresh`: the answer shows that metadata is stale."""

    code: int
    name: str
    retriable: bool = False
    refresh: bool = False


class BrokerError(KafkaError):
    """Reports a broker's answer that is an error. An unknown code is kept as its number."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message

    @property
    def code(self) -> int:
        """Return Kafka's number of the error."""
        return self.error.code

    @property
    def name(self) -> str:
        """Return Kafka's name of the error."""
        return self.error.name

    @property
    def retriable(self) -> bool:
        """Return whether the same request may succeed if it is sent again."""
        return self.error.retriable

    @property
    def refresh(self) -> bool:
        """Return whether metadata must be fetched again first."""
        return self.error.refresh

    def __str__(self) -> str:
        return f"{self.name} ({self.code})" + (f": {self.message}" if self.message else "")


_LONGEST_TEXT: Final = 500
_RETRY: Final = (True, False)
_REFRESH: Final = (True, True)
_NO: Final = (False, False)

# Kafka's Errors.java, with the reaction of the Java producer (reference: Sender.completeBatch, InvalidMetadataException).
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
    (33, "UNSUPPORTED_SASL_MECHANISM", _NO),
    (34, "ILLEGAL_SASL_STATE", _NO),
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
    (54, "SECURITY_DISABLED", _NO),
    (55, "OPERATION_NOT_ATTEMPTED", _NO),
    (56, "KAFKA_STORAGE_ERROR", _REFRESH),
    (58, "SASL_AUTHENTICATION_FAILED", _NO),
    (59, "UNKNOWN_PRODUCER_ID", _NO),
    (69, "GROUP_ID_NOT_FOUND", _NO),
    (72, "LISTENER_NOT_FOUND", _REFRESH),
    (74, "FENCED_LEADER_EPOCH", _REFRESH),
    (75, "UNKNOWN_LEADER_EPOCH", _RETRY),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", _NO),
    (79, "MEMBER_ID_REQUIRED", _NO),
    (82, "FENCED_INSTANCE_ID", _NO),
    (87, "INVALID_RECORD", _NO),
    (88, "UNSTABLE_OFFSET_COMMIT", _RETRY),
    (89, "THROTTLING_QUOTA_EXCEEDED", _RETRY),
    (90, "PRODUCER_FENCED", _NO),
    (100, "UNKNOWN_TOPIC_ID", _REFRESH),
    (103, "INCONSISTENT_TOPIC_ID", _REFRESH),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", _NO),
    (113, "STALE_MEMBER_EPOCH", _NO),
    (120, "TRANSACTION_ABORTABLE", _NO),
    (128, "INVALID_REGULAR_EXPRESSION", _NO),
    (129, "REBOOTSTRAP_REQUIRED", _NO),
)
_BY_CODE: Final = {code: ErrorCode(code, name, *flags) for code, name, flags in _TABLE}
_BY_NAME: Final = {error.name: error for error in _BY_CODE.values()}
# `DeliveryError.code` by the kind of the error that ended the record, where that is no `BrokerError`.
_CODES: Final = (
    (DeliveryTimeout, "TIMED_OUT"),
    (RequestTimedOut, "TIMED_OUT"),
    (TransportError, "CONNECTION_LOST"),
    (TransactionAborted, "ABORTED"),
    (ProducerFenced, "PRODUCER_FENCED"),
    (RecordTooLarge, "MESSAGE_TOO_LARGE"),
)
_OWN_CODES: Final = frozenset({"TIMED_OUT", "CONNECTION_LOST", "ABORTED"})


def broker_error(code: int | str, message: str | None = None) -> BrokerError:
    """Return the error of a broker's code, or of its name. An unknown number is kept and not retried."""
    if isinstance(code, str):
        return BrokerError(_BY_NAME[code], message)
    return BrokerError(_BY_CODE.get(code) or ErrorCode(code, "UNKNOWN_ERROR_CODE"), message)


def printable(text: str) -> str:
    """Return a broker's text without control characters, and with 500 characters at most."""
    text = text[:_LONGEST_TEXT]
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return text.strip()


def may_succeed(error: DeliveryError) -> bool:
    """Return whether another try of a failed record may succeed, whether or not the record is in the log."""
    code = error.code
    is_transient = code in _OWN_CODES or (code in _BY_NAME and _BY_NAME[code].retriable)
    return is_transient and not isinstance(error.__cause__, TransactionFatal)
