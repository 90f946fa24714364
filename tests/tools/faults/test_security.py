"""Tests of the faulty peers of the rows about TLS: `openssl s_client` shows first that each serves what its row says."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.testing import FakeCluster
from tests.tls_peers import s_client

from .row import rows
from .security import CERTIFICATES, client_options, listener

if TYPE_CHECKING:
    import pathlib

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="OpenSSL's s_client shows what the peer serves")
# X509_V_ERR_*; none of a right certificate
ERRORS = {
    "right": set(),
    "RSA": set(),
    "expired": {"10"},
    "not yet valid": {"9"},
    "another CA's": {"20", "21"},
    "self-signed": {"18"},
    "without its intermediate": {"20", "21"},
    "of another name": {"62"},
}


def shown(*arguments: str, **security: Any) -> str:
    """Return what s_client prints of a listener of a fake cluster."""

    async def main() -> str:
        async with FakeCluster(security=listener(**security)) as cluster:
            return await s_client(cluster.brokers[1].port, *arguments)

    return asyncio.run(main())


@pytest.mark.parametrize("kind", sorted(CERTIFICATES))
def test_certificates(kind: str, tmp_path: pathlib.Path) -> None:
    """Rows 95 and 96."""
    authority = tmp_path / "ca.pem"
    authority.write_text(client_options({"protocol": "SSL"}, {})["ssl_truststore_certificates"])
    seen = shown("-CAfile", str(authority), "-verify_hostname", "localhost", protocol="SSL", certificate=kind)
    assert "BEGIN CERTIFICATE" in seen
    assert set(re.findall(r"verify error:num=(\d+):", seen)) == ERRORS[kind]


@pytest.mark.parametrize(("version", "option"), [("TLSv1", "-tls1"), ("TLSv1.1", "-tls1_1")])
def test_old_versions(version: str, option: str) -> None:
    """Row 98: the version is spoken, with @SECLEVEL=0, and no newer one."""
    security = {"protocol": "SSL", "certificate": "RSA", "versions": [version, version]}
    assert f"Protocol  : {version}\n" in shown(option, "-cipher", "ALL:@SECLEVEL=0", **security)
    assert "no peer certificate available" in shown("-tls1_2", **security)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("kind", ["none", "another CA's", "expired", "right"])
def test_client_certificates(kind: str, version: str, tmp_path: pathlib.Path) -> None:
    """Row 99: an alert refuses each but the right one."""
    options = client_options({"protocol": "SSL"}, {"client_certificate": kind})
    pem = tmp_path / "client.pem"
    pem.write_text(options.get("ssl_keystore_key", "") + options.get("ssl_keystore_certificate_chain", ""))
    security = {"protocol": "SSL", "client_auth": "required", "versions": [version, version]}

    async def main() -> str:
        async with FakeCluster(security=listener(**security)) as cluster:
            asking = asyncio.ensure_future(s_client(cluster.brokers[1].port, "-ign_eof", *([] if kind == "none" else ["-cert", str(pem)])))
            # the right one stays connected
            while not cluster.security.tls_failures and not cluster.security.authentications:
                await asyncio.sleep(0.005)
            cluster.brokers[1].close_all()
            return await asking

    assert ("SSL alert number" in asyncio.run(main())) is (kind != "right")


def test_every_fault_of_a_row_is_shown() -> None:
    """The tests above have each field that a row sets."""
    faults = {(name, str(value)) for row in rows() for name, value in row.security.items()}
    certificates = {value for name, value in faults if name == "certificate"}
    assert certificates <= set(ERRORS) == set(CERTIFICATES)
    assert {name for name, _ in faults} <= {"protocol", "certificate", "versions", "client_auth", "session_ms", "mechanisms"}
    assert {value for name, value in faults if name == "versions"} == {
        str([version, version]) for version in ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
    }
