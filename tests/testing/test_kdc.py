"""Tests of `aioproducer.testing.kdc`: what it leaves behind, and what it says when it fails. Kerberos' own programs judge its tickets."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from kerberized import NEEDS_KDC

from aioproducer.testing import kdc as module
from aioproducer.testing.kafka_security import KafkaSecurity, ServerCertificates
from aioproducer.testing.kdc import BrokerKerberos, Kdc, KdcFailed

if TYPE_CHECKING:
    from pathlib import Path


def test_programs_that_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The text says what to install, and no folder is left."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "_ADMINISTRATORS", str(tmp_path))
    kdc = Kdc()
    with pytest.raises(KdcFailed, match=r"krb5kdc, kdb5_util, kadmin\.local, kinit not found: apt-get install krb5-kdc"), kdc:
        pass
    assert not kdc.folder.exists()


def test_a_broker_of_a_realm(tmp_path: Path) -> None:
    """Each listener with SASL has GSSAPI besides, and Java is told the realm; without a realm there is none of it."""
    kerberos = BrokerKerberos("kafka/localhost@EXAMPLE.TEST", tmp_path / "b.keytab", tmp_path / "krb5.conf")
    security = KafkaSecurity(users={"alice": "canary-alice"}, kerberos=kerberos)
    settings = security.settings(ServerCertificates.make(tmp_path, security))
    assert "GSSAPI" in str(settings["listener.name.sasl_ssl.sasl.enabled.mechanisms"]).split(",")
    assert f'keyTab="{tmp_path}/b.keytab"' in str(settings["listener.name.sasl_plaintext.gssapi.sasl.jaas.config"])
    assert settings["listener.name.sessions_ssl.sasl.kerberos.service.name"] == "kafka"
    assert security.jvm_options() == [f"-Djava.security.krb5.conf={tmp_path}/krb5.conf"]

    without = KafkaSecurity(users={"alice": "canary-alice"})
    assert without.jvm_options() == []
    assert "gssapi" not in " ".join(without.settings(ServerCertificates.make(tmp_path, without)))


class TestWithPrograms:
    pytestmark = NEEDS_KDC

    def test_tickets_keytabs_and_the_end(self) -> None:
        """A ticket's owner is the principal that it was made for; a key stays the same in each keytab; nothing is left at the end."""
        with Kdc() as kdc:
            assert kdc.add("alice") == "alice@EXAMPLE.TEST"
            first, second = kdc.keytab("alice"), kdc.keytab("alice")
            assert first != second
            cache = kdc.kinit("alice", "-l", "10m")
            told = subprocess.run(["klist", "-c", cache], env={**os.environ, **kdc.environment}, capture_output=True, text=True, check=True)
            assert "Default principal: alice@EXAMPLE.TEST" in told.stdout
            for keytab in (first, second):
                subprocess.run(["kinit", "-c", cache, "-k", "-t", keytab, "alice"], env={**os.environ, **kdc.environment}, check=True)
            process = kdc._process
            assert process is not None
        assert process.poll() is not None
        assert not kdc.folder.exists()

    def test_what_its_programs_refuse(self) -> None:
        with Kdc() as kdc:
            with pytest.raises(KdcFailed, match=r"kadmin.local .* failed: .*Principal nobody does not exist"):
                kdc.keytab("nobody")
            kdc.add("alice")
            with pytest.raises(KdcFailed, match=r"kadmin.local .* failed: .*already exists"):
                kdc.add("alice")
            kdc.change("alice", "-allow_tix")
            with pytest.raises(KdcFailed, match=r"kinit .* failed: .*revoked"):
                kdc.kinit("alice")
            kdc.stop()
            with pytest.raises(KdcFailed, match="is not running"):
                kdc.pause()
