"""Tests of `aioproducer.net.tls_contexts`, `key_stores` and `security`: options to contexts, and reload."""

from __future__ import annotations

import asyncio
import logging
import os
import pathlib
import ssl
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from certificates import (
    encrypted_key_pem,
    intermediate,
    pkcs12_keystore,
    pkcs12_truststore,
    signing_key,
    without_key_identifiers,
    write_encrypted,
)
from cryptography import x509
from tls_peers import TlsServer, client_context, server_context

from aioproducer import ProducerConfig
from aioproducer.config.secret import Secret
from aioproducer.errors import ConfigError
from aioproducer.net import key_stores
from aioproducer.net.settings import security_of
from aioproducer.net.tls import HandshakeTurns, TlsStream
from aioproducer.net.tls_contexts import TlsContexts, TlsSettings, endpoint_context, make_context
from aioproducer.testing.certificates import EXPIRED, VALID, CertificateAuthority, Validity
from aioproducer.testing.jumping import run_jumping
from aioproducer.testing.memory import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

CA = CertificateAuthority()
OTHER = CertificateAuthority("another CA")
ALICE = CA.client("alice")
PEM = CA.pem.decode()
PASSWORD = "canary-store"
SHOWN_NEVER = ("canary-", "PRIVATE KEY")


class Silent:
    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


def user_of(context: ssl.SSLContext, server: ssl.SSLContext | None = None) -> str | None:
    """Handshake with a server that wants a client certificate. Returns its common name; None: the server got none."""

    async def main() -> str | None:
        mine = server or server_context(CA.server(), clients=CA)
        if server is None:
            mine.verify_mode = ssl.CERT_OPTIONAL
        network, far = MemoryNetwork(), TlsServer(Silent(), mine)
        network.listen("localhost", 1, lambda: far)
        near = TlsStream(Silent(), context, "localhost", HandshakeTurns())
        await network.dial("localhost", 1, lambda: near)
        await near.handshake()
        await asyncio.sleep(0.1)
        subject: Any = (far.tls.getpeercert() or {}).get("subject", ())
        return dict(each[0] for each in subject).get("commonName")

    return run_jumping(main())


def test_the_flags() -> None:
    """PARTIAL_CHAIN on, STRICT off, no renegotiation, at least TLS 1.2, no key log, names checked."""
    os.environ["SSLKEYLOGFILE"] = "/nowhere/keys"
    try:
        context = make_context(TlsSettings(ssl_truststore_certificates=PEM))
    finally:
        del os.environ["SSLKEYLOGFILE"]
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert (context.minimum_version, context.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    )
    assert context.keylog_filename is None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.post_handshake_auth


def test_options_of_the_context() -> None:
    context = make_context(
        TlsSettings(
            ssl_truststore_certificates=PEM,
            ssl_endpoint_identification_algorithm="",
            ssl_enabled_protocols=("TLSv1.2",),
            ssl_cipher_suites=("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        )
    )
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"}


@pytest.mark.parametrize(
    "name", ["nothing", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"]
)
def test_other_names_of_cipher_suites_than_openssls(name: str) -> None:
    with pytest.raises(ConfigError, match=f"ssl_cipher_suites={name}: OpenSSL knows none of them"):
        make_context(TlsSettings(ssl_truststore_certificates=PEM, ssl_cipher_suites=(name,)))


def test_every_form_of_trust(tmp_path: pathlib.Path) -> None:
    """PEM as file and text (also on one line, as Java's properties and environment files have it), PKCS12, the system's."""
    path, store = CA.write(tmp_path / "ca.pem"), tmp_path / "trust.p12"
    store.write_bytes(pkcs12_truststore(PASSWORD, CA, OTHER))
    with path.open("ab") as file:
        file.write("# a comment: é\n".encode())
    for settings in (
        TlsSettings(ssl_truststore_location=str(path)),
        TlsSettings(ssl_truststore_location=str(path), ssl_truststore_type="PEM"),
        TlsSettings(ssl_truststore_certificates=PEM),
        TlsSettings(ssl_truststore_certificates=PEM.replace("\n", " ")),
        TlsSettings(ssl_truststore_certificates=PEM.replace("\n", "\\n")),
        TlsSettings(ssl_truststore_location=str(store), ssl_truststore_password=Secret(PASSWORD)),
    ):
        assert user_of(make_context(settings)) is None
    assert make_context(TlsSettings()).cert_store_stats()["x509_ca"] > 10


def test_a_trust_store_may_hold_the_intermediate_or_the_leaf_alone() -> None:
    """As Java's may (PARTIAL_CHAIN), and Strimzi's certificates have no key identifiers, which VERIFY_X509_STRICT wants."""
    below = intermediate(CA)
    server = below.server()
    for trusted in (below.pem.decode(), server.certificate_pem.decode()):
        assert (
            user_of(
                make_context(TlsSettings(ssl_truststore_certificates=trusted)),
                server_context(server),
            )
            is None
        )
    strimzi = server_context(without_key_identifiers(CA))
    assert user_of(make_context(TlsSettings(ssl_truststore_certificates=PEM)), strimzi) is None


def test_every_form_of_the_clients_certificate(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ALICE.write(tmp_path, "alice")
    locked = write_encrypted(ALICE, tmp_path, "locked", "canary-key")
    old = tmp_path / "old.key"
    old.write_bytes(encrypted_key_pem(ALICE, "canary-key", traditional=True))
    store = tmp_path / "alice.p12"
    store.write_bytes(pkcs12_keystore(ALICE, PASSWORD))
    key = Secret("canary-key")
    chain, inline = ALICE.chain_pem.decode(), Secret(ALICE.key_pem.decode())
    forms: list[dict[str, Any]] = [
        {"ssl_keystore_location": str(files.pem)},
        {"ssl_keystore_location": str(locked.pem), "ssl_key_password": key},
        {
            "ssl_keystore_location": str(store),
            "ssl_keystore_password": Secret(PASSWORD),
            "ssl_keystore_type": "PKCS12",
        },
        {"ssl_key_location": str(files.key), "ssl_certificate_location": str(files.chain)},
        {
            "ssl_key_location": str(locked.key),
            "ssl_certificate_location": str(files.chain),
            "ssl_key_password": key,
        },
        {
            "ssl_key_location": str(old),
            "ssl_certificate_location": str(files.chain),
            "ssl_key_password": key,
        },
        {"ssl_key_location": str(files.pem)},
        {"ssl_certificate_location": str(files.pem)},
        {"ssl_keystore_key": inline, "ssl_keystore_certificate_chain": chain},
        {
            "ssl_keystore_key": Secret(ALICE.key_pem.decode().replace("\n", " ")),
            "ssl_keystore_certificate_chain": chain.replace("\n", " "),
        },
        {
            "ssl_keystore_key": Secret(ALICE.key_pem.decode().replace("\n", "\\n")),
            "ssl_keystore_certificate_chain": chain.replace("\n", "\\n"),
        },
        {
            "ssl_keystore_key": Secret(encrypted_key_pem(ALICE, "canary-key").decode()),
            "ssl_keystore_certificate_chain": chain,
            "ssl_key_password": key,
        },
        {
            "ssl_keystore_key": Secret(
                encrypted_key_pem(ALICE, "canary-key", traditional=True).decode()
            ),
            "ssl_keystore_certificate_chain": chain,
            "ssl_key_password": key,
        },
        {
            "ssl_keystore_key": Secret(f"${{file:{files.key}}}"),
            "ssl_keystore_certificate_chain": chain,
        },
    ]
    for form in forms:
        assert (
            user_of(make_context(TlsSettings(ssl_truststore_certificates=PEM, **form))) == "alice"
        ), form
    # where there is no memfd, a file that this user alone reads, and that is removed
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "made"))
    (tmp_path / "made").mkdir()
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    modes: list[int] = []
    load = key_stores.ssl.SSLContext.load_cert_chain

    def seen(self: ssl.SSLContext, path: str, *rest: Any) -> None:
        modes.append(pathlib.Path(path).stat().st_mode & 0o777)
        load(self, path, *rest)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", seen)
    context = make_context(TlsSettings(ssl_truststore_certificates=PEM, **forms[8]))
    monkeypatch.undo()
    assert user_of(context) == "alice"
    assert modes == [0o600]
    assert list((tmp_path / "made").iterdir()) == []


def refusals(folder: pathlib.Path) -> list[tuple[dict[str, Any], str]]:
    files, locked = (
        ALICE.write(folder, "alice"),
        write_encrypted(ALICE, folder, "locked", "canary-key"),
    )
    other, store, trust = (
        CA.client("bob").write(folder, "bob"),
        folder / "alice.p12",
        folder / "trust.p12",
    )
    store.write_bytes(pkcs12_keystore(ALICE, PASSWORD))
    trust.write_bytes(pkcs12_truststore(PASSWORD, CA))
    (folder / "old.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    (folder / "text").write_text("no PEM at all")
    (folder / "der.p12").write_bytes(b"\x30\x82\x01\x00\x02\x01\x03" + bytes(200))
    wrong, jks = Secret("canary-wrong"), folder / "old.jks"
    commands = (
        f"{jks} is a JKS store, which only Java reads. Convert it: keytool -importkeystore -srckeystore {jks} "
        f"-destkeystore {folder}/old.p12 -deststoretype PKCS12, and then, for PEM: openssl pkcs12 -in {folder}/old.p12 -out {folder}/old.pem"
    )
    return [
        (
            {"ssl_truststore_location": str(folder / "none")},
            "ssl_truststore_location=.*none cannot be read: No such file or directory",
        ),
        (
            {"ssl_truststore_location": str(folder / "text")},
            "ssl_truststore_location=.*text: there is no certificate in it, or it is damaged",
        ),
        ({"ssl_truststore_location": str(jks)}, commands),
        ({"ssl_keystore_location": str(jks)}, commands),
        ({"ssl_truststore_location": str(trust)}, "it wants a password: ssl_truststore_password"),
        (
            {"ssl_truststore_location": str(trust), "ssl_truststore_password": wrong},
            "ssl_truststore_password is not its password, or it is",
        ),
        (
            {"ssl_truststore_location": str(trust), "ssl_truststore_type": "PEM"},
            "is no PEM file: its first bytes are those of PKCS12",
        ),
        (
            {"ssl_truststore_location": str(files.pem), "ssl_truststore_type": "PKCS12"},
            "is no PKCS12 file: its first bytes are those of a text",
        ),
        (
            {"ssl_truststore_certificates": "nothing"},
            "ssl_truststore_certificates: there is no certificate in it",
        ),
        (
            {"ssl_truststore_certificates": PEM.replace("M", "é")},
            "ssl_truststore_certificates: there is no certificate in it",
        ),
        (
            {"ssl_keystore_location": str(locked.pem)},
            "the key is encrypted, and there is no ssl_key_password",
        ),
        (
            {"ssl_keystore_location": str(locked.pem), "ssl_key_password": wrong},
            "ssl_key_password is not the password of the key",
        ),
        (
            {
                "ssl_keystore_location": str(locked.pem),
                "ssl_key_password": Secret("canary-" + "x" * 2000),
            },
            "ssl_key_password is longer than",
        ),
        (
            {
                "ssl_keystore_location": str(locked.pem),
                "ssl_key_password": Secret("${env:NO_SUCH_THING}"),
            },
            "NO_SUCH_THING",
        ),
        (
            {"ssl_keystore_location": str(store), "ssl_keystore_password": wrong},
            "ssl_keystore_password is not its password",
        ),
        (
            {"ssl_keystore_location": str(folder / "der.p12"), "ssl_keystore_password": wrong},
            "not its password, or it is damaged",
        ),
        (
            {"ssl_keystore_location": str(trust), "ssl_keystore_password": Secret(PASSWORD)},
            "ssl_keystore_location=.*trust.p12 has no key",
        ),
        (
            {"ssl_keystore_location": str(files.chain)},
            "ssl_keystore_location=.*alice.crt: there is no certificate, or no key, in PEM",
        ),
        (
            {"ssl_certificate_location": str(files.chain), "ssl_key_location": str(other.key)},
            "the key is not that of the certificate",
        ),
        (
            {
                "ssl_certificate_location": str(files.chain),
                "ssl_key_location": str(folder / "gone"),
            },
            "cannot be read: No such file",
        ),
        ({"ssl_crl_location": str(files.chain)}, "ssl_crl_location=.*alice.crt has no CRL in PEM"),
    ]


def test_what_cannot_be_used(tmp_path: pathlib.Path) -> None:
    """The option and the file, never a password or key, in the text; and no prompt on the terminal."""
    for options, text in refusals(tmp_path):
        settings = TlsSettings(**{"ssl_truststore_certificates": PEM, **options})
        with pytest.raises(ConfigError, match=text.replace(".p12 -", "[.]p12 -")) as raised:
            make_context(settings)
        shown = "".join(traceback.TracebackException.from_exception(raised.value).format())
        assert not any(map(shown.__contains__, SHOWN_NEVER)), text


@pytest.mark.parametrize(
    ("option", "form", "what"),
    [
        ("ssl_truststore_location", "certificate", "certificate in DER. .*openssl x509"),
        ("https_ca_location", "certificate", "certificate in DER. .*openssl x509"),
        ("ssl_keystore_location", "certificate", "certificate in DER. .*openssl x509"),
        ("ssl_certificate_location", "certificate", "certificate in DER. .*openssl x509"),
        ("ssl_keystore_location", "key", "key in DER. .*openssl pkey"),
        ("ssl_key_location", "key", "key in DER. .*openssl pkey"),
        ("ssl_key_location", "encrypted", "key in DER. .*openssl pkey"),
        ("ssl_key_location", "short", "key in DER. .*openssl pkey"),
        ("ssl_key_location", "ec", "key in DER. .*openssl pkey"),
    ],
)
def test_der_is_called_by_its_name(
    tmp_path: pathlib.Path, option: str, form: str, what: str
) -> None:
    """It begins as a PKCS12 store does, and is none; the text has the command that converts it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    der, form_of = serialization.Encoding.DER, serialization.PrivateFormat
    key: Any = serialization.load_pem_private_key(ALICE.key_pem, None)
    none = serialization.NoEncryption()
    content = {
        "certificate": lambda: x509.load_pem_x509_certificate(CA.pem).public_bytes(der),
        "key": lambda: key.private_bytes(der, form_of.PKCS8, none),
        "encrypted": lambda: key.private_bytes(
            der, form_of.PKCS8, serialization.BestAvailableEncryption(b"canary-key")
        ),
        "short": lambda: ed25519.Ed25519PrivateKey.generate().private_bytes(
            der, form_of.PKCS8, none
        ),
        "ec": lambda: ec.generate_private_key(ec.SECP256R1()).private_bytes(
            der, form_of.TraditionalOpenSSL, none
        ),
    }[form]()
    path = tmp_path / "file.der"
    path.write_bytes(content)
    files = ALICE.write(tmp_path, "alice")
    beside = {"ssl_key_location": "ssl_certificate_location"}
    beside |= {other: one for one, other in beside.items()}
    options = {option: str(path)}
    if option in beside:
        options[beside[option]] = str(files.pem)
    with pytest.raises(ConfigError, match=f"^{option}={path} is a {what} -inform der -in {path}"):
        if option == "https_ca_location":
            endpoint_context(str(path), None)
        else:
            make_context(TlsSettings(**options))


def test_pkcs12_without_cryptography(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "alice.p12"
    store.write_bytes(pkcs12_keystore(ALICE, PASSWORD))
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ConfigError, match=r"pip install 'aioproducer\[crypto\]', or convert it: openssl pkcs12 -in"
    ):
        make_context(
            TlsSettings(ssl_keystore_location=str(store), ssl_keystore_password=Secret(PASSWORD))
        )


def test_a_revoked_certificate(tmp_path: pathlib.Path) -> None:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    good, bad = CA.server(), CA.server()
    now = datetime.now(UTC)
    serial = x509.load_pem_x509_certificate(bad.certificate_pem).serial_number
    revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
    builder = x509.CertificateRevocationListBuilder().issuer_name(
        x509.load_pem_x509_certificate(CA.pem).subject
    )
    crl = (
        builder.last_update(now - timedelta(days=1))
        .next_update(now + timedelta(days=1))
        .add_revoked_certificate(revoked)
    )
    path = tmp_path / "crl.pem"
    path.write_bytes(
        crl.sign(signing_key(CA), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    context = make_context(TlsSettings(ssl_truststore_certificates=PEM, ssl_crl_location=str(path)))
    assert user_of(context, server_context(good)) is None
    with pytest.raises(ssl.SSLCertVerificationError) as raised:
        user_of(context, server_context(bad))
    assert raised.value.verify_code == 23


# Reload


def reading(contexts: TlsContexts) -> ssl.SSLContext:
    return asyncio.run(contexts.context())


def test_a_file_that_is_gone_leaves_the_former_context(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 102: with a warning. tests/scenarios/test_rotation.py shows the other changes."""
    ca = CA.write(tmp_path / "ca.pem")
    contexts = TlsContexts(TlsSettings(ssl_truststore_location=str(ca)))
    first = reading(contexts)
    ca.unlink()
    with caplog.at_level(logging.WARNING):
        assert reading(contexts) is first
    assert "ca.pem cannot be read: No such file" in caplog.records[-1].getMessage()
    OTHER.write(ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        user_of(reading(contexts))
    assert len(caplog.records) == 1


@pytest.mark.asyncio
async def test_dials_at_once_share_one_look_and_a_cancelled_one_breaks_no_other() -> None:
    contexts = TlsContexts(TlsSettings(ssl_truststore_certificates=PEM))
    tasks = [asyncio.create_task(contexts.context()) for _ in range(20)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert len({id(context) for context in found[1:]}) == 1
    bad = TlsContexts(TlsSettings(ssl_truststore_certificates="nothing"))
    errors = await asyncio.gather(*(bad.context() for _ in range(3)), return_exceptions=True)
    assert all(isinstance(error, ConfigError) for error in errors)
    with pytest.raises(ConfigError):
        await bad.prepare()


# What a user gives


@pytest.mark.asyncio
async def test_a_user_context_or_a_function_that_gives_one() -> None:
    given = client_context(CA)

    async def coroutine() -> ssl.SSLContext:
        return given

    def raising() -> ssl.SSLContext:
        raise RuntimeError("canary-token is in my text")

    async def awaiting_what_was_cancelled() -> ssl.SSLContext:
        raise asyncio.CancelledError

    def threaded() -> ssl.SSLContext:
        assert threading.current_thread() is not threading.main_thread()
        return given

    for function in (given, threaded, coroutine, lambda: asyncio.sleep(0, given)):
        contexts = TlsContexts(TlsSettings(ssl_context=function))
        assert await contexts.context() is given
        assert contexts.trust == contexts.certificate == "the given ssl_context"
    wrong: list[tuple[Callable[[], Any], str]] = [
        (raising, "raised RuntimeError$"),
        (awaiting_what_was_cancelled, "raised CancelledError$"),
        (lambda: "text", "returned str, not an ssl.SSLContext"),
    ]
    for function, text in wrong:
        contexts = TlsContexts(TlsSettings(ssl_context=function))
        await contexts.prepare()
        with pytest.raises(ConfigError, match=text):
            await contexts.context()


def test_the_options_of_a_config_are_the_settings() -> None:
    assert security_of(ProducerConfig(bootstrap_servers="b:1"), lambda: 0.5) is None
    config = ProducerConfig(
        bootstrap_servers="b:1",
        security_protocol="SSL",
        ssl_truststore_certificates=PEM,
        ssl_enabled_protocols="TLSv1.3",
        ssl_cipher_suites=None,
    )
    security = security_of(config, lambda: 0.5)
    assert security is not None
    assert security.sasl is None
    assert security.tls is not None
    context = reading(security.tls)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.check_hostname


@pytest.mark.parametrize("validity", [VALID, EXPIRED])
def test_the_end_of_the_clients_certificate(
    tmp_path: pathlib.Path, validity: Validity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it stands behind the key or before its issuer. Without `cryptography` the end is not known."""
    pem = CA.client("alice", validity=validity).pem
    path = tmp_path / "client.pem"
    path.write_bytes(pem)
    settings = TlsSettings(ssl_truststore_certificates=PEM, ssl_certificate_location=str(path))
    contexts = TlsContexts(settings)
    reading(contexts)
    assert (
        contexts.certificate_ends_at
        == x509.load_pem_x509_certificate(
            pem[pem.index(b"-----BEGIN CERT") :]
        ).not_valid_after_utc.timestamp()
    )
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    contexts = TlsContexts(settings)
    reading(contexts)
    assert contexts.certificate_ends_at is None
