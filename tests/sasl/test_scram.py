"""Tests of `aioproducer.sasl.scram`: the vectors of the RFCs, every rule for the broker's messages, derived keys."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from exchanges import authenticate, say, scram
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sasl_peers import ScramServer

from aioproducer.config.secret import Secret
from aioproducer.errors import BrokerNotTrusted, CredentialsRefused
from aioproducer.sasl import scram as module
from aioproducer.sasl.mechanism import SecretBytes
from aioproducer.sasl.scram import KeyCache, Scram

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = b"r=clientserver,s=c2FsdA==,i=4096"


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The iteration counts of derivations, which are not carried out."""
    counts: list[int] = []

    def derive(_hash: str, _password: bytes, _salt: bytes, count: int) -> bytes:
        counts.append(count)
        return b"salted"

    monkeypatch.setattr(module.hashlib, "pbkdf2_hmac", derive)
    return counts


def first_of(mechanism: Scram) -> Any:
    exchange = mechanism.exchange()
    say(exchange, None)
    return exchange


def test_the_vector_of_rfc_7677() -> None:
    """SCRAM-SHA-256, section 3; the password is the RFC's."""
    mechanism = Scram(
        "SCRAM-SHA-256", "user", Secret("user"), Secret("pencil"), lambda: "rOprNGfwEbeRWgbNEkqO"
    )
    exchange = mechanism.exchange()
    assert say(exchange, None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    answer = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert say(exchange, answer) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "a,b=c", "=2C,=3D", "ä"])
@pytest.mark.parametrize(
    "password", ["canary-alice", "canary-p\u00e4\u00a0ss\u2168,=", "canary-\U0001f600"]
)
def test_a_server_of_the_rfc_agrees(name: str, user: str, password: str) -> None:
    """Names are escaped; passwords that SASLprep would change are taken as they are (SEC-05: Kafka does not prepare them)."""
    server = ScramServer(name, {user: password})
    assert authenticate(scram(name, user, password), server.first, server.last) == 0
    assert (server.user, server.is_token) == (user, False)


def test_a_delegation_token_says_so() -> None:
    """KIP-48."""
    server = ScramServer("SCRAM-SHA-512", {"token id": "canary-hmac=="})
    authenticate(
        scram("SCRAM-SHA-512", "token id", "canary-hmac==", is_token=True),
        server.first,
        server.last,
    )
    assert server.is_token


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "breaks the rules"),
        (b"x" * 5000, "5000 bytes"),
        (FIRST + b",x=" + b"y" * 4096, "bytes"),
        (b"m=ext," + FIRST, "breaks the rules"),
        (FIRST + b",m=ext", "mandatory extension"),
        (FIRST + b",i=4096", "attribute twice"),
        (FIRST + b",x=1,x=2", "attribute twice"),
        (b"i=4096,r=clientserver,s=c2FsdA==", "breaks the rules"),
        (b"r=client,s=c2FsdA==,i=4096", "nonce"),
        (b"r=elsewhere,s=c2FsdA==,i=4096", "nonce"),
        (b"r=clientserver,s=,i=4096", "breaks the rules"),
        (b"r=clientserver,s=c2Fsd,i=4096", "not base64"),
        (b"r=clientserver,s=c2FsdB==,i=4096", "not base64"),
        (b"r=clientserver,s=c2F$dA==,i=4096", "breaks the rules"),
        (b"r=clients\xc3\xa4rver,s=c2FsdA==,i=4096", "breaks the rules"),
        (b"r=clientserver,s=c2FsdA==,i=04096", "breaks the rules"),
        (b"r=clientserver,s=c2FsdA==,i=-1", "breaks the rules"),
        (FIRST + b"\0", "breaks the rules"),
        (FIRST + b"\n", "breaks the rules"),
        (b'{"status":"invalid_token"}', "breaks the rules"),
        (b"\x01", "breaks the rules"),
        (b"e=other-error", "breaks the rules"),
        *(
            (b"r=clientserver,s=c2FsdA==,i=%d" % count, "iterations")
            for count in (1, 4095, 1_000_001, 2**31, 10**40)
        ),
    ],
)
def test_a_first_message_that_breaks_the_rules(
    answer: bytes, words: str, derived: list[int]
) -> None:
    """Row 94: refused before anything is derived from the password."""
    exchange = first_of(scram())
    with pytest.raises(BrokerNotTrusted, match=words) as caught:
        say(exchange, answer)
    assert derived == []
    assert (caught.value.stage, caught.value.mechanism, caught.value.code) == (
        "sasl",
        "SCRAM-SHA-256",
        None,
    )


@pytest.mark.parametrize("count", [4096, 1_000_000])
def test_counts_within_the_bounds(count: int, derived: list[int]) -> None:
    say(first_of(scram()), b"r=clientserver,s=c2FsdA==,i=%d,x=extension" % count)
    assert derived == [count]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"v=AAAA", BrokerNotTrusted, "does not know the password of user 'alice'"),
        (b"v=AAA", BrokerNotTrusted, "not base64"),
        (b"", BrokerNotTrusted, "breaks the rules"),
        (b"\x01", BrokerNotTrusted, "breaks the rules"),
        (
            b"e=invalid-proof",
            CredentialsRefused,
            "refuses user 'alice' by SCRAM-SHA-256: invalid-proof",
        ),
    ],
)
def test_a_last_message_that_proves_nothing(
    answer: bytes, error: type[Exception], words: str, derived: list[int]
) -> None:
    """Row 94: an end without the server's signature is no success."""
    exchange = first_of(scram())
    say(exchange, FIRST)
    with pytest.raises(error, match=words):
        say(exchange, answer)
    assert derived == [4096]


def test_the_signature_of_another_exchange_is_no_proof() -> None:
    """A server that does not know the password cannot replay one."""
    servers = [ScramServer("SCRAM-SHA-256", {"alice": "canary-alice"}) for _ in range(2)]
    servers[1].salt = b"another"
    signature: list[bytes | None] = []

    def keep(data: bytes) -> bytes:
        signature.append(servers[0].last(data))
        return signature[0] or b""

    authenticate(scram(), servers[0].first, keep)
    with pytest.raises(BrokerNotTrusted, match="signature"):
        authenticate(scram(), servers[1].first, lambda _: signature[0])


def test_keys_are_derived_once_for_a_salt_and_a_count() -> None:
    """All brokers of a cluster have one salt for a user."""
    slow: list[str] = []
    mechanism = scram()
    for salt, times in ((b"one", 1), (b"one", 1), (b"two", 2), (b"one", 2)):
        server = ScramServer("SCRAM-SHA-256", {"alice": "canary-alice"}, salt=salt)
        exchange = mechanism.exchange()
        first = say(exchange, None)
        final = say(exchange, server.first(first), slow)
        with pytest.raises(StopIteration):
            say(exchange, server.last(final))
        assert len(slow) == times


def test_a_rotated_password_has_other_keys() -> None:
    cache = KeyCache()
    old = cache.derive("sha256", SecretBytes(b"canary-old"), b"salt", 4096)
    assert cache.find("sha256", SecretBytes(b"canary-old"), b"salt", 4096) is old
    assert cache.find("sha256", SecretBytes(b"canary-new"), b"salt", 4096) is None
    assert cache.derive("sha256", SecretBytes(b"canary-new"), b"salt", 4096) != old


def test_the_cache_is_bounded(derived: list[int]) -> None:
    """A hostile broker may give a new salt at each authentication."""
    cache = KeyCache()
    for number in range(100):
        cache.derive("sha256", SecretBytes(b"canary"), b"%d" % number, 4096)
    assert len(cache._known) == 16
    cache.derive("sha256", SecretBytes(b"canary"), b"99", 4096)
    assert len(derived) == 100


MESSAGES: st.SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda nonce, salt, count, more: b"r=%b,s=%b,i=%d%b" % (nonce, salt, count, more),
        st.sampled_from([b"client", b"clientserver", b"other"]),
        st.binary(max_size=12).map(base64.b64encode)
        | st.sampled_from([b"", b"=", b"QQ=", b"QR=="]),
        st.integers(-5, 2**40) | st.sampled_from([4095, 4096, 1_000_000, 1_000_001]),
        st.sampled_from([b"", b",m=x", b",x=y", b",r=z", b",", b",x"]),
    ),
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=MESSAGES,
    last=st.binary(max_size=100)
    | st.binary(max_size=64).map(lambda data: b"v=" + base64.b64encode(data)),
)
def test_whatever_the_broker_says(first: bytes, last: bytes) -> None:
    """Only errors of this package, and nothing is derived out of bounds."""
    counts: list[int] = []
    known: Callable[..., bytes] = module.hashlib.pbkdf2_hmac
    exchange = first_of(scram())
    try:
        module.hashlib.pbkdf2_hmac = lambda *arguments: counts.append(arguments[3]) or b"salted"  # type: ignore[assignment]
        say(exchange, first)
        say(exchange, last)
    except (BrokerNotTrusted, CredentialsRefused):
        pass
    except StopIteration as error:
        raise AssertionError("a signature was guessed") from error
    finally:
        module.hashlib.pbkdf2_hmac = known  # type: ignore[assignment]
    assert all(4096 <= count <= 1_000_000 for count in counts)
