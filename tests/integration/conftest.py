"""Fixtures for tests with a real Kafka, or with its classes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from secured import SECURITY

from aioproducer import jars
from aioproducer.testing.kafka_thread import ServerThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioproducer.testing.kafka_admin import DelegationToken


@pytest.fixture(scope="session")
def compiler() -> None:
    """A JDK, not only a Java runtime; in CI its want is a failure."""
    java = jars.java()  # in JAVA_HOME, or a link in PATH
    if not (Path(os.path.realpath(java)).with_name("javac").exists() or shutil.which("javac")):
        pytest.skip(f"{java} has no compiler beside it: a JDK is needed, not only a runtime")


@pytest.fixture(scope="session")
def secure_server() -> Iterator[ServerThread]:
    """A real broker with every listener, for the whole session. Skipped without Java; in CI that is a failure."""
    server = ServerThread(security=SECURITY)
    try:
        server.open()
    except jars.JavaMissing as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    yield server
    server.close()


@pytest.fixture(scope="session")
def delegation_token(secure_server: ServerThread) -> DelegationToken:
    """A delegation token of alice."""
    return secure_server.administrate(lambda admin: admin.create_token("alice"))
