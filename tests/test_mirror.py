"""Each module of the engine has a test file at the same path, or a reason why not."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
ENGINE = ROOT / "aioproducer/engine"
CHOICE = "an import: tests/engine/test_build_info.py and tests/contract/test_builds.py run both choices"
WITHOUT = {
    "append/admission": "what it orders are waiting sends of a whole producer: tests/scenarios/test_backpressure.py, test_crowds.py",
    "append/chosen_build": CHOICE,
    "append/column_batches": "it queues the windows of a producer: tests/scenarios/test_column_rows.py",
    "append/fast_path": "the twin of a compiled module: tests/contract runs both builds, tests/scenarios/test_order_property.py too",
    "append/pending_sends": "it numbers, times and marks the sends that `Admission` lets wait: tests/scenarios/test_backpressure.py, test_crowds.py",
    "append/preparations": "sends of a whole producer wait for them: tests/scenarios/test_topics.py",
    "append/record_accumulator": "its calls are those of a producer: tests/contract/test_sending.py, tests/scenarios/test_full_batches.py",
    "append/transactional_accumulator": "its records are those of transactions: tests/scenarios/test_transactions.py",
    "circuit_breaker/control": "the commands of a user's breaker: tests/engine/circuit_breaker/test_manager.py",
    "delivery/chosen_build": CHOICE,
    "gauges": "it reads a whole producer: tests/scenarios/test_measuring.py, test_telling.py",
    "observability/diagnostics": "its texts are those of `explain`: tests/scenarios/test_telling.py",
    "observability/events": "its events are a producer's: tests/scenarios/test_telling.py",
    "observability/instruments": "it makes the parts above: tests/scenarios/test_measuring.py",
    "observability/waiting_notice": "it is seen while a producer starts or stops: tests/scenarios/test_starting.py, test_shutdown.py",
    "shutdown": "the end of a producer: tests/scenarios/test_shutdown.py, test_dropped_producer.py",
    "startup": "the start of a producer: tests/scenarios/test_starting.py",
    "tasks/callbacks": "they run in the loop: tests/engine/delivery/test_completion_queue.py, tests/contract/test_deliveries.py",
    "resolver_runtime": "the life of a resolver: tests/scenarios/test_resolver.py",
    "transactions/committed_offsets": "positions are read by a producer: tests/scenarios/test_positions.py",
    "transactions/coordinator_calls": "its calls are those of a producer and of a resolver: tests/scenarios/test_positions.py, test_resolver.py",
    "transactions/coordinator_lookups": "they are part of such calls: tests/scenarios/test_resolver.py",
    "transactions/offset_commits": "a resolver commits them: tests/scenarios/test_resolver.py",
    "transactions/transaction_listing": "a resolver lists them: tests/scenarios/test_resolver.py",
    "transactions/transaction_ends": "a resolver ends transactions: tests/scenarios/test_prepared.py",
    "runtime": "the life of a producer: tests/scenarios/test_starting.py, test_shutdown.py",
    "sender/flushes": "the flushes of a producer: tests/scenarios/test_delivering.py, test_shutdown.py",
    "sender/parcel": "it holds values",
    "sender/older_formats": "its results are those of tests/engine/sender/test_record_formats.py",
    "sender/sender": "its drains and answers: tests/scenarios/test_delivering.py, test_in_flight.py, test_retries.py",
}


def modules() -> set[str]:
    return {path.relative_to(ENGINE).with_suffix("").as_posix() for path in ENGINE.rglob("*.py") if path.name != "__init__.py"}


def file_of(module: str) -> pathlib.Path:
    path = pathlib.PurePosixPath(module)
    return ROOT / "tests/engine" / path.parent / f"test_{path.name}.py"


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_has_a_test_file(module: str) -> None:
    """One that is in the list of exceptions has none: a file that was added leaves the list."""
    assert file_of(module).exists() is (module not in WITHOUT), f"{file_of(module).relative_to(ROOT)}: {WITHOUT.get(module)}"


def test_the_exceptions_are_modules_and_name_test_files() -> None:
    assert WITHOUT.keys() <= modules()
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"test_\w+\.py", " ".join(WITHOUT.values()))) <= names


def test_a_test_file_has_its_module() -> None:
    """A module that was renamed takes its test file along."""
    tested = {path.relative_to(ROOT / "tests/engine").as_posix() for path in (ROOT / "tests/engine").rglob("test_*.py")}
    named = {(pathlib.PurePosixPath(module).parent / f"test_{pathlib.PurePosixPath(module).name}.py").as_posix() for module in modules()}
    assert tested <= named
