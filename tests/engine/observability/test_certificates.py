"""Tests that the ends of certificates are noted, and that each near one is reported once."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.core.metadata.cluster_metadata import Broker
from aioproducer.engine.observability.metrics_recorder import Instruments
from aioproducer.net.tls import TlsFacts

DAY = 86_400.0


def made() -> Instruments:
    """Return instruments whose loop shows 5 days, on day 1005 since 1970."""
    loop: Any = SimpleNamespace(time=lambda: 5 * DAY)
    return Instruments(ProducerConfig(client_id="me"), "1", loop, int(1005 * DAY * 1000))


def note(
    instruments: Instruments,
    node_id: int,
    broker_ends_at: float | None,
    client_ends_at: float | None,
) -> None:
    instruments.encrypted(
        Broker(node_id, f"b{node_id}", 9093),
        TlsFacts("TLSv1.3", "", broker_ends_at),
        client_ends_at,
    )


def test_a_near_end_is_reported_once_for_each_certificate(caplog: pytest.LogCaptureFixture) -> None:
    """A new certificate of the same broker that is near its end, too, is reported again; one that is far from it is not."""
    caplog.set_level(logging.INFO, "aioproducer.events")
    instruments = made()
    note(instruments, 1, 1015 * DAY, 1100 * DAY)
    note(instruments, 1, 1015 * DAY, 1100 * DAY)
    assert caplog.messages == ["me: the certificate of the broker at b1:9093 ends in 10.0 days"]
    note(instruments, 1, 1035.5 * DAY, 1034 * DAY)
    assert caplog.messages[1:] == ["me: the certificate of this client ends in 29.0 days"]
    note(instruments, 1, 1020 * DAY, None)
    assert caplog.messages[2:] == ["me: the certificate of the broker at b1:9093 ends in 15.0 days"]
    assert instruments.client_certificate_ends_at is None


def test_the_first_end_of_the_connected_brokers_is_kept() -> None:
    """A broker that left the cluster is forgotten, and a certificate that is not known leaves the former one."""
    instruments = made()
    note(instruments, 1, 5000 * DAY, None)
    note(instruments, 2, 4000 * DAY, None)
    note(instruments, 2, None, None)
    assert instruments.brokers_certificates_end_at == {1: 5000 * DAY, 2: 4000 * DAY}
    instruments.gone(Broker(2, "b2", 9093))
    assert instruments.brokers_certificates_end_at == {1: 5000 * DAY}
