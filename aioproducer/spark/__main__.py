"""Lists and ends the transactions that queries of the sink left open.

python -m aioproducer.spark resolve spark- --bootstrap-servers localhost:9092
python -m aioproducer.spark resolve spark-4f1c --config client.properties --end
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import re
import sys
import tomllib
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config import ProducerConfig
from aioproducer.config.secret import read_properties
from aioproducer.errors import ConfigError, KafkaError
from aioproducer.model import counted

from .resolving import Action, Finding, Resolution, resolve
from .sink_options import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_FAILED: Final = 2
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MAX_TOPICS: Final = 3
# The argument takes precedence over these.
_ADDRESSES: Final = ("bootstrap.servers", "bootstrap_servers", "metadata.broker.list")
_EPILOG: Final = """\
The decision of a transaction:
  commit     the driver decided to commit it, and did not end it
  undecided  no decision names it: its rows are not committed, and the query writes them again
  done       it has ended, or its coordinator is ending it
  unknown    the decision cannot be read; the line says why

With --end, transactions with the decision "commit" are committed, and those that are "undecided" are aborted. Nothing else is ended. A
query that is started again from its checkpoint ends its transactions itself,
except those of tasks that have no rows in that run.

Brokers forget the marks of a query that stood still for offsets.retention.minutes (7 days, unless the brokers have another setting), and
Kafka does not tell when marks were written: a warning goes by the beginning of the query's last transaction. Where no transaction is
listed, there may still be marks, or none any more.

exit status:
  0  no transaction is open, or all were ended
  1  at least one transaction is open or was left alone
  2  the arguments are wrong, or Kafka does not answer
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = _parser()
    asked, unknown = parser.parse_known_args(arguments)
    # argparse would print the values too, and one of them may be a password.
    if unknown:
        parser.error(f"unknown arguments: {', '.join(sorted({_name_of(one) for one in unknown}))}")
    try:
        found = asyncio.run(
            resolve(
                _config(asked),
                asked.prefix,
                ledger_topic=asked.ledger_topic,
                older_than=asked.older_than,
                is_ending=asked.end,
            )
        )
    except KafkaError as error:
        sys.stderr.write(f"{parser.prog} {asked.command}: {error}\n")
        return _FAILED
    sys.stdout.write(_json(found) if asked.json else _table(found, is_ending=asked.end))
    for warning in found.warnings:
        sys.stderr.write(f"warning: {_printable(warning)}\n")
    return 1 if found.open else 0


def _name_of(argument: str) -> str:
    return argument.partition("=")[0] if argument.startswith("-") else "a value without an option"


def _parser() -> argparse.ArgumentParser:
    # No type lets argparse print a value: each raises an error with a text of its own.
    parser = argparse.ArgumentParser(
        "python -m aioproducer.spark", description="Tools for Spark's sink.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="resolve")
    command = commands.add_parser(
        "resolve",
        help="list the open transactions of queries, and end them",
        description="List the transactions whose ids begin with PREFIX: their state, age, topics, and what the query's decision says.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument(
        "prefix",
        type=_prefix,
        metavar="PREFIX",
        help="the queries' transactionalIdPrefix, or the beginning of one query's ids",
    )
    command.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="the brokers' addresses (default: localhost:9092)",
    )
    command.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the connection, by Java's name; may be given again. Write secrets as references: sasl.password=${env:PASSWORD}",
    )
    command.add_argument(
        "--config",
        type=pathlib.Path,
        metavar="FILE",
        help="options in a Java properties file, or in a .toml file",
    )
    command.add_argument(
        "--ledger-topic",
        type=_topic,
        metavar="TOPIC",
        help="the queries' option ledgerTopic (default: where a decision is)",
    )
    command.add_argument(
        "--end", action="store_true", help="commit what the decisions name, and abort the rest"
    )
    command.add_argument(
        "--older-than",
        type=_seconds,
        default=900.0,
        metavar="AGE",
        help="leave alone what began less than AGE ago: 90s, 15m, 2h, 1d (default: 15m)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _prefix(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "it is empty, which would be every transaction of the cluster"
        )
    return text


def _topic(text: str) -> str:
    if TOPIC.fullmatch(text) is None:
        raise argparse.ArgumentTypeError("it names no topic: up to 249 of a-z A-Z 0-9 . _ - do")
    return text


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError("an option is NAME=VALUE")
    # As a Spark job has it.
    return name.removeprefix("kafka."), value


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError("an age is a number with s, m, h or d: 90s, 15m, 2h, 1d")
    return float(int(match[1]) * _UNITS[match[2]])


def _config(asked: argparse.Namespace) -> ProducerConfig:
    """Return the config of the options. Raises ConfigError."""
    options = {} if asked.config is None else _options_of(asked.config)
    options |= dict(asked.option)
    if asked.bootstrap_servers is not None:
        options = {name: value for name, value in options.items() if name not in _ADDRESSES}
        options["bootstrap.servers"] = asked.bootstrap_servers
    return ProducerConfig.from_mapping(options)


def _options_of(path: pathlib.Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else dict(read_properties(text))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    # The error of either has parts of the file.
    except ValueError:
        raise ConfigError(
            f"{path} is no {'TOML' if path.suffix == '.toml' else 'UTF-8 text'}"
        ) from None


# Output


def _json(found: Resolution) -> str:
    transactions = [
        {
            "transactional_id": one.transactional_id,
            "state": one.state,
            "started_at": None if one.started_at is None else one.started_at.isoformat(),
            "age_seconds": one.age_seconds,
            "topics": list(one.topics),
            "decision": one.decided,
            "action": one.action,
            "reason": one.reason,
            "outcome": one.outcome,
            "open": one.is_open,
        }
        for one in found.findings
    ]
    return (
        json.dumps(
            {"transactions": transactions, "open": found.open, "warnings": list(found.warnings)},
            indent=2,
        )
        + "\n"
    )


def _table(found: Resolution, *, is_ending: bool) -> str:
    head = (
        "TRANSACTIONAL ID",
        "STATE",
        "AGE",
        "DECISION",
        "DONE" if is_ending else "WITH --end",
        "TOPICS",
    )
    rows = [head, *(_cells(one, is_ending=is_ending) for one in found.findings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.append(f"{counted(len(found.findings), 'transaction')}, {found.open} open")
    return "\n".join(lines) + "\n"


def _cells(one: Finding, *, is_ending: bool) -> tuple[str, ...]:
    done = one.outcome or ("-" if is_ending else one.action.value)
    if one.action is Action.LEAVE:
        done = f"left: {one.reason}"
    elif one.action is Action.NOTHING:
        done = "-"
    topics = ",".join(one.topics[:_MAX_TOPICS]) + (
        f" and {len(one.topics) - _MAX_TOPICS} more" if len(one.topics) > _MAX_TOPICS else ""
    )
    return (
        _printable(one.transactional_id),
        one.state,
        _age(one.age_seconds),
        one.decided.value,
        _printable(done),
        topics or "-",
    )


def _printable(text: str) -> str:
    """Return a text whose control characters are escaped: any program may have chosen them, and a terminal would obey them."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _age(seconds: float | None) -> str:
    """Return an age with its two largest units."""
    if seconds is None:
        return "-"
    left = int(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _UNITS[unit])
        if count or parts:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


if __name__ == "__main__":
    sys.exit(main())
