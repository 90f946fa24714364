"""Tests of the settings of a secured node: users, listeners and certificates, and of its users, tokens and ACLs while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioproducer.testing import KafkaSecurity, KafkaServer, OidcValidator
from aioproducer.testing.kafka_admin import DelegationToken
from aioproducer.testing.kafka_security import LISTENERS, ServerCertificates
from aioproducer.testing.kafka_server import KafkaServerFailed

if TYPE_CHECKING:
    from pathlib import Path

USERS = {"alice": "canary-alice", "bob": "canary-bób"}


@pytest.mark.parametrize(
    ("security", "reason"),
    [
        ({"users": {"näme": "canary-name"}}, "ASCII"),
        ({"users": {"a b": "canary-name"}}, "ASCII"),
        ({"users": {"alice": ""}}, "empty"),
        ({"users": {"alice": "canary-a,b"}}, "one of the characters"),
        ({"users": {"alice": 'canary-a"b'}}, "one of the characters"),
        ({"users": {}, "session_ms": 0}, "session_ms=0"),
    ],
)
def test_what_kafkas_files_cannot_hold_is_refused(security: dict[str, object], reason: str) -> None:
    """At once, and without the password in the text."""
    with pytest.raises(ValueError, match=reason) as caught:
        KafkaSecurity(**security)
    assert "canary" not in str(caught.value)


def test_passwords_are_in_no_repr() -> None:
    assert "canary" not in repr(KafkaSecurity(users=USERS))
    assert "canary" not in repr(DelegationToken("id", "canary-hmac", "alice"))


def test_every_listener_has_what_its_protocol_needs(tmp_path: Path) -> None:
    """SASL's have PLAIN, both SCRAM and OAUTHBEARER, two of them end sessions, one wants a client certificate; ACLs are there when asked for."""
    security = KafkaSecurity(users=USERS, session_ms=2500)
    certificates = ServerCertificates.make(tmp_path, security)
    settings = security.settings(certificates)
    secured = {name.lower() for name in security.listeners if LISTENERS[name].startswith("SASL")}
    assert {name.split(".")[2] for name in settings if name.endswith("sasl.enabled.mechanisms")} == secured
    assert {name.split(".")[2]: value for name, value in settings.items() if name.endswith("max.reauth.ms")} == {
        "sessions_plaintext": 2500,
        "sessions_ssl": 2500,
    }
    assert settings["listener.name.mtls.ssl.client.auth"] == "required"
    assert "authorizer.class.name" not in settings
    # a properties file is read as Latin-1
    assert 'user_bob="canary-b\\u00f3b"' in str(settings["listener.name.sasl_ssl.plain.sasl.jaas.config"])
    assert certificates.clients.keys() == USERS.keys()
    assert (
        KafkaSecurity(users=USERS, acls=True, super_users=("alice",)).settings(certificates)["super.users"] == "User:ANONYMOUS;User:alice"
    )


def test_the_listeners_of_tokens_are_there_on_demand(tmp_path: Path) -> None:
    """They take tokens alone, and Java may fetch keys from the one URL."""
    plain = KafkaSecurity(users=USERS)
    assert plain.jvm_options() == []
    assert not any(name.startswith("OIDC") for name in plain.listeners)
    security = KafkaSecurity(users=USERS, oidc=OidcValidator("http://127.0.0.1:1/jwks", audience="orders"))
    assert security.listeners == tuple(LISTENERS)
    assert security.jvm_options() == ["-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=http://127.0.0.1:1/jwks"]
    settings = security.settings(ServerCertificates.make(tmp_path, security))
    assert settings["listener.name.oidc_ssl.sasl.enabled.mechanisms"] == "OAUTHBEARER"
    assert settings["listener.name.oidc_plaintext.sasl.oauthbearer.expected.audience"] == "orders"


@pytest.mark.asyncio
async def test_a_node_without_security_has_one_listener() -> None:
    kafka = KafkaServer()
    with pytest.raises(ValueError, match="there is no listener SASL_SSL; there are PLAINTEXT"):
        kafka.address("SASL_SSL")
    with pytest.raises(KafkaServerFailed, match="no certificates"):
        assert kafka.certificates


@pytest.mark.integration
@pytest.mark.asyncio
async def test_users_tokens_and_acls_of_a_running_node() -> None:
    """The tools' words tell what there is; a refusal has them, without the password; the folder ends with the node."""
    async with KafkaServer(security=KafkaSecurity(users=USERS, acls=True, super_users=("alice",))) as kafka:

        async def told(tool: str, *arguments: str) -> str:
            return await kafka.run_tool(tool, "--bootstrap-server", kafka.address("PLAINTEXT"), *arguments)

        await kafka.admin.set_user("carol", "canary-carol", "SCRAM-SHA-512", iterations=8192)
        users = await told("kafka.admin.ConfigCommand", "--describe", "--entity-type", "users")
        assert "'carol' are SCRAM-SHA-512=iterations=8192" in users
        [bob] = [line for line in users.splitlines() if "'bob'" in line]
        assert "SCRAM-SHA-256=iterations=4096" in bob
        assert "SCRAM-SHA-512=iterations=4096" in bob
        await kafka.admin.delete_user("carol", "SCRAM-SHA-512")
        assert "carol" not in await told("kafka.admin.ConfigCommand", "--describe", "--entity-type", "users")
        with pytest.raises(KafkaServerFailed, match=r"(?i)iterations") as caught:
            await kafka.admin.set_user("carol", "canary-carol", iterations=5)
        assert "canary" not in str(caught.value)
        await kafka.admin.allow("bob", "Write", name="orders")
        await kafka.admin.allow("bob", "Describe", resource="cluster")
        rules = await told("org.apache.kafka.tools.AclCommand", "--list")
        assert "User:bob" in rules
        assert "resourceType=CLUSTER" in rules
        await kafka.admin.withdraw("bob", "Write", name="orders")
        assert "orders" not in await told("org.apache.kafka.tools.AclCommand", "--list")
        token = await kafka.admin.create_token("alice")
        assert token.owner == "alice"
        assert len(token.hmac) > 40
        path = kafka.certificates.ca
        assert path.exists()
    assert not path.exists()
