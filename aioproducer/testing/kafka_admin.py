"""Runs Kafka's own tools against a real node: users, delegation tokens and ACLs of a running `KafkaServer`.

Each call starts a Java process, which takes 1 to 2 s. The tools have no faces but their command lines, so a password is seen in the list of
processes: these are tools for tests.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aioproducer.testing.kafka_node import KafkaServerFailed, Tools

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Protocol

    from aioproducer.testing.kafka_security import Listener

    class _Node(Protocol):
        def address(self, listener: Listener = ...) -> str: ...
        async def run_tool(self, main: str, *arguments: str) -> str: ...
        def file(self, name: str) -> Path: ...


__all__ = ["DelegationToken", "Mechanism", "Resource", "SecurityAdmin", "run_tool"]

Mechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
Resource: TypeAlias = Literal["topic", "group", "transactional-id", "cluster"]

# a tool lives for a second: a small heap and the first compiler start fastest
_JVM: Final = ("-Xms64m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_SCRAM: Final[tuple[Mechanism, ...]] = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class DelegationToken:
    """Holds a delegation token (KIP-48): SCRAM's user name and password, with `tokenauth=true`.

    Attributes:
        token_id: stands for the user name.
        hmac: stands for the password.
        owner: the user; a client with the token has this user's principal.
    """

    token_id: str
    hmac: str = field(repr=False)
    owner: str


async def run_tool(tools: Tools, main: str, *arguments: str, timeout: float) -> str:
    """Run a class of Kafka's tools, and return what it printed.

    Args:
        tools: Java, and the folder of Kafka's jars.
        main: the tool's class.
        arguments: its command line.
        timeout: seconds.

    Raises:
        KafkaServerFailed: the tool failed, with what it printed, or took longer than `timeout`.

    Cancellation: the tool's process is killed.
    """
    name = main.rpartition(".")[2]
    process = await asyncio.create_subprocess_exec(
        *(str(tools.java), *_JVM, "-cp", f"{tools.library}/*", main, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(timeout):
            said, _ = await process.communicate()
    except TimeoutError as error:
        raise KafkaServerFailed(f"Kafka's tool {name} was not done within {timeout} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode(errors="replace")
    if process.returncode:
        raise KafkaServerFailed(f"Kafka's tool {name} failed: {text}")
    return text


class SecurityAdmin:
    """Changes the users, tokens and ACLs of a running node.

    Args:
        node: the running node.
        users: the passwords of the users that the node began with.

    Every method raises `KafkaServerFailed` with the tool's words when it fails.
    """

    def __init__(self, node: _Node, users: Mapping[str, str]) -> None:
        self._node = node
        self._passwords = dict(users)

    async def set_user(self, user: str, password: str, *mechanisms: Mechanism, iterations: int = 4096) -> None:
        """Add a user to SCRAM's, or change the password.

        Args:
            user: the name.
            password: without the characters `[],`.
            mechanisms: of these; none: of both.
            iterations: the count of SCRAM, 4,096 to 16,384.
        """
        for mechanism in mechanisms or _SCRAM:
            try:
                await self._alter_user(user, "--add-config", f"{mechanism}=[iterations={iterations},password={password}]")
            except KafkaServerFailed as failed:
                # the tool's words repeat its command line
                raise KafkaServerFailed(str(failed).replace(password, "***")) from None
        self._passwords[user] = password

    async def delete_user(self, user: str, *mechanisms: Mechanism) -> None:
        """Delete a user's credentials of these mechanisms, or of both. Sessions that stand go on until they end."""
        # Kafka takes one change of a user in a request
        for mechanism in mechanisms or _SCRAM:
            await self._alter_user(user, "--delete-config", mechanism)

    async def create_token(self, owner: str) -> DelegationToken:
        """Create a delegation token, as its owner, over SCRAM-SHA-256.

        Raises:
            KeyError: the owner's password is not known here.
        """
        path = self._node.file(f"as-{owner}.properties")
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        text = (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={module} required username="{owner}" password="{self._passwords[owner]}";\n'
        )
        path.touch(mode=0o600)
        path.write_text(text, encoding="latin-1")
        said = await self._node.run_tool(
            "org.apache.kafka.tools.DelegationTokenCommand",
            *("--bootstrap-server", self._node.address("SASL_PLAINTEXT"), "--command-config", os.fspath(path)),
            *("--create", "--max-life-time-period", "-1"),
        )
        for line in said.splitlines():
            words = line.split()
            if f"User:{owner}" in words and len(words) > 2:
                return DelegationToken(token_id=words[0], hmac=words[1], owner=owner)
        raise KafkaServerFailed(f"Kafka's tool DelegationTokenCommand told no token of {owner}")

    async def allow(self, user: str, *operations: str, resource: Resource = "topic", name: str = "*") -> None:
        """Add ACLs: the user may do these operations, such as "Write", on a resource by name; "*": on all of the kind."""
        await self._acl("--add", user, operations, resource, name)

    async def withdraw(self, user: str, *operations: str, resource: Resource = "topic", name: str = "*") -> None:
        """Remove ACLs that `allow` added."""
        await self._acl("--remove", user, operations, resource, name)

    async def _alter_user(self, user: str, *change: str) -> None:
        await self._run("kafka.admin.ConfigCommand", "--alter", "--entity-type", "users", "--entity-name", user, *change)

    async def _acl(self, verb: str, user: str, operations: tuple[str, ...], resource: Resource, name: str) -> None:
        on = ("--cluster",) if resource == "cluster" else (f"--{resource}", name)
        which = [word for operation in operations for word in ("--operation", operation)]
        removing = ("--force",) if verb == "--remove" else ()
        await self._run("org.apache.kafka.tools.AclCommand", verb, "--allow-principal", f"User:{user}", *which, *on, *removing)

    async def _run(self, main: str, *arguments: str) -> None:
        await self._node.run_tool(main, "--bootstrap-server", self._node.address("PLAINTEXT"), *arguments)
