"""Tests of `aioproducer.testing.security.mechanisms`: the examples of RFC 5802 and RFC 7677, and malformed messages."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from aioproducer.testing.security.accounts import Accounts, ScramCredential
from aioproducer.testing.security.mechanisms import PlainServer, Refusal, ScramServer

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(hash_name: str = "sha256", password: bytes = b"pencil") -> ScramCredential:
    salted = hashlib.pbkdf2_hmac(hash_name, password, SALT, 4096)
    stored = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
    return ScramCredential(
        SALT, 4096, stored, hmac.digest(salted, b"Server Key", hash_name), "user"
    )


def server() -> ScramServer:
    return ScramServer(
        "SCRAM-SHA-256",
        lambda name, is_token: credential() if name == "user" and not is_token else None,
        SERVER_NONCE,
    )


def test_the_example_of_rfc_7677() -> None:
    """Section 3, byte for byte."""
    scram = server()
    assert scram.respond(FIRST) == ANSWER
    assert (scram.claimed, scram.principal) == ("user", None)
    assert scram.respond(FINAL) == LAST
    assert scram.principal == "user"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n=user,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=us\xc3\xa4r,r=abc",
        b"n,,n=user,r=abc,x",
        b"n,,n=nobody,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
    ],
)
def test_first_messages_that_are_refused(first: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        server().respond(first)
    assert refused.value.text is None


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=!"),
        FINAL.replace(b"r=rOp", b"r=rOq"),
        FINAL.replace(b"p=dHz", b"p=dHy"),
        FINAL[:-4],
        FINAL[:-1],
        FINAL.partition(b",p=")[0],
        FINAL + b",x=1",
    ],
)
def test_final_messages_that_are_refused(final: bytes) -> None:
    scram = server()
    scram.respond(FIRST)
    with pytest.raises(Refusal) as refused:
        scram.respond(final)
    assert refused.value.text is None
    assert scram.principal is None


def test_extensions_are_ignored() -> None:
    """RFC 5802's optional ones, and the reserved m=, which Kafka's grammar takes."""
    assert (
        server().respond(b"n,,m=x,n=user,r=abc,ext=1").startswith(b"r=abc" + SERVER_NONCE.encode())
    )


def test_the_example_of_rfc_4616() -> None:
    """Section 4: user tim, without an authorization id."""
    plain = PlainServer(Accounts({"tim": "tanstaaftanstaaf"}, 4096))
    assert plain.respond(b"\0tim\0tanstaaftanstaaf") == b""
    assert plain.principal == "tim"
    with pytest.raises(Refusal, match="different from username"):
        PlainServer(Accounts({"Kurt": "xipj3plmq"}, 4096)).respond(b"Ursel\0Kurt\0xipj3plmq")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"tim", "expected 3 tokens, got 1"),
        (b"tim\0tanstaaftanstaaf", "expected 3 tokens, got 2"),
        (b"\0tim\0tanstaaftanstaaf\0", "expected 3 tokens, got 4"),
        (b"\0\xff\0x", "Invalid username or password"),
        (b"\0\0x", "username not specified"),
        (b"\0tim\0", "password not specified"),
    ],
)
def test_plain_messages_that_are_refused(token: bytes, text: str) -> None:
    """Kafka tells what is malformed."""
    with pytest.raises(Refusal, match=text):
        PlainServer(Accounts({"tim": "tanstaaftanstaaf"}, 4096)).respond(token)


def test_credentials_are_alike_on_all_brokers_and_new_for_a_new_password() -> None:
    """The salt depends on the generation of the password, and on nothing else."""
    one, other = Accounts({"alice": "canary-1"}, 4096), Accounts({"alice": "canary-1"}, 4096)
    first = one.scram("SCRAM-SHA-512", "alice", is_token=False, now=0)
    assert first == other.copy().scram("SCRAM-SHA-512", "alice", is_token=False, now=0)
    one.grant("alice", "canary-1", 1)
    second = one.scram("SCRAM-SHA-512", "alice", is_token=False, now=0)
    assert first is not None
    assert second is not None
    assert second.salt != first.salt
    assert second.stored_key != first.stored_key
