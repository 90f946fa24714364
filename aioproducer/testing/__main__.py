"""Runs a fake cluster as a process, for apps in other processes and languages.

    python -m aioproducer.testing --brokers 3 --topic orders:6 --topic audit

Its first line of output is its address, its second the request versions that it speaks. It serves until SIGINT or SIGTERM, and keeps all
data in memory. If a client violated the protocol, it prints the violations and ends with status 1.

    python -m aioproducer.testing --security SASL_SSL --user alice:canary-alice --authority ca.pem

writes the certificate of the authority that signed the brokers' certificates to ca.pem.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.testing.cluster import FakeCluster
from aioproducer.testing.security.listener import ListenerSecurity
from aioproducer.wire.api import NAMES, ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


class _Topic(NamedTuple):
    name: str
    partitions: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal. Returns the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        security = ListenerSecurity(
            asked.security, users=dict(asked.user), session_ms=asked.session_ms
        )
        cluster = FakeCluster(
            brokers=asked.brokers,
            version=asked.version,
            auto_create=not asked.no_auto_create,
            security=security,
        )
        for topic in asked.topic:
            cluster.create_topic(topic.name, topic.partitions)
        if asked.authority is not None and cluster.security.authority_pem is None:
            raise ValueError("--authority needs --security SSL or SASL_SSL")
    except (ModuleNotFoundError, ValueError) as error:
        _parser().error(str(error))
    if asked.authority is not None and cluster.security.authority_pem is not None:
        asked.authority.write_bytes(cluster.security.authority_pem)
    # raised on systems where the loop cannot handle signals
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(cluster))
    for violation in cluster.violations:
        sys.stderr.write(
            f"broker {violation.broker}, connection {violation.connection}: {violation.what}\n"
        )
    return 1 if cluster.violations else 0


async def _serve(cluster: FakeCluster) -> None:
    ended = asyncio.Event()
    async with cluster:
        with contextlib.suppress(NotImplementedError):  # Windows
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, ended.set)
        ranges = (
            f"{NAMES[ApiKey(key)]} {low}-{high}" for key, (low, high) in cluster.versions.items()
        )
        sys.stdout.write(f"bootstrap.servers={cluster.bootstrap_servers}\n{', '.join(ranges)}\n")
        sys.stdout.flush()
        await ended.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m aioproducer.testing", description="A fake Kafka cluster on loopback, for tests."
    )
    parser.add_argument("--brokers", type=_count, default=1, help="how many brokers (default: 1)")
    parser.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="a topic to make; may be given again",
    )
    parser.add_argument(
        "--version",
        default="4.3",
        help='the release of Kafka whose versions of requests it speaks (default: "4.3")',
    )
    parser.add_argument(
        "--no-auto-create",
        action="store_true",
        help="make no topics that clients ask for and that are not there",
    )
    parser.add_argument(
        "--security",
        default="PLAINTEXT",
        help="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL (default: PLAINTEXT)",
    )
    parser.add_argument(
        "--user",
        type=_user,
        action="append",
        default=[],
        metavar="NAME:PASSWORD",
        help="a user for SASL; may be given again",
    )
    parser.add_argument(
        "--session-ms",
        type=int,
        default=0,
        help="after how many milliseconds clients must authenticate again",
    )
    parser.add_argument(
        "--authority",
        type=pathlib.Path,
        metavar="FILE",
        help="where to write the certificate that clients must trust",
    )
    return parser


def _user(text: str) -> tuple[str, str]:
    name, colon, password = text.partition(":")
    if not colon or not name:
        raise argparse.ArgumentTypeError("a user is NAME:PASSWORD")
    return name, password


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _topic(text: str) -> _Topic:
    name, colon, count = text.rpartition(":")
    return _Topic(name, _count(count)) if colon else _Topic(text, 1)


if __name__ == "__main__":
    sys.exit(main())
