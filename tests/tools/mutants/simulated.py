"""Bugs that the simulation must find, as data: a name that says what goes wrong, the file, what stands there and what stands there instead.

Each is of the kind that a test of one part may not see: what goes wrong does so when several things happen at once.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from tests.tools.mutants.listed import Mutant

__all__ = ["SIMULATED", "Simulated"]

SEEDS: Final = 2_000
"""Within which each must be found."""
_FOUND: Final = re.compile(r"^[\d,]+ seeds, [1-9]\d* with violations", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Simulated(Mutant):
    """One seeded bug; `profile` is the simulation's."""

    tests: tuple[str, ...] = ()
    profile: str = "idempotent"

    def words(self) -> tuple[str, ...]:
        """What finds it, as arguments of Python."""
        seeds = ("--seeds", f"1-{SEEDS}", "--most", "1")
        return ("-m", "tests.simulation", *seeds, "--profile", self.profile)

    def is_noticed(self, status: int | None, output: str) -> bool:
        """Whether it was found; status 1 alone may be a program that does not run, and time that is over is no proof."""
        return status == 1 and _FOUND.search(output) is not None

    def last_word(self, output: str) -> str:
        """The first seed that found it, and what it found."""
        lines = output.splitlines()
        first = next((number for number, line in enumerate(lines) if line.startswith("seed ")), None)
        return lines[-1] if first is None else f"{lines[first].partition(':')[0]}: {lines[first + 1].strip()}"


SIMULATED: tuple[Simulated, ...] = (
    Simulated(
        "out-of-order-counts-as-success",
        "core/produce_errors.py",
        '    "OUT_OF_ORDER_SEQUENCE_NUMBER": _GAP,',
        '    "OUT_OF_ORDER_SEQUENCE_NUMBER": dict.fromkeys(Standing, Action.COMPLETE),',
    ),
    Simulated(
        "each-attempt-has-a-number-of-its-own",
        "core/sequence_numbers.py",
        "        if batch.sequence >= 0 and not self._is_lost(batch):\n            return False\n        begins",
        "        if batch.sequence >= 0 and not self._is_lost(batch):\n            self._remove(batch)\n            self._append(batch)\n            batch.header = None\n            return False\n        begins",
    ),
    Simulated(
        "a-retry-goes-to-the-back",
        "core/produce_attempt.py",
        "    return next((at for at, other in enumerate(closed) if other.place > batch.place), len(closed))",
        "    return len(closed)",
        profile="plain",
    ),
    Simulated(
        "a-numbered-retry-goes-to-the-back",
        "core/produce_attempt.py",
        "    return next((at for at, other in enumerate(closed) if other.place > batch.place), len(closed))",
        "    return len(closed)",
    ),
    Simulated(
        "an-epoch-is-never-bumped",
        "core/sequence_numbers.py",
        "self.identity = self.identity._replace(epoch=self.identity.epoch + 1)",
        "self.identity = self.identity._replace(epoch=self.identity.epoch)",
    ),
    Simulated(
        "a-lost-reply-completes",
        "core/produce_errors.py",
        "        return Verdict(Action.RETRY, refresh=True, uncertain=True)",
        "        return Verdict(Action.COMPLETE, refresh=True, uncertain=True)",
        profile="plain",
    ),
    Simulated(
        "a-numbered-lost-reply-completes",
        "core/produce_errors.py",
        "        return Verdict(Action.RETRY, refresh=True, uncertain=True)",
        "        return Verdict(Action.COMPLETE, refresh=True, uncertain=True)",
    ),
    Simulated(
        "the-first-of-an-epoch-does-not-go-alone",
        "core/sequence_numbers.py",
        "        partition.one_at_a_time |= is_first\n",
        "",
    ),
    Simulated(
        "a-partition-is-not-muted-while-one-is-in-flight",
        "core/partition_queues.py",
        "queue.is_muted or (queue.one_at_a_time and queue.in_flight):",
        "queue.is_muted:",
    ),
    Simulated(
        "who-comes-last-gets-memory-first",
        "engine/memory/wait_queue.py",
        "        self.entries.append(pending)",
        "        self.entries.appendleft(pending)",
        profile="plain",
    ),
    Simulated(
        "a-cancelled-send-keeps-memory",
        "engine/append/record_accumulator.py",
        "        except BaseException:\n            self._admission.pending.release_marks()\n",
        "        except BaseException:\n            self._pool.take(64)\n            self._admission.pending.release_marks()\n",
        profile="plain",
    ),
    Simulated(
        "what-expired-on-the-wire-keeps-its-memory",
        "engine/sender/batch_completion.py",
        "        if has_ended:\n            self._give_back(batch)\n",
        "        if has_ended:\n            batch.credit = 0\n",
        profile="plain",
    ),
    Simulated(
        "parts-of-a-split-have-one-number",
        "core/sequence_numbers.py",
        "            sequence += part.count\n",
        "",
    ),
    Simulated(
        "parts-of-a-split-have-no-number",
        "core/sequence_numbers.py",
        "            part.identity, part.sequence = batch.identity, sequence\n",
        "            part.identity = batch.identity\n",
    ),
    Simulated(
        "what-expired-on-the-wire-was-certainly-not-written",
        "core/produce_errors.py",
        "Persisted.MAYBE if batch.may_be_written or batch.on_wire else Persisted.NO",
        "Persisted.MAYBE if batch.may_be_written else Persisted.NO",
        profile="plain",
    ),
    Simulated(
        "a-late-answer-is-nothing",
        "core/sequence_numbers.py",
        "            self.gap = max(self.gap, last)",
        "            self.next = batch.sequence",
    ),
    Simulated(
        "a-flush-forgets-the-parts-of-a-split",
        "engine/sender/flush.py",
        "            self._batches.update(parts)\n",
        "",
        profile="transactional",
    ),
    Simulated(
        "a-commit-does-not-mind-what-failed",
        "engine/sender/batch_completion.py",
        "        if self.transaction is not None:",
        "        if self.transaction is not None and not batch.attempts:",
        profile="transactional",
    ),
    Simulated(
        "a-commit-waits-for-nobody",
        "engine/transactions/transaction_manager.py",
        "        await self._flushes.flush(None)\n",
        "",
        profile="transactional",
    ),
    Simulated(
        "a-forgotten-topic-comes-back-in-its-epoch",
        "core/sequence_numbers.py",
        "past=self._past)",
        "past=None)",
    ),
    Simulated(
        "of-what-was-forgotten-the-oldest-epoch-is-kept",
        "core/sequence_numbers.py",
        "max(before.identity, self.identity)",
        "min(before.identity, self.identity)",
    ),
    Simulated(
        "a-topic-with-batches-is-forgotten",
        "core/topic_updates.py",
        "        return False\n    return queue.numbers is None or queue.numbers.may_be_forgotten(granted)",
        "        return True\n    return queue.numbers is None or queue.numbers.may_be_forgotten(granted)",
    ),
    Simulated(
        "a-topic-is-forgotten-under-the-epoch-that-goes-on",
        "core/sequence_numbers.py",
        "(self.renews or self.identity != granted)",
        "True",
        profile="transactional",
    ),
    Simulated(
        "what-a-record-waits-for-is-forgotten-with-its-topic",
        "engine/append/admission.py",
        "        if record.topic is not None and record.topic not in self._partition_queues.routings:",
        "        if False:",
        profile="plain",
    ),
    Simulated(
        "a-muted-partition-loses-its-batches",
        "core/partition_queues.py",
        "        self.close(queue)\n        self.ready.remove(queue)\n\n    def unmute",
        "        self.close(queue)\n        for batch in queue.closed:\n            self.incomplete.roots.pop(batch, None)\n        queue.closed.clear()\n        self.ready.remove(queue)\n\n    def unmute",
    ),
    Simulated(
        "what-was-muted-is-drained-from-the-back",
        "core/partition_queues.py",
        "        queue.is_muted = False\n        queue.retry_at",
        "        queue.is_muted = False\n        queue.closed.reverse()\n        queue.retry_at",
    ),
    Simulated(
        "a-muted-partition-is-drained",
        "core/partition_queues.py",
        "queue.retry_at or queue.is_held or queue.is_muted or",
        "queue.retry_at or queue.is_held or",
    ),
    Simulated(
        "a-probe-does-not-go-alone",
        "core/partition_queues.py",
        "        queue.one_at_a_time |= is_trial\n",
        "",
        profile="plain",
    ),
    Simulated(
        "who-goes-elsewhere-goes-to-its-own-partition-too",
        "engine/append/appender.py",
        "            queue = self._instead_of(queue, record)",
        "            self._append(queue, record)\n            queue = self._instead_of(queue, record)",
    ),
    Simulated(
        "who-fails-fast-is-queued-all-the-same",
        "engine/append/appender.py",
        'raise wait_reasons.unavailable(queue, "The record was not queued.")',
        'raise (self._append(queue, record), wait_reasons.unavailable(queue, "The record was not queued."))[1]',
    ),
    Simulated(
        "a-full-partition-stays-full",
        "core/availability.py",
        "        queue.is_full = False\n",
        "",
    ),
    Simulated(
        "who-comes-goes-ahead-of-those-who-waited-for-a-full-partition",
        "engine/memory/buffer_pool.py",
        "return bool(self.full_partitions.notified and self.full_partitions.next() is not None)",
        "return False",
    ),
    Simulated(
        "what-is-weighed-is-not-what-is-chosen-from",
        "core/topic_routing.py",
        "for at in choices])",
        "for at in range(len(queues))])",
    ),
    Simulated(
        "a-batch-that-is-sent-again-is-handed-out",
        "engine/sender/batch_completion.py",
        "            self._recorder.retried(now, batch)\n",
        "            self._recorder.retried(now, batch)\n            self._failed_batches.add(batch, DeliveryError('', batch.queue.topic, batch.queue.partition, fate(batch), batch.attempts))\n",
    ),
    Simulated(
        "what-may-be-written-is-handed-out-as-no",
        "engine/sender/failed_batches.py",
        "record.headers, error.persisted)",
        "record.headers, type(error.persisted).NO)",
    ),
    Simulated(
        "what-a-stop-fails-is-not-handed-out",
        "engine/sender/failed_batches.py",
        "if self._is_silent or isinstance",
        'if self._is_silent or error.code == "ABORTED" or isinstance',
    ),
    Simulated(
        "the-last-record-of-a-failed-batch-is-kept-back",
        "engine/sender/failed_batches.py",
        "        records = records_of(parcel, codec)\n",
        "        records = records_of(parcel, codec)[: max(parcel.record_count - 1, 1)]\n",
    ),
)
