"""Tests that health, metrics and events tell how each broker's connections are encrypted and authenticated."""

from __future__ import annotations

import asyncio
import logging

import pytest
from whole import jumping

from aioproducer import DeliveryError, Producer
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTls
from aioproducer.testing.certificates import ENDS_SOON, CertificateAuthority

USERS = {"alice": "canary-alice"}
LOGIN = {
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "canary-alice",
}


@jumping
async def test_plaintext_has_no_security() -> None:
    """Health has no row, and the gauges are 0."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders")
        async with Producer(**cluster.client_options) as producer:
            await producer.send_and_wait("orders", b"x")
            assert producer.health().security == ()
            assert producer.metrics().number("broker-certificate-expiry-ms") == 0


@jumping
async def test_tls_and_sasl_of_each_broker(caplog: pytest.LogCaptureFixture) -> None:
    """Health names the protocol, TLS version, cipher, mechanism, user and session; a certificate that ends soon is an event, once."""
    caplog.set_level(logging.INFO, "aioproducer.events")
    authority = CertificateAuthority()
    tls = ListenerTls(authority.server("*.memory", "broker-1.memory", validity=ENDS_SOON))
    security = ListenerSecurity("SASL_SSL", users=USERS, session_ms=3000, tls=tls)
    async with FakeCluster(memory=True, security=security) as cluster:
        cluster.create_topic("orders")
        options = {**cluster.client_options, "ssl_truststore_certificates": authority.pem.decode()}
        async with Producer(**options, **LOGIN) as producer:
            for _ in range(10):
                await producer.send_and_wait("orders", b"x")
                await asyncio.sleep(1)
            (row,) = producer.health().security
            assert (row.node_id, row.protocol, row.tls_version) == (1, "SASL_SSL", "TLSv1.3")
            assert row.cipher is not None
            assert (row.mechanism, row.principal, row.last_refusal) == (
                "SCRAM-SHA-256",
                "alice",
                None,
            )
            assert row.session_seconds_left is not None
            assert 0 < row.session_seconds_left <= 3
            assert row.certificate_ends_at is not None
            assert (
                producer.metrics().number("broker-certificate-expiry-ms")
                == 1000 * row.certificate_ends_at
            )
            assert "canary" not in repr(producer.health())
    near = [
        record.getMessage() for record in caplog.records if "certificate" in record.getMessage()
    ]
    assert len([text for text in near if "the certificate of the broker at broker-1" in text]) == 1


@jumping
async def test_a_refusal_is_told() -> None:
    """After the user was revoked and the connection was lost, health has the broker's words and is not ready."""
    security = ListenerSecurity("SASL_PLAINTEXT", users=USERS)
    async with FakeCluster(memory=True, security=security) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            **cluster.client_options, **LOGIN, delivery_timeout_ms=3000, request_timeout_ms=1000
        ) as producer:
            await producer.send_and_wait("orders", b"x")
            cluster.security.revoke("alice")
            await cluster.brokers[1].stop()
            await cluster.brokers[1].start()
            with pytest.raises(DeliveryError, match="refuses user 'alice'"):
                await producer.send_and_wait("orders", b"x")
            (row,) = producer.health().security
            assert "refuses user 'alice' by SCRAM-SHA-256" in (row.last_refusal or "")
            assert not producer.health()
