"""Tests of `aioproducer.sasl.gate`: which connections may be dialled while credentials are refused."""

from __future__ import annotations

import itertools

import pytest

from aioproducer.sasl.gate import Gate

REFUSAL = 0.3  # seconds after which a broker refuses


def probes(gate: Gate, brokers: list[str], now: float, until: float) -> list[tuple[float, str]]:
    """The dials of brokers that are all wanted, one at a time, in the order in which the gate lets them pass."""
    dials: list[tuple[float, str]] = []
    while now < until:
        delays = {broker: gate.delay(broker, now) for broker in brokers}
        broker = min(brokers, key=delays.__getitem__)
        now += delays[broker]
        if now >= until:
            break
        dials.append((round(now, 3), broker))
        gate.begin(broker, now)
        assert all(gate.delay(other, now) > 1 for other in brokers) or not gate.is_shut
        gate.refused(broker, now, now + REFUSAL, 0.5)
        now += REFUSAL
    return dials


def test_an_open_gate_holds_up_nobody() -> None:
    gate = Gate()
    gate.begin("a", 10.0)
    assert gate.delay("a", 10.0) == gate.delay("b", 10.0) == 0


def test_one_broker_that_refuses_is_dialled_in_pauses_that_grow() -> None:
    """Row 92: two dials within 1.5 s, and 5 within 12 s; in the end one each 30 s."""
    dials = [at for at, _ in probes(Gate(), ["a"], 0.0, 300.0)]
    assert dials[:6] == [0.0, 0.8, 2.1, 4.4, 8.7, 17.0]
    assert dials[-1] - dials[-2] == pytest.approx(30 + REFUSAL)


def test_three_brokers_that_refuse() -> None:
    """Each is tried once soon; then the pauses are those of the whole cluster: 5 dials in 12 s."""
    dials = probes(Gate(), ["a", "b", "c"], 0.0, 12.0)
    assert [broker for _, broker in dials[:3]] == ["a", "b", "c"]
    assert dials[2][0] < 1.0
    assert len(dials) == 5


def test_fifty_brokers_are_probed_one_at_a_time() -> None:
    """Row 112."""
    dials = probes(Gate(), [str(number) for number in range(50)], 0.0, 12.0)
    assert len(dials) <= 14
    gaps = [later - sooner for (sooner, _), (later, _) in itertools.pairwise(dials)]
    assert min(gaps) >= REFUSAL


def test_a_success_opens_it_for_all() -> None:
    gate = Gate()
    probes(gate, ["a", "b"], 0.0, 30.0)
    assert gate.is_shut
    gate.let_in("b")
    assert not gate.is_shut
    assert gate.delay("a", 30.0) == gate.delay("b", 30.0) == gate.delay("c", 30.0) == 0


def test_one_that_does_not_know_the_user_yet_backs_off_alone() -> None:
    """The others let this client in: they are dialled at once, at any time."""
    gate = Gate()
    gate.let_in("a")
    dials = [at for at, _ in probes(gate, ["new"], 0.0, 30.0)]
    assert dials == [0.0, 0.8, 2.1, 4.4, 8.7, 17.0]
    assert not gate.is_shut
    assert gate.delay("a", 20.0) == gate.delay("b", 20.0) == 0
    gate.let_in("a")
    assert gate.delay("new", 20.0) > 10


def test_one_broker_has_one_probe_at_a_time_while_it_backs_off() -> None:
    gate = Gate()
    gate.let_in("a")
    gate.refused("b", 0.0, 0.0, 0.5)
    gate.begin("b", 1.0)
    assert gate.delay("b", 1.0) > 1
    assert gate.delay("a", 1.0) == 0
    gate.end("b")
    assert gate.delay("b", 1.0) == 0


def test_a_refused_renewal_is_probed_at_once_and_the_others_wait() -> None:
    """Rows 101 and 105: the principal may have changed, and then all go on at once."""
    gate = Gate()
    for broker in "abc":
        gate.let_in(broker)
    gate.renewal_refused(10.0)
    assert gate.delay("a", 10.0) == 0
    gate.begin("a", 10.0)
    gate.renewal_refused(10.1)
    assert gate.delay("a", 10.1) > 1
    assert gate.delay("b", 10.1) > 1
    gate.let_in("a")
    assert gate.delay("b", 10.2) == gate.delay("c", 10.2) == 0


def test_credentials_that_are_revoked() -> None:
    """Row 103: six dials in 12 s at most."""
    gate = Gate()
    for broker in "abc":
        gate.let_in(broker)
    gate.renewal_refused(10.0)
    assert len(probes(gate, ["a", "b", "c"], 10.0, 22.0)) <= 6
    assert gate.is_shut


def test_a_renewal_that_succeeds_opens_the_gate() -> None:
    """A broker alone has forgotten the user: another one renews, and is dialled at any time."""
    gate = Gate()
    for broker in "ab":
        gate.let_in(broker)
    gate.renewal_refused(10.0)
    gate.begin("a", 10.0)
    gate.refused("a", 10.0, 10.3, 0.5)
    assert gate.is_shut
    gate.let_in("b")
    assert gate.delay("b", 11.0) == 0
    gate.refused("a", 11.0, 11.3, 0.5)
    assert not gate.is_shut


def test_attempts_that_were_under_way_together_count_once() -> None:
    gate = Gate()
    for number in range(50):
        gate.refused(str(number), 0.0, 0.3, 0.5)
    assert gate.delay("0", 0.3) == pytest.approx(0.5)


def test_a_probe_that_hangs_holds_up_the_others_for_a_while() -> None:
    gate = Gate()
    gate.refused("a", 0.0, 0.0, 0.5)
    gate.begin("a", 1.0)
    assert gate.delay("b", 1.0) == 5.0
    assert gate.delay("b", 6.0) == 0


def test_a_broker_that_is_not_trusted_backs_off_alone() -> None:
    """Its certificate, or its SCRAM signature, says nothing about the credentials."""
    gate = Gate()
    gate.not_trusted("a", 0.0, 0.5)
    gate.not_trusted("a", 1.0, 0.5)
    assert gate.delay("a", 1.0) == 1.0
    assert gate.delay("b", 1.0) == 0
    assert not gate.is_shut


def test_the_jitter() -> None:
    """20 % to both sides, and never more than 30 s."""
    for chance, pause in ((0.0, 0.4), (1.0, 0.6)):
        gate = Gate()
        gate.refused("a", 0.0, 0.0, chance)
        assert gate.delay("a", 0.0) == pytest.approx(pause)
    for number in range(40):
        gate.refused("a", number, number, 1.0)
    assert gate.delay("a", 39.0) == 30.0
