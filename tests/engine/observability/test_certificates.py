"""Tests that the ends of certificates are noted, and that each near one is reported once."""

from __future__ import annotations

from aioproducer.engine.observability.certificates import Certificates

DAY = 86_400.0


def test_a_near_end_is_reported_once_for_each_certificate() -> None:
    """A new certificate of the same broker that is near its end, too, is reported again; one that is far from it is not."""
    reported: list[tuple[str, float]] = []
    certificates = Certificates(1000 * DAY, lambda: 5 * DAY, lambda *args: reported.append(args))
    certificates.note(1, "b1:9093", 1015 * DAY, 1100 * DAY)
    certificates.note(1, "b1:9093", 1015 * DAY, 1100 * DAY)
    assert reported == [("the broker at b1:9093", 10.0)]
    certificates.note(1, "b1:9093", 1035.5 * DAY, 1034 * DAY)
    assert reported[1:] == [("this client", 29.0)]
    certificates.note(1, "b1:9093", 1020 * DAY, None)
    assert reported[2:] == [("the broker at b1:9093", 15.0)]
    assert certificates.client_ends_at is None


def test_the_first_end_of_the_connected_brokers_is_kept() -> None:
    """A broker that left the cluster is forgotten, and a certificate that is not known leaves the former one."""
    certificates = Certificates(0.0, lambda: 0.0, lambda _owner, _days: None)
    certificates.note(1, "b1:9093", 50 * DAY, None)
    certificates.note(2, "b2:9093", 40 * DAY, None)
    certificates.note(2, "b2:9093", None, None)
    assert certificates.brokers_end_at == {1: 50 * DAY, 2: 40 * DAY}
    certificates.forget(2)
    assert certificates.brokers_end_at == {1: 50 * DAY}
