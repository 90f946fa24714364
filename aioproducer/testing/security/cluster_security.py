"""The security of a fake cluster while it runs: users, sessions, certificates and denied operations change; a log lists the logins."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from aioproducer.testing.security.accounts import Accounts
from aioproducer.testing.security.authenticator import BrokerSecurity
from aioproducer.testing.security.tls import new_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioproducer.testing.broker import FakeBroker
    from aioproducer.testing.request_log import (
        Authentication,
        Dial,
        ExpiredSession,
        Journal,
        TlsFailure,
    )
    from aioproducer.testing.security.listener import ListenerSecurity, ListenerTls

__all__ = ["ClusterSecurity", "Operation", "ResourceType"]


Operation: TypeAlias = Literal["All", "Read", "Write", "Create", "Describe", "IdempotentWrite"]
ResourceType: TypeAlias = Literal["topic", "group", "transactional_id", "cluster"]


class ClusterSecurity:
    """Changes the security of a running fake cluster (`FakeCluster.security`), and lists the authentications.

        cluster.security.revoke("alice")
        cluster.security.grant("alice", "canary-alice-2", broker=1)   # the other brokers do not know of it yet
        cluster.security.change(session_ms=2000)
        cluster.security.change(tls=ListenerTls(ca.server(validity=EXPIRED)), broker=2)
        cluster.security.deny("alice", "Write", topic="orders")

    Changes with `broker` apply to one broker, others to all brokers and to those that are added later. Open connections stay as they are:
    a change applies to the next connection, authentication or request.

    Args:
        listener: the security at the start.
        brokers: the brokers by number.
        journal: the log of the cluster.
        wall_clock: returns the seconds since 1970, for the dates of tokens.

    Attributes:
        dials: the accepted connections, in order; a connection counts before TLS and SASL.
        authentications: how each authentication and re-authentication ended, in order.
        expired_sessions: the connections that were closed because a request came after the end of their session.
        tls_failures: why TLS handshakes failed, or TLS connections later, in order.
        authority_pem: the certificate of the authority that the cluster made, as it was given no `tls`; None: it made none.
    """

    def __init__(
        self,
        listener: ListenerSecurity,
        brokers: Mapping[int, FakeBroker],
        journal: Journal,
        wall_clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self.dials: list[Dial] = journal.dials
        self.authentications: list[Authentication] = journal.authentications
        self.expired_sessions: list[ExpiredSession] = journal.expired_sessions
        self.tls_failures: list[TlsFailure] = journal.tls_failures
        self._denials: set[tuple[str, Operation, ResourceType, str]] = set()
        self.authority_pem: bytes | None = None
        self._own_tls: ListenerTls | None = None
        accounts = Accounts(listener.users, listener.scram_iterations)
        self._every = BrokerSecurity(self._completed(listener), accounts, wall_clock=wall_clock)
        self._brokers = brokers
        self._generations = itertools.count(1)

    def of_new_broker(self) -> BrokerSecurity:
        """Return the security of one more broker."""
        return self._every.copy()

    # --- changes

    def change(self, *, broker: int | None = None, **fields: Any) -> None:
        """Change fields of `ListenerSecurity` for the connections and authentications that follow, but for its users.

        Raises:
            ValueError: a value that `ListenerSecurity` refuses, or no such broker.
            TypeError: no such field.
        """
        if "users" in fields:
            raise ValueError("users are changed by grant and revoke")
        for security in self._chosen(broker):
            security.listener = self._completed(dataclasses.replace(security.listener, **fields))
            security.accounts.iterations = security.listener.scram_iterations

    def grant(self, user: str, password: str, *, broker: int | None = None) -> None:
        """Add a user, or change the password. SCRAM credentials get new salts."""
        generation = next(self._generations)
        for security in self._chosen(broker):
            security.accounts.grant(user, password, generation)

    def grant_token(
        self,
        token_id: str,
        token_hmac: str,
        *,
        owner: str,
        lifetime_ms: int = 86_400_000,
        broker: int | None = None,
    ) -> None:
        """Add a delegation token of `owner` (KIP-48) for SCRAM with `tokenauth=true`; its sessions end with it. Needs a running loop."""
        generation, ends = (
            next(self._generations),
            asyncio.get_running_loop().time() + lifetime_ms / 1000,
        )
        for security in self._chosen(broker):
            security.accounts.grant_token(token_id, token_hmac, owner, generation, ends)

    def revoke(self, name: str, *, broker: int | None = None) -> None:
        """Remove a user or a delegation token. As in Kafka, its connections stay until their session ends.

        Raises:
            ValueError: no broker knows it.
        """
        known = [security.accounts.revoke(name) for security in self._chosen(broker)]
        if True not in known:
            raise ValueError(f"there is no user and no token {name!r}")

    def deny(
        self,
        principal: str,
        operation: Operation,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Deny an operation on a topic, a group or a transactional id, or on the cluster if none of them is given.

        Requests are answered as by Kafka's StandardAuthorizer with an ACL that denies: TOPIC_AUTHORIZATION_FAILED and so on. As in Kafka,
        InitProducerId without a transactional id is refused only if the principal may neither `IdempotentWrite` on the cluster nor
        `Write` to any topic.

        Args:
            principal: the user, ANONYMOUS for clients that do not authenticate, or "*" for all.
            operation: Read, Write, Create, Describe, IdempotentWrite, or All.
            topic: a topic's name, or "*".
            group: a group's name, or "*".
            transactional_id: a transactional id, or "*".
        """
        self._denials.add(_denial(principal, operation, topic, group, transactional_id))

    def allow(
        self,
        principal: str,
        operation: Operation,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Remove what `deny` with the same arguments denied.

        Raises:
            ValueError: it is not denied.
        """
        denial = _denial(principal, operation, topic, group, transactional_id)
        if denial not in self._denials:
            raise ValueError(f"{operation} on {denial[2]} {denial[3]} is not denied to {principal}")
        self._denials.remove(denial)

    def allows(self, principal: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether a principal may do this to a resource, as Kafka's StandardAuthorizer where everything else is allowed."""
        whole: Operation = "All"
        denials = (
            (who, what, kind, which)
            for who in (principal, "*")
            for what in (operation, whole)
            for which in (name, "*")
        )
        return self._denials.isdisjoint(denials)

    @property
    def client_options(self) -> dict[str, Any]:
        """Return the options with which a `Producer` trusts the listeners: its protocol, and the authority that the cluster made."""
        listener = self._every.listener
        options: dict[str, Any] = (
            {} if listener.protocol == "PLAINTEXT" else {"security_protocol": listener.protocol}
        )
        if listener.has_tls and self.authority_pem is not None:
            options["ssl_truststore_certificates"] = self.authority_pem.decode()
        return options

    def _completed(self, listener: ListenerSecurity) -> ListenerSecurity:
        """Return a listener that has TLS if its protocol wants it."""
        if not listener.has_tls or listener.tls is not None:
            return listener
        if self._own_tls is None:
            self._own_tls, self.authority_pem = new_tls()
        return dataclasses.replace(listener, tls=self._own_tls)

    def _chosen(self, broker: int | None) -> list[BrokerSecurity]:
        if broker is None:
            return [self._every, *(one.security for one in self._brokers.values())]
        if broker not in self._brokers:
            raise ValueError(f"there is no broker {broker}; there are {sorted(self._brokers)}")
        return [self._brokers[broker].security]


def _denial(
    principal: str,
    operation: Operation,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
) -> tuple[str, Operation, ResourceType, str]:
    if operation not in get_args(Operation):
        raise ValueError(f"operation is {', '.join(get_args(Operation))}, not {operation!r}")
    given: dict[ResourceType, str | None] = {
        "topic": topic,
        "group": group,
        "transactional_id": transactional_id,
    }
    named = [(kind, name) for kind, name in given.items() if name is not None]
    if len(named) > 1:
        raise ValueError("an operation is on one topic, one group or one transactional id")
    kind, name = named[0] if named else ("cluster", "kafka-cluster")
    return principal.removeprefix("User:"), operation, kind, name
