"""Tests of `aioproducer.guarded_log`: what the application's logging raises ends nothing."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import pytest
from whole import jumping, running

from aioproducer.guarded_log import GuardedLog
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = ("producer-started", "producer-stopped", "broker-connected", "broker-lost", "producer-id-granted", None)


class Raising(logging.Filter):
    """Raises for the records of one event, or for all."""

    def __init__(self, event: str | None) -> None:
        super().__init__()
        self.event = event
        self.raised = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if self.event in {None, getattr(record, "event", None)}:
            self.raised += 1
            raise LookupError("a bug of the application's")
        return True


@pytest.fixture
def raising(request: pytest.FixtureRequest) -> Iterator[Raising]:
    raising = Raising(request.param)
    loggers = [logging.getLogger(name) for name in ("aioproducer.events", "aioproducer.engine.append.interceptors", "guarded")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addFilter(raising)
        logger.setLevel(logging.DEBUG)
    yield raising
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeFilter(raising)
        logger.setLevel(level)


class Interceptor:
    def on_send(self, _record: object) -> None:
        raise RuntimeError("this is logged")


@pytest.mark.parametrize("raising", EVENTS, indirect=True)
@jumping
async def test_a_producer_works_and_ends_whatever_logging_raises(raising: Raising) -> None:
    """`running` checks that no task is left: `start` and `stop` raised the error, and left all of them and their connections."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with running(cluster, interceptors=[Interceptor()]) as (_, producer):
            await producer.send_and_wait("orders", b"1")
            cluster.brokers[1].disconnect_all()
            await producer.send_and_wait("orders", b"2")
        assert cluster.values("orders") == [b"1", b"2"]
    assert raising.raised


def test_a_log_record_names_its_caller_and_has_what_it_was_given(caplog: pytest.LogCaptureFixture) -> None:
    log = GuardedLog("guarded")
    caplog.set_level(logging.INFO, "guarded")
    log.warning("%d of %d", 1, 2, extra={"facts": 3})
    log.log(logging.INFO, "by its level")
    log.debug("unseen")
    try:
        raise LookupError
    except LookupError:
        log.exception("told")
    assert [record.getMessage() for record in caplog.records] == ["1 of 2", "by its level", "told"]
    assert {(record.name, record.filename) for record in caplog.records} == {("guarded", "test_guarded_log.py")}
    assert caplog.records[0].facts == 3  # type: ignore[attr-defined]
    assert caplog.records[2].exc_info is not None
    assert log.isEnabledFor(logging.INFO)


@pytest.mark.parametrize("raising", [None], indirect=True)
def test_an_error_of_logging_goes_to_stderr(raising: Raising, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless there is none, as in a Windows program without a console, or `logging.raiseExceptions` is off."""
    GuardedLog("guarded").warning("seen")
    assert "LookupError: a bug of the application's" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(logging, "raiseExceptions", False)
        GuardedLog("guarded").warning("seen")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        GuardedLog("guarded").warning("seen")
    assert capsys.readouterr() == ("", "")
    assert raising.raised == 3
