"""A real Kafka with TLS, SASL, sessions and ACLs: its users, its listeners and its certificates.

    security = KafkaSecurity(users={"alice": "canary-alice", "bob": "canary-bob"}, session_ms=3000, super_users=("alice",))
    async with SecuredKafkaServer(security) as kafka:
        kafka.address("SASL_SSL")                            # "localhost:40123"
        kafka.certificates.ca                                # paths of PEM files, which `stop` removes
        kafka.certificates.clients["alice"].pem              # CN=alice, for the listener MTLS
        await kafka.admin.delete_user("alice")               # and: set_user, create_token, allow

The listeners, by the names that `address` takes:

    PLAINTEXT               for the node itself, its tools and `KafkaServer`'s methods; User:ANONYMOUS
    SSL                     TLS without a client certificate; User:ANONYMOUS
    MTLS                    TLS with `ssl.client.auth=required`; the principal is the certificate's common name
    SASL_PLAINTEXT          PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, the latter two with delegation tokens, too; OAUTHBEARER with unsecured
                            JWTs, as `aioproducer.testing.unsecured_token` makes them; with `kerberos` GSSAPI
    SASL_SSL                the same over TLS
    SESSIONS_PLAINTEXT      as SASL_PLAINTEXT, with `connections.max.reauth.ms`
    SESSIONS_SSL            as SASL_SSL, with `connections.max.reauth.ms`
    OIDC_PLAINTEXT          OAUTHBEARER with tokens that keys of `jwks_url` verify, if that is given; the principal is the claim `sub`
    OIDC_SSL                the same over TLS

It needs the extra `crypto`, and Kafka 3.5 or newer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from aioproducer.testing import jars
from aioproducer.testing.certificates import CertificateAuthority, CertificateFiles
from aioproducer.testing.kafka_server import (
    HOST,
    KafkaServer,
    KafkaServerFailed,
    ServerThread,
    Tools,
    fetched,
)
from tests.support.certificates import intermediate
from tests.support.kdc import BrokerKerberos

R = TypeVar("R")
Listener: TypeAlias = Literal[
    "PLAINTEXT",
    "SSL",
    "MTLS",
    "SASL_PLAINTEXT",
    "SASL_SSL",
    "SESSIONS_PLAINTEXT",
    "SESSIONS_SSL",
    "OIDC_PLAINTEXT",
    "OIDC_SSL",
]

LISTENERS: Final[Mapping[Listener, str]] = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SESSIONS_PLAINTEXT": "SASL_PLAINTEXT",
    "SESSIONS_SSL": "SASL_SSL",
    "OIDC_PLAINTEXT": "SASL_PLAINTEXT",
    "OIDC_SSL": "SASL_SSL",
}
"""Each listener's security protocol."""

# a name, so that clients send it as SNI and check the certificate by it
ADVERTISED_HOST: Final = "localhost"
_SCRAM: Final[tuple[Literal["SCRAM-SHA-256", "SCRAM-SHA-512"], ...]] = (
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
)
_ITERATIONS: Final = 4096  # the fewest that Kafka takes
_TOKENS: Final = "OAUTHBEARER"
_PACKAGE: Final = "org.apache.kafka.common.security"
_OIDC: Final = "OIDC_"


@dataclass(frozen=True)
class KafkaSecurity:
    """Says how a `KafkaServer` is secured.

    Args:
        users: the password of each user, for PLAIN and SCRAM alike. `SecurityAdmin` changes those of SCRAM; PLAIN's stay.
        session_ms: the length of a session on the listeners SESSIONS_PLAINTEXT and SESSIONS_SSL (`connections.max.reauth.ms`).
        super_users: users without the limits of ACLs, as User:ANONYMOUS, which administrates the node; others may do only what ACLs
            allow (StandardAuthorizer). Without any, there are no ACLs.
        jwks_url: the URL of the public keys of tokens, which must answer when the node starts (`TokenServer.jwks_url`); None: there are
            no listeners OIDC_PLAINTEXT and OIDC_SSL.
        kerberos: the node's principal and realm, for GSSAPI (see `tests.support.kdc`); None: the node has no GSSAPI.
    """

    users: Mapping[str, str] = field(repr=False)
    session_ms: int = 3000
    super_users: tuple[str, ...] = ()
    jwks_url: str | None = None
    kerberos: BrokerKerberos | None = None

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Return the listeners of the node."""
        return tuple(name for name in LISTENERS if self.jwks_url or not name.startswith(_OIDC))

    def jvm_options(self) -> list[str]:
        """Return what Java is told besides: the URLs that the node may fetch keys from, and the realm of Kerberos."""
        urls = (
            [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.jwks_url}"]
            if self.jwks_url
            else []
        )
        return (
            urls
            if self.kerberos is None
            else [*urls, f"-Djava.security.krb5.conf={self.kerberos.config}"]
        )

    def format_arguments(self) -> list[str]:
        """Return what `kafka-storage format` takes besides: the users' SCRAM credentials (KIP-900)."""
        return [
            word
            for user, password in self.users.items()
            for mechanism in _SCRAM
            for word in (
                "--add-scram",
                f"{mechanism}=[name={user},password={password},iterations={_ITERATIONS}]",
            )
        ]

    def settings(self, certificates: ServerCertificates) -> dict[str, object]:
        """Return the node's properties besides its listeners and ports."""
        made: dict[str, object] = {
            # one file with the PKCS#8 key, then the chain
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificates.server.pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.ca,
            "listener.name.mtls.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            "delegation.token.secret.key": "canary-token-key",
        }
        for name in self.listeners:
            if LISTENERS[name].startswith("SASL_"):
                made |= self._sasl(name, f"listener.name.{name.lower()}")
            if name.startswith("SESSIONS_"):
                made[f"listener.name.{name.lower()}.connections.max.reauth.ms"] = self.session_ms
        if self.super_users:
            made["authorizer.class.name"] = (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            )
            made["super.users"] = ";".join(
                f"User:{user}" for user in ("ANONYMOUS", *self.super_users)
            )
        return made

    def _sasl(self, listener: Listener, prefix: str) -> dict[str, object]:
        if listener.startswith(_OIDC):
            package = f"{_PACKAGE}.oauthbearer"
            return {
                f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
                f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": self.jwks_url,
                f"{prefix}.sasl.oauthbearer.expected.audience": "kafka",
                f"{prefix}.sasl.oauthbearer.expected.issuer": "https://issuer.test",
            }
        users = " ".join(f'user_{user}="{password}"' for user, password in self.users.items())
        return {
            f"{prefix}.sasl.enabled.mechanisms": ",".join(
                ("PLAIN", *_SCRAM, _TOKENS, *([] if self.kerberos is None else ["GSSAPI"]))
            ),
            f"{prefix}.plain.sasl.jaas.config": f"{_PACKAGE}.plain.PlainLoginModule required {users};",
            **{
                f"{prefix}.{name.lower()}.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;"
                for name in _SCRAM
            },
            # the broker logs in, too, as any user
            f"{prefix}.{_TOKENS.lower()}.sasl.jaas.config": (
                f'{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            **self._gssapi(prefix),
        }

    def _gssapi(self, prefix: str) -> dict[str, object]:
        if self.kerberos is None:
            return {}
        login = f'useKeyTab=true storeKey=true keyTab="{self.kerberos.keytab}" principal="{self.kerberos.principal}"'
        return {
            f"{prefix}.gssapi.sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {login};",
            f"{prefix}.sasl.kerberos.service.name": self.kerberos.principal.partition("/")[0],
        }


@dataclass(frozen=True)
class ServerCertificates:
    """Holds the certificates of one node: paths of PEM files in its folder, and the authority that issues more.

    Attributes:
        authority: the root that the node trusts, and that signed the authority of its own certificate.
        ca: the root's certificate, for clients' trust stores.
        server: the node's key and chain.
        clients: the key and chain of each user, with the common name of the user.
    """

    authority: CertificateAuthority
    ca: Path
    server: CertificateFiles
    clients: Mapping[str, CertificateFiles]

    @classmethod
    def make(cls, folder: Path, security: KafkaSecurity) -> ServerCertificates:
        """Make the certificates of a node and its users, and write them."""
        root = CertificateAuthority()
        server = intermediate(root).server()
        clients = {user: root.client(user).write(folder, user) for user in security.users}
        return cls(root, root.write(folder / "ca.pem"), server.write(folder, "server"), clients)


# Kafka's own tools. Each call starts a Java process, which takes 1 to 2 s. The tools have no faces but their command lines, so a password is
# seen in the list of processes.

Mechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]

_TOOL_SECONDS: Final = 60.0
# a tool lives for a second: a small heap and the first compiler start fastest
_JVM: Final = ("-Xms64m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


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


async def run_tool(main: str, *arguments: str) -> str:
    """Run a class of Kafka's tools, such as "org.apache.kafka.tools.GetOffsetShell", and return what it printed.

    Raises:
        KafkaServerFailed: the tool failed, with what it printed, or took longer than a minute.

    Cancellation: the tool's process is killed; what it asked of the node may or may not have been done.
    """
    tools = await fetched(jars.KAFKA_VERSION)
    name = main.rpartition(".")[2]
    process = await asyncio.create_subprocess_exec(
        *(str(tools.java), *_JVM, "-cp", f"{tools.library}/*", main, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_TOOL_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError as error:
        raise KafkaServerFailed(
            f"Kafka's tool {name} was not done within {_TOOL_SECONDS} s"
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode(errors="replace")
    if process.returncode:
        raise KafkaServerFailed(f"Kafka's tool {name} failed: {text}")
    return text


async def set_feature(kafka: KafkaServer, name: str, level: int) -> None:
    """Change the level of a feature, as `kafka-features.sh upgrade` does. Errors as `run_tool`."""
    await run_tool(
        "org.apache.kafka.tools.FeatureCommand",
        "--bootstrap-server",
        kafka.bootstrap_servers,
        "upgrade",
        "--feature",
        f"{name}={level}",
    )


class SecurityAdmin:
    """Changes the users, tokens and ACLs of a running node.

    Args:
        node: the running node.
        users: the passwords of the users that the node began with.

    Every method raises `KafkaServerFailed` with the tool's words when it fails.
    """

    def __init__(self, node: SecuredKafkaServer, users: Mapping[str, str]) -> None:
        self._node = node
        self._passwords = dict(users)

    async def set_user(self, user: str, password: str, mechanism: Mechanism) -> None:
        """Add a user to a mechanism's, or change the password, which has none of the characters `[],`."""
        await self._alter_user(
            user, "--add-config", f"{mechanism}=[iterations={_ITERATIONS},password={password}]"
        )
        self._passwords[user] = password

    async def delete_user(self, user: str, mechanism: Mechanism) -> None:
        """Delete a user's credentials of a mechanism. Sessions that stand go on until they end."""
        await self._alter_user(user, "--delete-config", mechanism)

    async def create_token(self, owner: str) -> DelegationToken:
        """Create a delegation token, as its owner, over SCRAM-SHA-256.

        Raises:
            KeyError: the owner's password is not known here.
        """
        path = self._node.folder / f"as-{owner}.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        text = (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={module} required username="{owner}" password="{self._passwords[owner]}";\n'
        )
        path.touch(mode=0o600)
        path.write_text(text, encoding="latin-1")
        said = await run_tool(
            "org.apache.kafka.tools.DelegationTokenCommand",
            *(
                "--bootstrap-server",
                self._node.address("SASL_PLAINTEXT"),
                "--command-config",
                os.fspath(path),
            ),
            *("--create", "--max-life-time-period", "-1"),
        )
        for line in said.splitlines():
            words = line.split()
            if f"User:{owner}" in words and len(words) > 2:
                return DelegationToken(token_id=words[0], hmac=words[1], owner=owner)
        raise KafkaServerFailed(f"Kafka's tool DelegationTokenCommand told no token of {owner}")

    async def allow(self, user: str, *operations: str, **resource: str) -> None:
        """Add ACLs: the user may do these operations, such as "Write", on a `topic`, `group` or `transactional_id`; "*": on all."""
        which = [word for operation in operations for word in ("--operation", operation)]
        for kind, name in resource.items():
            which += (f"--{kind.replace('_', '-')}", name)
        await self._run(
            "org.apache.kafka.tools.AclCommand",
            "--add",
            "--allow-principal",
            f"User:{user}",
            *which,
        )

    async def _alter_user(self, user: str, *change: str) -> None:
        await self._run(
            "kafka.admin.ConfigCommand",
            "--alter",
            "--entity-type",
            "users",
            "--entity-name",
            user,
            *change,
        )

    async def _run(self, main: str, *arguments: str) -> None:
        await run_tool(main, "--bootstrap-server", self._node.bootstrap_servers, *arguments)


class SecuredKafkaServer(KafkaServer):
    """Runs one Kafka node with the listeners of a `KafkaSecurity`, PLAINTEXT among them.

    Attributes:
        admin: changes users, tokens and ACLs while the node runs.
        certificates: of the node and its users, once it has started.
    """

    certificates: ServerCertificates

    def __init__(self, security: KafkaSecurity) -> None:
        super().__init__(jvm_options=security.jvm_options())
        self.admin = SecurityAdmin(self, security.users)
        self._security = security
        self._listeners = {name: LISTENERS[name] for name in security.listeners}

    @property
    def folder(self) -> Path:
        """Return the node's folder, which `stop` removes: for files of tools and clients."""
        return self._node.make_folder()

    def address(self, listener: Listener) -> str:
        """Return a listener's address: by number for PLAINTEXT, by a name where certificates are checked."""
        return f"{HOST if listener == 'PLAINTEXT' else ADVERTISED_HOST}:{self._ports[listener]}"

    async def _format(self, tools: Tools, *arguments: str) -> None:
        self.certificates = ServerCertificates.make(self.folder, self._security)
        await super()._format(tools, *arguments, *self._security.format_arguments())

    def _settings(self) -> dict[str, object]:
        addresses = ",".join(f"{name}://{self.address(name)}" for name in self._security.listeners)
        return (
            super()._settings()
            | {"advertised.listeners": addresses}
            | self._security.settings(self.certificates)
        )


class SecuredServerThread(ServerThread):
    """A `SecuredKafkaServer` in a thread of its own, with methods that block until they are done."""

    def __init__(self, security: KafkaSecurity) -> None:
        super().__init__(make=lambda: SecuredKafkaServer(security))

    @property
    def certificates(self) -> ServerCertificates:
        """Return the paths of the certificates of the node and its users."""
        return self.call(lambda server: server.certificates)

    def address(self, listener: Listener) -> str:
        """Return a listener's address as `SecuredKafkaServer.address` does."""
        return self.call(lambda server: server.address(listener))

    def administrate(self, change: Callable[[SecurityAdmin], Awaitable[R]]) -> R:
        """Wait for a method of `SecuredKafkaServer.admin`: `administrate(lambda admin: admin.delete_user("alice"))`."""
        return self.call(lambda server: change(server.admin))
