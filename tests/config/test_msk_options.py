"""The options of Amazon MSK's IAM: the region of names, what contradicts each other, and the extra that is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from aioproducer import ConfigError, Producer, ProducerConfig
from aioproducer.config.security_options import regions_of

IAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
BROKER = "b-1.demo.a1b2c3.c2.kafka.eu-central-1.amazonaws.com:9098"


@pytest.mark.parametrize(
    ("address", "region"),
    [
        (BROKER, "eu-central-1"),
        (BROKER.upper(), "eu-central-1"),
        ("b-1-public.demo.a1b2c3.c2.kafka.us-east-1.amazonaws.com:9198", "us-east-1"),
        ("boot-a1b2c3.c1.kafka-serverless.ap-southeast-2.amazonaws.com:9098", "ap-southeast-2"),
        ("b-1.iam.demo.a1b2c3.c2.kafka.us-gov-west-1.amazonaws.com:14001", "us-gov-west-1"),
        ("b-2.demo.a1b2c3.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("b-2.demo.a1b2c3.c2.kafka.cn-north-1.amazonaws.com.:9098", "cn-north-1"),
        ("kafka.example.com:9098", None),
        ("b-1.kafka.eu-central-1.amazonaws.com.example.org:9098", None),
        ("kafka-eu-central-1.amazonaws.com:9098", None),
        ("10.0.0.1:9098", None),
    ],
)
def test_the_region_of_a_name(address: str, region: str | None) -> None:
    assert regions_of([address, address]) == ([] if region is None else [region])


def test_options_that_fit() -> None:
    config = ProducerConfig(bootstrap_servers=BROKER, **IAM, sasl_aws_profile_name="orders", sasl_login_refresh_window_factor=0.6)
    assert config.sasl_mechanism == "AWS_MSK_IAM"
    assert ProducerConfig(bootstrap_servers="kafka.example.com:9098", **IAM, sasl_aws_region="eu-west-1").sasl_aws_region == "eu-west-1"


ROLE = "arn:aws:iam::123456789012:role/orders"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bootstrap_servers": "kafka.example.com:9098"}, r"needs sasl_aws_region: no name in bootstrap_servers=kafka.example.com:9098"),
        ({"bootstrap_servers": f"{BROKER},{BROKER.replace('eu-central', 'eu-west')}"}, "brokers in eu-central-1 and eu-west-1"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "needs security_protocol=SASL_SSL"),
        ({"sasl_username": "alice"}, "has no sasl_username. Leave"),
        ({"sasl_password": "canary-password"}, "has no sasl_password"),
        ({"sasl_oauthbearer_token": "canary-token"}, "sasl_oauthbearer_token is for sasl_mechanism=OAUTHBEARER"),
        ({"sasl_aws_profile_name": "p", "sasl_aws_role_arn": ROLE}, "sasl_aws_profile_name and sasl_aws_role_arn are both given"),
        ({"sasl_aws_role_session_name": "orders"}, "needs sasl_aws_role_arn"),
        ({"sasl_aws_role_arn": "orders"}, r"sasl_aws_role_arn='orders': it is a role as arn:aws:iam"),
        ({"sasl_aws_region": "Frankfurt"}, r"sasl_aws_region='Frankfurt': it is a region of AWS"),
        ({"sasl_aws_role_arn": ROLE, "sasl_aws_role_session_name": "o/1"}, "sasl_aws_role_session_name='o/1': it is 2 to 64 letters"),
        ({"sasl_aws_region": 1}, "sasl_aws_region must be a string, not int"),
        ({"sasl_mechanism": "PLAIN", "sasl_aws_region": "eu-west-1"}, "sasl_aws_region is for sasl_mechanism=AWS_MSK_IAM, and sasl_mech"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_aws_profile_name": "p"}, "sasl_aws_profile_name is for sasl_mechanism=AWS_MSK_IAM"),
    ],
)
def test_options_that_contradict(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        ProducerConfig(**{"bootstrap_servers": BROKER, **IAM, **options})
    assert "canary-" not in str(refused.value)


MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ("", {}),
        ('awsProfileName="orders"', {"sasl_aws_profile_name": "orders"}),
        (
            f'awsRoleArn="{ROLE}" awsRoleSessionName="orders-1" awsStsRegion="eu-west-1"',
            {"sasl_aws_role_arn": ROLE, "sasl_aws_role_session_name": "orders-1"},
        ),
        ('awsDebugCreds=true awsMaxRetries="7" awsMaxBackOffTimeMs="500"', {}),
    ],
)
def test_properties_of_java(options: str, fields: dict[str, str]) -> None:
    """Those of Amazon's documentation, with its login module and its callback handler."""
    config = ProducerConfig.from_mapping(
        {
            "bootstrap.servers": BROKER,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": f"{MODULE} {options};",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        }
    )
    assert config == ProducerConfig(bootstrap_servers=BROKER, **IAM, **fields)


def test_the_module_of_another_mechanism() -> None:
    with pytest.raises(ConfigError, match="IAMLoginModule, and sasl_mechanism=PLAIN: the module is for AWS_MSK_IAM"):
        ProducerConfig.from_mapping({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{MODULE};"})


@pytest.mark.asyncio
async def test_without_the_extra_one_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start fails before a connection is made."""
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'aioproducer\[msk\]'"):
        async with Producer(bootstrap_servers=BROKER, **IAM):
            pass
