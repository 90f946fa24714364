"""A plugin of the suite: the run fails if a secret of a test shows up in what the tests print, log or warn of.

Every secret of a test, fixture, example or page begins with one word. The word, its base64 and its percent-encoded form are searched in
captured standard output and error, in all that the package and asyncio log, at DEBUG (asyncio's debug log among it), and in warnings.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pytest

if TYPE_CHECKING:
    import warnings
    from collections.abc import Callable

__all__ = ["WORD", "CanaryPlugin", "is_shown", "use"]

# Put together here, so that no line of this file that a report quotes has it.
WORD: Final = "can" + "ary-"
_LOGGERS: Final = ("aioproducer", "asyncio")


def _base64_forms() -> set[str]:
    """Return what every base64 text that has the word in it has, wherever the word begins: at the first, second or third byte of three."""
    forms = set()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + WORD.encode()).decode()
        # A digit stands for six bits: those that belong to the word alone are the same in every text.
        forms.add(encoded[-(-before * 8 // 6) : (before + len(WORD)) * 8 // 6])
    return forms


_FORMS: Final = (WORD, WORD.encode().hex(), *_base64_forms())


def is_shown(text: str) -> bool:
    """Return whether a text has the word, as it is or encoded."""
    return any(
        form in one for form in _FORMS for one in (text, unquote(text) if "%" in text else "")
    )


class CanaryPlugin:
    """Searches what tests print, log and warn of.

    Attributes:
        leaks: the test and the place where the word was seen.
    """

    def __init__(self) -> None:
        self.leaks: list[tuple[str, str]] = []
        self._test = "(no test)"
        self._restore: list[Callable[[], None]] = []

    def look(self, place: str, text: str) -> None:
        """Search a text."""
        if is_shown(text):
            self.leaks.append((self._test, place))

    # Logging

    def watch_logging(self) -> None:
        """Search each record of the package's and asyncio's loggers, and of those of DEBUG that no handler gets.

        The loggers' levels stay as tests set them: what is not enabled is made, searched and dropped.
        """
        is_enabled = logging.Logger.isEnabledFor
        handle = logging.Logger.handle

        def is_made(logger: logging.Logger, level: int) -> bool:
            return logger.name.partition(".")[0] in _LOGGERS or is_enabled(logger, level)

        def searched(logger: logging.Logger, record: logging.LogRecord) -> None:
            if logger.name.partition(".")[0] in _LOGGERS:
                self._look_at(record)
            if is_enabled(logger, record.levelno):
                handle(logger, record)

        logging.Logger.isEnabledFor = is_made  # type: ignore[method-assign, assignment]
        logging.Logger.handle = searched  # type: ignore[method-assign, assignment]
        self._restore += [
            lambda: setattr(logging.Logger, "isEnabledFor", is_enabled),
            lambda: setattr(logging.Logger, "handle", handle),
        ]

    def _look_at(self, record: logging.LogRecord) -> None:
        error = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        own = {
            name: value
            for name, value in vars(record).items()
            if name not in {"msg", "args", "exc_info", "exc_text", "pathname"}
        }
        # The traceback's lines of source are the test's own.
        shown = "\n".join(line for line in error.splitlines() if not line.startswith("    "))
        self.look(
            f"the log, at {record.levelname}, of {record.name}",
            f"{record.getMessage()}\n{shown}\n{own}",
        )

    def watch_capture(self) -> None:
        """Search what a test reads of its own output by `capsys` and `capfd`."""
        read = pytest.CaptureFixture.readouterr

        def searched(fixture: pytest.CaptureFixture[Any]) -> Any:
            result = read(fixture)
            for place, text in (("standard output", result.out), ("standard error", result.err)):
                self.look(place, text if isinstance(text, str) else text.decode(errors="replace"))
            return result

        pytest.CaptureFixture.readouterr = searched  # type: ignore[method-assign, assignment]
        self._restore.append(lambda: setattr(pytest.CaptureFixture, "readouterr", read))

    def restore(self) -> None:
        """Take the watches away."""
        while self._restore:
            self._restore.pop()()

    # Hooks

    def pytest_make_parametrize_id(self, val: object, argname: str) -> str | None:
        """Name a parameter that has a secret after its argument: reports and environments show the names of tests."""
        return (
            f"{argname}-with-a-secret"
            if isinstance(val, (str, bytes)) and is_shown(repr(val))
            else None
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._look_at_sections(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._look_at_sections(report)

    def _look_at_sections(self, report: Any) -> None:
        for place, text in report.sections:
            # A report has the sections of the test's earlier phases, too.
            if report.when in {None, place.rpartition(" ")[2]} and "log" not in place:
                self.look(place.lower(), text)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, nodeid: str
    ) -> None:
        self._test = nodeid or self._test
        self.look("a warning", f"{warning_message.message}\n{warning_message.message!r}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.leaks and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.leaks:
            terminalreporter.section("secrets that were shown", red=True)
        for test, place in dict.fromkeys(self.leaks):
            terminalreporter.line(f"{test}: {place}")


def use(config: pytest.Config) -> None:
    """Watch the run of `config`."""
    plugin = CanaryPlugin()
    plugin.watch_logging()
    plugin.watch_capture()
    config.add_cleanup(plugin.restore)
    config.pluginmanager.register(plugin, "canary")
