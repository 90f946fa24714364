"""The mutants of Spark's exactly-once batches: each would lose rows, double them, or leave a batch that never ends."""

from __future__ import annotations

from typing import Final

from tests.tools.mutants.listed import Mutant

__all__ = ["SINK"]

_STEPS: Final = "tests/spark/test_exactly_once_steps.py"
_TABLES: Final = "tests/spark/test_decisions.py"
_RESOLVING: Final = "tests/spark/test_resolving.py"
_TEXTS: Final = "tests/spark/test_ledger.py"
_HISTORIES: Final = "tests/spark/test_sink_histories.py"
_WRITERS: Final = "tests/spark/test_exactly_once_writing.py"

SINK: Final = (
    Mutant(
        "a-mark-is-read-before-the-producer-id",
        "spark/exactly_once.py",
        """        self._producer = producer = await ledger.producer(ledger.name.transactional_id(self._task))
        try:
            await producer.begin_transaction()
            # Only now no transaction of this task is open, so that the mark is final.
            mark = await ledger.mark(self._task, stable=True)
""",
        """        mark = await ledger.mark(self._task, stable=False)
        self._producer = producer = await ledger.producer(ledger.name.transactional_id(self._task))
        try:
            await producer.begin_transaction()
""",
        (_STEPS,),
    ),
    Mutant(
        "a-mark-is-read-stable-before-the-producer-id",
        "spark/exactly_once.py",
        """        self._producer = producer = await ledger.producer(ledger.name.transactional_id(self._task))
        try:
            await producer.begin_transaction()
            # Only now no transaction of this task is open, so that the mark is final.
            mark = await ledger.mark(self._task, stable=True)
""",
        """        mark = await ledger.mark(self._task, stable=True)
        self._producer = producer = await ledger.producer(ledger.name.transactional_id(self._task))
        try:
            await producer.begin_transaction()
""",
        (_STEPS,),
    ),
    Mutant(
        "an-abort-takes-what-is-decided",
        "spark/decisions.py",
        "return tuple(one for one in prepared if one not in decided)",
        "return tuple(prepared)",
        (_TABLES, _STEPS),
    ),
    Mutant(
        "a-commit-comes-before-the-decision",
        "spark/exactly_once.py",
        """        await ledger.decide(driver, verdict.decision)
    reached(Step.DECIDED, batch=batch)
    await _end(ledger, verdict.decision, verdict.commits, reached)
""",
        """        await _end(ledger, verdict.decision, verdict.commits, reached)
        await ledger.decide(driver, verdict.decision)
    reached(Step.DECIDED, batch=batch)
""",
        (_STEPS, _HISTORIES),
    ),
    Mutant(
        "an-idle-producer-aborts-what-it-prepared",
        "spark/ledger_client.py",
        "await leave(self._idle.pop(0))",
        "await stop_producer(self._idle.pop(0))",
        (_WRITERS,),
    ),
    Mutant(
        "another-id-is-asked-for-with-the-old-epoch",
        "core/transactions/transaction.py",
        "        self.identity = NO_IDENTITY\n        self.error = None\n",
        "        self.error = None\n",
        ("tests/scenarios/test_prepared.py",),
    ),
    Mutant(
        "a-decision-needs-no-lock",
        "spark/ledger_client.py",
        "driver = await self.producer(self.name.driver_id(),",
        'driver = await self.producer(f"{self.name.driver_id()}-{id(self)}",',
        (_STEPS,),
    ),
    Mutant(
        "a-refused-commit-is-tried-again",
        "engine/transactions/coordinator_calls.py",
        "if isinstance(error, BrokerError) and not error.retriable:",
        'if isinstance(error, BrokerError) and not error.retriable and error.name not in {"INVALID_TXN_STATE", "PRODUCER_FENCED"}:',
        (_STEPS,),
    ),
    Mutant(
        "a-task-without-rows-has-a-transaction",
        "spark/exactly_once_writing.py",
        "        if first is None:\n            return transaction.empty()\n",
        "",
        (_WRITERS,),
    ),
    Mutant(
        "two-tasks-share-a-mark",
        "spark/ledger.py",
        "        return self.transactional_id(task)\n",
        "        return self.transactional_id(0)\n",
        (_TEXTS, _STEPS),
    ),
    Mutant(
        "a-chain-is-cut-after-its-first-group",
        "spark/ledger_client.py",
        "for part in range(1, count)])",
        "for part in range(1, 1)])",
        (_STEPS,),
    ),
    Mutant(
        "a-chain-that-is-cut-is-whole",
        "spark/ledger.py",
        "    if found != whole:",
        "    if found != whole[: len(found)]:",
        (_TEXTS,),
    ),
    Mutant(
        "parts-of-two-decisions-are-one",
        "spark/ledger.py",
        '    found = [part and part._replace(chunk=b"") for part in parts]',
        '    found = [part and part._replace(chunk=b"", digest=first.digest) for part in parts]',
        (_TEXTS,),
    ),
    Mutant(
        "a-checksum-is-not-compared",
        "spark/decisions.py",
        "now = (report.rows, report.bytes, report.checksum)",
        "now = (report.rows, report.bytes, before[2])",
        (_TABLES, _HISTORIES),
    ),
    Mutant(
        "a-decisions-epoch-is-ignored",
        "spark/decisions.py",
        """        decided = {entry.prepared for entry in decision.entries if entry is not None}
    prepared = [report.prepared for report in reports if report is not None and report.prepared is not None]
    return tuple(one for one in prepared if one not in decided)""",
        """        decided = {entry.prepared.producer_id for entry in decision.entries if entry is not None}
    prepared = [report.prepared for report in reports if report is not None and report.prepared is not None]
    return tuple(one for one in prepared if one.producer_id not in decided)""",
        (_TABLES,),
    ),
    Mutant(
        "a-fenced-answer-is-a-loss",
        "spark/ledger_client.py",
        "return None if is_entry_committed(self.name.text, mark, batch, entry) else error.name",
        "return error.name",
        (_STEPS,),
    ),
    Mutant(
        "a-fenced-answer-is-a-commit",
        "spark/ledger_client.py",
        "return None if is_entry_committed(self.name.text, mark, batch, entry) else error.name",
        "return None",
        (_STEPS, _HISTORIES),
    ),
    Mutant(
        "every-refusal-is-the-transactions-end",
        "spark/ledger_client.py",
        "            if error.name not in _ENDED:\n                raise\n            mark",
        "            mark",
        (_STEPS,),
    ),
    Mutant(
        "an-older-driver-does-not-ask",
        "spark/decisions.py",
        "if report.state is TaskState.SKIPPED}\n    return [task",
        "if report.state is not TaskState.EMPTY}\n    return [task",
        (_TABLES,),
    ),
    Mutant(
        "a-task-that-had-no-rows-is-skipped",
        "spark/exactly_once.py",
        "return entry is not None and await",
        "return (entry is None and self._saw_decision) or entry is not None and await",
        (_STEPS, _HISTORIES),
    ),
    Mutant(
        "a-batch-without-rows-is-over",
        "spark/decisions.py",
        "report.state is not TaskState.EMPTY or report.saw_decision",
        "report.state is not TaskState.EMPTY",
        (_STEPS,),
    ),
    Mutant(
        "an-abort-reads-the-decision-before",
        "spark/exactly_once.py",
        "            decision = await ledger.decision(stable=True)\n            await ledger.abort",
        "            decision = await ledger.decision(stable=False)\n            await ledger.abort",
        (_STEPS,),
    ),
    Mutant(
        "any-mark-of-the-batch-is-a-commit",
        "spark/decisions.py",
        " and mark is not None and mark[1:] == entry[1:]",
        "",
        (_STEPS,),
    ),
    Mutant(
        "resolve-looks-at-the-named-topic-alone",
        "spark/resolving.py",
        "        topics = {at.topic for at in offsets if at.partition == POSITION_PARTITION}\n",
        "        topics = {at.topic for at in offsets if False}\n",
        (_RESOLVING,),
    ),
    Mutant(
        "resolve-does-not-look-again-with-the-lock",
        "spark/resolving.py",
        "                    _, known = await self.find(stable=True)\n",
        "",
        (_RESOLVING,),
    ),
    Mutant(
        "resolve-takes-an-older-decision-of-the-named-topic",
        "spark/resolving.py",
        "        if topic not in latest:\n",
        "        if topic not in decisions:\n",
        (_RESOLVING,),
    ),
)
