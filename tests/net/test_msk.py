"""Tokens of Amazon MSK's IAM by Amazon's signer, offline: verified by `msk_service`, which shares no code with it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from msk_service import ACCESS_KEY, SECRET_KEY, MskAuthority, offline, sts
from whole import jumping, running

from aioproducer import Producer
from aioproducer.config.security_options import SecurityOptions
from aioproducer.errors import BootstrapFailed, TokenUnavailable
from aioproducer.net.msk import MskTokens
from aioproducer.testing import FakeCluster, ListenerSecurity, ListenerTokens

if TYPE_CHECKING:
    import pathlib

pytest.importorskip(
    "aws_msk_iam_sasl_signer", reason="Amazon's signer is an extra: pip install 'aioproducer[msk]'"
)

REGION = "eu-central-1"
ROLE = "arn:aws:iam::123456789012:role/orders"
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


def signer(**options: Any) -> MskTokens:
    return MskTokens(
        SecurityOptions(
            sasl_aws_region=REGION, **{f"sasl_aws_{name}": value for name, value in options.items()}
        ),
        (),
    )


def test_a_token_of_variables(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature is right for the key, the parameters are MSK's, and the end is that of the parameters."""
    offline(monkeypatch, tmp_path, **KEYS)
    began = time.time()
    token = signer().fetch()
    authority = MskAuthority(REGION, {ACCESS_KEY: SECRET_KEY})
    claims = authority(token.text.reveal())
    assert claims is not None
    assert token.expires_at == claims["exp"]
    assert int(began) + 900 <= claims["exp"] <= time.time() + 900
    assert (token.principal, token.extensions) == ("", ())
    [told] = authority.verified
    assert told["User-Agent"].startswith("aws-msk-iam-sasl-signer-python/")
    assert "X-Amz-Security-Token" not in told
    # what verifies is strict
    assert MskAuthority("eu-west-1", {ACCESS_KEY: SECRET_KEY})(token.text.reveal()) is None
    assert MskAuthority(REGION, {ACCESS_KEY: "canary-other"})(token.text.reveal()) is None


def test_a_token_of_temporary_credentials(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch, tmp_path, **KEYS, AWS_SESSION_TOKEN="canary-session+/=")
    token = signer().fetch().text.reveal()
    assert (
        MskAuthority(REGION, {ACCESS_KEY: SECRET_KEY}, {ACCESS_KEY: "canary-session+/="})(token)
        is not None
    )
    assert MskAuthority(REGION, {ACCESS_KEY: SECRET_KEY})(token) is None


def test_a_token_of_a_profile(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile goes before the variables."""
    offline(monkeypatch, tmp_path, **KEYS)
    (tmp_path / "credentials").write_text(
        "[orders]\naws_access_key_id = AKIAORDERS\naws_secret_access_key = canary-orders\n"
    )
    token = signer(profile_name="orders").fetch().text.reveal()
    assert MskAuthority(REGION, {"AKIAORDERS": "canary-orders"})(token) is not None


@pytest.mark.parametrize("session_name", [None, "orders-1"])
def test_a_token_of_a_role(
    session_name: str | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role is assumed with the default credentials, and what STS gives is signed with."""
    given = {"key": "ASIAROLE", "secret": "canary-role", "session": "canary-session"}
    with sts(**given) as (url, asked):
        offline(monkeypatch, tmp_path, **KEYS, AWS_ENDPOINT_URL_STS=url)
        token = signer(role_arn=ROLE, role_session_name=session_name).fetch().text.reveal()
    assert (
        MskAuthority(REGION, {"ASIAROLE": "canary-role"}, {"ASIAROLE": "canary-session"})(token)
        is not None
    )
    [request] = asked
    assert (request["Action"], request["RoleArn"], request["region"]) == (
        "AssumeRole",
        ROLE,
        REGION,
    )
    assert request["RoleSessionName"] == (session_name or "MSKSASLDefaultSession")


@pytest.mark.parametrize(
    ("variables", "options", "reason"),
    [
        ({}, {}, "AWS has no credentials here"),
        ({}, {"role_arn": ROLE}, "AWS has no credentials here"),
        ({"AWS_ACCESS_KEY_ID": ACCESS_KEY}, {}, "AWS has a part of the credentials alone"),
        (KEYS, {"profile_name": "nobody"}, "there is no such profile of AWS"),
        (KEYS, {"role_arn": ROLE}, "AWS answers AccessDenied"),
    ],
)
def test_no_token(
    variables: dict[str, str],
    options: dict[str, Any],
    reason: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error says what is missing, and its traceback has no credential."""
    with sts() as (url, _):
        offline(monkeypatch, tmp_path, **variables, AWS_ENDPOINT_URL_STS=url)
        source = signer(**options)
        with pytest.raises(
            TokenUnavailable, match=f"the signer of AWS for {REGION}: {reason}"
        ) as failed:
            source.fetch()
    assert failed.value.stage == "token"
    told = "".join(traceback.TracebackException.from_exception(failed.value).format())
    inside = told.partition("net/msk.py")[2]
    assert inside
    assert "canary-" not in inside


@jumping
async def test_an_hour_of_records(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of 15 minutes are refreshed at 80 to 85 % of their lives; each session is renewed with a new one, and no connection is made anew."""
    offline(monkeypatch, tmp_path, **KEYS)
    authority = MskAuthority(REGION, {ACCESS_KEY: SECRET_KEY})
    security = ListenerSecurity(
        "SASL_SSL", mechanisms=(), tokens=ListenerTokens(unsecured=False, verify=authority)
    )
    async with FakeCluster(memory=True, security=security) as cluster:
        cluster.create_topic("orders")
        options = {
            "sasl_mechanism": "AWS_MSK_IAM",
            "sasl_aws_region": REGION,
            "connections_max_idle_ms": -1,
        }
        async with running(cluster, **options) as (_, producer):
            await producer.send_and_wait("orders", b"0")
            dials = len(cluster.security.dials)
            for number in range(1, 60):
                await asyncio.sleep(60)
                await producer.send_and_wait("orders", b"%d" % number)
            assert len(cluster.security.dials) == dials
        logins = cluster.security.authentications
        assert {(login.mechanism, login.error) for login in logins} == {("OAUTHBEARER", 0)}
        renewals = Counter(login.connection for login in logins if login.is_renewal)
        assert max(renewals.values()) == 4
        assert cluster.security.expired_sessions == []


@jumping
async def test_a_start_without_credentials_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch, tmp_path)
    security = ListenerSecurity("SASL_SSL", mechanisms=(), tokens=ListenerTokens(unsecured=False))
    async with FakeCluster(memory=True, security=security) as cluster:
        options = {
            "sasl_mechanism": "AWS_MSK_IAM",
            "sasl_aws_region": REGION,
            "max_block_ms": 10_000,
        }
        with pytest.raises(BootstrapFailed, match="AWS has no credentials here"):
            await Producer(**{**cluster.client_options, **options}).start()
        assert cluster.security.authentications == []


def test_signing_is_no_matter_of_the_loop(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signer is imported and called in a thread, and not before the producer starts."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer

    offline(monkeypatch, tmp_path, **KEYS)
    threads: list[threading.Thread] = []
    sign = signer.generate_auth_token

    def watched(region: str) -> Any:
        threads.append(threading.current_thread())
        return sign(region)

    monkeypatch.setattr(signer, "generate_auth_token", watched)
    authority = MskAuthority(REGION, {ACCESS_KEY: SECRET_KEY})
    security = ListenerSecurity(
        "SASL_SSL", mechanisms=(), tokens=ListenerTokens(unsecured=False, verify=authority)
    )

    async def main() -> None:
        async with FakeCluster(memory=True, security=security) as cluster:
            cluster.create_topic("orders")
            options = {
                **cluster.client_options,
                "sasl_mechanism": "AWS_MSK_IAM",
                "sasl_aws_region": REGION,
            }
            producer = Producer(**options)
            assert threads == []
            async with producer:
                await producer.send_and_wait("orders", b"v")

    asyncio.run(main())
    assert threading.main_thread() not in threads
    assert len(threads) == 1
    assert authority.verified
    assert "aws_msk_iam_sasl_signer" in sys.modules
