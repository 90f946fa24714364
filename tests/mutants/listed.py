"""The mutants, as data: a name that says what goes wrong, the file, what stands there, what stands there instead, and who must notice."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong change; `old` stands exactly once in `file`, which is a path in the package."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The text with the change. ValueError: what it changes is not there once."""
        if text.count(self.old) != 1:
            raise ValueError(f"mutant {self.name}: its text stands {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)

    def words(self) -> tuple[str, ...]:
        """What must notice it, as arguments of Python."""
        return ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *self.tests)

    def is_noticed(self, status: int | None, _output: str) -> bool:
        """Whether a test failed: pytest's status when tests ran and some failed; any other is no proof. None: they hang."""
        return status in {1, None}

    def last_word(self, output: str) -> str:
        """What was said in the end."""
        return output.rpartition("\n")[2] or "no output"


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "v2-crc-leaves-out-the-payload",
        "records/record_batch.py",
        "crc = crc32c(payload, crc32c(tail))",
        "crc = crc32c(tail)",
        ("tests/records/test_record_batch.py",),
    ),
    Mutant(
        "v2-negative-numbers-lose-their-sign",
        "records/record_batch.py",
        "return rest >> 1 ^ -(rest & 1)",
        "return rest >> 1",
        ("tests/records/test_record_batch.py",),
    ),
    Mutant(
        "v2-header-values-null-as-empty",
        "records/record_batch.py",
        "            parts.append(NULL)",
        '            parts.append(b"\\0")',
        ("tests/records/test_record_batch.py",),
    ),
    Mutant(
        "v2-last-offset-delta-ignored",
        "records/record_batch.py",
        "last = count - 1 if last_offset_delta is None else last_offset_delta",
        "last = count - 1",
        ("tests/records",),
    ),
    Mutant(
        "v1-appended-attribute-in-the-wrong-bit",
        "records/message_set.py",
        "int(TimestampType.LOG_APPEND_TIME) << 3",
        "int(TimestampType.LOG_APPEND_TIME) << 4",
        ("tests/records",),
    ),
    Mutant(
        "v0-lz4-checksum-right-where-kafka-has-it-wrong",
        "records/message_set.py",
        "if codec is Compression.LZ4 and not magic",
        "if codec is Compression.LZ4 and magic",
        ("tests/records",),
    ),
    Mutant(
        "v1-crc-of-too-little",
        "records/message_set.py",
        "zlib.crc32(body)",
        "zlib.crc32(body[1:])",
        ("tests/records",),
    ),
    Mutant(
        "v1-takes-zstd",
        "records/message_set.py",
        "codec is Compression.ZSTD and magic < 2",
        "codec is Compression.ZSTD and magic < 1",
        ("tests/records",),
    ),
    Mutant(
        "v1-inner-times-over-the-append-time",
        "records/message_set_reader.py",
        "self.timestamp_ms if is_appended else message.timestamp_ms",
        "message.timestamp_ms",
        ("tests/records",),
    ),
    Mutant(
        "v1-reader-believes-lengths",
        "records/message_set_reader.py",
        "if length > len(raw) - start:",
        "if length > len(raw):",
        ("tests/records",),
    ),
    Mutant(
        "v1-reader-takes-wrappers-in-wrappers",
        "records/message_set_reader.py",
        " or message.compression is not Compression.NONE",
        "",
        ("tests/records",),
    ),
    Mutant(
        "builder-takes-control-records-in-data",
        "records/builder.py",
        "if is_control != self._is_control:",
        "if is_control and not self._is_control:",
        ("tests/records",),
    ),
    Mutant(
        "builder-takes-an-offset-twice",
        "records/builder.py",
        "if offset <= self._last_offset:",
        "if offset < self._last_offset:",
        ("tests/records",),
    ),
    Mutant(
        "builder-takes-headers-in-v1",
        "records/builder.py",
        "if headers and self._magic < 2:",
        "if headers and self._magic < 1:",
        ("tests/records",),
    ),
    Mutant(
        "builder-is-full-before-its-first-record",
        "records/builder.py",
        "if not self.count:\n            return True",
        "if not self.count:\n            return self._write_limit > 100",
        ("tests/records",),
    ),
    Mutant(
        "builder-one-byte-short",
        "records/builder.py",
        "self.estimated_size + size <= self._write_limit",
        "self.estimated_size + size < self._write_limit",
        ("tests/records",),
    ),
    Mutant(
        "ratio-jumps-up-by-one-step-only",
        "records/ratios.py",
        "max(guess + _WORSE, ratio)",
        "guess + _WORSE",
        ("tests/records",),
    ),
    Mutant(
        "control-abort-is-commit",
        "records/control.py",
        "ABORT = 0\n    COMMIT = 1",
        "ABORT = 1\n    COMMIT = 0",
        ("tests/records",),
    ),
    Mutant(
        "batch-ends-twice",
        "core/batch.py",
        "    (State.IN_FLIGHT, Event.ACKNOWLEDGE): State.DONE,",
        "    (State.IN_FLIGHT, Event.ACKNOWLEDGE): State.DONE,\n    (State.FAILED, Event.ACKNOWLEDGE): State.DONE,",
        ("tests/core/test_batch.py",),
    ),
    Mutant(
        "drain-moves-a-partition-between-connections",
        "core/accumulator.py",
        "return (cell.in_flight > 0 and cell.lane is not lane) or",
        "return False or",
        ("tests/core/test_accumulator.py", "tests/core/test_accumulator_machine.py"),
    ),
    Mutant(
        "drain-exceeds-the-request",
        "core/accumulator.py",
        "if batches and size + len(batch.payload) > limit:",
        "if batches and size > limit:",
        ("tests/core/test_accumulator.py",),
    ),
    Mutant(
        "drain-breaks-off-at-a-partition-that-waits",
        "core/accumulator.py",
        "                continue  # offered again when those in flight elsewhere have ended",
        "                break",
        ("tests/core/test_accumulator.py", "tests/core/test_accumulator_machine.py"),
    ),
    Mutant(
        "linger-forgotten",
        "core/accumulator.py",
        "(self._linger and not self.eager)",
        "False",
        ("tests/core/test_accumulator.py",),
    ),
    Mutant(
        "memory-short-and-still-lingering",
        "core/accumulator.py",
        "(self._linger and not self.eager)",
        "self._linger",
        ("tests/core/test_accumulator.py", "tests/scenarios/test_backpressure.py"),
    ),
    Mutant(
        "one-at-a-time-forgotten",
        "core/accumulator.py",
        "if cell.retry_at or cell.is_held or (cell.one_at_a_time and cell.in_flight):",
        "if cell.retry_at or cell.is_held:",
        ("tests/core/test_accumulator.py", "tests/core/test_accumulator_machine.py"),
    ),
    Mutant(
        "backoff-forgotten",
        "core/accumulator.py",
        "if cell.retry_at or cell.is_held or (cell.one_at_a_time and cell.in_flight):",
        "if cell.is_held or (cell.one_at_a_time and cell.in_flight):",
        ("tests/core/test_accumulator.py", "tests/core/test_accumulator_machine.py"),
    ),
    Mutant(
        "any-success-ends-one-at-a-time",
        "core/accumulator.py",
        "if batch.is_alone and not (cell.closed and cell.closed[0].is_part):",
        "if not (cell.closed and cell.closed[0].is_part):",
        ("tests/core/test_accumulator.py", "tests/core"),
    ),
    Mutant(
        "retry-loses-its-place",
        "core/accumulator.py",
        "while at < len(closed) and closed[at].number < batches[0].number:",
        "while at < len(closed):",
        ("tests/core/test_accumulator.py", "tests/core/test_accumulator_machine.py"),
    ),
    Mutant(
        "pieces-in-reverse",
        "core/accumulator.py",
        "for batch in reversed(batches):",
        "for batch in batches:",
        ("tests/core", "tests/scenarios/test_too_large.py"),
    ),
    Mutant(
        "a-silence-is-no-matter",
        "core/accumulator.py",
        "batch.expires_at > cell.remembered_until",
        "batch.expires_at < 0",
        ("tests/core/test_sequence.py",),
    ),
    Mutant(
        "expiry-stops-one-late",
        "core/accumulator.py",
        "if batch.expires_at > now:",
        "if batch.expires_at >= now:",
        ("tests/core", "tests/scenarios/test_retries.py"),
    ),
    Mutant(
        "keys-grow-for-ever",
        "core/routes.py",
        "if len(self) < _KEYS:",
        "if True:",
        ("tests/core/test_accumulator.py",),
    ),
    Mutant(
        "keys-of-the-sign-bit-elsewhere",
        "core/routes.py",
        "(murmur2(key) & 0x7FFFFFFF) % len(cells)",
        "murmur2(key) % len(cells)",
        ("tests/core/test_accumulator.py",),
    ),
    Mutant(
        "hash-ignores-the-tail",
        "core/partitioner.py",
        "    if tail:\n",
        "    if tail and size > 4:\n",
        ("tests/core/test_partitioner.py",),
    ),
    Mutant(
        "hash-heads-of-all-sizes-together",
        "core/partitioner.py",
        "heads = _heads[size & 3]",
        "heads = _heads[0]",
        ("tests/core/test_partitioner.py",),
    ),
    Mutant(
        "refused-counts-as-unknown",
        "core/outcome.py",
        "return Verdict(_action(error, records, named), error.refresh, uncertain)",
        "return Verdict(_action(error, records, named), error.refresh, True)",
        ("tests/core/test_outcome.py",),
    ),
    Mutant(
        "lost-counts-as-not-written",
        "core/outcome.py",
        "uncertain=True)",
        "uncertain=False)",
        ("tests/core/test_outcome.py",),
    ),
    Mutant(
        "one-record-is-split-for-ever",
        "core/outcome.py",
        "if records > 1 and error.name in TOO_LARGE:",
        "if error.name in TOO_LARGE:",
        ("tests/core/test_outcome.py",),
    ),
    Mutant(
        "split-does-not-get-smaller",
        "core/splitting.py",
        "limit = min(most, len(payload) // 2)",
        "limit = most",
        ("tests/core/test_splitting.py",),
    ),
    Mutant(
        "split-shifts-times",
        "core/splitting.py",
        "varint(record.delta - base)",
        "varint(record.delta)",
        ("tests/core/test_splitting.py",),
    ),
    Mutant(
        "a-topic-made-anew-has-two-ids-for-a-while",
        "core/installing.py",
        "route = Route(topic.name, before.topic_id)\n    gone",
        "before.topic_id, route = NO_ID, Route(topic.name, before.topic_id)\n    gone",
        ("tests/core/test_installing.py",),
    ),
    Mutant(
        "partitions-that-are-no-more-stay-open",
        "core/installing.py",
        "        accumulator.close(cell)\n        if cell.closed or cell.in_flight:\n            accumulator.lead(",
        "        if cell.closed or cell.in_flight:\n            accumulator.lead(",
        ("tests/core/test_installing.py", "tests/core/test_accumulator.py"),
    ),
    Mutant(
        "stale-leader-believed",
        "core/metadata.py",
        "if view != known and not 0 <= view.epoch < known.epoch:",
        "if True:",
        ("tests/core/test_metadata.py",),
    ),
    Mutant(
        "hint-of-the-same-epoch-believed",
        "core/metadata.py",
        "or epoch <= topic.partitions[partition].epoch:",
        "or epoch < topic.partitions[partition].epoch:",
        ("tests/core/test_metadata.py",),
    ),
    Mutant(
        "brokers-that-start-empty-the-view",
        "core/metadata.py",
        "        if not brokers:\n            return False\n",
        "",
        ("tests/core/test_metadata.py",),
    ),
    Mutant(
        "backoff-beyond-its-longest",
        "core/backoff.py",
        "return min(self.longest, pause * (1 - _JITTER + 2 * _JITTER * chance))",
        "return pause * (1 - _JITTER + 2 * _JITTER * chance)",
        ("tests/core/test_backoff.py",),
    ),
    Mutant(
        "pool-gives-what-it-has-not",
        "engine/pool.py",
        "if size > self.available:",
        "if size > self.size:",
        ("tests/engine/test_pool.py",),
    ),
    Mutant(
        "pool-refuses-its-last-byte",
        "engine/pool.py",
        "if size > self.available:",
        "if size >= self.available:",
        ("tests/engine/test_pool.py",),
    ),
    Mutant(
        "pool-takes-back-more-than-it-gave",
        "engine/pool.py",
        'assert self.available <= self.size, "more was given back than taken"',
        "pass",
        ("tests/engine/test_pool.py",),
    ),
    Mutant(
        "pool-forgets-what-is-used-already",
        "engine/pool.py",
        '        """Take `size` bytes that are used already, below zero if need be: overhead is known only once records are there."""\n        self.available -= size',
        '        """Nothing."""',
        ("tests/engine/test_pool.py",),
    ),
    Mutant(
        "line-serves-the-cancelled",
        "engine/pool.py",
        "            if parked[0].is_waiting:\n                return parked[0]\n            parked.popleft()",
        "            return parked[0]",
        ("tests/engine/test_pool.py",),
    ),
    Mutant(
        "line-merges-out-of-order",
        "engine/pool.py",
        "heapq.merge(reversed(behind), others, key=lambda parked: parked.number)",
        "[*others, *reversed(behind)]",
        ("tests/engine/test_pool.py",),
    ),
    Mutant(
        "cancelled-keeps-its-bytes",
        "engine/pool.py",
        "self.waiter = self.value = self.key = self.whole = (",
        "self.waiter = (",
        ("tests/engine/test_pool.py",),
    ),
    Mutant(
        "txn-a-lost-commit-may-be-aborted",
        "core/transaction.py",
        "        self.is_told |= request.rpc is Rpc.COMMIT",
        "        self.is_told |= False",
        ("tests/core/test_transaction.py",),
    ),
    Mutant(
        "txn-no-epoch-after-a-lost-answer",
        "core/transaction.py",
        "            self._needs_renewal |= self._can_renew",
        "            self._needs_renewal |= False",
        ("tests/core/test_transaction.py",),
    ),
    Mutant(
        "txn-the-version-changes-within",
        "core/transaction.py",
        "        if self.version > 1:\n            self.partitions.add(partition)",
        "        if self._current_version() > 1:\n            self.partitions.add(partition)",
        ("tests/core/test_transaction.py",),
    ),
    Mutant(
        "txn-an-empty-one-is-ended-at-the-coordinator",
        "core/transaction.py",
        "and self.is_flushed and not (self._is_begun or",
        "and False and not (self._is_begun or",
        ("tests/core/test_transaction.py",),
    ),
    Mutant(
        "txn-a-failed-record-spoils-nothing",
        "core/transaction.py",
        "            after = NEXT.get((self.state, Event.REFUSE if course is Course.RESET else Event.FAIL))",
        "            after = None",
        ("tests/core/test_transaction.py",),
    ),
    Mutant(
        "txn-the-end-does-not-wait-for-records",
        "core/transaction.py",
        "        if self.state in _ENDING and self.is_flushed:\n            return Request",
        "        if self.state in _ENDING:\n            return Request",
        ("tests/core/test_transaction.py",),
    ),
    Mutant(
        "txn-an-upgrade-keeps-the-epoch",
        "core/transaction.py",
        "        self._needs_renewal |= before < self.version  #",
        "        self._needs_renewal |= False  #",
        ("tests/core/test_transaction.py",),
    ),
    Mutant(
        "txn-fencing-is-abortable",
        "core/transaction_errors.py",
        '_FENCING: Final = {"PRODUCER_FENCED": Course.FATAL,',
        '_FENCING: Final = {"PRODUCER_FENCED": Course.ABORTABLE,',
        ("tests/core/test_transaction_errors.py",),
    ),
    Mutant(
        "txn-the-mildest-error-counts",
        "core/transaction_errors.py",
        "    place = max(errors, key=",
        "    place = min(errors, key=",
        ("tests/core/test_transaction_errors.py",),
    ),
    Mutant(
        "txn-version-1-speaks-version-2s-end",
        "engine/transaction_messages.py",
        "Rpc.COMMIT: 4, Rpc.ABORT: 4}",
        "Rpc.COMMIT: 5, Rpc.ABORT: 5}",
        ("tests/engine/test_transaction_messages.py",),
    ),
    Mutant(
        "txn-the-fast-way-stays-open",
        "engine/parking.py",
        "        self._is_gated = not is_open",
        "        self._is_gated = False",
        ("tests/scenarios/test_transactions.py::test_the_fast_way_is_open_within",),
    ),
    Mutant(
        "txn-partitions-are-not-held",
        "engine/transactor.py",
        "            cell.is_held = True",
        "            cell.is_held = False",
        ("tests/scenarios/test_transaction_faults.py::test_records_flow_while_a_partition_is_added",),
    ),
    Mutant(
        "txn-a-body-that-raises-commits",
        "engine/transaction_scope.py",
        "        if error is not None:",
        "        if False:",
        ("tests/scenarios/test_transactions.py::test_a_body_that_raises",),
    ),
    Mutant(
        "txn-an-abort-keeps-what-was-not-sent",
        "engine/transactor.py",
        "        self._parts.sender.drop_unsent(cause)",
        "        del cause",
        ("tests/scenarios/test_transactions.py::test_an_abort_drops_what_was_not_sent",),
    ),
)
